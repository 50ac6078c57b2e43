from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from runwatch.compat.goodput.monitor.timetable import Timetable
from runwatch.sdk.guard import tally
from runwatch.testing import until
from tests.unit.compat.goodput.monitor_help import HandClock

NAME = "runwatch-test"


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    tally.forget()
    yield
    until(lambda: not threads())


class Errands:
    """What was done, in order."""

    def __init__(self) -> None:
        self.clock = HandClock(0)
        self.done: list[tuple[str, float]] = []
        self.rests = 0
        self.table = Timetable(NAME, at_rest=self.rest, exit_seconds=1.0, clock=self.clock)

    def rest(self) -> None:
        self.rests += 1

    def asleep(self) -> bool:
        return all(e.due_ns > self.clock.now for e in self.table._errands.values())

    def note(self, name: str) -> None:
        self.done.append((name, self.clock.now / 1e9))


@pytest.fixture
def errands() -> Iterator[Errands]:
    made = Errands()
    yield made
    made.table.abandon()


def move_until(errands: Errands, seconds: int) -> None:
    """Second by second, each time until the thread sleeps again."""
    for _ in range(seconds):
        errands.clock.move(1)
        until(errands.asleep)


def test_each_errand_has_its_own_interval_and_all_one_thread(errands: Errands) -> None:
    table = errands.table
    assert threads() == []
    assert table.add("slow", 3, lambda: errands.note("slow"))
    assert table.add("fast", 2, lambda: errands.note("fast"))
    assert len(threads()) == 1
    move_until(errands, 6)
    assert sorted(errands.done, key=lambda x: (x[1], x[0])) == [
        ("fast", 2.0), ("slow", 3.0), ("fast", 4.0), ("fast", 6.0), ("slow", 6.0),
    ]  # fmt: skip
    assert table.end("slow", once_more=False, seconds=30)
    assert errands.rests == 0
    assert table.end("fast", once_more=True, seconds=30)
    assert errands.rests == 1
    assert errands.done[-1] == ("fast", 6.0)
    until(lambda: not threads())


def test_a_slow_errand_leaves_times_out(errands: Errands) -> None:
    def slow() -> None:
        errands.note("slow")
        if len(errands.done) == 1:
            errands.clock.move(25)

    errands.table.add("slow", 10, slow)
    move_until(errands, 25)
    assert [at for _, at in errands.done] == [10.0, 40.0, 50.0]
    errands.table.end("slow", once_more=False, seconds=30)


def test_an_errand_that_fails_goes_on_and_leaves_the_others(errands: Errands) -> None:
    def fail() -> None:
        errands.note("fail")
        raise RuntimeError("as the test wants it")

    errands.table.add("fail", 1, fail)
    errands.table.add("well", 1, lambda: errands.note("well"))
    move_until(errands, 3)
    assert [name for name, _ in errands.done].count("fail") == 3
    assert [name for name, _ in errands.done].count("well") == 3
    assert tally.counts == {"do the fail: RuntimeError": 3}
    assert errands.table.end("fail", once_more=True, seconds=30)
    assert errands.table.end("well", once_more=False, seconds=30)


def test_the_same_errand_is_not_added_twice(errands: Errands) -> None:
    assert errands.table.add("a", 1, lambda: errands.note("first"))
    assert not errands.table.add("a", 1, lambda: errands.note("second"))
    move_until(errands, 2)
    assert errands.done == [("first", 1.0), ("first", 2.0)]
    assert errands.table.runs("a")
    assert errands.table.end("a", once_more=False, seconds=30)
    assert not errands.table.runs("a")
    assert errands.table.end("a", once_more=True, seconds=30)  # there is none: nothing to do
    assert len(errands.done) == 2


def test_nobody_waits_longer_than_they_asked_to(errands: Errands) -> None:
    stuck, release = threading.Event(), threading.Event()

    def hang() -> None:
        stuck.set()
        release.wait(100)
        errands.note("hang")

    errands.table.add("hang", 1, hang)
    errands.clock.move(1)
    assert stuck.wait(100)
    assert not errands.table.end("hang", once_more=True, seconds=0.01)
    assert errands.done == []  # it hangs still, and we are here
    assert errands.table.add("hang", 5, lambda: errands.note("anew"))
    release.set()
    until(lambda: len(errands.done) == 2)  # the one under way, and its last time
    move_until(errands, 5)
    assert errands.done[-1] == ("anew", 6.0)
    assert errands.table.end("hang", once_more=False, seconds=30)


def test_once_needs_no_errand_before(errands: Errands) -> None:
    assert errands.table.once("a", lambda: errands.note("once"), 5)
    assert errands.done == [("once", 0.0)]
    assert errands.rests == 1
    until(lambda: not threads())


def test_abandoned_errands_end_after_a_last_time(errands: Errands) -> None:
    errands.table.add("a", 100, lambda: errands.note("a"))
    errands.table.add("b", 100, lambda: errands.note("b"))
    errands.table.abandon()
    until(lambda: not threads())
    assert sorted(errands.done) == [("a", 0.0), ("b", 0.0)]
    assert errands.rests == 1


def test_an_errand_may_end_itself(errands: Errands) -> None:
    ended: list[bool] = []
    table = errands.table
    table.add("a", 1, lambda: ended.append(table.end("a", once_more=False, seconds=30)))
    errands.clock.move(1)
    until(lambda: not threads())
    assert ended == [False]  # not within its own run


def test_added_while_the_last_one_ends(errands: Errands) -> None:
    """Starting and stopping in any order leaves neither a thread nor an errand behind."""
    for _ in range(200):
        errands.table.add("a", 100, lambda: None)
        assert errands.table.end("a", once_more=True, seconds=30)
    assert errands.rests == 200


def test_an_exit_waits_for_last_times_and_not_for_ever(errands: Errands) -> None:
    release = threading.Event()
    table = Timetable(NAME, at_rest=errands.rest, exit_seconds=0.05, clock=errands.clock)

    def hang() -> None:
        release.wait(100)
        errands.note("hang")

    table.add("hang", 100, hang)
    table._at_exit()
    assert errands.done == []  # it hangs still, and we are here
    release.set()
    until(lambda: errands.rests == 1)
    assert errands.done == [("hang", 0.0)]


def test_an_exit_without_last_times_drops_them(errands: Errands) -> None:
    table = Timetable(NAME, at_rest=errands.rest, exit_seconds=None, clock=errands.clock)
    table.add("a", 100, lambda: errands.note("a"))
    table._at_exit()
    until(lambda: errands.rests == 1)
    assert errands.done == []
