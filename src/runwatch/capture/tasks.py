"""The tasks of this process's event loops: what each coroutine awaits, down to the innermost.

The stack of a thread that runs an event loop ends in `select`; only its tasks show where the
program is.  Another thread reads them while it holds the interpreter lock.  A task that continues
meanwhile is reported as it is then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from runwatch.record.stacks import AsyncTask, Frame

MAX_TASKS: Final = 64
MAX_DEPTH: Final = 100
_TRIES: Final = 5


def own_tasks(innermost: FrameType) -> tuple[AsyncTask, ...]:
    """The tasks of the loop that a thread with this stack runs; none if it runs none."""
    asyncio = sys.modules.get("asyncio")
    loop, root = _loop_of(innermost, asyncio)
    if asyncio is None or loop is None:
        return ()
    tasks = _all(asyncio, loop)
    ordered = sorted(tasks, key=lambda task: (task is not root, task.get_name()))
    return tuple(_described(task, task is root) for task in ordered[:MAX_TASKS])


def _loop_of(innermost: FrameType, asyncio: Any) -> tuple[Any, Any]:
    """The loop and the task that it runs to its end, from locals of the functions that run it."""
    loop, root, frame = None, None, innermost
    while asyncio is not None and frame is not None:
        name = frame.f_code.co_name
        if name in ("run_forever", "run_until_complete", "run"):
            held = frame.f_locals
            runner = held.get("self")
            if loop is None and isinstance(runner, asyncio.AbstractEventLoop):
                loop = runner
            elif loop is None and isinstance(runner, asyncio.Runner):
                loop, root = runner.get_loop(), held.get("task")
            if name == "run_until_complete" and runner is loop:
                root = held.get("future")
        frame = frame.f_back  # type: ignore[assignment]
    return loop, root


def _all(asyncio: Any, loop: Any) -> list[Any]:
    for _ in range(_TRIES):
        try:
            return [task for task in asyncio.all_tasks(loop) if not task.done()]
        except RuntimeError:  # the set changed while we looked
            continue
    return []


def _described(task: Any, is_root: bool) -> AsyncTask:
    chain = list(_chain(task.get_coro()))
    frames = tuple(
        Frame(f.f_code.co_qualname, f.f_code.co_filename, f.f_lineno or 0) for f in reversed(chain)
    )
    names = dict.fromkeys((*_awaited(task), *_grouped(chain)))
    return AsyncTask(task.get_name(), tuple(names), is_root, frames)


def _chain(coroutine: Any) -> Iterator[FrameType]:
    """The frames of coroutines that await one another, outermost first."""
    for _ in range(MAX_DEPTH):
        frame = next(
            (f for kind in ("cr", "gi", "ag") if (f := getattr(coroutine, f"{kind}_frame", None))),
            None,
        )
        if frame is None:
            return
        yield frame
        awaited = ("cr_await", "gi_yieldfrom", "ag_await")
        coroutine = next((a for name in awaited if (a := getattr(coroutine, name, None))), None)


def _awaited(task: Any) -> Iterator[str]:
    """The names of the tasks that it waits for: one, or those it gathered."""
    waiter = getattr(task, "_fut_waiter", None)
    for future in (waiter, *(getattr(waiter, "_children", None) or ())):
        name = getattr(future, "get_name", None)
        if name is not None and not future.done():
            yield name()


def _grouped(chain: list[FrameType]) -> Iterator[str]:
    """The names of the tasks in a task group that it is leaving: it waits for all of them."""
    for frame in chain:
        if frame.f_code.co_filename.endswith("asyncio/taskgroups.py"):
            group = frame.f_locals.get("self")
            for task in list(getattr(group, "_tasks", None) or ()):
                if not task.done():
                    yield task.get_name()
            return
