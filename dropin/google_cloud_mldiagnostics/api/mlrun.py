"""Beginning a run."""

from runwatch import machinelearning_run

__all__ = ["machinelearning_run"]
