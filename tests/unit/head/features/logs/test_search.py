"""A search of the log finds what reading all of it finds: the same lines, pages and cursors."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.head.features.logs import answers
from runwatch.head.features.logs.types import LogPage
from runwatch.head.reading import Reading
from runwatch.record.console import Console, ExceptionTold
from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import Store
from tests.integration.head_history import START, Producer, when

WORDS = [
    "loss", "Loss", "LOSS", "step 12", '"quoted"', "it's", "C:\\new\\table", "\\", "tab\tstop",
    "\x1b[31mred\x1b[0m", "10%|█▌  |\r20%|██  |", "100%", "_under_", "a_b", "naïve", "NAÏVE",
    "Straße", "STRASSE", "ошибка", "ОШИБКА", "ıI İi", "Kelvin", "ſharp", "数据", "😀", "\x00nul",
    "\x7f\x85\u2028", '{"lines": ["x"], "stream": "err"}', "\\u00e9", "é", "left_out_lines",
    "null", "", " ", "x" * 9000,
]  # fmt: skip
RANKS = (0, 1, 2)
STREAMS = ("out", "err", "both")
NOTHING: dict[str, Any] = {
    "run": "run-1", "rank": (), "stream": (), "since": None, "until": None, "attempt": None,
    "before": None, "after": None,
}  # fmt: skip
Line = tuple[int, int, str, str, str]
"""Time, rank, source, what is shown, and what is searched."""


class Log:
    """A random log, as it was written and as it is stored."""

    def __init__(self, store: Store, luck: random.Random, records: int) -> None:
        self.lines: list[Line] = []
        self._luck = luck
        producers = [Producer(store, f"j-{rank}", rank=rank) for rank in RANKS]
        for part in range(2):  # in closed files, and in hot tables
            for rank, producer in enumerate(producers):
                made = [self._record(rank, part) for _ in range(records // 6)]
                producer.write([], sorted(made, key=lambda record: record[1]))
            if not part:
                store.compact(force=True)

    def text(self) -> str:
        return " ".join(self._luck.choice(WORDS) for _ in range(self._luck.choice((1, 1, 2, 4))))

    def _record(self, rank: int, part: int) -> tuple[str, float, dict[str, Any]]:
        luck = self._luck
        at = part * 40 + luck.randrange(400) / 10  # several of one time
        if luck.random() < 0.04:
            told = ExceptionTold("ValueError", self.text(), f"Traceback\n{self.text()}")
            self.lines.append((when(at), rank, "exception", told.line, told.text))
            return ExceptionTold.KIND, at, told.body()
        stream: Any = luck.choice(STREAMS)
        lines = tuple(self.text() for _ in range(luck.choice((1, 1, 1, 1, 5))))
        after = tuple(100 * number for number in range(len(lines)))
        self.lines += [
            (when(at) + 100_000_000 * number, rank, stream, line, line)
            for number, line in enumerate(lines)
        ]
        gap = luck.choice((0, 0, 0, 0, 0, 0, 3))
        return Console.KIND, at, Console(stream, lines, after, gap, 10 * gap).body()

    def found(self, query: dict[str, Any]) -> list[Line]:
        sought = query["grep"]
        folded = re.compile(re.escape(sought), re.IGNORECASE if sought == sought.lower() else 0)
        return sorted(
            line
            for line in self.lines
            if any(folded.search(text) for text in line[3:])
            and line[1] in query.get("rank", RANKS)
            and line[2] in query.get("stream", (*STREAMS, "exception"))
            and query.get("since", 0) <= line[0] < query.get("until", 2**62)
        )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = DuckStore.open(tmp_path)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def little_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many stretches, also of a short log, and none that a busy machine cuts short."""
    monkeypatch.setattr(answers, "LOOK_NS", 3600 * 10**9)
    monkeypatch.setattr(answers, "QUICK_NS", 3600 * 10**9)
    monkeypatch.setattr(answers, "ROWS", 20)
    monkeypatch.setattr(answers, "MOST_ROWS", 60)
    monkeypatch.setattr(answers, "SEARCHED", 30)
    monkeypatch.setattr(answers, "MOST_SEARCHED", 150)


def pages(reading: Reading, query: dict[str, Any], *, onward: bool) -> list[LogPage]:
    """Not over HTTP, which refuses control characters: the search need not know that."""
    way, nothing = ("after", "0.0") if onward else ("before", None)
    asked: dict[str, Any] = {**NOTHING, **query, way: nothing}
    found: list[LogPage] = []
    while True:
        page = answers.page(reading, asked)
        found.append(page)
        cursor = page.newer if onward else page.older
        if cursor is None or cursor == asked[way]:
            return found
        asked[way] = cursor


def queries(log: Log, luck: random.Random, some: int) -> Iterator[dict[str, Any]]:
    words = ("%", "_", "\\", '"', ". ", "zzz", "valueerror: l", "s", *WORDS)
    for sought in luck.sample(words, min(some, len(words))):
        yield {"grep": sought or "x" * 200, "limit": luck.choice((7, 40, 300))}
    for _ in range(some // 2):
        whole = log.text() or "none"
        at = luck.randrange(len(whole))
        sought = whole[at : at + luck.choice((1, 3, 9, 80))]
        query: dict[str, Any] = {"grep": luck.choice((sought, sought.lower(), sought.upper()))}
        query["limit"] = luck.choice((3, 20, 500))
        if luck.random() < 0.4:
            query["rank"] = luck.sample(RANKS, luck.choice((1, 2)))
        if luck.random() < 0.4:
            query["stream"] = luck.sample((*STREAMS, "exception"), 2)
        if luck.random() < 0.4:
            query["since"] = START + luck.randrange(60 * 10**9)
        if luck.random() < 0.4:
            query["until"] = query.get("since", START) + luck.randrange(40 * 10**9)
        yield query


@pytest.mark.parametrize(
    ("some", "records"), [(8, 120), pytest.param(200, 240, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("onward", [False, True])
def test_a_search_finds_what_reading_all_finds(
    store: Store, onward: bool, some: int, records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    luck = random.Random(11 + onward)
    log, in_vain = Log(store, luck, records), 0
    reading = Reading(store)
    for query in queries(log, luck, some):
        searched = pages(reading, query, onward=onward)
        entries = [entry for page in searched for entry in page.entries]
        came = [
            (e.time_ns, e.rank, e.source, e.text, e.exception.text if e.exception else e.text)
            for e in entries
        ]
        assert sorted(came) == log.found(query), query
        with monkeypatch.context() as patched:
            patched.setattr(answers, "_sought", lambda text: None)  # reads all
            assert pages(reading, query, onward=onward) == searched, query
        in_vain += not entries
    assert in_vain < some, "most texts are somewhere"
