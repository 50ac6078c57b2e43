"""The names of the fields of a log entry, under the names that programs know them by.

They begin with an underscore since the original's do; tests of its users spell them so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_JOB_NAME: Final = "job_name"
_STEP_COUNT: Final = "step_count"
_STEP_START_TIME: Final = "step_start_time"
_JOB_START_TIME: Final = "job_start_time"
_JOB_END_TIME: Final = "job_end_time"
_TPU_INIT_START_TIME: Final = "tpu_init_start_time"
_TPU_INIT_END_TIME: Final = "tpu_init_end_time"
_TRAINING_PREPARATION_START_TIME: Final = "training_prep_start_time"
_TRAINING_PREPARATION_END_TIME: Final = "training_prep_end_time"
_DATA_LOADING_START_TIME: Final = "data_loading_start_time"
_DATA_LOADING_END_TIME: Final = "data_loading_end_time"
_CUSTOM_BADPUT_EVENT_TYPE: Final = "custom_badput_event_type"
_CUSTOM_BADPUT_EVENT_START_TIME: Final = "custom_badput_event_start_time"
_CUSTOM_BADPUT_EVENT_END_TIME: Final = "custom_badput_event_end_time"

_ACTIVE_SLICES: Final = "active_slices"
_TOTAL_SLICES: Final = "total_slices"
_AVAILABLE_SLICES: Final = "available_slices"
_ELASTIC_SLICE_COUNTS_TIMESTAMP: Final = "elastic_slice_counts_timestamp"
_ELASTIC_WAIT_EVENT_TYPE: Final = "elastic_wait_event_type"
_ELASTIC_WAIT_START_TIME: Final = "elastic_wait_start_time"
_ELASTIC_WAIT_END_TIME: Final = "elastic_wait_end_time"
_ELASTIC_REINIT_START_TIME: Final = "elastic_reinit_start_time"
_ELASTIC_REINIT_END_TIME: Final = "elastic_reinit_end_time"

TYPE_FIELDS: Final[Mapping[str, str]] = {
    _CUSTOM_BADPUT_EVENT_START_TIME: _CUSTOM_BADPUT_EVENT_TYPE,
    _CUSTOM_BADPUT_EVENT_END_TIME: _CUSTOM_BADPUT_EVENT_TYPE,
    _ELASTIC_WAIT_START_TIME: _ELASTIC_WAIT_EVENT_TYPE,
    _ELASTIC_WAIT_END_TIME: _ELASTIC_WAIT_EVENT_TYPE,
}
"""Time field of an event that has a type → the field that holds its type."""

SLICE_FIELDS: Final = (_ACTIVE_SLICES, _TOTAL_SLICES, _AVAILABLE_SLICES)
