"""Goodput of elastic jobs, as `ml_goodput_measurement.goodput_elastic` has it."""

from runwatch.compat.goodput import goodput, goodput_utils
from runwatch.compat.goodput.calculator.elastic import ElasticGoodputCalculator
from runwatch.compat.goodput.fields import (
    _ACTIVE_SLICES,
    _AVAILABLE_SLICES,
    _ELASTIC_REINIT_END_TIME,
    _ELASTIC_REINIT_START_TIME,
    _ELASTIC_SLICE_COUNTS_TIMESTAMP,
    _ELASTIC_WAIT_END_TIME,
    _ELASTIC_WAIT_EVENT_TYPE,
    _ELASTIC_WAIT_START_TIME,
    _JOB_NAME,
    _TOTAL_SLICES,
    _TPU_INIT_END_TIME,
    _TPU_INIT_START_TIME,
    _TRAINING_PREPARATION_END_TIME,
    _TRAINING_PREPARATION_START_TIME,
)
from runwatch.compat.goodput.log.recorder import ElasticGoodputRecorder, GoodputRecorder

__all__ = [
    "_ACTIVE_SLICES",
    "_AVAILABLE_SLICES",
    "_ELASTIC_REINIT_END_TIME",
    "_ELASTIC_REINIT_START_TIME",
    "_ELASTIC_SLICE_COUNTS_TIMESTAMP",
    "_ELASTIC_WAIT_END_TIME",
    "_ELASTIC_WAIT_EVENT_TYPE",
    "_ELASTIC_WAIT_START_TIME",
    "_JOB_NAME",
    "_TOTAL_SLICES",
    "_TPU_INIT_END_TIME",
    "_TPU_INIT_START_TIME",
    "_TRAINING_PREPARATION_END_TIME",
    "_TRAINING_PREPARATION_START_TIME",
    "ElasticGoodputCalculator",
    "ElasticGoodputRecorder",
    "GoodputRecorder",
    "goodput",
    "goodput_utils",
]
