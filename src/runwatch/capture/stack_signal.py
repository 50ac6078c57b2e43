"""The signal by which a process that does not answer is asked for its stacks (see asking.py)."""

from __future__ import annotations

import signal
from typing import Final

# High real-time signals are free in practice: the C library takes the lowest for itself, virtual
# machines and profilers take SIGUSR1 and SIGUSR2.
STACK_SIGNAL: Final[int] = getattr(signal, "SIGRTMAX", 64) - 5
