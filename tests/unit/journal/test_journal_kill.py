"""Whatever happens to the writer: a record whose call returned is read exactly once."""

from __future__ import annotations

import gc
import mmap
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runwatch.journal.reader import JournalReader
from runwatch.journal.writer import JournalWriter
from tests.unit.journal.journal_help import SMALL, Everything, origin, read_everything, start_script

WRITER = """
import mmap, sys, time
from pathlib import Path
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin

root, shared, pause = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
writer = JournalWriter(root, Origin(JournalId("6553f100-node-7-a1"), "node", 7, 0), segment_bytes=1 << 20)
with open(shared, "r+b") as file:
    # One store of eight bytes: `struct.pack_into` clears them first, and the kill may come then.
    returned = memoryview(mmap.mmap(file.fileno(), 8)).cast("q")
loss = writer.series("loss")
point, sleep, count = writer.point, time.sleep, 0
while True:
    point(loss, float(count), count)
    count += 1
    returned[0] = count
    if pause:
        sleep(pause)
"""  # noqa: E501


POLL_SECONDS = 0.002


class Victim:
    """A real process that logs 0, 1, 2 … and tells through shared memory how far it got."""

    def __init__(self, folder: Path, pause: float, program: str = WRITER) -> None:
        script, shared = folder / "writer.py", folder / "returned"
        script.write_text(program)
        shared.write_bytes(bytes(8))
        with shared.open("r+b") as file:
            self._returned = mmap.mmap(file.fileno(), 8)
        self.directory = folder / "journals" / origin().journal
        self._process = start_script(script, folder, shared, pause)

    @property
    def returned(self) -> int:
        (count,) = struct.unpack("<q", self._returned[:])
        return int(count)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._returned.close()


def follow_and_kill(victim: Victim, after: int) -> tuple[Everything, int]:
    """Tail a live writer, kill it, read the rest: what was read, and how many calls returned."""
    found = Everything()
    reader = JournalReader(victim.directory)
    deadline = time.monotonic() + 100
    try:
        while victim.returned < after:
            assert time.monotonic() < deadline
            if (batch := reader.read()) is not None:
                found.add(batch)
            else:
                time.sleep(POLL_SECONDS)
        victim.kill()
        while (batch := reader.read(final=True)) is not None:
            found.add(batch)
        return found, victim.returned
    finally:
        reader.close()
        victim.close()


def kill_once(folder: Path, pause: float, after: int) -> None:
    found, returned = follow_and_kill(Victim(folder, pause), after)
    values = found.values("loss")
    assert values == [float(i) for i in range(len(values))]
    assert returned <= len(values) <= returned + 1
    assert found.skipped == 0


FULL_SPEED, ONE_KILOHERTZ = 0.0, 0.001


@pytest.mark.parametrize(("pause", "most"), [(FULL_SPEED, 100_000), (ONE_KILOHERTZ, 250)])
@pytest.mark.parametrize("trial", range(4))
def test_sigkill_loses_nothing(tmp_path: Path, pause: float, most: int, trial: int) -> None:
    kill_once(tmp_path, pause, random.Random(trial).randint(1, most))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("pause", "most"), [(FULL_SPEED, 1_000_000), (ONE_KILOHERTZ, 1_000)])
def test_sigkill_loses_nothing_in_two_hundred_trials(
    tmp_path: Path, pause: float, most: int
) -> None:
    for trial in range(200):
        folder = tmp_path / str(trial)
        folder.mkdir()
        kill_once(folder, pause, random.Random(1000 + trial).randint(1, most))
        shutil.rmtree(folder)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[JournalWriter]:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL)
    yield writer
    writer.close()


