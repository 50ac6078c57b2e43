"""Recorders: when a job, its steps and its other parts began and ended.

Signatures are the original's.  Each call writes one entry.  None raises into the training loop or
waits for anything; what cannot be recorded is counted and warned about once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from runwatch.clock import system_clock
from runwatch.compat.goodput import fields
from runwatch.compat.goodput.log.backend import JournalLogger, seconds_of, step_of
from runwatch.compat.goodput.log.entries import Mark, from_mark
from runwatch.record import NO_STEP
from runwatch.sdk.guard import guarded, text_of


class CloudLogger(Protocol):
    """What may be injected in place of the journal."""

    def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None: ...


class _Marking(Protocol):
    def __call__(
        self, field: str, moment: datetime | None = None, step: int = NO_STEP, type: str = ""
    ) -> None: ...


class GoodputRecorder:
    """Records for the job `job_name` if `logging_enabled`; else every call is void.

    Entries go to `cloud_logger` if one is given, else to the journal of the run of that name.
    Times are datetimes and default to now; one without a time zone is local time, so that
    `datetime.now()` is right and `datetime.utcnow()` is off by the zone's offset.
    The `background_…` settings of the original are accepted: there is no queue here to set.
    """

    def __init__(
        self,
        job_name: str,
        logger_name: str,
        logging_enabled: bool = False,
        cloud_logger: Any = None,
        *,
        background_grace_period_s: float = 5.0,
        background_batch_size: int = 100,
        background_max_latency_s: float = 2.0,
    ) -> None:
        self.job_name = job_name
        self._cloud_logger: Any = None
        self._mark: _Marking = _nothing
        if not logging_enabled:
            return
        if cloud_logger is None:
            cloud_logger = JournalLogger(job_name, logger_name)
        self._cloud_logger = cloud_logger
        if isinstance(cloud_logger, JournalLogger) and cloud_logger.job_name == job_name:
            self._mark = cloud_logger.mark
        else:
            self._mark = _Marker(job_name, cloud_logger)

    # There is no record_step_end_time: programs look for one and, finding it, would call it when
    # a step has been dispatched, not when it is done.

    def record_job_start_time(self, start_time: datetime | None = None) -> None:
        self._mark(fields._JOB_START_TIME, start_time)

    def record_job_end_time(self, end_time: datetime | None = None) -> None:
        self._mark(fields._JOB_END_TIME, end_time)

    def record_step_start_time(self, step: int, start_time: datetime | None = None) -> None:
        self._mark(fields._STEP_START_TIME, start_time, step)

    def record_tpu_init_start_time(self, start_time: datetime | None = None) -> None:
        self._mark(fields._TPU_INIT_START_TIME, start_time)

    def record_tpu_init_end_time(self, end_time: datetime | None = None) -> None:
        self._mark(fields._TPU_INIT_END_TIME, end_time)

    def record_training_preparation_start_time(self, start_time: datetime | None = None) -> None:
        self._mark(fields._TRAINING_PREPARATION_START_TIME, start_time)

    def record_training_preparation_end_time(self, end_time: datetime | None = None) -> None:
        self._mark(fields._TRAINING_PREPARATION_END_TIME, end_time)

    def record_data_loading_start_time(self, start_time: datetime | None = None) -> None:
        self._mark(fields._DATA_LOADING_START_TIME, start_time)

    def record_data_loading_end_time(self, end_time: datetime | None = None) -> None:
        self._mark(fields._DATA_LOADING_END_TIME, end_time)

    def record_custom_badput_event_start_time(
        self,
        start_time: datetime | None = None,
        custom_badput_event_type: str = "unknown",
    ) -> None:
        self._mark(
            fields._CUSTOM_BADPUT_EVENT_START_TIME, start_time, NO_STEP, custom_badput_event_type
        )

    def record_custom_badput_event_end_time(
        self,
        end_time: datetime | None = None,
        custom_badput_event_type: str = "unknown",
    ) -> None:
        self._mark(
            fields._CUSTOM_BADPUT_EVENT_END_TIME, end_time, NO_STEP, custom_badput_event_type
        )

    def record_checkpoint_progress(self, step: int, checkpoint_start_time: datetime | None) -> None:
        """Accepted and void, as in the original."""

    @guarded("flush a goodput log")
    def flush(self) -> None:
        """Returns at once for a journal, which has everything already."""
        flush = getattr(self._cloud_logger, "flush", None)
        if flush is not None:
            flush()


class ElasticGoodputRecorder(GoodputRecorder):
    """Also records how many slices there are, and waiting for them."""

    def record_elastic_slice_counts(
        self,
        active_slices: int,
        total_slices: int,
        available_slices: int,
        timestamp: datetime | None = None,
    ) -> None:
        if self._cloud_logger is not None:
            self._record_counts(active_slices, total_slices, available_slices, timestamp)

    def record_elastic_wait_start_time(
        self, event_type: str, start_time: datetime | None = None
    ) -> None:
        self._mark(fields._ELASTIC_WAIT_START_TIME, start_time, type=event_type)

    def record_elastic_wait_end_time(
        self, event_type: str, end_time: datetime | None = None
    ) -> None:
        self._mark(fields._ELASTIC_WAIT_END_TIME, end_time, type=event_type)

    def record_elastic_reinit_start_time(self, start_time: datetime | None = None) -> None:
        self._mark(fields._ELASTIC_REINIT_START_TIME, start_time)

    def record_elastic_reinit_end_time(self, end_time: datetime | None = None) -> None:
        self._mark(fields._ELASTIC_REINIT_END_TIME, end_time)

    @guarded("record slice counts")
    def _record_counts(
        self, active: object, total: object, available: object, moment: object
    ) -> None:
        counts = [step_of(count) for count in (active, total, available)]
        seconds = system_clock.wall_ns() / 1e9 if moment is None else seconds_of(moment)
        if seconds is None or None in counts:
            return
        self._cloud_logger.write_cloud_logging_entry(
            {
                fields._JOB_NAME: self.job_name,
                **dict(zip(fields.SLICE_FIELDS, counts, strict=True)),
                fields._ELASTIC_SLICE_COUNTS_TIMESTAMP: seconds,
            }
        )


def _nothing(
    field: str, moment: datetime | None = None, step: int = NO_STEP, type: str = ""
) -> None:
    """Recording is off."""


class _Marker:
    """Builds entries for a logger that is not ours."""

    def __init__(self, job_name: str, logger: CloudLogger) -> None:
        self._job_name = job_name
        self._logger = logger

    @guarded("record a goodput entry")
    def __call__(
        self, field: str, moment: datetime | None = None, step: int = NO_STEP, type: str = ""
    ) -> None:
        seconds = system_clock.wall_ns() / 1e9 if moment is None else seconds_of(moment)
        number = step_of(step)
        if seconds is None or number is None:
            return
        event_type = type if isinstance(type, str) else text_of(type)
        entry = from_mark(Mark(field, event_type), number, seconds, self._job_name)
        self._logger.write_cloud_logging_entry(entry)
