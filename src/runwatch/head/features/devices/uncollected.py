"""Work during which the garbage collector is off.

An answer about thousands of devices makes tens of thousands of objects, which all die with it.
They would start Python's collector again and again, and each time it would walk through everything
that the head holds: up to 50 ms.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0


@contextmanager
def uncollected() -> Iterator[None]:
    """Not for work that waits: meanwhile no cycles of the whole process are collected."""
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _inside
    with _lock:
        if _inside or gc.isenabled():
            _inside += 1
            gc.disable()


def _leave() -> None:
    global _inside
    with _lock:
        if _inside:
            _inside -= 1
            if not _inside:
                gc.enable()
