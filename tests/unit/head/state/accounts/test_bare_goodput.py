"""An account of bare journals is the one of the same journals stored.

The histories of the truth laboratory, written as journals: gaps, rewinds, killed ranks, several
attempts, clocks that are apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from runwatch.buckets import LOWEST
from runwatch.errors import StoreDamaged
from runwatch.head.reading import Reading
from runwatch.head.state.accounts.fold import Fold
from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import (
    DEFINE,
    HEADER_LENGTH,
    ORIGIN,
    POINT,
    POINT_BODY,
    POINT_LENGTH,
    SPAN,
    SPAN_BODY,
    SPAN_LENGTH,
    STEP_BEGIN_HEAD,
    STEP_BEGIN_WORDS,
    STEP_END_HEAD,
    STEP_END_WORDS,
    Header,
    definition_to_json,
    event_record,
    journal_directories,
    origin_to_json,
    seal,
    segment_name,
    text_record,
)
from runwatch.record import (
    BEGIN,
    END,
    NO_STEP,
    Definition,
    JournalId,
    Origin,
    RunId,
    RunScope,
    Series,
    SpanName,
)
from runwatch.store import journals
from runwatch.store.duck.engine import DuckStore
from runwatch.store.journals import JournalStore
from runwatch.store.store import Store, Wanted
from runwatch.testing import FakeClock
from runwatch.views.goodput.facts import DATA_WAIT, STEP
from tests.truth.families import GROUPS, gather
from tests.truth.judging import Told
from tests.truth.machine import Edge, Note, Point
from tests.truth.telling import SCOPE

LATER_NS = 1 << 61
READ_BYTES = 12_000


def named(run: str, journal: str) -> JournalId:
    """As a journal may be called."""
    return JournalId(f"{run}.{journal}".replace("_", "-").replace(" ", "-"))


class Journal:
    """A process of a history, in one segment."""

    def __init__(self, told: Told, run: str, *, with_steps: bool) -> None:
        self.told = told
        self.name = named(run, told.journal)
        self._known: dict[tuple[str, str], int] = {}
        self._with_steps = with_steps
        """As the SDK records steps; else as spans, which say the same."""
        host = f"{run}-{told.rank}"
        ticks = (told.start_ns - told.ahead_ns) // 10_000_000
        self._origin = Origin(self.name, host, 1, told.start_ns, "boot", ticks)
        self._body = text_record(ORIGIN, told.start_ns, origin_to_json(self._origin))
        scope = RunScope(SCOPE, RunId(run), run, told.rank, told.world_size, told.key)
        self._define(scope)
        self._steps = (
            self._number(STEP, "/"),
            self._number("step_seconds", ""),
            self._number(DATA_WAIT, ""),
        )

    def write(self, root: Path) -> None:
        waiting = list(self.told.records)[::-1]
        begun: Edge | None = None
        while waiting:
            record = waiting.pop()
            if isinstance(record, Note):
                body = json.dumps(record.body).encode()
                self._body += event_record(record.time_ns, record.kind, body, NO_STEP, SCOPE)
            elif not isinstance(record, Edge) or record.name != STEP or not self._with_steps:
                self._plain(record)
            elif record.begins and record.step is not None:
                begun = record
                self._body += STEP_BEGIN_WORDS.pack(STEP_BEGIN_HEAD, record.step, record.time_ns)
            elif begun is not None and record.step == begun.step:
                asked = 0
                after = waiting[-1] if waiting else None
                if isinstance(after, Point) and _is_wait_of(record, after):
                    asked = begun.time_ns - round(after.value * 1e9)
                    waiting.pop()
                words = STEP_END_HEAD, record.step, begun.time_ns, asked, record.time_ns
                self._body += STEP_END_WORDS.pack(*words)
                begun = None
            else:
                self._plain(record)
        self._store(root)

    def _store(self, root: Path) -> None:
        end, start = HEADER_LENGTH + len(self._body), self.told.start_ns
        header = Header(0, end + 64, 0, start, start, start, end, self._steps)
        folder = root / "journals" / self.name
        folder.mkdir(parents=True)
        (folder / segment_name(0)).write_bytes(header.pack() + self._body + bytes(64))

    def _plain(self, record: Edge | Point) -> None:
        step = NO_STEP if record.step is None else record.step
        if isinstance(record, Edge):
            number, edge = self._number(record.name, "/"), BEGIN if record.begins else END
            fields = record.time_ns, step, number, record.span, edge
            self._body += seal(SPAN_BODY.pack(SPAN_LENGTH // 8, SPAN, *fields))
        else:
            number = self._number(record.metric, record.kind)
            values = record.time_ns, step, number, record.value
            self._body += seal(POINT_BODY.pack(POINT_LENGTH // 8, POINT, *values))

    def _number(self, name: str, kind: str) -> int:
        number = self._known.get((name, kind))
        if number is None:
            number = self._known[name, kind] = len(self._known) + 1
            if kind == "/":
                self._define(SpanName(number, name, SCOPE))
            else:
                labels = {"type": kind} if kind else {}
                self._define(Series(number, name, SCOPE, labels=labels))
        return number

    def _define(self, definition: Definition) -> None:
        said = definition_to_json(definition)
        self._body += text_record(DEFINE, self.told.start_ns, said)


def _is_wait_of(end: Edge, after: Point) -> bool:
    moment = end.time_ns, end.step
    return after.metric == DATA_WAIT and (after.time_ns, after.step) == moment


def write_agent(root: Path, run: str, told: Told) -> None:
    """What the agent of the process's host saw of its end."""
    assert told.exit is not None
    host, start = f"{run}-{told.rank}", told.exit_ns
    name = named(run, f"agent of {told.journal}")
    said = {**told.exit, "journal": named(run, told.journal)}
    origin = Origin(name, host, 2, start, "boot", role="agent")
    body = text_record(ORIGIN, start, origin_to_json(origin))
    body += event_record(start, "process_exit", json.dumps(said).encode(), NO_STEP, 0)
    end = HEADER_LENGTH + len(body)
    folder = root / "journals" / name
    folder.mkdir(parents=True)
    header = Header(0, end + 64, 0, start, start, start, end)
    (folder / segment_name(0)).write_bytes(header.pack() + body + bytes(64))


