"""Where a daemon waits for it, PyTorch's profiler is told to look for it: Kineto reads that once,
when torch is imported.

Without a daemon Kineto would look for it for ten seconds, and a short program would end that much
later.  So the variable is set at the last moment, in a program that nobody changed, and only if
somebody (the node's agent) is there.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Final

_NAME: Final = "dynolog"


def look_for_daemon(environment: MutableMapping[str, str] = os.environ) -> None:
    """Just before torch is imported.  What the user has set stays."""
    if "KINETO_USE_DAEMON" in environment or not _is_there(environment):
        return
    environment["KINETO_USE_DAEMON"] = "1"
    # It prints a line about that at every import of torch, and the program's output is its own.
    environment.setdefault("KINETO_LOG_LEVEL", "3")


def _is_there(environment: MutableMapping[str, str]) -> bool:
    import socket  # torch takes a second to import; a program without it should not wait for this

    folder = environment.get("KINETO_IPC_SOCKET_DIR", "")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as line:
            line.connect(os.path.join(folder, _NAME) if folder else f"\0{_NAME}")
    except (OSError, ValueError):
        return False
    return True
