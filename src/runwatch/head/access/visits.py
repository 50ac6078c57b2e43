"""Streams that are open by gRPC, and whether what each was let in by still holds.

A stream that sends is asked at each message.  One that is silent is looked at when a token was
taken back, and once a second: a token may also expire, or be taken back by another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

LOOK_SECONDS: Final = 1.0


class TakenBack(Exception):
    """A stream goes on, and its token does not."""


class Visit:
    """One stream.  `holds` says whether its token still does."""

    def __init__(self, holds: Callable[[], bool]) -> None:
        self._holds = holds
        self._waiting: asyncio.Task[Any] | None = None
        self._is_over = False

    def check(self) -> None:
        if not self._holds():
            raise TakenBack

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around the wait for its next message: `TakenBack` ends it early."""
        task = self._waiting = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_over or task is None or task.uncancel():
                raise  # somebody else cancelled it
            raise TakenBack from None
        finally:
            self._waiting = None

    def look(self) -> None:
        # Who does not wait is asked at the next message.
        if self._waiting is not None and not self._is_over and not self._holds():
            self._is_over = True
            self._waiting.cancel()


class Visits:
    """All of one server; they live in its event loop."""

    def __init__(self) -> None:
        self._open: set[Visit] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next: asyncio.TimerHandle | None = None

    @contextmanager
    def open(self, holds: Callable[[], bool]) -> Iterator[Visit]:
        visit = Visit(holds)
        self._open.add(visit)
        if self._next is None:
            self._loop = asyncio.get_running_loop()
            self._next = self._loop.call_later(LOOK_SECONDS, self._look_again)
        try:
            yield visit
        finally:
            self._open.discard(visit)
            if not self._open and self._next is not None:
                self._next.cancel()
                self._next = None

    def look_soon(self) -> None:
        """A token was taken back.  Any thread may say so."""
        if self._loop is not None:
            with suppress(RuntimeError):  # a head that stops has no loop any more
                self._loop.call_soon_threadsafe(self._look)

    def _look_again(self) -> None:
        self._look()
        assert self._loop is not None
        self._next = self._loop.call_later(LOOK_SECONDS, self._look_again)

    def _look(self) -> None:
        for visit in self._open:
            visit.look()
