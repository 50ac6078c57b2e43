from __future__ import annotations

import threading
from collections.abc import Callable

import runwatch
from runwatch.clock import SystemClock
from runwatch.record import NO_STEP
from runwatch.sdk.guard import tally
from runwatch.sdk.run import Run
from runwatch.sdk.values.numbers import Reading
from runwatch.sdk.values.pending import MAX_PENDING, Collector, Logged
from runwatch.testing import Story, until


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
    run._accept(Logged("loss", value, step, {}, False, False))


def test_a_value_is_recorded_when_it_arrives_with_the_time_of_its_call(
    story: Callable[[], Story],
) -> None:
    run = runwatch.init("later")
    slow, fast = OnDevice(1.0), OnDevice(2.0)
    say(run, slow, 7)
    say(run, fast, 8)
    run.log(loss=3.0, step=9)
    fast.arrived.set()  # another device, so not in order
    until(lambda: len(run._collector) == 1)
    slow.arrived.set()
    until(lambda: len(run._collector) == 0)
    told = story()
    losses = [number for number in told.numbers if number.metric == "loss"]
    by_time = sorted(losses, key=lambda number: number.time_ns)
    assert [(n.step, n.value) for n in by_time] == [(7, 1.0), (8, 2.0), (9, 3.0)]
    assert [n.step for n in losses] == [9, 8, 7]


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


# ── when they came ─────────────────────────────────────────────────────────────────────────────


class HandClock(SystemClock):
    """It goes on when told to."""

    now_ns = 1_000_000_000

    def mono_ns(self) -> int:
        return self.now_ns

    def goes_on(self, milliseconds: float) -> None:
        self.now_ns += round(milliseconds * 1e6)


class Looking:
    """A collector without its thread: each look is one call."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.said: list[Logged] = []
        self.collector = Collector(self.said.append, self.clock)

    def log(self, *steps: int) -> list[OnDevice]:
        values = [OnDevice(float(step)) for step in steps]
        for step, value in zip(steps, values, strict=True):
            said = Logged("loss", value, step, {}, False, False, self.clock.now_ns)
            self.collector._queue.append(said)
        return values

    def look(self, after: float) -> None:
        self.clock.goes_on(after)
        self.collector.collect()

    @property
    def lags(self) -> list[float | None]:
        """In milliseconds."""
        return [(s.there_ns - s.mono_ns) / 1e6 if s.there_ns else None for s in self.said]


def test_when_a_value_came_is_known_to_the_distance_of_two_looks() -> None:
    looking = Looking()
    first, second = looking.log(1, 2)
    looking.look(10)
    first.arrived.set()
    looking.look(10)
    second.arrived.set()
    looking.look(10)
    assert looking.lags == [20, 30]


def test_it_is_not_told_if_nobody_looked_for_long() -> None:
    looking = Looking()
    (value,) = looking.log(1)
    looking.look(10)
    value.arrived.set()
    looking.look(26)
    assert looking.lags == [None]


def test_of_a_steps_values_only_the_last_tells() -> None:
    looking = Looking()
    for value in looking.log(1, 1, 2):
        value.arrived.set()
    looking.look(5)
    assert looking.lags == [None, 5, 5]


def test_values_that_overtake_others_are_of_another_device_and_tell_nothing() -> None:
    looking = Looking()
    slow, fast = looking.log(1, 2)
    fast.arrived.set()
    looking.look(5)
    slow.arrived.set()
    looking.look(5)
    assert looking.lags == [None, 10]


def test_how_long_a_value_took_is_a_point_of_its_step_at_the_time_of_its_call(
    story: Callable[[], Story],
) -> None:
    run = runwatch.init("lag")
    run._write(Logged("loss", 2.5, 7, {}, False, False, 5_000_000_000, 5_250_000_000))
    run._write(Logged("loss", 2.5, NO_STEP, {}, False, False, 5_000_000_000, 5_250_000_000))
    told = story()
    (lag,) = [number for number in told.numbers if number.metric == "device_lag_seconds"]
    (loss, _) = [number for number in told.numbers if number.metric == "loss"]
    assert (lag.step, lag.value, lag.time_ns) == (7, 0.25, loss.time_ns)


def test_the_queue_is_bounded() -> None:
    collector = Collector(lambda said: None)
    for _ in range(MAX_PENDING + 3):
        collector.add(Logged("loss", OnDevice(1.0), 0, {}, False, False))
    assert len(collector) == MAX_PENDING
    assert tally.counts == {"device values": 3}
    collector.finish(0.0)
