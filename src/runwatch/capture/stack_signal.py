"""The signal that asks a process that does not answer for its stacks (see asking.py)."""

from __future__ import annotations

import signal
from typing import Final

# High real-time signals are free in practice: the C library uses the lowest, virtual machines and
# profilers use SIGUSR1 and SIGUSR2.
STACK_SIGNAL: Final[int] = getattr(signal, "SIGRTMAX", 64) - 5
