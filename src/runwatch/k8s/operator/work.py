"""A line of work: keys wait in it, and each is handled by one worker at a time.

A key that comes again while it waits is one; one that comes while it is handled is handled once
more.  What fails comes again after 1, 2, 4 … seconds, each key by itself.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from runwatch.errors import RunwatchError

Key = TypeVar("Key")
logger = logging.getLogger("runwatch.operator")
WORKERS: Final = 16


class Work(Generic[Key]):
    """`async with Work(handle) as work: work.add(key)`, all in one loop."""

    def __init__(
        self,
        handle: Callable[[Key], Awaitable[float | None]],
        *,
        workers: int = WORKERS,
        first_seconds: float = 1.0,
        longest_seconds: float = 60.0,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`handle` returns after how many seconds it wants the key again; None: not by itself.  Of
        what it raises, RunwatchErrors are retried; anything else ends the operator."""
        self._handle = handle
        self._workers = workers
        self._first, self._longest, self._draw = first_seconds, longest_seconds, draw
        self._due: list[tuple[float, int, Key]] = []
        self._when: dict[Key, float] = {}
        """When a key that waits is due."""
        self._busy: set[Key] = set()
        self._again: dict[Key, float] = {}
        """Keys that came while they were handled, and when they are due."""
        self._failures: dict[Key, int] = {}
        self._count = 0
        self._woken = asyncio.Event()
        self.handled = self.failed = 0

    def __len__(self) -> int:
        return len(self._when) + len(self._busy)

    def __contains__(self, key: Key) -> bool:
        return key in self._when or key in self._busy

    def add(self, key: Key, seconds: float = 0.0) -> None:
        """It is due after so many seconds, if it is not due earlier anyway."""
        due = asyncio.get_running_loop().time() + seconds
        if key in self._busy:
            self._again[key] = min(due, self._again.get(key, due))
        else:
            self._put(key, due)

    def _put(self, key: Key, due: float) -> None:
        if due < self._when.get(key, float("inf")):
            self._when[key] = due
            self._count += 1
            heapq.heappush(self._due, (due, self._count, key))
            self._woken.set()

    def forget(self, key: Key) -> None:
        self._when.pop(key, None)
        self._failures.pop(key, None)
        self._again.pop(key, None)

    async def run(self) -> None:
        """Until it is cancelled, or a worker meets what is no RunwatchError."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            key = await self._next()
            self._busy.add(key)
            try:
                await self._one(key)
            finally:
                self._busy.discard(key)
                if (due := self._again.pop(key, None)) is not None:
                    self._put(key, due)

    async def _one(self, key: Key) -> None:
        try:
            seconds = await self._handle(key)
        except RunwatchError as error:
            count = self._failures[key] = self._failures.get(key, 0) + 1
            seconds = min(self._first * 2.0 ** min(count - 1, 30), self._longest)
            seconds *= 0.5 + self._draw() / 2
            self.failed += 1
            # An object that somebody changed at the same moment is no news.
            level = logging.INFO if getattr(error, "status", 0) == 409 else logging.WARNING
            logger.log(level, "%s: %s; again in %.1f s", key, error, seconds)
        else:
            self._failures.pop(key, None)
            self.handled += 1
        if seconds is not None:
            self.add(key, seconds)

    async def _next(self) -> Key:
        while True:
            now = asyncio.get_running_loop().time()
            while self._due and self._when.get(self._due[0][2]) != self._due[0][0]:
                heapq.heappop(self._due)  # it came earlier, or was forgotten
            if self._due and self._due[0][0] <= now:
                _, _, key = heapq.heappop(self._due)
                del self._when[key]
                return key
            self._woken.clear()
            wait = self._due[0][0] - now if self._due else None
            try:
                await asyncio.wait_for(self._woken.wait(), wait)
            except TimeoutError:
                continue