@pytest.fixture
def busy_switching() -> Iterator[None]:
    """Threads take turns as often as the interpreter allows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def points(in_tests: int, in_a_soak: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "least", [in_tests, pytest.param(in_a_soak, marks=pytest.mark.soak)]
    )


@pytest.mark.usefixtures("busy_switching")
@points(15_000, 200_000)
def test_four_threads(writer: JournalWriter, least: int) -> None:
    def log(number: int) -> None:
        series = writer.series(f"thread {number}")
        name = writer.span_name(f"span {number}")
        for i in range(least):
            writer.point(series, float(i))
            if i % 100 == 0:
                writer.span(name, i, 0)
                writer.event("note", {"thread": number, "i": i})
                writer.points([series], [-1.0])

    threads = [threading.Thread(target=log, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    found = read_everything(writer.directory)
    for number in range(4):
        values = found.values(f"thread {number}")
        assert [v for v in values if v >= 0] == [float(i) for i in range(least)]
        assert values.count(-1.0) == least // 100
        notes = [b["i"] for b in found.bodies("note") if b["thread"] == number]
        assert notes == [s for n, s, _, _ in found.spans if n == f"span {number}"]
        assert notes == list(range(0, least, 100))
    assert found.skipped == writer.lost_records == 0


@pytest.fixture
def interrupt() -> Iterator[Callable[[float, Callable[[], None]], None]]:
    """Calls something from a signal handler, again and again, while the main thread computes."""

    def start(seconds: float, handler: Callable[[], None]) -> None:
        signal.signal(signal.SIGPROF, lambda *_: handler())
        signal.setitimer(signal.ITIMER_PROF, seconds, seconds)

    before = signal.getsignal(signal.SIGPROF)
    yield start
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


@points(60_000, 1_000_000)
def test_a_signal_handler_that_logs(
    writer: JournalWriter, interrupt: Callable[[float, Callable[[], None]], None], least: int
) -> None:
    loss, signals = writer.series("loss"), writer.series("signals")
    raised = 0

    def handler() -> None:
        nonlocal raised
        number = raised = raised + 1  # before any call: the next signal may come in the middle
        writer.point(signals, float(number))
        writer.point(writer.series(f"new {number}"), 1.0)
        writer.event("signal", {"text": "x" * 9000, "number": number})

    interrupt(0.0005, handler)
    count = 0
    while raised < 100 or count < least:
        writer.point(loss, float(count))
        count += 1
    signal.setitimer(signal.ITIMER_PROF, 0)
    writer.close()
    found = read_everything(writer.directory)
    assert found.values("loss") == [float(i) for i in range(count)]
    numbers = range(1, raised + 1)
    assert sorted(found.values("signals")) == [float(i) for i in numbers]
    assert sorted(b["number"] for b in found.bodies("signal")) == list(numbers)
    assert sorted(n for n, *_ in found.points if "new" in n) == sorted(f"new {i}" for i in numbers)
    assert found.skipped == writer.lost_records == 0


@points(60_000, 1_000_000)
def test_signal_handlers_in_the_middle_of_every_turn(writer: JournalWriter, least: int) -> None:
    """Not by chance: a handler runs at each line of going on to the next segment."""
    loss, signals = writer.series("loss"), writer.series("signals")
    raised = this_turn = 0

    def at_each_line(frame: object, event: str, argument: object) -> object:
        nonlocal raised, this_turn
        if event == "line" and this_turn < 60:  # else no turn would ever end
            this_turn += 1
            writer.point(signals, float(raised))
            raised += 1
        return at_each_line

    def only_turns(frame: object, event: str, argument: object) -> object:
        nonlocal this_turn
        name = frame.f_code.co_name  # type: ignore[attr-defined]
        if name == "_turn":
            this_turn = 0
        turning = ("_turn", "_finish", "_next_segment", "_begin", "_new_segment", "put")
        return at_each_line if name in turning else None

    before = sys.gettrace()
    sys.settrace(only_turns)  # type: ignore[arg-type]
    try:
        for i in range(least):
            writer.point(loss, float(i))
    finally:
        sys.settrace(before)
    writer.close()
    found = read_everything(writer.directory)
    assert raised > 50
    assert found.values("loss") == [float(i) for i in range(least)]
    assert sorted(found.values("signals")) == [float(i) for i in range(raised)]
    assert found.skipped == 0


@pytest.mark.filterwarnings("ignore:unclosed file")
@points(60_000, 1_000_000)
def test_keyboard_interrupt_in_the_middle_of_a_call(
    writer: JournalWriter, interrupt: Callable[[float, Callable[[], None]], None], least: int
) -> None:
    loss = writer.series("loss")
    interrupts, armed = 0, False

    def handler() -> None:
        nonlocal interrupts, armed
        if armed:
            interrupts, armed = interrupts + 1, False
            raise KeyboardInterrupt

    interrupt(0.001, handler)
    count = 0
    while interrupts < 100 or count < least:
        try:
            armed = True
            while interrupts < 100 or count < least:
                writer.point(loss, float(count))
                count += 1
            armed = False
        except KeyboardInterrupt:
            continue  # the call may have done its work: then it is done twice
    signal.setitimer(signal.ITIMER_PROF, 0)
    writer.point(loss, float(count))
    count += 1
    writer.close()
    gc.collect()  # what was dropped unclosed says so now, not in another test
    found = read_everything(writer.directory)
    values = found.values("loss")
    assert sorted(set(values)) == [float(i) for i in range(count)]
    assert len(values) - count <= interrupts
    assert found.skipped == writer.lost_records == 0


@pytest.mark.filterwarnings("ignore:unclosed file")
def test_an_exception_at_every_line_of_a_turn(writer: JournalWriter) -> None:
    """Not by chance: each line of going on to the next segment is interrupted in its turn."""
    loss = writer.series("loss")
    at_line, seen, interrupted = 0, 0, 0

    def at_each_line(frame: object, event: str, argument: object) -> object:
        nonlocal seen, interrupted
        if event == "line":
            seen += 1
            if seen == at_line:
                interrupted += 1
                raise KeyboardInterrupt
        return at_each_line

    def only_turns(frame: object, event: str, argument: object) -> object:
        turning = ("_turn", "_finish", "_next_segment", "_begin", "put")
        return at_each_line if frame.f_code.co_name in turning else None  # type: ignore[attr-defined]

    returned = 0
    for trial in range(1, 31):
        at_line, seen = trial, 0
        before = sys.gettrace()
        sys.settrace(only_turns)  # type: ignore[arg-type]
        try:
            for _ in range(30_000):  # a little more than a segment
                writer.point(loss, float(returned))
                returned += 1
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
    writer.point(loss, float(returned))
    writer.close()
    gc.collect()  # what was dropped unclosed says so now, not in another test
    found = read_everything(writer.directory)
    assert interrupted == 30
    assert found.values("loss") == [float(i) for i in range(returned + 1)]
    assert writer.lost_records == 0


FORK = """
import os, sys
from pathlib import Path
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin

