"""A line of work: one worker for a key at a time, and nothing that was added is forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from runwatch.errors import RunwatchError
from runwatch.k8s.operator.work import Work

Handle = Callable[[str], Awaitable[float | None]]


def worked(
    handle: Handle, keys: list[str], until: Callable[[], bool], **options: float
) -> Work[str]:
    async def run() -> Work[str]:
        work: Work[str] = Work(handle, draw=lambda: 1.0, **options)  # type: ignore[arg-type]
        for key in keys:
            work.add(key)
        running = asyncio.create_task(work.run())
        async with asyncio.timeout(100):
            while not until() and not running.done():
                await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return work

    return asyncio.run(run())


def test_a_key_that_waits_is_one_and_each_key_is_handled() -> None:
    seen: Counter[str] = Counter()

    async def handle(key: str) -> None:
        seen[key] += 1

    keys = [f"pod-{number}" for number in range(1_000)]
    work = worked(handle, keys * 3, lambda: seen.total() >= 1_000)
    assert seen == Counter(keys)
    assert work.handled == 1_000 and len(work) == 0 and "pod-7" not in work


def test_a_key_is_handled_by_one_worker_at_a_time_and_once_more_if_it_came_meanwhile() -> None:
    busy: Counter[str] = Counter()
    done: list[str] = []
    works: list[Work[str]] = []

    async def run() -> None:
        async def handle(key: str) -> None:
            busy[key] += 1
            assert busy[key] == 1
            if not done:
                work.add(key)
                work.add(key)
            await asyncio.sleep(0.01)
            busy[key] -= 1
            done.append(key)

        work: Work[str] = Work(handle)
        works.append(work)
        work.add("a")
        running = asyncio.create_task(work.run())
        async with asyncio.timeout(100):
            while len(done) < 2 or len(work):
                await asyncio.sleep(0)
        assert "a" not in work
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    assert done == ["a", "a"]


def test_what_fails_comes_again_later_and_later_and_others_do_not_wait() -> None:
    seen: Counter[str] = Counter()

    async def handle(key: str) -> None:
        seen[key] += 1
        if key == "bad" and seen[key] < 5:
            raise RunwatchError("not now")

    work = worked(
        handle, ["bad", "good"], lambda: seen["bad"] == 5, first_seconds=0.001, longest_seconds=0.01
    )
    assert seen["good"] == 1 and work.failed == 4


def test_a_key_comes_again_when_it_wants_to_and_an_earlier_time_wins() -> None:
    seen: Counter[str] = Counter()

    async def handle(key: str) -> float | None:
        seen[key] += 1
        return 0.0 if seen[key] < 3 else None

    worked(handle, ["a"], lambda: seen["a"] == 3)
    assert seen["a"] == 3

    async def earlier() -> None:
        work: Work[str] = Work(handle)
        work.add("b", 3600)
        work.add("b", 0)
        work.add("b", 3600)
        running = asyncio.create_task(work.run())
        async with asyncio.timeout(100):
            while not seen["b"]:
                await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(earlier())


def test_what_nobody_expects_ends_the_line() -> None:
    async def handle(key: str) -> None:
        raise KeyError(key)

    async def run() -> None:
        work: Work[str] = Work(handle)
        work.add("a")
        await work.run()

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(run())
    assert isinstance(raised.value.exceptions[0], KeyError)
