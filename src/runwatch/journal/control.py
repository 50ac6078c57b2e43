"""Where the control socket of a process lies: beside its journal.

The process serves it (`sdk/control.py`), the node's agent asks (`agent/errands/control.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOCKET: Final = "control.sock"


@contextlib.contextmanager
def socket_of(journal: Path) -> Iterator[str]:
    """An address to bind or connect to.  A socket's path may have 107 bytes only, and that of a
    journal is often longer: so it goes by way of the open folder."""
    folder = os.open(journal, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)