def start(name):
    return JournalWriter(Path(sys.argv[1]), Origin(JournalId(name), "node", os.getpid(), 0))

def log(writer, first, last):
    loss = writer.series("loss")
    for i in range(first, last):
        writer.point(loss, float(i))

writer = start("parent")
log(writer, 0, 100)
child = os.fork()
if child == 0:
    log(writer, 0, 50)               # goes nowhere, hurts nobody
    ok = writer.closed and writer.lost_records == 50
    writer.abandon()                 # again: nothing happens
    writer.close()
    own = start("child")
    log(own, 200, 300)
    own.close()
    os._exit(0 if ok else 1)
log(writer, 100, 200)
_, status = os.waitpid(child, 0)
log(writer, 200, 60_000)
writer.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_leaves_its_parents_journal_alone(tmp_path: Path) -> None:
    script = tmp_path / "fork.py"
    script.write_text(FORK)
    process = start_script(script, tmp_path)
    assert process.wait(timeout=60) == 0
    parent = read_everything(tmp_path / "journals" / "parent")
    child = read_everything(tmp_path / "journals" / "child")
    assert parent.values("loss") == [float(i) for i in range(60_000)]
    assert child.values("loss") == [float(i) for i in range(200, 300)]
    assert parent.skipped == child.skipped == 0


def test_an_exit_without_close_loses_nothing(tmp_path: Path) -> None:
    script = tmp_path / "exit.py"
    script.write_text(FORK.replace("writer.close()\nsys.exit", "os._exit(0)\nsys.exit"))
    assert start_script(script, tmp_path, stdin=subprocess.DEVNULL).wait(timeout=60) == 0
    found = read_everything(tmp_path / "journals" / "parent")
    assert found.values("loss") == [float(i) for i in range(60_000)]
