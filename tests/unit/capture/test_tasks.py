"""Tasks of event loops, and loops that cannot end, told from inside."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from runwatch.capture.spinning import spins
from runwatch.capture.stacks import own_stacks
from runwatch.record.stacks import AsyncTask, Stacks, Thread
from runwatch.testing import until


def seen_while(program: Callable[[asyncio.Event], Any], names: set[str]) -> Thread:
    """A thread runs the program; once these tasks wait, its stack is taken from ours."""
    made: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def begin() -> None:
        event = asyncio.Event()
        made.append((asyncio.get_running_loop(), event))
        await program(event)

    thread = threading.Thread(target=lambda: asyncio.run(begin()), name="loop")
    thread.start()
    try:

        def there() -> Thread | None:
            found = next((t for t in own_stacks().threads if t.name == "loop"), None)
            if found is None or not any("select" in f.function for f in found.frames[:2]):
                return None
            return found if {t.name for t in found.tasks if t.frames} >= names else None

        found: Thread = until(there, 30, "its tasks")
        return found
    finally:
        loop, event = made[0]
        loop.call_soon_threadsafe(event.set)
        thread.join(100)


async def deepest(event: asyncio.Event) -> None:
    await event.wait()


async def gathered(event: asyncio.Event) -> None:
    await asyncio.gather(asyncio.create_task(deepest(event), name="trainer"))


async def grouped(event: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(deepest(event), name="trainer")


@pytest.mark.parametrize("program", [gathered, grouped])
def test_a_task_is_told_down_to_its_innermost_await(program: Any) -> None:
    thread = seen_while(program, {"trainer"})
    tasks = {task.name: task for task in thread.tasks}
    root = next(task for task in thread.tasks if task.is_root)
    assert root.awaits == ("trainer",)
    functions = [frame.function for frame in tasks["trainer"].frames]
    assert functions == ["Event.wait", "deepest"]
    line = deepest.__code__.co_firstlineno + 1
    assert tasks["trainer"].frames[1].line == line


def test_tasks_survive_the_wire() -> None:
    thread = seen_while(gathered, {"trainer"})
    stacks = Stacks(1, 2, "asked", threads=(thread,))
    assert Stacks.of(stacks.body()).threads[0].tasks == thread.tasks
    assert Stacks.of({"threads": [{"tasks": 7}, {"tasks": [{}]}]}).threads[1].tasks == (
        AsyncTask(),
    )


def test_a_thread_without_a_loop_has_no_tasks() -> None:
    assert all(not t.tasks for t in own_stacks().threads if t.ident == threading.get_ident())


# ── loops ─────────────────────────────────────────────────────────────────────────────────────


def waits_for_a_flag(held: Any) -> None:
    while not held.flag:
        pass


def counts(held: Any) -> None:
    turns = 0
    while not held.flag:
        turns += 1


def asks(held: Any) -> None:
    while not held.event.is_set():
        pass


def goes_through(held: Any) -> None:
    for _ in range(10**9):
        if held.flag:
            break


class Held:
    def __init__(self) -> None:
        self.flag = False
        self.event = threading.Event()


@pytest.mark.parametrize(
    ("program", "expected"),
    [(waits_for_a_flag, True), (counts, False), (asks, False), (goes_through, False)],
)
def test_a_loop_that_changes_nothing_spins(program: Any, expected: bool) -> None:
    held = Held()
    thread = threading.Thread(target=program, args=(held,))
    thread.start()
    try:

        def inside() -> bool | None:
            frame = sys._current_frames().get(thread.ident or 0)
            while frame is not None and frame.f_code is not program.__code__:
                frame = frame.f_back
            return None if frame is None else spins(frame.f_code, frame.f_lasti)

        assert until(lambda: inside() is expected, 30, "to be seen in its loop")
        assert all(inside() is expected for _ in range(20))
    finally:
        held.flag = True
        held.event.set()
        thread.join()


def test_straight_code_does_not_spin() -> None:
    code = test_straight_code_does_not_spin.__code__
    assert not any(spins(code, at) for at in range(-1, len(code.co_code), 2))
