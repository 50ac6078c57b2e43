"""A stretch of work in which the garbage collector rests.

An answer about thousands of devices makes tens of thousands of objects that all die with it.
Python's collector would count them as new ones and look through all that the head knows, again and
again: up to 50 ms each time.
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
    """Not for work that waits: meanwhile nobody's cycles are collected."""
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
