"""STEP records: what they stand for, and that one which is not whole is not read."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy
import pytest

from runwatch.clock import SystemClock, tick_shift
from runwatch.journal import writer as writing
from runwatch.journal.reader import JournalReader, count_records
from runwatch.journal.segment import (
    STEP_BEGIN_HEAD,
    STEP_BEGIN_WORDS,
    STEP_END_HEAD,
    STEP_END_WORDS,
    Header,
    segment_name,
    step_begin,
    step_end,
)
from runwatch.journal.writer import JournalWriter
from runwatch.record import BEGIN, END
from runwatch.testing import until
from runwatch.vectors import Switch
from tests.sampling import sampled
from tests.unit.journal.journal_help import SECOND, SMALL, origin, read_everything
from tests.unit.journal.test_journal_kill import Victim, follow_and_kill

SLEEP = 3_600 * SECOND


class Laptop(SystemClock):
    """Ticks stand still while it sleeps."""

    def __init__(self) -> None:
        self.tick = 4_000 * SECOND
        self.slept = 1_000 * SECOND
        self.wall_ns = lambda: 1_700_000_000 * SECOND + self.tick + self.slept
        self.mono_ns = lambda: self.tick + self.slept
        self.tick_ns = lambda: self.tick


def plain_begin(step: int, begin: int) -> bytes:
    return STEP_BEGIN_WORDS.pack(STEP_BEGIN_HEAD, step, begin)


def plain_end(step: int, begin: int, asked: int, end: int) -> bytes:
    return STEP_END_WORDS.pack(STEP_END_HEAD, step, begin, asked, end)


class Book:
    """A journal with steps of a second, each waited for half of one."""

    def __init__(self, root: Path) -> None:
        self.clock = Laptop()
        self.writer = JournalWriter(root, origin(), segment_bytes=SMALL, clock=self.clock)
        name, seconds = self.writer.span_name("step"), self.writer.series("step_seconds")
        self.writer.stands_for(name, seconds, self.writer.series("data_wait_seconds"))

    def take(self, step: int, *, sealed: bool = False, waits: bool = True) -> None:
        begin_record, end_record = (step_begin, step_end) if sealed else (plain_begin, plain_end)
        asked, begin, end = (self.clock.tick + n * SECOND // 2 for n in (0, 1, 3))
        self.writer._append(begin_record(step, begin), 0)
        self.writer._append(end_record(step, begin, asked if waits else 0, end))
        self.clock.tick = end


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("waits", [True, False])
def test_a_step_stands_for_its_edges_and_how_long_it_took(
    tmp_path: Path, sealed: bool, waits: bool
) -> None:
    book = Book(tmp_path)
    before = book.clock.wall_ns()
    book.take(7, sealed=sealed, waits=waits)
    assert book.writer.records == 1
    book.writer.close()
    reader = JournalReader(book.writer.directory)
    batch = reader.read(final=True)
    reader.close()
    assert batch is not None
    spans, points = batch.spans, batch.points
    assert (list(spans.edge), list(spans.step)) == ([BEGIN, END], [7, 7])
    assert spans.span[0] == spans.span[1] >= 1 << 31
    assert [t - before for t in spans.time_ns] == [SECOND // 2, 3 * SECOND // 2]
    names = {d.id: getattr(d, "metric", "") for d in batch.definitions}
    found = {names[id]: value for id, value in zip(points.series, points.value, strict=True)}
    wait = {"data_wait_seconds": 0.5} if waits else {}
    assert found == {"step_seconds": 1.0, **wait}
    assert {t - before for t in points.time_ns} == {3 * SECOND // 2}
    assert count_records(book.writer.directory / segment_name(0)) == 1


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("seed", sampled(range(12), 4))
def test_steps_in_a_run_are_read_as_each_by_itself(
    tmp_path: Path, seed: int, vectors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are sealed are read one by one; others with numpy, and without."""
    monkeypatch.setattr(Switch, "numpy", numpy)
    monkeypatch.setattr(Switch, "on", vectors)
    found = []
    for sealed in (True, False):
        dice = random.Random(seed)
        book = Book(tmp_path / str(sealed))
        for step in range(dice.choice((3, 40, 5_000))):
            waits = dice.random() < (1, 0, 0.99)[seed % 3]
            book.take(step, sealed=sealed, waits=waits)
            if dice.random() < 0.01:
                book.writer.point(book.writer.series("loss"), 0.5, step)
                book.writer.span(book.writer.span_name("save"), 7, BEGIN, step)
        reader = JournalReader(book.writer.directory)
        columns: list[list[Any]] = [[] for _ in range(9)]
        while (batch := reader.read(final=True)) is not None:
            points, spans = batch.points, batch.spans
            told: tuple[Iterable[float], ...] = (
                *(points.series, points.time_ns, points.step, points.value),
                *(spans.name, spans.span, spans.edge, spans.time_ns, spans.step),
            )
            for column, more in zip(columns, told, strict=True):
                column += more
        found.append((columns, reader._passed))
        reader.close()
        book.writer.close()
    assert found[0] == found[1]


