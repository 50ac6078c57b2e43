"""Keeps namespaces for others: `python -S -m tests.integration.pods.hold KIND[=HOSTNAME] …`.

Ends with its parent, or when its input ends.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

from tests.integration.pods import system

KINDS: Final = {"net": system.NEWNET, "uts": system.NEWUTS, "ipc": system.NEWIPC}


def main(*words: str) -> None:
    system.end_with_parent(signal.SIGKILL)
    for word in words:
        kind, _, name = word.partition("=")
        system.unshare(KINDS[kind])
        if name:
            system.set_host_name(name)
    os.write(1, b"held\n")
    os.read(0, 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
