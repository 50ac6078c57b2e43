"""Cadence and threads: drift-free, told when late, and a call that hangs stops nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from runwatch.agent.collectors import DeviceCollector, Devices, Notice, Reading, Sample
from runwatch.agent.collectors.base import Due
from runwatch.agent.collectors.nvml import open_collectors
from runwatch.agent.lanes import RETRY_SECONDS, STUCK_SECONDS, Lane, Lanes, Source, StuckWatch
from runwatch.agent.main import Agent
from runwatch.agent.settings import AgentSettings
from runwatch.clock import system_clock
from runwatch.journal.reader import JournalReader
from runwatch.record import Event, Series
from runwatch.record.node import CollectorResumed, CollectorStuck, GpuXid
from runwatch.testing import FakeClock, until
from tests.unit.agent.recorded_nvml import FewOwners, RecordedNvml

DEADLINE_SECONDS = 30.0


class Counting:
    """A collector that does `work` and counts."""

    def __init__(
        self,
        name: str,
        period_seconds: float,
        work: Callable[[], Iterable[Reading]] = lambda: (),
    ) -> None:
        self.name = name
        self.period_seconds = period_seconds
        self._work = work
        self.rounds = 0
        self.closed = 0

    def collect(self) -> Iterator[Reading]:
        yield from self._work()
        self.rounds += 1

    def close(self) -> None:
        self.closed += 1


class Noting:
    """An edge that only notes when each round began."""

    def __init__(self, clock: FakeClock, stop: threading.Event, rounds: int) -> None:
        self.clock, self.stop, self.left = clock, stop, rounds
        self.began: list[tuple[int, float]] = []
        self.takes: Callable[[int], float] = lambda number: 0.0

    def open(self, source: Source) -> Sequence[DeviceCollector]:
        return source.open()

    def round(self, collector: DeviceCollector, late_seconds: float) -> None:
        self.began.append((self.clock.now_ns, late_seconds))
        self.clock.advance(self.takes(len(self.began)))
        self.left -= 1
        if not self.left:
            self.stop.set()

    def close(self, collector: DeviceCollector) -> None:
        collector.close()


def run_lane(
    period: float, rounds: int, takes: Callable[[int], float] = lambda n: 0.0
) -> list[tuple[float, float]]:
    """(when it began, in periods; how late it was said to be) of each round."""
    clock, stop = FakeClock(jumps=True), threading.Event()
    edge = Noting(clock, stop, rounds)
    edge.takes = takes
    collector = Counting("x", period)
    begun = clock.now_ns
    Lane(collector, edge, stop=stop, clock=clock).run()
    assert collector.closed == 1
    return [((now - begun) / 1e9 / period, late) for now, late in edge.began]


def test_fifty_milliseconds_do_not_drift() -> None:
    began = run_lane(0.05, 1000, lambda number: 0.017)
    assert [place for place, _ in began] == pytest.approx(list(range(1000)))
    assert {late for _, late in began} == {0.0}


def test_a_round_that_takes_too_long_costs_the_next_and_nothing_after() -> None:
    began = run_lane(0.05, 6, lambda number: 0.07 if number == 2 else 0.0)
    assert [place for place, _ in began] == pytest.approx([0, 1, 3, 4, 5, 6])


def test_lateness_is_said() -> None:
    clock, stop = FakeClock(jumps=True), threading.Event()
    edge = Noting(clock, stop, 3)
    overslept = iter([0.0, 0.012, 0.0])

    class Sleepy(FakeClock):
        def wait(self, seconds: float, wake: Callable[[float], bool]) -> bool:
            clock.advance(seconds + next(overslept))
            return wake(0)

        def mono_ns(self) -> int:
            return clock.now_ns

    Lane(Counting("x", 0.05), edge, stop=stop, clock=Sleepy()).run()
    assert [late for _, late in edge.began] == pytest.approx([0.0, 0.0, 0.012])


@pytest.mark.parametrize("jitter", [0.0, 0.004])
def test_what_is_due_more_rarely_keeps_its_pace(jitter: float) -> None:
    clock = FakeClock()
    due = Due(0.2, clock, round_seconds=0.05)
    begun, found = clock.now_ns, []
    for number in range(100):
        clock.now_ns = begun + int((number * 0.05 + jitter * (number % 3)) * 1e9)
        if due.is_due():
            found.append(number)
    assert found == list(range(0, 100, 4))


def test_who_hangs_is_told_once_and_so_is_who_goes_on() -> None:
    clock = FakeClock()
    watch = StuckWatch("nvml", clock)
    with watch:
        assert list(watch.news()) == []
        clock.advance(STUCK_SECONDS + 1)
        (told,) = watch.news()
        assert told == Notice("", CollectorStuck("nvml", STUCK_SECONDS + 1))
        assert list(watch.news()) == []
    (resumed,) = watch.news()
    assert resumed == Notice("", CollectorResumed("nvml"))
    assert list(watch.news()) == []


def test_devices_that_appear_later_are_found() -> None:
    clock = FakeClock()
    there: list[str] = []
    collector = Counting("nvml", 1.0)
    stop_after = Noting(clock, threading.Event(), 10**9)
    source = Source("nvml", lambda: bool(there), lambda: [collector])
    lanes = Lanes([source], stop_after, clock=clock)
    assert lanes.look() == []
    there.append("now")
    clock.advance(1.0)
    lanes.look()
    assert threads() == []  # not looked for all the time
    clock.advance(RETRY_SECONDS)
    lanes.look()
    assert threads() == ["runwatch-nvml"]
    lanes.stop()
    assert collector.closed == 1


def threads() -> list[str]:
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("runwatch-nvml"))


# ── a whole agent ─────────────────────────────────────────────────────────────────────────────


class AgentAtWork:
    """An agent in a thread of this process, with devices as the test gives them."""

    def __init__(self, root: Path, sources: Sequence[Source]) -> None:
        settings = AgentSettings(dir=root, idle_seconds=0.0, period_seconds=0.05)
        self.root = root
        self.agent = Agent(settings, sources=sources)
        self._thread = threading.Thread(target=self.agent.run)

    def __enter__(self) -> AgentAtWork:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.agent.stop()
        self._thread.join()

    def written(self) -> tuple[list[Event], dict[int, Series], dict[int, list[float]]]:
        events: list[Event] = []
        series: dict[int, Series] = {}
        values: dict[int, list[float]] = {}
        for folder in (self.root / "journals").iterdir():
            reader = JournalReader(folder)
            while (batch := reader.read()) is not None:
                events += batch.events
                series |= {d.id: d for d in batch.definitions if isinstance(d, Series)}
                for number, value in zip(batch.points.series, batch.points.value, strict=True):
                    values.setdefault(number, []).append(value)
            reader.close()
        return events, series, values

    def count(self, metric: str, **labels: str) -> int:
        _, series, values = self.written()
        chosen = [
            number
            for number, each in series.items()
            if each.metric == metric and labels.items() <= each.labels.items()
        ]
        return sum(len(values.get(number, ())) for number in chosen)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.written()[0]]


def test_a_device_call_that_hangs_stops_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runwatch.agent.lanes.STUCK_SECONDS", 1.0)  # more than who is just slow
    library = RecordedNvml("h200-figures")
    hangs, released = threading.Event(), threading.Event()

    def hang(*arguments: object) -> None:
        hangs.set()
        released.wait(DEADLINE_SECONDS)

    library.hooks["nvmlDeviceGetPowerUsage"] = hang
    devices = Devices(FewOwners(), system_clock, 0.05)
    good = Counting("good", 0.05, lambda: [Sample("other_device", 1.0, "")])
    sources = [
        Source("nvml", lambda: True, lambda: open_collectors(devices, library)),
        Source("good", lambda: True, lambda: [good]),
    ]
    with AgentAtWork(tmp_path, sources) as work:
        until(hangs.is_set, what="the call that hangs")
        until(lambda: "collector_stuck" in work.kinds(), what="that it is told")
        before = work.count("host_load_average_1m"), good.rounds
        until(lambda: work.count("host_load_average_1m") > before[0] + 5, what="the host to go on")
        until(lambda: good.rounds > before[1] + 5, what="the other devices to go on")
        until(lambda: work.count("gpu_power_limit_watts") > 0, what="the slow lane to go on")
        assert work.count("gpu_utilization_percent") == 0  # it was to be in the same round
        released.set()
        until(lambda: work.count("gpu_utilization_percent") > 3, what="it to go on again")
        until(lambda: "collector_resumed" in work.kinds(), what="that this is told")
    stuck = [e for e in work.written()[0] if e.kind == "collector_stuck"]
    assert [event.body["collector"] for event in stuck] == ["nvml"]
    assert good.closed == 1
    assert library.samples == library.openings == 0


def test_an_agent_ends_although_a_call_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runwatch.agent.lanes.END_SECONDS", 0.1)
    hangs, released = threading.Event(), threading.Event()

    def hang() -> Iterable[Reading]:
        hangs.set()
        released.wait(DEADLINE_SECONDS)
        return ()

    collector = Counting("stuck", 0.05, hang)
    with AgentAtWork(tmp_path, [Source("stuck", lambda: True, lambda: [collector])]) as work:
        until(hangs.is_set, what="the call that hangs")
    assert "agent_end" in work.kinds()
    assert not collector.closed
    released.set()
    until(lambda: collector.closed, what="the thread to end")
    until(
        lambda: "runwatch-stuck" not in [t.name for t in threading.enumerate()], what="its thread"
    )


def test_one_that_fails_is_told_once_and_the_others_go_on(tmp_path: Path) -> None:
    def fail() -> Iterable[Reading]:
        raise ValueError("a bug")

    def refuse() -> Sequence[DeviceCollector]:
        raise OSError("no such library")

    bad, good = Counting("bad", 0.05, fail), Counting("good", 0.05)
    sources = [
        Source("bad", lambda: True, lambda: [bad]),
        Source("broken", lambda: True, refuse),
        Source("good", lambda: True, lambda: [good]),
    ]
    with AgentAtWork(tmp_path, sources) as work:
        until(lambda: good.rounds > 10, what="the good one")
        until(lambda: work.kinds().count("collector_failed") == 2, what="both failures")
    failed = [e.body for e in work.written()[0] if e.kind == "collector_failed"]
    assert sorted((f["collector"], f["error"]) for f in failed) == [
        ("bad", "ValueError: a bug"),
        ("broken", "OSError: no such library"),
    ]
    assert bad.rounds == 0
    assert (bad.closed, good.closed) == (1, 1)


def test_each_collector_says_how_late_it_is(tmp_path: Path) -> None:
    good = Counting("good", 0.05)
    with AgentAtWork(tmp_path, [Source("good", lambda: True, lambda: [good])]) as work:
        until(lambda: good.rounds > 3, what="some rounds")
    for name in ("host", "disk", "network", "processes", "good"):
        assert work.count("agent_late_seconds", collector=name) >= 1


def test_notices_become_events(tmp_path: Path) -> None:
    told = Notice("gpu0", GpuXid("gpu0", xid=79, meaning="off the bus"))
    good = Counting("good", 60.0, lambda: [told, Sample("gpu_power_watts", 1.0, "W", "gpu0")])
    with AgentAtWork(tmp_path, [Source("good", lambda: True, lambda: [good])]) as work:
        until(lambda: good.rounds, what="a round")
        until(lambda: "gpu_xid" in work.kinds(), what="the event")
    (event,) = [e for e in work.written()[0] if e.kind == "gpu_xid"]
    assert event.body == {"device": "gpu0", "xid": 79, "meaning": "off the bus"}
    assert event.scope == 0
    assert work.count("gpu_power_watts") == 1


def test_no_device_sources_when_turned_off(tmp_path: Path) -> None:
    settings = AgentSettings(dir=tmp_path, device_hz=0.0)
    agent = Agent(settings)
    assert agent._sources() == []
    agent._end()
    on = Agent(replace(settings, device_hz=10.0))
    assert [source.name for source in on._sources()] == ["nvml", "tpu", "amd"]
    on._end()
