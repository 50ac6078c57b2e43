"""Goodput as programs written for ml-goodput-measurement record it and ask for it.

This package is that library's `goodput` module: the names below are all of it, loaded when they
are first used.  `recorder.py` writes a job's log, `backend.py` is where it lies (`following.py`
reads journals, `remote.py` asks a head), `entries.py` says how an entry lies in a journal,
`calculator.py` and its neighbours apply the original's rules, `quiet.py` speaks where they are
silent, `monitor.py` exports what they give, `imports.py` reads logs that the original wrote.  The
strict account, in which every nanosecond is in exactly one class, is in `views/goodput/`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from runwatch.goodput.fields import (
    _CUSTOM_BADPUT_EVENT_END_TIME,
    _CUSTOM_BADPUT_EVENT_START_TIME,
    _CUSTOM_BADPUT_EVENT_TYPE,
    _DATA_LOADING_END_TIME,
    _DATA_LOADING_START_TIME,
    _JOB_END_TIME,
    _JOB_NAME,
    _JOB_START_TIME,
    _STEP_COUNT,
    _STEP_START_TIME,
    _TPU_INIT_END_TIME,
    _TPU_INIT_START_TIME,
    _TRAINING_PREPARATION_END_TIME,
    _TRAINING_PREPARATION_START_TIME,
)

if TYPE_CHECKING:
    from logging import Logger

    from runwatch import (
        checkpoint_badput_calculator,
        goodput_cache,
        goodput_exclusion,
        goodput_utils,
    )
    from runwatch.goodput.cache import GoodputCache
    from runwatch.goodput.calculator import GoodputCalculator
    from runwatch.goodput.checkpoints import CheckpointBadputCalculator, CheckpointLoggerOptions
    from runwatch.goodput.figures import (
        compute_ideal_step_time,
        get_extra_time_from_anomalous_steps,
        get_timestamp_from_log_entry,
    )
    from runwatch.goodput.kinds import (
        BadputType,
        GoodputInfo,
        GoodputType,
        IntervalMetricType,
        IntervalWorkloadMetricDetails,
        MetricType,
        StepInfo,
        UnproductiveTimeDict,
        WorkloadMetricDetails,
    )
    from runwatch.goodput.recorder import GoodputRecorder

    logger: Logger

_HOMES: Final = {
    "CheckpointBadputCalculator": "checkpoints",
    "CheckpointLoggerOptions": "checkpoints",
    "GoodputCache": "cache",
    "GoodputCalculator": "calculator",
    "GoodputRecorder": "recorder",
    **dict.fromkeys(
        (
            "BadputType",
            "GoodputInfo",
            "GoodputType",
            "IntervalMetricType",
            "IntervalWorkloadMetricDetails",
            "MetricType",
            "StepInfo",
            "UnproductiveTimeDict",
            "WorkloadMetricDetails",
        ),
        "kinds",
    ),
    **dict.fromkeys(
        (
            "compute_ideal_step_time",
            "get_extra_time_from_anomalous_steps",
            "get_timestamp_from_log_entry",
        ),
        "figures",
    ),
}
_MODULES: Final = (
    "checkpoint_badput_calculator",
    "goodput_cache",
    "goodput_exclusion",
    "goodput_utils",
)

__all__ = [
    "BadputType",
    "CheckpointBadputCalculator",
    "CheckpointLoggerOptions",
    "GoodputCache",
    "GoodputCalculator",
    "GoodputInfo",
    "GoodputRecorder",
    "GoodputType",
    "IntervalMetricType",
    "IntervalWorkloadMetricDetails",
    "MetricType",
    "StepInfo",
    "UnproductiveTimeDict",
    "WorkloadMetricDetails",
    "_CUSTOM_BADPUT_EVENT_END_TIME",
    "_CUSTOM_BADPUT_EVENT_START_TIME",
    "_CUSTOM_BADPUT_EVENT_TYPE",
    "_DATA_LOADING_END_TIME",
    "_DATA_LOADING_START_TIME",
    "_JOB_END_TIME",
    "_JOB_NAME",
    "_JOB_START_TIME",
    "_STEP_COUNT",
    "_STEP_START_TIME",
    "_TPU_INIT_END_TIME",
    "_TPU_INIT_START_TIME",
    "_TRAINING_PREPARATION_END_TIME",
    "_TRAINING_PREPARATION_START_TIME",
    "checkpoint_badput_calculator",
    "compute_ideal_step_time",
    "get_extra_time_from_anomalous_steps",
    "get_timestamp_from_log_entry",
    "goodput_cache",
    "goodput_exclusion",
    "goodput_utils",
    "logger",
]


def __getattr__(name: str) -> Any:
    value: Any
    if name in _HOMES:
        value = getattr(import_module(f"runwatch.goodput.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"runwatch.{name}")
    elif name == "logger":
        value = import_module("logging").getLogger("runwatch.goodput")
    else:
        raise AttributeError(f"module 'runwatch.goodput' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
