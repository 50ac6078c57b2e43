"""The words and small functions of goodput, as `ml_goodput_measurement.goodput_utils` has them.

First the kinds, figures and options that callers know; values are those of release 0.2.3.  (The
first generation had OTHER = 9: compare kinds by name.)  Then statistics of step times, and what
Google's metadata service says about this machine.
"""

from __future__ import annotations

import enum
import os
import socket
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from math import floor, fsum
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TypedDict, TypeGuard, TypeVar

from runwatch.clock import system_clock

K = TypeVar("K")


class BadputType(enum.Enum):
    """Where time went that was not productive."""

    TPU_INITIALIZATION = 1
    TRAINING_PREP = 2
    PROGRAM_STARTUP = 3
    DATA_LOADING_SYNC = 4
    DATA_LOADING_ASYNC = 5
    UNPRODUCTIVE_CHECKPOINT_SAVE_TIME = 6
    UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME = 7
    WASTED_PROGRESS_FROM_DISRUPTION = 8
    INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION = 9
    CUSTOM_BADPUT_EVENTS = 10
    OTHER = 11
    ELASTIC_SLICE_DOWN = 12
    ELASTIC_SCALE_UP = 13
    ELASTIC_REINITIALIZATION = 14


class GoodputType(enum.Enum):
    TOTAL = 1


class MetricType(enum.Enum):
    """The keys of `WorkloadMetricDetails`."""

    GOODPUT_TIME = "goodput_time"
    BADPUT_TIME = "badput_time"
    MAX_PRODUCTIVE_STEP = "max_productive_step"
    TOTAL_ELAPSED_TIME = "total_elapsed_time"
    DISRUPTION_COUNT = "disruption_count"
    STEP_TIME_DEVIATION = "step_time_deviation"
    IDEAL_STEP_TIME = "ideal_step_time"
    TOTAL_EXCLUDED_TIME = "total_excluded_time"


class IntervalMetricType(enum.Enum):
    """The keys of `IntervalWorkloadMetricDetails`."""

    INTERVAL_GOODPUT = "interval_goodput"
    INTERVAL_BADPUT = "interval_badput"
    INTERVAL_SIZE = "interval_size"


class MonitoringWindowType(enum.Enum):
    CUMULATIVE = "cumulative"
    INTERVAL = "interval"


ACTIVITY_EXCLUSION_LIST: Final = ["DATA_LOADING_ASYNC"]
"""Kinds that are reported but never count against goodput."""

UnproductiveTimeDict = dict[BadputType, float | dict[str, float]]
"""Kind → amount; CUSTOM_BADPUT_EVENTS → amount of each type of event."""


def each_amount(
    amounts: Mapping[K, float | Mapping[str, float]], change: Callable[[float], float]
) -> dict[K, float | dict[str, float]]:
    """The same with every amount changed; an amount may be made of named parts."""
    return {
        name: {part: change(seconds) for part, seconds in amount.items()}
        if isinstance(amount, Mapping)
        else change(amount)
        for name, amount in amounts.items()
    }


class WorkloadMetricDetails(TypedDict):
    """A job so far.  Times are seconds."""

    goodput_time: dict[GoodputType, float]
    badput_time: UnproductiveTimeDict
    max_productive_step: int
    total_elapsed_time: float
    disruption_count: int
    step_time_deviation: dict[int, float]
    ideal_step_time: float
    total_excluded_time: float


class ElasticWorkloadMetricDetails(WorkloadMetricDetails, total=False):
    """The efficiencies, 0 to 1, are there once slices have been counted."""

    stepping_slice_efficiency: float
    available_slice_efficiency: float


class IntervalWorkloadMetricDetails(TypedDict):
    """A window of a job.  Goodput and badput are percentages, the size is seconds."""

    interval_goodput: dict[GoodputType, float]
    interval_badput: UnproductiveTimeDict
    interval_size: int


class ElasticIntervalWorkloadMetricDetails(IntervalWorkloadMetricDetails, total=False):
    stepping_slice_efficiency: float
    available_slice_efficiency: float


@dataclass
class GCPOptions:
    """Where in Google Cloud a job runs; a value of None is looked up on the machine itself."""

    project_id: str | None = None
    location: str | None = None
    replica_id: str = "0"
    acc_type: str | None = None
    cluster_name: str | None = None
    enable_gcp_goodput_metrics: bool = True
    enable_gcp_step_deviation_metrics: bool = True


class Percent(float):
    """A share.  The original's guide names it `goodput` and then reads `goodput.BadputType`, which
    would be the module's; here it works as written."""

    BadputType = BadputType


_LOADED: Final = datetime.fromtimestamp(system_clock.wall_ns() / 1e9, UTC)


