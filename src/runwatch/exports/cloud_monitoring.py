"""A job's goodput as time series of Google Cloud Monitoring.

Names, labels and units are those that dashboards for `compute.googleapis.com/workload/…` know.
`window_type` is spelled as each metric's dashboards have it: small letters for the job's totals,
capitals for the slice efficiencies.

Two metrics describe the step time, and each means one thing only: `performance` is the ideal step
time, `step_time_deviation` how far the steps of late are from it.  (Others have written the mean
deviation to `performance` too, under the same labels, so that neither could be read.)

Runwatch's own account has the same metrics and labels under a prefix of its own, so that sums over
the others stay what they were.  The service takes such metrics for a `generic_task` only.

The figures come from the head (`head/cloud/`), in Runwatch's own account, or from the drop-in
monitor (`compat/goodput/`), by the original's rules.  Nothing here talks to the service.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

PREFIX: Final = "compute.googleapis.com/workload/"
RESOURCE: Final = "compute.googleapis.com/Workload"
ACCOUNT_PREFIX: Final = "custom.googleapis.com/runwatch/"
ACCOUNT_RESOURCE: Final = "generic_task"
NAMESPACE: Final = "runwatch"
PRODUCTIVE, EXCLUDED = "productive", "excluded"
NOT_BADPUT: Final = frozenset(("DATA_LOADING_ASYNC",))
"""Loading that overlaps training costs no time."""
OTHER: Final = "OTHER"
CUSTOM_EVENTS: Final = "CUSTOM_BADPUT_EVENTS"
SOURCES: Final[Mapping[str, str]] = {
    "accelerator_init": "TPU_INITIALIZATION",
    "training_preparation": "TRAINING_PREP",
    "program_startup": "PROGRAM_STARTUP",
    "data_loading": "DATA_LOADING_SYNC",
    "checkpoint_save": "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME",
    "checkpoint_restore": "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME",
    "wasted_progress": "WASTED_PROGRESS_FROM_DISRUPTION",
    "infrastructure_recovery": "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
    "scheduling_wait": "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
    "pod_startup": "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
    "elastic_slice_down": "ELASTIC_SLICE_DOWN",
    "elastic_scale_up": "ELASTIC_SCALE_UP",
    "elastic_reinitialization": "ELASTIC_REINITIALIZATION",
}
"""The original's name of each class of the account.  All others, a hang among them, are OTHER."""
_ELASTIC: Final = "ELASTIC_"
_CUSTOM: Final = "custom:"

Parts = Mapping[str, float | Mapping[str, float]]
"""Name → amount; an amount may consist of named parts."""


@dataclass(frozen=True, slots=True)
class Series:
    """One point of one time series.  The sender adds the time."""

    metric: str
    value: float
    labels: Mapping[str, str]
    prefix: str = PREFIX

    @property
    def value_type(self) -> Literal["int64_value", "double_value"]:
        return "int64_value" if isinstance(self.value, int) else "double_value"


@dataclass(frozen=True, slots=True)
class Workload:
    """The job that the series describe."""

    job_name: str
    location: str
    replica_id: str = "0"
    accelerator_type: str = "UNKNOWN"
    cluster_name: str | None = None

    def series(self, metric: str, value: float, **labels: str) -> Series:
        all_labels = {"accelerator_type": self.accelerator_type, **labels}
        if self.cluster_name:
            all_labels["cluster_name"] = self.cluster_name
        return Series(metric, value, all_labels)

    def request(self, series: Series) -> dict[str, Any]:
        """The fields of the library's `TimeSeries`, flat."""
        is_own = series.prefix == ACCOUNT_PREFIX
        return {
            "metric_type": series.prefix + series.metric,
            "value": series.value,
            "value_type": series.value_type,
            "metric_labels": dict(series.labels),
            "resource_type": ACCOUNT_RESOURCE if is_own else RESOURCE,
            "resource_labels": self._task() if is_own else self._workload(),
        }

    def _workload(self) -> dict[str, str]:
        return {
            "location": self.location,
            "workload_id": self.job_name,
            "replica_id": self.replica_id,
        }

    def _task(self) -> dict[str, str]:
        return {
            "location": self.location,
            "namespace": NAMESPACE,
            "job": self.job_name,
            "task_id": self.replica_id,
        }


def job_times(workload: Workload, goodput_seconds: float, badput_seconds: Parts) -> list[Series]:
    """Where the time went, in seconds."""
    return _by_source(workload, "goodput_time", goodput_seconds, "badput_time", badput_seconds)


