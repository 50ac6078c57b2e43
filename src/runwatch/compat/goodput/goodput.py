"""The original's `goodput` module: its names, loaded when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from runwatch.compat.goodput.fields import (
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

    from runwatch.compat.goodput import (
        checkpoint_badput_calculator,
        goodput_cache,
        goodput_exclusion,
        goodput_utils,
    )
    from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
    from runwatch.compat.goodput.checkpoint_badput_calculator import (
        CheckpointBadputCalculator,
        CheckpointLoggerOptions,
    )
    from runwatch.compat.goodput.goodput_cache import GoodputCache
    from runwatch.compat.goodput.goodput_utils import (
        BadputType,
        GoodputInfo,
        GoodputType,
        IntervalMetricType,
        IntervalWorkloadMetricDetails,
        MetricType,
        StepInfo,
        UnproductiveTimeDict,
        WorkloadMetricDetails,
        compute_ideal_step_time,
        get_extra_time_from_anomalous_steps,
        get_timestamp_from_log_entry,
    )
    from runwatch.compat.goodput.log.recorder import GoodputRecorder

    logger: Logger

_HOMES: Final = {
    "CheckpointBadputCalculator": "checkpoint_badput_calculator",
    "CheckpointLoggerOptions": "checkpoint_badput_calculator",
    "GoodputCache": "goodput_cache",
    "GoodputCalculator": "calculator.calculator",
    "GoodputRecorder": "log.recorder",
}
"""The other names are those of `goodput_utils`."""
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
    if name not in __all__:
        raise AttributeError(f"module 'runwatch.compat.goodput.goodput' has no attribute {name!r}")
    value: Any
    if name == "logger":
        value = import_module("logging").getLogger("ml_goodput_measurement.src.goodput")
    elif name in _MODULES:
        value = import_module(f"runwatch.compat.goodput.{name}")
    else:
        home = _HOMES.get(name, "goodput_utils")
        value = getattr(import_module(f"runwatch.compat.goodput.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
