"""Becomes a command that ends with whoever started it: `python -S -m tests.integration.pods.tied
COMMAND …`."""

from __future__ import annotations

import os
import signal
import sys

from tests.integration.pods import system

if __name__ == "__main__":
    system.end_with_parent(signal.SIGKILL)
    os.execv(sys.argv[1], sys.argv[1:])
