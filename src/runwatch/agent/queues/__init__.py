"""How long jobs had waited before they began, as their schedulers tell: one scheduler per file.

`desk.py` is who asks: once for each job, beside its rank 0 only, in a thread of its own, with a
deadline.  A training process never asks.  What is not told stays unknown: it is counted, and
nothing else comes of it.
"""

from __future__ import annotations

from typing import Final

from runwatch.agent.queues.base import Scheduler
from runwatch.agent.queues.kubernetes import Kubernetes
from runwatch.agent.queues.slurm import Slurm

SCHEDULERS: Final[tuple[Scheduler, ...]] = (Slurm(), Kubernetes())
"""The first that a process's environment names is asked: Slurm may itself run in pods."""