@dataclass
class GoodputInfo:
    """The last figures of a job.  Times are seconds."""

    total_productive_time: float = 0.0
    total_elapsed_time: float = 0.0
    total_unproductive_time: UnproductiveTimeDict | None = None
    max_productive_step: int = 0
    last_recorded_step: int = 0
    last_updated_timestamp: datetime = _LOADED
    number_of_disruptions: int = 0
    total_excluded_time: float = 0.0


@dataclass
class StepInfo:
    ideal_step_time: float
    step_deviations: dict[int, float]
    """Step → how far its time was from the ideal, in seconds."""


# ── step times ────────────────────────────────────────────────────────────────────────────────
# A time is anomalous if it lies more than three median absolute deviations above the median.

_SHORTEST_SECONDS: Final = 1.0
"""Shorter steps are left out where a job has longer ones: they did not do a step's work."""

_DEVIATIONS: Final = 3.0


def compute_percentile(values: Sequence[float], percentile: float) -> float:
    """Between two values it is interpolated; of no values it is 0."""
    return _percentile(sorted(values), percentile)


def _percentile(ordered: Sequence[float], percentile: float) -> float:
    if not ordered:
        return 0.0
    place = (len(ordered) - 1) * percentile / 100
    below = min(max(floor(place), 0), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    low = ordered[below]
    return float(low + (ordered[above] - low) * (place - below))


def compute_ideal_step_time(
    step_times: Sequence[float], previous_ideal_step_time: float | None = None
) -> float | None:
    """What a step takes when nothing is in its way, in seconds.

    None if there are no times to tell from; then, as in the first generation,
    `previous_ideal_step_time` holds if there is one.
    """
    times = [time for time in step_times if time >= _SHORTEST_SECONDS]
    if not times:  # a job of short steps: all that took any time
        times = [time for time in step_times if time > 0]
    if not times:
        return previous_ideal_step_time
    times.sort()
    return fmean(times[: bisect_right(times, _limit(times))])


def _limit(ordered: Sequence[float]) -> float:
    median = _percentile(ordered, 50)
    distances = sorted(abs(value - median) for value in ordered)
    return median + _DEVIATIONS * _percentile(distances, 50)


def get_anomalous_and_normal_step_times(
    step_times: Sequence[float],
) -> tuple[list[float], list[float]]:
    """(anomalous, normal), each in the order given."""
    if not step_times:
        return [], []
    limit = _limit(sorted(step_times))
    anomalous = [time for time in step_times if time > limit]
    return anomalous, [time for time in step_times if time <= limit]


def get_extra_time_from_anomalous_steps(step_times: Sequence[float]) -> float:
    """How much longer the anomalous steps took than normal ones would have."""
    anomalous, normal = get_anomalous_and_normal_step_times(step_times)
    if not anomalous:
        return 0.0
    return fsum(anomalous) - len(anomalous) * fmean(normal)


def compute_step_deviation_from_baseline(
    step_time_deviation: Mapping[int, float],
    mode: MonitoringWindowType = MonitoringWindowType.CUMULATIVE,
    recent_window_size: int = 100,
    baseline_window_size: int = 1000,
    spike_percentile: int = 90,
) -> float:
    """One number for how far the latest steps are from the ideal.

    The mean while there are few; then a high percentile of the latest; and, over a whole job,
    that above the median of those before them.
    """
    count = len(step_time_deviation)
    window = recent_window_size + baseline_window_size
    values = list(islice(step_time_deviation.values(), max(count - window, 0), None))
    if not values:
        return 0.0
    if count < recent_window_size:
        return fmean(values)
    recent = compute_percentile(values[-recent_window_size:], spike_percentile)
    if mode is MonitoringWindowType.INTERVAL or count < window:
        return recent
    return recent - compute_percentile(values[:-recent_window_size], 50)


def get_timestamp_from_log_entry(entry: Mapping[str, Any]) -> datetime | None:
    """The first time that an entry states."""
    seconds = stated_seconds(entry)
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def stated_seconds(entry: Mapping[str, Any]) -> float | None:
    """Since the epoch; fields that say nothing usable are passed over."""
    for name, value in entry.items():
        if "time" in name and is_seconds(value):
            return float(value)
    return None


LATEST_SECONDS: Final = 1e11
"""What lies further from the epoch than this is no time (a date has four digits for the year)."""

_NUMBER: Final = (float, int)


def is_seconds(value: object) -> TypeGuard[float]:
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, _NUMBER)):
        return False
    return -LATEST_SECONDS < value < LATEST_SECONDS  # neither is infinity, nor what is no number


# ── this machine ──────────────────────────────────────────────────────────────────────────────

# The service's own address: its name would wait for a resolver that may not answer.
_METADATA_HOST: Final = "169.254.169.254"
_PRODUCT_NAME: Final = Path("/sys/class/dmi/id/product_name")
_PROBE_SECONDS: Final = 0.3
_REQUEST_SECONDS: Final = 1.0

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
