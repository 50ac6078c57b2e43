"""Answers that are kept for some seconds, and asked for once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from runwatch.k8s.remembered import Remembered
from runwatch.testing import FakeClock


def trial(deed: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(deed())


class Asked:
    """Answers with how often it was asked."""

    def __init__(self) -> None:
        self.times = 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.fails = False

    async def __call__(self) -> int:
        self.times += 1
        mine = self.times
        await self.goes_on.wait()
        if self.fails:
            raise LookupError("nothing there")
        return mine


def test_an_answer_is_kept_until_its_time_is_over() -> None:
    async def deed() -> None:
        clock, asked = FakeClock(), Asked()
        kept = Remembered[int](10, clock=clock)
        assert [await kept.get("a", asked), await kept.get("a", asked)] == [1, 1]
        clock.advance(9.9)
        assert await kept.get("a", asked) == 1
        clock.advance(0.2)
        assert [await kept.get("a", asked), await kept.get("b", asked)] == [2, 3]

    trial(deed)


def test_who_comes_while_it_is_asked_waits_for_the_same_answer() -> None:
    async def deed() -> None:
        asked = Asked()
        asked.goes_on.clear()
        kept = Remembered[int](10, clock=FakeClock())
        waiting = [asyncio.create_task(kept.get("a", asked)) for _ in range(50)]
        await asyncio.sleep(0)
        asked.goes_on.set()
        assert await asyncio.gather(*waiting) == [1] * 50

    trial(deed)


def test_what_fails_is_told_to_all_and_asked_again() -> None:
    async def deed() -> None:
        asked = Asked()
        asked.fails = True
        kept = Remembered[int](10, clock=FakeClock())
        told = await asyncio.gather(
            *(kept.get("a", asked) for _ in range(3)), return_exceptions=True
        )
        assert [type(each) for each in told] == [LookupError] * 3 and asked.times == 1
        asked.fails = False
        assert await kept.get("a", asked) == 2

    trial(deed)


def test_one_who_gives_up_does_not_end_the_question() -> None:
    async def deed() -> None:
        asked = Asked()
        asked.goes_on.clear()
        kept = Remembered[int](10, clock=FakeClock())
        hasty = asyncio.create_task(kept.get("a", asked))
        patient = asyncio.create_task(kept.get("a", asked))
        await asyncio.sleep(0)
        hasty.cancel()
        await asyncio.gather(hasty, return_exceptions=True)
        asked.goes_on.set()
        assert (await patient, hasty.cancelled()) == (1, True)

    trial(deed)


def test_the_oldest_go_when_there_are_too_many() -> None:
    async def deed() -> None:
        asked = Asked()
        kept = Remembered[int](10, most=3, clock=FakeClock())
        for name in "abcd":
            await kept.get(name, asked)
        assert [await kept.get(name, asked) for name in "bcd"] == [2, 3, 4]
        assert await kept.get("a", asked) == 5

    trial(deed)


def test_a_slow_answer_at_the_front_does_not_keep_all_others() -> None:
    """While the first question waits, later answers still go when there are too many."""

    async def deed() -> None:
        slow, asked = Asked(), Asked()
        slow.goes_on.clear()
        kept = Remembered[int](10, most=3, clock=FakeClock())
        waiting = asyncio.create_task(kept.get("slow", slow))
        await asyncio.sleep(0)
        for number in range(20):
            await kept.get(str(number), asked)
        assert len(kept._kept) <= 4
        slow.goes_on.set()
        assert await waiting == 1

    trial(deed)


def test_closing_ends_what_is_still_asked() -> None:
    async def deed() -> None:
        asked = Asked()
        asked.goes_on.clear()
        kept = Remembered[int](10, clock=FakeClock())
        waiting: asyncio.Task[int] = asyncio.create_task(_get(kept, asked))
        await asyncio.sleep(0)
        await kept.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(asyncio.all_tasks()) == 1

    trial(deed)


async def _get(kept: Remembered[int], asked: Callable[[], Awaitable[int]]) -> int:
    return await kept.get("a", asked)
