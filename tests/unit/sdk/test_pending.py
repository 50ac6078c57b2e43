from __future__ import annotations

import threading
from collections.abc import Callable

import runwatch
from runwatch.record import NO_STEP
from runwatch.sdk.guard import tally
from runwatch.sdk.pending import MAX_PENDING, Collector, Said
from runwatch.sdk.run import Run
from runwatch.sdk.values import Reading
from tests.integration.sdk_programs import Story


class OnDevice:
    """A value that arrives when the test says so."""

    def __init__(
        self, value: float, error: Exception | None = None, after_asked: int | None = None
    ) -> None:
        self.arrived = threading.Event()
        self.value = value
        self.error = error
        self.after_asked = after_asked

    def ready(self) -> bool:
        if self.error is not None:
            raise self.error
        if self.after_asked is not None:
            self.after_asked -= 1
            return self.after_asked < 0
        return self.arrived.is_set()

    def read(self) -> Reading:
        return self.value


def say(run: Run, value: OnDevice, step: int = NO_STEP) -> None:
    run._accept(Said("loss", value, step, {}, False, False))


def wait_for(condition: Callable[[], bool]) -> bool:
    tick = threading.Event()
    return any(condition() or tick.wait(0.005) for _ in range(2000))


def test_a_value_is_recorded_when_it_arrives_with_the_time_of_its_call(
    story: Callable[[], Story],
) -> None:
    run = runwatch.init("later")
    slow, fast = OnDevice(1.0), OnDevice(2.0)
    say(run, slow, 7)
    say(run, fast, 8)
    run.log(loss=3.0, step=9)
    fast.arrived.set()  # another device, so not in order
    assert wait_for(lambda: len(run._collector) == 1)
    slow.arrived.set()
    assert wait_for(lambda: len(run._collector) == 0)
    told = story()
    by_time = sorted(told.numbers, key=lambda number: number.time_ns)
    assert [(n.step, n.value) for n in by_time] == [(7, 1.0), (8, 2.0), (9, 3.0)]
    assert [n.step for n in told.numbers] == [9, 8, 7]


def test_what_is_under_way_at_the_end_is_waited_for(story: Callable[[], Story]) -> None:
    run = runwatch.init("end")
    say(run, OnDevice(4.0, after_asked=4))
    assert story().values("loss") == [4.0]


def test_what_never_comes_is_given_up_and_counted(story: Callable[[], Story]) -> None:
    run = runwatch.init("never")
    say(run, OnDevice(1.0))
    say(run, OnDevice(1.0))
    told = story()
    assert told.values("loss") == []
    assert told.warnings == {"device values": 2}


def test_a_value_that_fails_does_not_stop_the_others(story: Callable[[], Story]) -> None:
    run = runwatch.init("fails")
    good = OnDevice(5.0)
    good.arrived.set()
    say(run, OnDevice(0.0, RuntimeError("the buffer was given away")))
    say(run, good)
    told = story()
    assert told.values("loss") == [5.0]
    assert told.warnings == {"read a device value: RuntimeError": 1}


def test_the_queue_is_bounded() -> None:
    collector = Collector(lambda said: None)
    for _ in range(MAX_PENDING + 3):
        collector.add(Said("loss", OnDevice(1.0), 0, {}, False, False))
    assert len(collector) == MAX_PENDING
    assert tally.counts == {"device values": 3}
    collector.finish(0.0)
