"""How long saving and restoring checkpoints held a job up, from what Orbax wrote into its log.

Every host writes an entry.  Hosts save and restore together, so a checkpoint's time is the mean
of theirs; statistics are over checkpoints.  The names are those of
`ml_goodput_measurement.checkpoint_badput_calculator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Final

from runwatch.compat.goodput.calculator.codes import checkpoint_key
from runwatch.compat.goodput.goodput_utils import is_seconds

__all__ = [
    "OPERATION_TYPE_EMERGENCY_RESTORE",
    "OPERATION_TYPE_LOCAL",
    "OPERATION_TYPE_PERSISTENT",
    "OPERATION_TYPE_PERSISTENT_AND_LOCAL",
    "OPERATION_TYPE_RESTORE",
    "OPERATION_TYPE_SAVE",
    "CheckpointBadputCalculator",
    "CheckpointLoggerOptions",
    "RestoreCheckpointManagerVerticalStepStats",
    "RestoreProcessedStep",
    "SaveCheckpointManagerVerticalStepStats",
    "SaveProcessedStep",
]

OPERATION_TYPE_SAVE: Final = "save"
OPERATION_TYPE_RESTORE: Final = "restore"
OPERATION_TYPE_EMERGENCY_RESTORE: Final = "emergency_restore"
OPERATION_TYPE_LOCAL: Final = "local"
OPERATION_TYPE_PERSISTENT: Final = "persistent"
OPERATION_TYPE_PERSISTENT_AND_LOCAL: Final = "persistent_and_local"

_PAGE: Final = 10_000

Entry = Mapping[str, Any]


@dataclass
class CheckpointLoggerOptions:
    """Where checkpoint entries are.

    `client` is a Cloud Logging client; without one, the journals of the run `job_name` are read.
    With `use_goodput_logger` nothing is: the calculator's `entries` are set by its owner.
    """

    job_name: str = "checkpoint_job"
    logger_name: str = "checkpoint_logger"
    client: Any = None
    use_goodput_logger: bool = False


@dataclass
class SaveProcessedStep:
    """One saved checkpoint: sums over the `occurrence` entries about it."""

    step: str = ""
    total_checkpoint_manager_blocking_time: float = 0.0
    total_checkpointer_blocking_time: float = 0.0
    total_wait_for_prev_time: float = 0.0
    total_get_old_steps_time: float = 0.0
    occurrence: int = 0


@dataclass
class RestoreProcessedStep:
    step: str = ""
    total_checkpoint_manager_time: float = 0.0
    total_restore_time: float = 0.0
    total_broadcast_time: float = 0.0
    broadcast_occurrence: int = 0
    occurrence: int = 0


@dataclass
class SaveCheckpointManagerVerticalStepStats:
    """Statistics over the checkpoints that were saved, in seconds."""

    total_checkpoint_manager_blocking_time: float = 0.0
    average_checkpoint_manager_blocking_time: float = 0.0
    minimum_checkpoint_manager_blocking_time: float = 0.0
    maximum_checkpoint_manager_blocking_time: float = 0.0
    standard_deviation_checkpoint_manager_blocking_time: float = 0.0
    total_checkpointer_blocking_time: float = 0.0
    average_checkpointer_blocking_time: float = 0.0
    minimum_checkpointer_blocking_time: float = 0.0
    maximum_checkpointer_blocking_time: float = 0.0
    standard_deviation_checkpointer_blocking_time: float = 0.0
    total_wait_for_prev_time: float = 0.0
    average_wait_for_prev_time: float = 0.0
    minimum_wait_for_prev_time: float = 0.0
    maximum_wait_for_prev_time: float = 0.0
    standard_deviation_wait_for_prev_time: float = 0.0
    total_get_old_steps_time: float = 0.0
    average_get_old_steps_time: float = 0.0
    minimum_get_old_steps_time: float = 0.0
    maximum_get_old_steps_time: float = 0.0
    standard_deviation_get_old_steps_time: float = 0.0


@dataclass
class RestoreCheckpointManagerVerticalStepStats:
    """Statistics over the checkpoints that were restored, in seconds.

    Not every restore broadcasts: the average is over those that do.
    """

    total_checkpoint_manager_time: float = 0.0
    average_checkpoint_manager_time: float = 0.0
    minimum_checkpoint_manager_time: float = 0.0
    maximum_checkpoint_manager_time: float = 0.0
    standard_deviation_checkpoint_manager_time: float = 0.0
    total_restore_time: float = 0.0
    average_restore_time: float = 0.0
    minimum_restore_time: float = 0.0
    maximum_restore_time: float = 0.0
    standard_deviation_restore_time: float = 0.0
    total_broadcast_time: float = 0.0
    average_broadcast_time: float = 0.0
    minimum_broadcast_time: float = 0.0
    maximum_broadcast_time: float = 0.0
    standard_deviation_broadcast_time: float = 0.0


_SAVE_FIELDS: Final = {
    "checkpoint_manager_blocking_time": "checkpoint_manager_blocking_duration_secs",
    "checkpointer_blocking_time": "checkpointer_blocking_duration_secs",
    "wait_for_prev_time": "wait_for_prev_duration_secs",
    "get_old_steps_time": "get_old_steps_duration_secs",
}
_RESTORE_FIELDS: Final = {
    "checkpoint_manager_time": "checkpoint_manager_duration_secs",
    "restore_time": "checkpointer_duration_secs",
    "broadcast_time": "broadcast_duration_secs",
}


_DEFAULT_OPTIONS: Final = CheckpointLoggerOptions()


class CheckpointBadputCalculator:
    def __init__(self, options: CheckpointLoggerOptions = _DEFAULT_OPTIONS) -> None:
        self._options = options
        self.entries: list[Entry] = []

    def read_entries(self) -> list[Entry]:
        """The checkpoint entries of the job; they are kept as `entries`."""
        options = self._options
        if not options.use_goodput_logger:
            entries = (
                _from_client(options) if options.client is not None else _from_journal(options)
            )
            self.entries = [entry for entry in entries if entry.get("event_type") in _EVENTS]
        return self.entries

    def is_valid_save_stats(
        self,
        step_stats: Entry,
        operation_type: str | None = OPERATION_TYPE_PERSISTENT_AND_LOCAL,
    ) -> bool:
        """Whether an entry is about a save of the kind asked for: by where it went."""
        if step_stats.get("event_type") != OPERATION_TYPE_SAVE:
            return False
        if operation_type not in (OPERATION_TYPE_LOCAL, OPERATION_TYPE_PERSISTENT):
            return True
        return checkpoint_key(step_stats).endswith(f"-{operation_type}")

    def is_valid_restore_stats(
        self,
        step_stats: Entry,
        operation_type: str | None = OPERATION_TYPE_PERSISTENT_AND_LOCAL,
    ) -> bool:
        """Whether an entry is about a restore of the kind asked for: an emergency's is local."""
        event = step_stats.get("event_type")
        if operation_type == OPERATION_TYPE_LOCAL:
            return event == OPERATION_TYPE_EMERGENCY_RESTORE
        if operation_type == OPERATION_TYPE_PERSISTENT:
            return event == OPERATION_TYPE_RESTORE
        return event in (OPERATION_TYPE_RESTORE, OPERATION_TYPE_EMERGENCY_RESTORE)

    def calculate_save_operation_checkpoint_manager_blocking_time(
        self, operation_type: str | None = OPERATION_TYPE_PERSISTENT_AND_LOCAL
    ) -> SaveCheckpointManagerVerticalStepStats:
        chosen = (e for e in self.read_entries() if self.is_valid_save_stats(e, operation_type))
        return SaveCheckpointManagerVerticalStepStats(**_statistics(chosen, _SAVE_FIELDS))

    def calculate_restore_operation_checkpoint_manager_blocking_time(
        self, operation_type: str | None = OPERATION_TYPE_PERSISTENT_AND_LOCAL
    ) -> RestoreCheckpointManagerVerticalStepStats:
        chosen = (e for e in self.read_entries() if self.is_valid_restore_stats(e, operation_type))
        return RestoreCheckpointManagerVerticalStepStats(**_statistics(chosen, _RESTORE_FIELDS))