def fill(store: Store, root: Path, read_bytes: int) -> None:
    for folder in journal_directories(root):
        reader = JournalReader(folder)
        while (batch := reader.read(final=True, max_bytes=read_bytes)) is not None:
            (verdict,) = store.write([batch])
            assert verdict.accepted
        reader.close()


def account(store: Store, run: str, clock: FakeClock) -> Any:
    fold = Fold(RunId(run), Reading(store, clock=clock), None)
    goodput = fold.account()
    assert goodput is not None
    stretches = [tuple(each) for each in goodput.intervals(goodput.start_ns, goodput.end_ns)]
    plain = goodput.account()
    return (
        plain, stretches, goodput.inferred_ns, goodput.attempts, goodput.disruptions,
        goodput.ranks, goodput.steps, goodput.max_productive_step, goodput.ideal_step_ns,
        goodput.turns, fold.told > 0,
    )  # fmt: skip


@pytest.fixture
def clock() -> FakeClock:
    clock = FakeClock()
    clock.now_ns = LATER_NS
    return clock


@pytest.fixture
def stores(tmp_path: Path, clock: FakeClock) -> Iterator[tuple[DuckStore, JournalStore]]:
    bare = JournalStore(tmp_path, keeps=lambda metric: False, clock=clock)
    whole = DuckStore.open(None, clock=clock)
    yield whole, bare
    whole.close()
    bare.close()


def differing(
    root: Path,
    stores: tuple[DuckStore, JournalStore],
    clock: FakeClock,
    group: str,
    seed: int,
    some: Callable[[int], bool] = lambda at: True,
) -> list[str]:
    """The families of a group whose account is another where nothing is stored."""
    whole, bare = stores
    every = [family for family in gather().values() if family.group == group]
    families = [family for at, family in enumerate(every) if some(at)]
    for family in families:
        at = every.index(family)
        for told in family.make(Random(seed)).told:
            Journal(told, family.name, with_steps=(at + seed) % 2 > 0).write(root)
            if told.exit is not None:
                write_agent(root, family.name, told)
    fill(whole, root, 1 << 20)
    fill(bare, root, READ_BYTES)
    assert families
    runs = [family.name for family in families]
    return [run for run in runs if account(whole, run, clock) != account(bare, run, clock)]


