"""Metrics of the head itself and of its runs' goodput, in Prometheus's text format."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from runwatch.store.store import StoreHealth
from runwatch.views.devices import Device
from runwatch.views.life import SHOWN_STATES, ShownState

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
MOST_DEVICES: Final = 4096
"""Of more only the troubles are told: a scrape must stay small."""
_DEVICE_NUMBERS: Final = {
    "utilization_percent": "Share of time with work on the device",
    "tensor_percent": "Share of time with work in its tensor cores",
    "memory_used_bytes": "Memory in use",
    "memory_total_bytes": "Memory of the device",
    "power_watts": "Power drawn",
    "temperature_celsius": "Temperature of the chip",
    "ecc_uncorrected": "Uncorrected memory errors since the board was made",
}


@dataclass(frozen=True, slots=True)
class HeadNumbers:
    """What the head counts while it ingests; None means unknown."""

    points_stored: int = 0
    batches_stored: int = 0
    batches_refused: int = 0
    waiting_points: int = 0
    agents_connected: int = 0
    ingest_lag_seconds: float | None = None
    live_subscribers: int = 0


@dataclass(frozen=True, slots=True)
class RunGoodput:
    """The goodput of one run in short; None means unknown."""

    run: str
    goodput: float | None
    spent_seconds: Mapping[str, float] = field(default_factory=dict)
    disruptions: int = 0
    ideal_step_seconds: float | None = None
    ettr: float | None = None
    device_hours: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunStanding:
    """How one run stands."""

    run: str
    state: ShownState
    warnings: Sequence[str] = ()
    """The codes of what a person should know of it."""


class Forwarded(Protocol):
    """How what is sent on to one service fares."""

    @property
    def to(self) -> str: ...
    @property
    def sent(self) -> int: ...
    @property
    def lost(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def waiting_since_ns(self) -> int | None: ...
    @property
    def problem(self) -> str: ...


class HeadMetrics(Collector):
    """Has its own registry, so that two heads in one process do not mix."""

    def __init__(
        self,
        health: Callable[[], StoreHealth],
        numbers: Callable[[], HeadNumbers] = HeadNumbers,
        goodput: Callable[[], Sequence[RunGoodput]] = tuple,
        runs: Callable[[], Sequence[RunStanding]] = tuple,
    ) -> None:
        self._health = health
        self._numbers = numbers
        self._goodput = goodput
        self._runs = runs
        self.devices: Callable[[], Sequence[Device]] = tuple
        """Every accelerator; who reads them sets it."""
        self.forwards: Callable[[], Sequence[Forwarded]] = tuple
        """How what is sent on to other services fares; who sends it sets it."""
        self._lock = threading.Lock()
        self._answered: Counter[tuple[str, int]] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def answered(self, route: str, status: int) -> None:
        with self._lock:
            self._answered[route, status] += 1

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Empty, so that registering does not query the store."""
        return []

    def collect(self) -> Iterator[Metric]:
        numbers, health = self._numbers(), self._health()
        yield _counter("points_stored", "Points stored since the start", numbers.points_stored)
        yield _counter("batches_stored", "Batches stored since the start", numbers.batches_stored)
        yield _counter(
            "batches_refused", "Batches refused: repeats and gaps", numbers.batches_refused
        )
        yield _gauge("waiting_points", "Points waiting to be stored", numbers.waiting_points)
        yield _gauge("agents_connected", "Agents connected now", numbers.agents_connected)
        yield _gauge("live_subscribers", "Pages that show live data", numbers.live_subscribers)
        if numbers.ingest_lag_seconds is not None:
            yield _gauge(
                "ingest_lag_seconds",
                "Age of the newest point when it was stored",
                numbers.ingest_lag_seconds,
            )
        yield _gauge("store_hot_points", "Points not yet clustered", health.hot_points)
        yield _gauge("store_blocks", "Closed files", health.blocks)
        yield _gauge("store_disk_bytes", "Bytes on disk", health.bytes_on_disk)
        yield _gauge(
            "store_healthy", "1 if the store accepts data, else 0", 0 if health.problem else 1
        )
        yield self._requests()
        yield from _standings(self._runs())
        yield from _devices(self.devices())
        yield from _goodput(self._goodput())
        yield from _forwards(self.forwards())

    def _requests(self) -> Metric:
        requests = CounterMetricFamily(
            "runwatch_http_requests", "HTTP requests answered", labels=("route", "status")
        )
        with self._lock:
            for (route, status), count in sorted(self._answered.items()):
                requests.add_metric((route, str(status)), count)
        return requests


