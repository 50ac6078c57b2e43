"""How long jobs waited before they began, as schedulers tell it: one scheduler per file.

`desk.py` asks once for each job, on the node of rank 0 only, in a thread, with a deadline.  A
training process never asks.  If a scheduler does not answer, the wait stays unknown: the failure
is counted, and nothing else happens.
"""

from __future__ import annotations

from typing import Final

from runwatch.agent.queues.base import Scheduler
from runwatch.agent.queues.kubernetes import Kubernetes
from runwatch.agent.queues.slurm import Slurm

SCHEDULERS: Final[tuple[Scheduler, ...]] = (Slurm(), Kubernetes())
"""The agent asks the first one that a process's environment names.  Slurm may run in pods."""
