"""The kinds, figures and options that callers of the original know, under its names.

Values are those of release 0.2.3.  The first generation had OTHER = 9: compare kinds by name.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypedDict

from runwatch.clock import system_clock


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
"""Kinds that are told but never count against goodput."""

UnproductiveTimeDict = dict[BadputType, float | dict[str, float]]
"""Kind → amount; CUSTOM_BADPUT_EVENTS → amount of each type of event."""


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
    """Where in Google Cloud a job runs; what is None is looked up on the machine itself."""

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