def _standings(runs: Sequence[RunStanding]) -> Iterator[Metric]:
    """How many runs are in each state; and of each run that goes on, whether it stands still."""
    counts = Counter(run.state for run in runs)
    states = _labelled("runs", "Runs by state; a stalled one is not counted as running", "state")
    for state in SHOWN_STATES:
        states.add_metric((state,), counts[state])
    yield states
    stalled = _labelled("run_stalled", "1 if the run makes no progress, else 0", "run")
    warned = _labelled("run_warning", "1 while a person should know of it", "run", "code")
    for run in runs:
        if run.state not in ("running", "stalled"):
            continue
        stalled.add_metric((run.run,), int(run.state == "stalled"))
        for code in dict.fromkeys(run.warnings):
            warned.add_metric((run.run, code), 1)
    yield from (metric for metric in (stalled, warned) if metric.samples)


def _devices(devices: Sequence[Device]) -> Iterator[Metric]:
    """Accelerators now.  What was not read recently has no sample."""
    states = _labelled("devices", "Accelerators by state", "state")
    for state, count in sorted(Counter(device.state for device in devices).items()):
        states.add_metric((state,), count)
    troubles = _labelled("device_trouble", "1 while the device has it", "host", "device", "trouble")
    numbers = {
        name: _labelled(f"device_{name}", words, "host", "device", "run")
        for name, words in _DEVICE_NUMBERS.items()
    }
    for at, device in enumerate(devices):
        for hurt in dict.fromkeys(trouble.hurt for trouble in device.troubles):
            troubles.add_metric((device.host, device.device, hurt), 1)
        if at >= MOST_DEVICES:
            continue
        for name, family in numbers.items():
            value = getattr(device, name)
            if value is not None:
                family.add_metric((device.host, device.device, device.run), value)
    return (metric for metric in (states, troubles, *numbers.values()) if metric.samples)


def _goodput(runs: Sequence[RunGoodput]) -> Iterator[Metric]:
    """Metrics of all runs; a run without a value is left out."""
    ratio = _labelled("goodput_ratio", "Productive share of the counted time", "run")
    spent = _labelled("spent_seconds", "Time of the run so far, by goodput class", "run", "class")
    ettr = _labelled(
        "ettr_ratio", "Productive share of the time since the run was submitted", "run"
    )
    hours = _labelled("device_hours", "Device-hours by goodput class", "run", "class")
    ideal = _labelled("ideal_step_seconds", "How long a step usually takes", "run")
    disruptions = CounterMetricFamily(
        "runwatch_disruptions", "How often the run stopped and lost time", labels=("run",)
    )
    for run in runs:
        if run.goodput is not None:
            ratio.add_metric((run.run,), run.goodput)
        for name, seconds in run.spent_seconds.items():
            spent.add_metric((run.run, name), seconds)
        if run.ettr is not None:
            ettr.add_metric((run.run,), run.ettr)
        for name, held in run.device_hours.items():
            hours.add_metric((run.run, name), held)
        if run.ideal_step_seconds is not None:
            ideal.add_metric((run.run,), run.ideal_step_seconds)
        disruptions.add_metric((run.run,), run.disruptions)
    metrics = (ratio, ettr, spent, hours, ideal, disruptions)
    return (metric for metric in metrics if metric.samples)


def _forwards(forwards: Sequence[Forwarded]) -> Iterator[Metric]:
    """What is sent on to other services."""
    sent = CounterMetricFamily("runwatch_forwarded", "What the service has taken", labels=("to",))
    lost = CounterMetricFamily(
        "runwatch_forward_lost", "What the service will never take", labels=("to",)
    )
    waiting = _labelled("forward_waiting", "What waits to be sent", "to")
    since = _labelled("forward_waiting_since_seconds", "Time of the oldest that waits", "to")
    healthy = _labelled("forward_healthy", "1 if the service takes data, else 0", "to")
    for each in forwards:
        sent.add_metric((each.to,), each.sent)
        lost.add_metric((each.to,), each.lost)
        waiting.add_metric((each.to,), each.waiting)
        healthy.add_metric((each.to,), 0 if each.problem else 1)
        if each.waiting_since_ns is not None:
            since.add_metric((each.to,), each.waiting_since_ns / 1e9)
    metrics: tuple[Metric, ...] = (sent, lost, waiting, since, healthy)
    return (metric for metric in metrics if metric.samples)


def _labelled(name: str, help: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"runwatch_{name}", help, labels=labels)


def _counter(name: str, help: str, value: float) -> Metric:
    return CounterMetricFamily(f"runwatch_{name}", help, value=value)


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(f"runwatch_{name}", help, value=value)