_EVENTS: Final = (
    OPERATION_TYPE_SAVE,
    OPERATION_TYPE_RESTORE,
    OPERATION_TYPE_EMERGENCY_RESTORE,
)


def _statistics(entries: Iterable[Entry], fields: Mapping[str, str]) -> dict[str, float]:
    """Each of `fields` over checkpoints; a duration that was not measured is left out."""
    checkpoints: dict[str, dict[str, list[float]]] = {}
    for entry in entries:
        measured = checkpoints.setdefault(checkpoint_key(entry), {name: [] for name in fields})
        for name, field in fields.items():
            if is_seconds(seconds := entry.get(field)):
                measured[name].append(seconds)
    statistics: dict[str, float] = {}
    for name in fields:
        statistics |= _of_one(name, [measured[name] for measured in checkpoints.values()])
    return statistics


def _of_one(name: str, measured: list[list[float]]) -> dict[str, float]:
    means = [fmean(seconds) if seconds else 0.0 for seconds in measured]
    total = sum(means)
    return {
        f"total_{name}": total,
        f"average_{name}": total / (sum(map(bool, measured)) or 1),
        f"minimum_{name}": min(means, default=0.0),
        f"maximum_{name}": max(means, default=0.0),
        f"standard_deviation_{name}": stdev(means) if len(means) > 1 else 0.0,
    }


def _from_client(options: CheckpointLoggerOptions) -> Iterable[Entry]:
    events = " OR ".join(f"jsonPayload.event_type={event}" for event in _EVENTS)
    chosen = f'severity=INFO AND jsonPayload.job_name="{options.job_name}" AND ({events})'
    log = options.client.logger(options.logger_name)
    logged = log.list_entries(filter_=chosen, order_by="timestamp asc", page_size=_PAGE)
    return (entry.payload for entry in logged)


def _from_journal(options: CheckpointLoggerOptions) -> Iterable[Entry]:
    from runwatch.compat.goodput.log.backend import JournalLogger

    entries, _ = JournalLogger(options.job_name, options.logger_name).read_cloud_logging_entries()
    return entries
