"""Time that checkpoints take, as `ml_goodput_measurement.checkpoint_badput_calculator` has it."""

from runwatch.goodput.checkpoints import (
    OPERATION_TYPE_EMERGENCY_RESTORE,
    OPERATION_TYPE_LOCAL,
    OPERATION_TYPE_PERSISTENT,
    OPERATION_TYPE_PERSISTENT_AND_LOCAL,
    OPERATION_TYPE_RESTORE,
    OPERATION_TYPE_SAVE,
    CheckpointBadputCalculator,
    CheckpointLoggerOptions,
    RestoreCheckpointManagerVerticalStepStats,
    RestoreProcessedStep,
    SaveCheckpointManagerVerticalStepStats,
    SaveProcessedStep,
)

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
