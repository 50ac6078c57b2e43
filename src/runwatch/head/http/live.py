"""Tells live pages that something was stored.

The writer's thread says which journals grew.  Each subscriber holds the set of journals that grew
since it last looked, so a slow page costs one set and never a queue.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from runwatch.errors import RunwatchError
from runwatch.record import Batch, JournalId


class TooManySubscribers(RunwatchError):
    pass


class Live:
    def __init__(self, *, capacity: int = 256) -> None:
        self._lock = threading.Lock()
        self._capacity = capacity
        self._subscriptions: set[Subscription] = set()
        self._epoch = secrets.token_hex(4)
        self._version = 0
        self._closed = False

    @property
    def id(self) -> str:
        """Names this version of this process's data."""
        return f"{self._epoch}-{self._version}"

    @property
    def version(self) -> int:
        return self._version

    @property
    def subscribers(self) -> int:
        return len(self._subscriptions)

    def stored(self, batches: Sequence[Batch]) -> None:
        """Call this, from any thread, after these batches were stored."""
        self.changed({batch.origin.journal for batch in batches})

    def changed(self, journals: Iterable[JournalId]) -> None:
        with self._lock:
            self._version += 1
            if not self._subscriptions:
                return
            moved = frozenset(journals)
            for subscription in self._subscriptions:
                subscription.add(moved)

    def check_capacity(self) -> None:
        if self._closed:
            raise TooManySubscribers("this head is stopping; connect again in a moment")
        if len(self._subscriptions) >= self._capacity:
            raise TooManySubscribers(
                f"{self._capacity} live connections are open already; close one or ask /api/v1/runs"
            )

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Call this in the event loop that waits."""
        subscription = Subscription(asyncio.get_running_loop(), self._lock)
        with self._lock:
            self.check_capacity()
            self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            with self._lock:
                self._subscriptions.discard(subscription)

    def close(self) -> None:
        """Ends every stream.  Call it first: a server that stops waits for open answers."""
        with self._lock:
            self._closed = True
            for subscription in self._subscriptions:
                subscription.end()


class Subscription:
    """One live page.  `add` and `end` are called with `Live`'s lock held, from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lock: threading.Lock) -> None:
        self._loop = loop
        self._lock = lock
        self._moved: set[JournalId] = set()
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self.ended = False

    def add(self, journals: frozenset[JournalId]) -> None:
        first = not self._moved
        self._moved |= journals
        if first and self._moved:
            self._call(self._changed.set)

    def end(self) -> None:
        self.ended = True
        self._call(self._changed.set)
        self._call(self._ended.set)

    async def wait(self, seconds: float) -> frozenset[JournalId]:
        """The journals that grew since the last call; empty after so long, or at the end."""
        await _within(seconds, self._changed)
        with self._lock:
            moved, self._moved = frozenset(self._moved), set()
            if not self.ended:
                self._changed.clear()
        return moved

    async def pause(self, seconds: float) -> None:
        await _within(seconds, self._ended)

    def _call(self, action: Callable[[], None]) -> None:
        # In a closed loop nothing waits any more.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(action)


async def _within(seconds: float, event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