def a_quarter(at: int) -> bool:
    """With steps and with spans in turns."""
    return at % 8 in (0, 3)


@pytest.mark.parametrize("group", GROUPS)
def test_the_account_is_the_same_where_nothing_is_stored(
    tmp_path: Path,
    stores: tuple[DuckStore, JournalStore],
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
) -> None:
    monkeypatch.setattr(journals, "STRETCH_ROWS", 2_000)  # so that there are many
    assert not differing(tmp_path, stores, clock, group, 0, a_quarter)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("group", GROUPS)
def test_the_account_is_the_same_where_nothing_is_stored_often(
    tmp_path: Path,
    stores: tuple[DuckStore, JournalStore],
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    seed: int,
) -> None:
    monkeypatch.setattr(journals, "STRETCH_ROWS", 300)
    assert not differing(tmp_path, stores, clock, group, seed)


# ── the store itself ───────────────────────────────────────────────────────────────────────────

SECOND = 1_000_000_000
FIRST = Told("j", 0, 1, "", 100 * SECOND, (), 0, None, 0)


def history(steps: int, late: int = -1) -> Told:
    """A step a second, each waited for a tenth of one; one is told of with the time of the first,
    as by a clock that went back."""
    records: list[Edge | Point | Note] = []
    for step in range(steps):
        begin = (101 + (step if step != late else 0)) * SECOND
        end = begin + SECOND // 2
        records += [Edge(begin, STEP, step, True, step), Edge(end, STEP, step, False, step)]
        records += [Point(end, DATA_WAIT, 0.1, step), Point(end, "loss", step / 7, step)]
        if step % 50 == 0:
            records.append(Note(end, "elapsed", {"name": "save", "seconds": 0.01}))
            records.append(Note(end, "log", {"line": step}))
    return replace(FIRST, records=tuple(records))


def told(store: Store, wanted: Wanted) -> list[Any]:
    """Its rows, by journal, in the order in which they are told."""
    found: dict[str, list[Any]] = {}
    with store.replay(RunId("r"), wanted) as replay:
        for batch in (batch for stretch in replay for batch in stretch):
            rows = found.setdefault(batch.origin.journal, [[], [], [], []])
            points, spans = batch.points, batch.spans
            rows[0] += batch.definitions
            rows[1] += zip(spans.name, spans.edge, spans.time_ns, spans.step, strict=True)
            rows[2] += zip(points.series, points.time_ns, points.step, points.value, strict=True)
            rows[3] += batch.events
    return sorted(found.items())


WANTED = Wanted(metric=lambda metric: metric == DATA_WAIT, kinds=("elapsed",))


def write_three(root: Path, *, with_steps: bool) -> None:
    for rank, late in enumerate((-1, 400, 30)):
        process = replace(history(500, late), rank=rank, journal=f"j-{rank}")
        Journal(process, "r", with_steps=with_steps).write(root)


@pytest.mark.parametrize("with_steps", [True, False])
def test_what_is_told_is_what_a_store_tells(
    tmp_path: Path, stores: tuple[DuckStore, JournalStore], with_steps: bool
) -> None:
    """In its order, also of a record that is much older than those before it."""
    whole, bare = stores
    write_three(tmp_path, with_steps=with_steps)
    fill(whole, tmp_path, 1 << 20)
    fill(bare, tmp_path, READ_BYTES)
    at_once = replace(WANTED, rows=1_000_000)
    since = {JournalId("r.j-0"): 300 * SECOND, JournalId("r.j-1"): LOWEST}
    for wanted in (at_once, replace(at_once, since=since), replace(at_once, kinds=())):
        found = told(bare, wanted)
        assert len(found) == (3 if wanted.since is None else 2)
        assert found == told(whole, wanted)
        with bare.replay(RunId("r"), wanted) as ours, whole.replay(RunId("r"), wanted) as stored:
            assert ours.tally() == stored.tally()


