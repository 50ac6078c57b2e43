"""`metrics_recorder`, and a thread that records what it is told to look at."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from runwatch.compat.mldiagnostics.api import metrics
from runwatch.compat.mldiagnostics.custom_types.metric_types import MetricType
from runwatch.sdk.guard import guarded

logger = logging.getLogger("google_cloud_mldiagnostics.core.metrics")

_TRACKED: Final = frozenset(
    {
        MetricType.STEP_TIME,
        MetricType.MFU,
        MetricType.THROUGHPUT,
        MetricType.LATENCY,
        MetricType.HBM_UTILIZATION,
        MetricType.TPU_TENSORCORE_UTILIZATION,
        MetricType.VRAM_UTILIZATION,
        MetricType.GPU_TENSORCORE_UTILIZATION,
    }
)

Collector = tuple[str, Callable[[], Any], Mapping[str, str] | None]


class _MetricsRecorder:
    """As `metrics`, with running means of some metrics beside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._means: dict[str, dict[str, Any]] = {}

    def record(
        self,
        metric_name: str,
        value: Any,
        step: int | None = None,
        labels: Mapping[str, str] | None = None,
        record_on_all_hosts: bool = False,
    ) -> None:
        if value is not None:
            self._track(metric_name, value)
            metrics.record(metric_name, value, step, labels, record_on_all_hosts)

    def record_metrics(
        self, metrics_data: Iterable[Mapping[str, Any]], record_on_all_hosts: bool = False
    ) -> None:
        items = [*metrics_data]
        for item in items:
            self._track(item.get("metric_name"), item.get("value"))
        metrics.record_metrics(items, record_on_all_hosts)

    def get_metric_tracker(self) -> dict[str, dict[str, Any]]:
        """{metric: {"num_records", "avg"}} of what was recorded here."""
        with self._lock:
            return {name: dict(mean) for name, mean in self._means.items()}

    def stop(self) -> None:
        """Nothing to stop: what was recorded is in the journal."""

    def _track(self, name: object, value: object) -> None:
        if name not in _TRACKED or not isinstance(value, (int, float)):
            return
        with self._lock:
            mean = self._means.setdefault(str(name), {"num_records": 0, "avg": 0.0})
            mean["num_records"] += 1
            mean["avg"] += (value - mean["avg"]) / mean["num_records"]


class MetricsRecorderThread:
    """Asks each collector (name, function, labels) every so often, and records on all hosts."""

    def __init__(self, metric_collectors: Sequence[Collector], interval_seconds: float) -> None:
        self._collectors = [*metric_collectors]
        self._interval_seconds = interval_seconds
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        if self._thread is not None:
            logger.warning("the thread that records metrics runs already")
            return
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, name="runwatch-metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            for name, ask, labels in self._collectors:
                _record(name, ask, labels)
            if self._stopped.wait(self._interval_seconds):
                return


@guarded("collect a metric")
def _record(name: str, ask: Callable[[], Any], labels: Mapping[str, str] | None) -> None:
    metrics_recorder.record(name, ask(), labels=labels, record_on_all_hosts=True)


metrics_recorder = _MetricsRecorder()
