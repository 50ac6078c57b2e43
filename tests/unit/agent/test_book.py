"""The agent's journal: goes on in another when one is full of definitions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.agent.book import Book
from runwatch.agent.collectors import Sample
from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import MIN_SEGMENT_BYTES
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin, RunId, RunScope, Series
from runwatch.testing import FakeClock


class Shelf:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock()
        self.opened = 0
        self.book = Book(self.open)

    def open(self) -> JournalWriter:
        self.opened += 1
        journal = JournalId(f"journal-{self.opened}")
        origin = Origin(journal, "host", os.getpid(), 0, role="agent")
        return JournalWriter(self.root, origin, segment_bytes=MIN_SEGMENT_BYTES, clock=self.clock)

    def events(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(kind, run, body) of every event."""
        for folder in sorted((self.root / "journals").iterdir()):
            reader = JournalReader(folder, clock=self.clock)
            runs: dict[int, str] = {0: ""}
            while (batch := reader.read(final=True)) is not None:
                runs |= {d.id: d.run for d in batch.definitions if isinstance(d, RunScope)}
                for event in batch.events:
                    yield event.kind, runs[event.scope], dict(event.body)
            reader.close()

    def read(self) -> Iterator[tuple[str, str, str, float]]:
        """(journal, metric, run, value) of every point."""
        for folder in sorted((self.root / "journals").iterdir()):
            reader = JournalReader(folder, clock=self.clock)
            series: dict[int, Series] = {}
            runs: dict[int, str] = {0: ""}
            while (batch := reader.read(final=True)) is not None:
                series |= {d.id: d for d in batch.definitions if isinstance(d, Series)}
                runs |= {d.id: d.run for d in batch.definitions if isinstance(d, RunScope)}
                for number, value in zip(batch.points.series, batch.points.value, strict=True):
                    each = series[number]
                    yield folder.name, each.metric, runs[each.scope], value
            reader.close()


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path)
    yield shelf
    shelf.book.close()


def scope(run: str, rank: int = 0) -> RunScope:
    return RunScope(0, RunId(run), run, rank)


def test_more_runs_than_one_journal_can_define(shelf: Shelf) -> None:
    """An agent that is always there: a thousand runs, each with series of its own."""
    expected = []
    for number in range(1000):
        shelf.clock.now_ns += 10**9
        run = shelf.book.run(scope(f"run-{number}"))
        labels = {"uuid": "GPU-" + "0" * 36, "name": "NVIDIA H200", "pid": str(number)}
        samples = [
            Sample(metric, float(number), "W", "gpu0", labels, run)
            for metric in ("gpu_power_watts", "gpu_temperature_celsius")
        ]
        shelf.book.points([*samples, Sample("host_load", float(number), "")], shelf.clock.now_ns)
        expected += [(s.metric, f"run-{number}", s.value) for s in samples]
        expected.append(("host_load", "", float(number)))
    shelf.book.close()
    found = list(shelf.read())
    assert [row[1:] for row in found] == expected
    assert len({row[0] for row in found}) == shelf.opened > 1


def test_a_run_keeps_its_number(shelf: Shelf) -> None:
    first = shelf.book.run(scope("a"))
    second = shelf.book.run(scope("a", 1))
    assert shelf.book.run(scope("a")) == first != second


def test_labels_tell_series_apart(shelf: Shelf) -> None:
    for errors in ("corrected", "uncorrected", "corrected"):
        sample = Sample("gpu_ecc_errors_total", 1.0, "", "gpu0", {"errors": errors})
        shelf.book.points([sample], shelf.clock.now_ns)
    shelf.book.close()
    reader = JournalReader(shelf.root / "journals" / "journal-1", clock=shelf.clock)
    batch = reader.read(final=True)
    reader.close()
    assert batch is not None
    named = {d.id: d.labels["errors"] for d in batch.definitions if isinstance(d, Series)}
    written = [named[number] for number in batch.points.series]
    assert written == ["corrected", "uncorrected", "corrected"]
    assert len(named) == 2


def test_nothing_is_written_for_nothing(shelf: Shelf) -> None:
    shelf.book.points([], shelf.clock.now_ns)
    shelf.book.event("kind", {"a": 1})
    shelf.book.close()
    assert list(shelf.read()) == []


TOO_MANY = 1200


def crowd(first: int = 0, count: int = TOO_MANY, run: int = 0) -> list[Sample]:
    labels = {"uuid": "GPU-" + "0" * 36, "name": "NVIDIA H200 " * 60}
    return [
        Sample(f"m{n}", float(n), "W", "gpu0", labels, run) for n in range(first, first + count)
    ]


def test_more_series_at_a_time_than_a_journal_can_define(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    """They do not fit into another journal either: none is opened, it is said once, and counted."""
    for _ in range(130):
        shelf.clock.now_ns += 10**9
        shelf.book.points(crowd(), shelf.clock.now_ns)
    shelf.book.close()
    found = list(shelf.read())
    assert shelf.opened == 1
    recorded = len({metric for _, metric, _, _ in found})
    assert 0 < recorded < TOO_MANY
    assert len(found) == 130 * recorded
    assert shelf.book.not_recorded == 130 * (TOO_MANY - recorded)
    said = list(shelf.events())
    assert [kind for kind, _, _ in said].count("series_not_recorded") == 1
    told = [body for kind, _, body in said if kind == "points_not_recorded"]
    assert 1 < len(told) < 6
    assert told[-1]["total"] == sum(body["points"] for body in told) == shelf.book.not_recorded
    assert len(caplog.records) == 1


def test_two_that_take_turns_do_not_throw_each_other_out(shelf: Shelf) -> None:
    half = TOO_MANY // 2
    for _ in range(20):
        shelf.clock.now_ns += 10**9
        shelf.book.points(crowd(0, half), shelf.clock.now_ns)
        shelf.book.points(crowd(half, half), shelf.clock.now_ns)
    assert shelf.opened == 1
    assert shelf.book.not_recorded > 0


def test_when_some_have_gone_quiet_there_is_room_for_others(shelf: Shelf) -> None:
    shelf.book.points(crowd(), shelf.clock.now_ns)
    lost = shelf.book.not_recorded
    assert lost > 0
    shelf.clock.now_ns += 61 * 10**9
    few = crowd(TOO_MANY, 100)
    shelf.book.points(few, shelf.clock.now_ns)
    shelf.book.close()
    assert (shelf.opened, shelf.book.not_recorded) == (2, lost)
    assert {row[1] for row in shelf.read() if row[0] == "journal-2"} == {s.metric for s in few}


def test_events_are_recorded_however_many_series_there_are(shelf: Shelf) -> None:
    """Each in its run, and without a journal for every one."""
    old = shelf.book.run(scope("old"))
    shelf.book.points(crowd(run=old), shelf.clock.now_ns)
    for number in range(30):
        shelf.clock.now_ns += 10**9
        new = shelf.book.run(scope("new"))
        shelf.book.event("process_exit", {"number": number}, scope=new)
        shelf.book.event("process_exit", {"number": number}, scope=old)
        shelf.book.points(crowd(run=old), shelf.clock.now_ns)
    shelf.book.close()
    exits = [(run, body["number"]) for kind, run, body in shelf.events() if kind == "process_exit"]
    assert sorted(exits) == sorted((run, n) for n in range(30) for run in ("new", "old"))
    assert shelf.opened <= 2