def _by_source(
    workload: Workload, metric: str, goodput: float, badput_metric: str, badput: Parts, **more: str
) -> list[Series]:
    sources = flat(badput)
    return [
        workload.series(metric, float(goodput), goodput_source="TOTAL", **more),
        *(workload.series(badput_metric, x, badput_source=name, **more) for name, x in sources),
    ]


def job_totals(
    workload: Workload, *, disruptions: int, max_step: int, elapsed_seconds: float
) -> list[Series]:
    return [
        workload.series("disruptions", int(disruptions), window_type="cumulative"),
        workload.series("max_productive_steps", int(max_step)),
        workload.series("total_elapsed_time", float(elapsed_seconds), window_type="cumulative"),
    ]


def step_times(
    workload: Workload, *, ideal_seconds: float | None, deviation_seconds: float | None
) -> list[Series]:
    """Unknown values are left out."""
    series = []
    if deviation_seconds is not None and math.isfinite(deviation_seconds):
        series.append(workload.series("step_time_deviation", float(deviation_seconds)))
    if ideal_seconds and math.isfinite(ideal_seconds):
        series.append(Series("performance", float(ideal_seconds), {}))  # it knows no labels
    return series


def window_shares(
    workload: Workload, window_seconds: int, goodput_percent: float, badput_percent: Parts
) -> list[Series]:
    """Where the time of the last `window_seconds` went, in percent."""
    return _by_source(
        workload, "interval_goodput", goodput_percent, "interval_badput", badput_percent,
        rolling_window_size=str(window_seconds),
    )  # fmt: skip


def in_sources(spent: Mapping[str, float]) -> Parts:
    """What Runwatch's account says was not productive, in the original's kinds.  Those that every
    job has are there even at 0; the elastic ones only if they occur."""
    named = [name for name in SOURCES.values() if not name.startswith(_ELASTIC)]
    parts: dict[str, float] = dict.fromkeys((*named, OTHER), 0.0)
    custom: dict[str, float] = {}
    for name, amount in spent.items():
        if name.startswith(_CUSTOM):
            custom[name.removeprefix(_CUSTOM)] = amount
        elif name not in (PRODUCTIVE, EXCLUDED) and amount:
            source = SOURCES.get(name, OTHER)
            parts[source] = parts.get(source, 0.0) + amount
    return {**parts, CUSTOM_EVENTS: custom} if custom else parts


def account_times(workload: Workload, spent_seconds: Mapping[str, float]) -> list[Series]:
    """Runwatch's own account of the job, by class: the times sum to `total_elapsed_time`."""
    total = sum(spent_seconds.values())
    series = [
        *job_times(workload, spent_seconds[PRODUCTIVE], _badput(spent_seconds)),
        workload.series("excluded_time", float(spent_seconds[EXCLUDED])),
        workload.series("total_elapsed_time", float(total), window_type="cumulative"),
    ]
    return _own(series)


def account_shares(
    workload: Workload, window_seconds: int, spent_seconds: Mapping[str, float]
) -> list[Series]:
    """The same of the last `window_seconds`, in percent of what was not excluded."""
    counted = sum(spent_seconds.values()) - spent_seconds[EXCLUDED]
    if not counted:
        return []
    percent = {name: seconds / counted * 100 for name, seconds in spent_seconds.items()}
    return _own(window_shares(workload, window_seconds, percent[PRODUCTIVE], _badput(percent)))


def _badput(spent: Mapping[str, float]) -> Parts:
    """`custom:eval` is CUSTOM.EVAL, as the original's custom events are named."""
    return {
        name.replace(":", ".", 1).upper(): amount
        for name, amount in spent.items()
        if name not in (PRODUCTIVE, EXCLUDED)
    }


def _own(series: list[Series]) -> list[Series]:
    return [replace(one, prefix=ACCOUNT_PREFIX) for one in series]


def slice_efficiencies(
    workload: Workload, stepping: float | None, available: float | None, window_seconds: int = 0
) -> list[Series]:
    """Shares of the slices that were stepping and available; 0 seconds is since the job began."""
    shares = {"stepping_slice_efficiency": stepping, "available_slice_efficiency": available}
    return [
        workload.series(
            metric,
            float(share),
            window_type="INTERVAL" if window_seconds else "CUMULATIVE",
            rolling_window_size=str(window_seconds),
        )
        for metric, share in shares.items()
        if share is not None
    ]


def flat(parts: Parts) -> Iterator[tuple[str, float]]:
    """Sources as `badput_source` names them: `OTHER`, `CUSTOM_BADPUT_EVENTS.EVAL_STEP`."""
    for source, amount in parts.items():
        if source in NOT_BADPUT:
            continue
        if isinstance(amount, Mapping):
            yield from ((f"{source}.{part.upper()}", float(x)) for part, x in amount.items())
        else:
            yield source, float(amount)
