"""Blocking work beside the loop: asking a program for its profile, writing files to a bucket."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from runwatch.errors import RunwatchError

T = TypeVar("T")


class ThreadFailed(RunwatchError):
    """The deed met what it does not expect; the trace is in the log."""


async def in_thread(deed: Callable[[], T]) -> T:
    """Nobody waits for the thread at the end: an operator that is told to go must not stay for a
    bucket that does not answer."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(results: list[T], error: RunwatchError) -> None:
        if done.cancelled():
            return
        if results:
            done.set_result(results[0])
        else:
            done.set_exception(error)

    def run() -> None:
        results: list[T] = []
        failure: RunwatchError = ThreadFailed("the work in a thread failed: see the log")
        try:
            results.append(deed())
        except RunwatchError as error:
            failure = error
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody asks any more
                loop.call_soon_threadsafe(settle, results, failure)

    threading.Thread(target=run, name="runwatch-operator", daemon=True).start()
    return await done
