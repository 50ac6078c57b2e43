"""Readers hold a lease.  Replaced files and tables are removed when no lease can need them.

A reader that began before a merge may still open the files that the merge replaced.  So `later`
takes an action that removes a replaced file or table, and `sweep` runs it once every lease that was
held at that time has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Leases:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next = 0
        self._active: set[int] = set()
        self._later: list[tuple[int, Callable[[], None]]] = []
        self._exclusive = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._exclusive)
            ticket = self._next
            self._next += 1
            self._active.add(ticket)
        try:
            yield
        finally:
            with self._changed:
                self._active.remove(ticket)
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Alone: waits until all leases end, and new ones wait for us."""
        with self._changed:
            self._changed.wait_for(lambda: not self._exclusive)
            self._exclusive = True
            self._changed.wait_for(lambda: not self._active)
        try:
            yield
        finally:
            with self._changed:
                self._exclusive = False
                self._changed.notify_all()

    def later(self, action: Callable[[], None]) -> None:
        with self._changed:
            self._later.append((self._next, action))

    def sweep(self) -> None:
        with self._changed:
            oldest = min(self._active, default=self._next)
            ready = [action for ticket, action in self._later if ticket <= oldest]
            self._later = [item for item in self._later if item[0] > oldest]
        for action in ready:
            action()
