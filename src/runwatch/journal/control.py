"""The address of a process's control socket, which lies beside its journal.

The process serves it (`sdk/control.py`), the node's agent connects (`agent/errands/control.py`).
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
    """An address to bind or connect to.  A socket's path may have only 107 bytes, and a journal's
    path is often longer.  So the address goes through the open folder's descriptor."""
    folder = os.open(journal, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)