def test_what_is_damaged_is_left_out_as_by_a_store(
    tmp_path: Path, stores: tuple[DuckStore, JournalStore]
) -> None:
    whole, bare = stores
    write_three(tmp_path, with_steps=False)
    segment = tmp_path / "journals" / "r.j-1" / segment_name(0)
    data = bytearray(segment.read_bytes())
    for at in range(5_000, len(data) - 5_000, 4_001):
        data[at] ^= 0xFF
    segment.write_bytes(data)
    fill(whole, tmp_path, READ_BYTES)
    fill(bare, tmp_path, READ_BYTES)
    at_once = replace(WANTED, rows=1_000_000)
    found = told(bare, at_once)
    assert found == told(whole, at_once)
    sound, damaged = (len(dict(found)[f"r.j-{rank}"][1]) for rank in (0, 1))
    assert sound // 2 < damaged < sound


def test_a_journal_that_goes_on_is_told_as_far_as_it_was_read(
    tmp_path: Path, stores: tuple[DuckStore, JournalStore]
) -> None:
    whole, bare = stores
    Journal(history(500), "r", with_steps=True).write(tmp_path)
    segment = tmp_path / "journals" / "r.j" / segment_name(0)
    data = segment.read_bytes()
    data = replace(Header.unpack(data, segment), end=0).pack() + data[HEADER_LENGTH:]
    segment.write_bytes(data[:20_008].ljust(len(data), b"\0"))  # in the middle of a record
    fill(whole, tmp_path, 1 << 20)
    fill(bare, tmp_path, READ_BYTES)
    segment.write_bytes(data)
    found = told(bare, WANTED)
    assert found == told(whole, replace(WANTED, rows=1_000_000))
    assert 100 < len(found[0][1][1]) < 1_000


def test_no_stretch_has_what_is_older_than_one_before(
    tmp_path: Path, stores: tuple[DuckStore, JournalStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, bare = stores
    write_three(tmp_path, with_steps=True)
    fill(bare, tmp_path, READ_BYTES)
    at_once = sorted(row for _, rows in told(bare, WANTED) for row in rows[1])
    monkeypatch.setattr(journals, "STRETCH_ROWS", 1_000)
    assert sorted(row for _, rows in told(bare, WANTED) for row in rows[1]) == at_once
    until_ns, stretches = 0, 0
    with bare.replay(RunId("r"), WANTED) as replay:
        for stretch in replay:
            columns = [each for b in stretch for each in (b.spans.time_ns, b.points.time_ns)]
            times = [time_ns for column in columns for time_ns in column]
            assert min(times, default=until_ns) >= until_ns
            until_ns, stretches = max(times, default=until_ns), stretches + bool(times)
    assert stretches >= 4


def test_what_is_rare_is_stored_and_the_rest_is_not(
    tmp_path: Path, stores: tuple[DuckStore, JournalStore]
) -> None:
    whole, bare = stores
    Journal(history(500), "r", with_steps=True).write(tmp_path)
    fill(whole, tmp_path, READ_BYTES)
    fill(bare, tmp_path, READ_BYTES)
    assert bare.processes() == whole.processes()
    assert bare.events(RunId("r")) == whole.events(RunId("r"))
    series = [row.series for row in whole.series(RunId("r"))]
    assert bare.latest(series) == whole.latest(series)
    assert bare.health().hot_points < whole.health().hot_points / 10


def test_a_journal_that_is_gone_meanwhile_is_no_answer(
    tmp_path: Path, stores: tuple[DuckStore, JournalStore]
) -> None:
    _, bare = stores
    Journal(history(500), "r", with_steps=True).write(tmp_path)
    fill(bare, tmp_path, READ_BYTES)
    with bare.replay(RunId("r"), WANTED) as replay:
        (tmp_path / "journals" / "r.j" / segment_name(0)).unlink()
        with pytest.raises(StoreDamaged, match="ask again"):
            list(replay)
