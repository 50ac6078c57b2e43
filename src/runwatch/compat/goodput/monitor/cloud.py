"""Google Cloud: what its metadata service says about this machine, and Cloud Monitoring.

Nothing here is loaded or asked unless a job is to be shown in Cloud Monitoring.  The client is
google-cloud-monitoring (`pip install "runwatch[gcp]"`); the metadata service takes plain HTTP.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.compat.goodput.monitor.cloud_monitoring import Series, ValueType, Workload
from runwatch.errors import UsageError
from runwatch.sdk.guard import attempt, logger

if TYPE_CHECKING:
    from runwatch.compat.goodput.kinds import GCPOptions

__all__ = [
    "MACHINE_TYPE_TO_ACCELERATOR_TYPE_MAPPING",
    "CloudOutlet",
    "GCPMetrics",
    "ValueType",
    "get_accelerator_type",
    "get_cluster_name",
    "get_gcp_metadata",
    "get_gcp_project_id",
    "get_node_zone",
]

# The service's own address: its name would wait for a resolver that may not answer.
_METADATA_HOST: Final = "169.254.169.254"
_PRODUCT_NAME: Final = Path("/sys/class/dmi/id/product_name")
_PROBE_SECONDS: Final = 0.3
_REQUEST_SECONDS: Final = 1.0

SERIES_PER_REQUEST: Final = 200
SEND_SECONDS: Final = 10.0
ASK_AGAIN_SECONDS: Final = 60.0

MACHINE_TYPE_TO_ACCELERATOR_TYPE_MAPPING: Final[Mapping[str, str]] = {
    "tpu7x": "TPU-7x",
    "ct6e": "TPU-v6e",
    "ct5p": "TPU-v5p",
    "ct5lp": "TPU-v5e",
    "ct5l": "TPU-v5e",
    "ct4p": "TPU-v4p",
    "ct3p": "TPU-v3",
    "ct3": "TPU-v3",
    "tpu-v2": "TPU-v2",
    "tpu": "TPU",
    "a3-edgegpu": "NVIDIA-H100",
    "a3-highgpu": "NVIDIA-H100",
    "a3-megagpu": "NVIDIA-H100",
    "a3-ultragpu": "NVIDIA-H200",
    "a2": "NVIDIA-A100",
    "gpu": "GPU",
}
"""By a part of the machine type; the first that fits."""


# ── metadata ──────────────────────────────────────────────────────────────────────────────────


def get_gcp_metadata(
    category: str, attribute: str, timeout: float = 5, retries: int = 3
) -> str | None:
    """One value of the metadata service; None where there is none, which is known at once.

    A request takes a second at most, whatever `timeout`: the service is on the same machine.
    GCE_METADATA_HOST names another host, as Google's own libraries have it.
    """
    host = os.environ.get("GCE_METADATA_HOST") or _METADATA_HOST
    if host == _METADATA_HOST and not _on_gce():
        return None
    url = f"http://{host}/computeMetadata/v1/{category}/{attribute}"
    for _ in range(max(retries, 1)):
        answer, is_final = _ask(url, min(timeout, _REQUEST_SECONDS))
        if is_final:
            return answer
    return None


def get_gcp_project_id() -> str | None:
    return get_gcp_metadata("project", "project-id")


def get_node_zone() -> str | None:
    """`us-central1-a`, of projects/NUMBER/zones/us-central1-a."""
    zone = get_gcp_metadata("instance", "zone")
    return zone.rpartition("/")[2] if zone else None


def get_cluster_name() -> str | None:
    return get_gcp_metadata("instance", "attributes/cluster-name")


def get_accelerator_type() -> str:
    machine = (get_gcp_metadata("instance", "machine-type") or "").rpartition("/")[2].lower()
    for part, accelerator in MACHINE_TYPE_TO_ACCELERATOR_TYPE_MAPPING.items():
        if part in machine:
            return accelerator
    return "UNKNOWN"


def _ask(url: str, timeout: float) -> tuple[str | None, bool]:
    """The answer, and whether asking again would be in vain."""
    import urllib.error  # most machines are never asked, and need not load an HTTP client
    import urllib.request
    from http.client import HTTPException

    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never by a proxy
    try:
        with direct.open(request, timeout=timeout) as answer:
            if answer.headers.get("Metadata-Flavor") != "Google":
                return None, True  # another cloud's service has the same address
            return answer.read().decode().strip() or None, True
    except urllib.error.HTTPError as refused:
        with refused:
            return None, refused.code < 500
    except (OSError, HTTPException) as error:
        return None, isinstance(getattr(error, "reason", error), TimeoutError)


def _on_gce() -> bool:
    try:
        return _PRODUCT_NAME.read_text().startswith("Google")
    except OSError:
        return _answers(_METADATA_HOST)  # a sandbox that hides the hardware


def _answers(host: str) -> bool:
    try:
        socket.create_connection((host, 80), timeout=_PROBE_SECONDS).close()
    except OSError:
        return False
    return True


# ── Cloud Monitoring ──────────────────────────────────────────────────────────────────────────


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

        Never raises: what could not be sent is counted and, the first time, warned about;
        `context` is logged with each at the level of debugging.
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
            if not attempt("write to Google Cloud Monitoring", False, partial(self._send, batch)):
                logger.debug("%d series were not written: %s", len(batch), context)

    def _send(self, batch: list[Any]) -> bool:
        self.client.create_time_series(
            name=self.project_name, time_series=batch, retry=_patience(), timeout=SEND_SECONDS
        )
        return True


class CloudOutlet:
    """Where a monitor's series go; finds out by itself whose they are, when the first come.

    Off Google Cloud, with nothing configured, it stays silent.
    """

    def __init__(
        self,
        job_name: str,
        options: GCPOptions,
        *,
        client: Any = None,
        clock: Clock = system_clock,
    ) -> None:
        self._job_name = job_name
        self._options = replace(options)  # what is found out here is for this job only
        self._client = client
        self._clock = clock
        self._metrics: GCPMetrics | None = None
        self._asked_ns: int | None = None
        self.workload: Workload | None = None
        """None until it is known."""

    @property
    def takes_goodput(self) -> bool:
        return self._options.enable_gcp_goodput_metrics and self._is_ready()

    @property
    def takes_step_times(self) -> bool:
        return self._options.enable_gcp_step_deviation_metrics and self._is_ready()

    def send(self, series: Iterable[Series]) -> None:
        if self._metrics is not None and self.workload is not None:
            finite = (one for one in series if math.isfinite(one.value))
            self._metrics.send_metrics([self.workload.request(one) for one in finite])

    def _is_ready(self) -> bool:
        """Asked again from time to time: a pod's metadata service may start after the pod."""
        now = self._clock.mono_ns()
        if self._metrics is None and self._may_ask(now):
            self._asked_ns = now
            self.workload = self.workload or attempt("ask for metadata", None, self._identify)
            if self.workload is not None:
                self._metrics = attempt("reach Google Cloud Monitoring", None, self._connect)
        return self._metrics is not None

    def _may_ask(self, now_ns: int) -> bool:
        return self._asked_ns is None or now_ns - self._asked_ns >= ASK_AGAIN_SECONDS * 1e9

    def _identify(self) -> Workload | None:
        options = self._options
        options.project_id = options.project_id or get_gcp_project_id()
        options.location = options.location or (get_node_zone() if options.project_id else None)
        if not options.project_id or not options.location:
            logger.info("not on Google Cloud and no project given: Cloud Monitoring is left out")
            return None
        options.acc_type = options.acc_type or get_accelerator_type()
        return Workload(
            self._job_name,
            options.location,
            options.replica_id,
            options.acc_type,
            options.cluster_name,
        )

    def _connect(self) -> GCPMetrics:
        return GCPMetrics(str(self._options.project_id), client=self._client, clock=self._clock)


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


def _batches(series: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(islice(series, size)):
        yield batch
