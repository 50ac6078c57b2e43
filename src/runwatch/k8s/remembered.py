"""Answers that are kept for some seconds, and asked for once however many want them.

A job's thousand pods come within a second, and all have the same owners.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, TypeVar

from runwatch.clock import Clock, system_clock

Answer = TypeVar("Answer")
MOST: Final = 4096


class _Kept(NamedTuple, Generic[Answer]):
    task: asyncio.Task[Answer]
    begun_ns: int


class Remembered(Generic[Answer]):
    """What fails is not kept: who comes later asks again."""

    def __init__(self, seconds: float, *, most: int = MOST, clock: Clock = system_clock) -> None:
        self._kept: dict[str, _Kept[Answer]] = {}
        self._seconds, self._most, self._clock = seconds, most, clock

    async def get(
        self, key: str, ask: Callable[[], Awaitable[Answer]], *, seconds: float | None = None
    ) -> Answer:
        """`seconds`: how old the answer may be, if less than usual.

        One who gives up does not end the question: others wait for its answer, too."""
        now_ns = self._clock.mono_ns()
        kept = self._kept.get(key)
        oldest_ns = now_ns - round((self._seconds if seconds is None else seconds) * 1e9)
        if kept is None or (kept.task.done() and kept.begun_ns <= oldest_ns):
            kept = self._begin(key, ask, now_ns)
        return await asyncio.shield(kept.task)

    def _begin(self, key: str, ask: Callable[[], Awaitable[Answer]], now_ns: int) -> _Kept[Answer]:
        async def asked() -> Answer:
            return await ask()

        task = asyncio.get_running_loop().create_task(asked())
        self._kept.pop(key, None)  # it is the newest now
        kept = self._kept[key] = _Kept(task, now_ns)
        task.add_done_callback(lambda done: self._forget_failed(key, done))
        while len(self._kept) > self._most:
            oldest = next((name for name, each in self._kept.items() if each.task.done()), None)
            if oldest is None:
                break
            del self._kept[oldest]
        return kept

    def _forget_failed(self, key: str, task: asyncio.Task[Answer]) -> None:
        if task.cancelled() or task.exception() is not None:
            kept = self._kept.get(key)
            if kept is not None and kept.task is task:
                del self._kept[key]

    async def close(self) -> None:
        tasks = [kept.task for kept in self._kept.values() if not kept.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._kept.clear()
