"""Passing bytes on when nothing else works: no thread can be started, or we have a bug.

The command must not die because the one that reads its pipes did.  Nothing is recorded here.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from runwatch.launcher.outlets import Outlet

_READ_BYTES: Final = 64 << 10
_LOOK_SECONDS: Final = 0.05


def relay(made: Sequence[Outlet], line: socket.socket) -> None:
    """Until nobody writes any more.  The wrapper may end when the command has ended and all that it
    wrote is passed on: then `line` is closed."""
    ours = [each for each in made if not each.is_relayed]
    sources = {each.source: each.target for each in ours if each.source >= 0}
    for each in made:
        each.close_inner()
    has_ended = False
    while sources or line.fileno() >= 0:
        waiting = [*sources] if line.fileno() < 0 or has_ended else [*sources, line.fileno()]
        ready = select.select(waiting, [], [], 0.0 if has_ended else None)[0]
        if not ready and has_ended:
            line.close()
            has_ended = False  # from now on we wait
        for number in ready:
            if number == line.fileno():
                has_ended = True
            elif not _pass(number, sources[number]):
                del sources[number]
                os.close(number)
    while any(each.is_relayed and each.source >= 0 for each in made):
        time.sleep(_LOOK_SECONDS)


def _pass(source: int, target: int) -> bool:
    try:
        data = os.read(source, _READ_BYTES)
    except OSError:  # a terminal that nobody has open
        return False
    rest = memoryview(data)
    with suppress(OSError):
        while rest:
            rest = rest[os.write(target, rest) :]
    return bool(data)
