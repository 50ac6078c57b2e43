"""Every request has a deadline.  Work ends when no caller waits for it any more.

When the caller hangs up, or an answer has not begun in time, the store's engine is interrupted, and
work on its rows ends at its next check.  `for_caller` runs work on behalf of one caller.  Work that
several callers share goes on as long as one of them waits (`store/asking.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runwatch.errors import Abandoned
from runwatch.head.http.replies import error_reply
from runwatch.head.settings import ANSWER_SECONDS
from runwatch.store.asking import Question

AGAIN_SECONDS: Final = 0.05
GRACE_SECONDS: Final = 1.0
"""How long the engine may take to stop after it was interrupted."""
QUESTION: Final = "runwatch.question"
_ONLY_ASKS: Final = ("GET", "HEAD")
Answer = TypeVar("Answer")


async def for_caller(request: Request, ask: Callable[[], Answer]) -> Answer:
    """The answer, made in a thread; the work ends when the caller hangs up."""
    question: Question = request.scope.get(QUESTION) or Question()

    def asked() -> Answer:
        with question.asked():
            return ask()

    return await run_in_threadpool(asked)


class Patience:
    """ASGI middleware: ends work that is late, or that no caller waits for."""

    def __init__(self, app: ASGIApp, seconds: float = ANSWER_SECONDS) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        waiting = _Waiting(scope, receive, send)
        scope[QUESTION] = waiting.question
        # A caller that sends a body is not watched: only reading the body would show it hang up.
        watched = scope["method"] in _ONLY_ASKS
        tasks = [asyncio.ensure_future(waiting.expire(self._seconds))]
        if watched:
            tasks.append(asyncio.ensure_future(waiting.watch()))
        try:
            await self._app(scope, waiting.receive if watched else receive, waiting.send)
        except Abandoned:
            if not waiting.gone.is_set():
                raise
        finally:
            for task in tasks:
                task.cancel()


class _Waiting:
    """One caller, while it waits for its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.question = Question()
        self._scope = scope
        self._is_refused = False
        self.gone = asyncio.Event()
        self._begun = asyncio.Event()
        self._body: asyncio.Queue[Message] = asyncio.Queue()
        self._receive, self._send = receive, send

    async def watch(self) -> None:
        """Waits until the caller hangs up; cancelled once the caller has its answer."""
        while (message := await self._receive())["type"] != "http.disconnect":
            self._body.put_nowait(message)
        self.gone.set()
        self._body.put_nowait(message)
        await self._give_up("the caller has hung up")

    async def expire(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._begun.wait(), seconds)
            return
        except TimeoutError:
            why = f"the answer took longer than {seconds:g} s; ask for less, or try again later"
        giving_up = asyncio.ensure_future(self._give_up(why))
        try:
            await asyncio.wait_for(self._begun.wait(), GRACE_SECONDS)
        except TimeoutError:
            await self._refuse(why)
            await giving_up  # it runs until the work has ended
        finally:
            giving_up.cancel()

    async def _refuse(self, why: str) -> None:
        """Sends the error; an answer that comes later is thrown away."""
        self._is_refused = True
        reply = error_reply(503, "unavailable", why, headers={"Retry-After": "5"})
        await reply(self._scope, self._receive, self._send)

    async def _give_up(self, why: str) -> None:
        self.question.give_up(why)
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            self.question.give_up(why)

    async def receive(self) -> Message:
        message = await self._body.get()
        if self.gone.is_set():
            self._body.put_nowait(message)
        return message

    async def send(self, message: Message) -> None:
        if not self._is_refused:
            self._begun.set()
            await self._send(message)
