"""The open gRPC streams, and whether the token of each is still valid.

A stream that sends is checked at each message.  A silent stream is checked when a token was taken
back, and once a second: a token may also expire, or be taken back by another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

LOOK_SECONDS: Final = 1.0


class TakenBack(Exception):
    """The token of an open stream is no longer valid."""


class Visit:
    """One stream.  `holds` says whether its token is still valid."""

    def __init__(self, holds: Callable[[], bool]) -> None:
        self._holds = holds
        self._waiting: asyncio.Task[Any] | None = None
        self._is_over = False

    def check(self) -> None:
        if not self._holds():
            raise TakenBack

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wraps the wait for the next message.  `TakenBack` ends the wait early."""
        task = self._waiting = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_over or task is None or task.uncancel():
                raise  # something else cancelled the task
            raise TakenBack from None
        finally:
            self._waiting = None

    def look(self) -> None:
        # A stream that does not wait is checked at its next message.
        if self._waiting is not None and not self._is_over and not self._holds():
            self._is_over = True
            self._waiting.cancel()


class Visits:
    """All streams of one server, in its event loop."""

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
        """Call this, from any thread, when a token was taken back."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop of a head that stops may be closed
                self._loop.call_soon_threadsafe(self._look)

    def _look_again(self) -> None:
        self._look()
        assert self._loop is not None
        self._next = self._loop.call_later(LOOK_SECONDS, self._look_again)

    def _look(self) -> None:
        for visit in self._open:
            visit.look()
