"""Series to Google Cloud Monitoring, as `ml_goodput_measurement.gcp_metrics` writes them.

Nothing here is loaded unless a job is to be shown there.  The client is google-cloud-monitoring
(`pip install "runwatch[gcp]"`).
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import UsageError
from runwatch.sdk.guard import attempt

logger = logging.getLogger("ml_goodput_measurement.src.gcp_metrics")

SERIES_PER_REQUEST: Final = 200
SEND_SECONDS: Final = 10.0


class ValueType(enum.Enum):
    BOOL = "bool_value"
    INT = "int64_value"
    DOUBLE = "double_value"
    STRING = "string_value"
    DISTRIBUTION = "distribution_value"


class GCPMetrics:
    """Writes time series of one project."""

    def __init__(self, project_id: str, *, client: Any = None, clock: Clock = system_clock) -> None:
        """`client` is a `MetricServiceClient`; without one, one with the machine's credentials."""
        self._types = _library()
        self.project_name = f"projects/{project_id}"
        self.client = self._types.MetricServiceClient() if client is None else client
        self._clock = clock

    def create_time_series(
        self,
        metric_type: str,
        value: Any,
        value_type: ValueType,
        metric_labels: Mapping[str, str],
        resource_type: str,
        resource_labels: Mapping[str, str],
        seconds: int,
        nanos: int,
    ) -> Any:
        """The library's `TimeSeries` with one point; sends nothing."""
        series = self._types.TimeSeries()
        series.metric.type = metric_type
        series.metric.labels.update(metric_labels)
        series.resource.type = resource_type
        series.resource.labels.update(resource_labels)
        interval = {"end_time": {"seconds": seconds, "nanos": nanos}}
        point = {"interval": interval, "value": {value_type.value: _plain(value, value_type)}}
        series.points = [self._types.Point(point)]
        return series

    def send_metrics(
        self, metrics: Sequence[Mapping[str, Any]], context: Mapping[str, Any] | None = None
    ) -> None:
        """All of them with the time of this call, in as many requests as the service asks for.

        Never raises: what could not be sent is counted and, the first time, warned about with its
        cause.  Each batch is logged, with `context`: as information, or as an error.
        """
        seconds, nanos = divmod(self._clock.wall_ns(), 10**9)
        series = (
            self.create_time_series(
                one["metric_type"],
                one["value"],
                one["value_type"],
                one.get("metric_labels") or {},
                one["resource_type"],
                one["resource_labels"],
                seconds,
                nanos,
            )
            for one in metrics
        )
        for batch in _batches(series, SERIES_PER_REQUEST):
            if attempt("write to Google Cloud Monitoring", False, partial(self._send, batch)):
                logger.info(_told("written to Cloud Monitoring", batch, context))
            else:
                logger.error(_told("not written to Cloud Monitoring", batch, context))

    def _send(self, batch: list[Any]) -> bool:
        self.client.create_time_series(
            name=self.project_name, time_series=batch, retry=_patience(), timeout=SEND_SECONDS
        )
        return True


def _library() -> Any:
    try:
        from google.cloud import monitoring_v3
    except ImportError as error:
        raise UsageError(
            'google-cloud-monitoring is not installed: pip install "runwatch[gcp]"'
        ) from error
    return monitoring_v3


def _patience() -> Any:
    """The client tries again while the service is away, within the request's deadline."""
    from google.api_core.exceptions import ServiceUnavailable
    from google.api_core.retry import Retry, if_exception_type

    return Retry(if_exception_type(ServiceUnavailable), initial=0.2, timeout=SEND_SECONDS)


def _plain(value: Any, kind: ValueType) -> Any:
    """The service's own types, for numbers that come as numpy's."""
    if kind is ValueType.DOUBLE:
        return float(value)
    return int(value) if kind is ValueType.INT else value


def _told(what: str, batch: Sequence[Any], context: Mapping[str, Any] | None) -> dict[str, Any]:
    """A log entry with the fields of the original's."""
    return {"message": what, "metrics_count": len(batch), **(context or {})}


def _batches(series: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(islice(series, size)):
        yield batch