def test_ticks_are_shifted_anew_after_a_sleep(tmp_path: Path) -> None:
    book = Book(tmp_path)
    before = book.clock.wall_ns()
    book.take(1)
    book.writer.keep()
    book.clock.slept += SLEEP
    book.writer.keep()
    book.take(2)
    book.writer.close()
    headers = [
        Header.unpack(path.read_bytes(), path)
        for path in sorted(book.writer.directory.glob("*.seg"))
    ]
    assert [h.tick_shift for h in headers] == [1_000 * SECOND, 1_000 * SECOND + SLEEP]
    assert [h.records_before for h in headers[:1]] == [0]
    found = read_everything(book.writer.directory)
    ends = [t - before for name, _, _, t in found.points if name == "step_seconds"]
    assert ends == [3 * SECOND // 2, SLEEP + 3 * SECOND]
    assert found.skipped == 0


def test_a_keeper_that_was_held_up_has_not_slept(tmp_path: Path) -> None:
    """Between two looks at the clocks, once: no segment is spent on that."""
    book = Book(tmp_path)
    pauses = iter([SECOND])

    def ticks() -> int:
        book.clock.tick += next(pauses, 0)
        return book.clock.tick

    book.writer._tick = ticks
    book.writer.keep()
    assert next(pauses, None) is None  # it was held up
    book.take(1)
    book.writer.close()
    assert [path.name for path in book.writer.directory.glob("*.seg")] == [segment_name(0)]


def test_the_shift_is_that_of_the_least_disturbed_look() -> None:
    clock = Laptop()
    pauses = iter([50, 0, 900, 10, 70])

    def mono() -> int:
        clock.tick += next(pauses)
        return clock.tick + clock.slept

    clock.mono_ns = mono
    assert tick_shift(clock) == 1_000 * SECOND


@pytest.mark.parametrize("tick", [1 << 61, -(1 << 61), (1 << 61) - 1])
def test_a_time_that_cannot_be_is_read_as_it_is(
    tmp_path: Path, tick: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for vectors in (True, False):
        monkeypatch.setattr(Switch, "numpy", numpy)
        monkeypatch.setattr(Switch, "on", vectors)
        book = Book(tmp_path / str(vectors))
        for step in range(8):
            book.writer._append(plain_begin(step, tick + step), 0)
            book.writer._append(plain_end(step, tick + step, tick, tick + step + 1))
        book.writer.close()
        whole = read_everything(book.writer.directory)
        edges = [(edge, step) for _, _, edge, step in whole.spans]
        values = whole.values("step_seconds") + whole.values("data_wait_seconds")
        found.append((edges, values))
    assert found[0] == found[1]
    assert len(found[0][0]) + len(found[0][1]) == 32


@pytest.mark.parametrize("words", range(9))
def test_a_step_that_is_not_whole_is_not_read(tmp_path: Path, words: int) -> None:
    """What a kill in the middle of a store leaves: so many words of the last step, then zeros."""
    book = Book(tmp_path)
    book.take(1)
    book.take(2)
    end = book.writer._offset
    path = book.writer.directory / segment_name(0)
    left = path.read_bytes()[: end - 64 + 8 * words]
    book.writer.close()
    path.write_bytes(left.ljust(end + 512, b"\0"))
    found = read_everything(book.writer.directory)
    edges = [(edge, step) for name, _, edge, step in found.spans if name == "step"]
    begun, ended = words >= 3, words == 8
    assert edges == [(BEGIN, 1), (END, 1), (BEGIN, 2), (END, 2)][: 2 + begun + ended]
    assert found.values("step_seconds") == [1.0] * (1 + ended)
    assert found.skipped == 0


def test_a_step_in_the_middle_that_lacks_its_last_word_is_damage(tmp_path: Path) -> None:
    book = Book(tmp_path)
    book.take(1)
    at = book.writer._offset
    book.take(2)
    book.take(3)
    book.writer.close()
    path = book.writer.directory / segment_name(0)
    data = bytearray(path.read_bytes())
    data[at + 56 : at + 64] = bytes(8)
    path.write_bytes(data)
    found = read_everything(book.writer.directory)
    assert found.values("step_seconds") == [1.0, 1.0]
    assert found.skipped == 1
    assert found.bodies("journal_gap")[0]["bytes"] == 40


@pytest.mark.parametrize("why", ["weak stores", "network file system"])
def test_where_stores_may_be_seen_out_of_order_all_is_sealed(
    tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "weak stores":
        monkeypatch.setattr(writing, "STORES_IN_ORDER", False)
    else:
        monkeypatch.setattr(writing, "is_network_file_system", lambda _: True)
        monkeypatch.setattr(writing, "may_be_mapped", lambda _: False)
    book = Book(tmp_path)
    room = 0 if why == "network file system" else SMALL  # there nothing is mapped at all
    assert (book.writer._plain_room, book.writer._room) == (0, room)
    book.writer.close()


def test_plain_records_go_where_others_do(tmp_path: Path) -> None:
    book = Book(tmp_path)
    expected = book.writer._room if writing.STORES_IN_ORDER else 0
    assert book.writer._plain_room == expected
    book.writer.close()
    assert book.writer._plain_room == 0


# ── kills ──────────────────────────────────────────────────────────────────────────────────────

WITH = """
    with run.step(count):
        pass
"""
FOR = """
    for _ in run.steps(range(1), start=count):
        pass
"""
STEPPER = """
import mmap, os, sys, time
root, shared, pause = sys.argv[1], sys.argv[2], float(sys.argv[3])
os.environ["RUNWATCH_AGENT"] = "off"
import runwatch
run = runwatch.init("steps", dir=root)
with open(shared, "r+b") as file:
    returned = memoryview(mmap.mmap(file.fileno(), 8)).cast("q")
count = 0
while True:
    {way}
    count += 1
    returned[0] = count
    if pause:
        time.sleep(pause)
"""


class Stepper(Victim):
    """A real process that takes the steps 0, 1, 2 …"""

    def __init__(self, folder: Path, pause: float, way: str) -> None:
        super().__init__(folder, pause, STEPPER.replace("{way}", way.strip()))
        journals = folder / "journals"
        [self.directory] = until(lambda: list(journals.glob("*")), 60, "a journal")


def kill_once(folder: Path, pause: float, after: int, way: str) -> None:
    found, returned = follow_and_kill(Stepper(folder, pause, way), after)
    steps = [step for name, step, _, _ in found.points if name == "step_seconds"]
    assert steps == list(range(len(steps)))
    assert returned <= len(steps) <= returned + 1
    edges = [(edge, step) for name, _, edge, step in found.spans if name == "step"]
    assert edges[: 2 * len(steps)] == [(edge, step) for step in steps for edge in (BEGIN, END)]
    assert edges[2 * len(steps) :] in ([], [(BEGIN, len(steps))])
    assert min(found.values("step_seconds")) >= 0 and max(found.values("step_seconds")) < 60
    assert found.skipped == 0


Ways = pytest.mark.parametrize("way", [pytest.param(WITH, id="with"), pytest.param(FOR, id="for")])


@Ways
@pytest.mark.parametrize("trial", range(2))
def test_sigkill_loses_no_step(tmp_path: Path, trial: int, way: str) -> None:
    kill_once(tmp_path, 0.0, random.Random(trial).randint(1, 60_000), way)


@Ways
@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("pause", "most"), [(0.0, 300_000), (0.001, 1_000)])
def test_sigkill_loses_no_step_in_two_hundred_trials(
    tmp_path: Path, pause: float, most: int, way: str
) -> None:
    for trial in range(200):
        folder = tmp_path / str(trial)
        folder.mkdir()
        kill_once(folder, pause, random.Random(1000 + trial).randint(1, most), way)
        shutil.rmtree(folder)
