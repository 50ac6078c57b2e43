"""Every request has a deadline, and what nobody waits for any more is given up.

The engine is interrupted when the caller hangs up, or when an answer has not begun in time, and
what is worked out of its rows ends at its next look.  Answers are asked in a caller's name by
`for_caller`.  What several share goes on as long as one of them waits (`store/asking.py`).
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
"""So long the engine may take to notice that it is given up."""
QUESTION: Final = "runwatch.question"
_ONLY_ASKS: Final = ("GET", "HEAD")
Answer = TypeVar("Answer")


async def for_caller(request: Request, ask: Callable[[], Answer]) -> Answer:
    """The answer, made in a thread; given up when whoever sent the request has gone."""
    found: Question = request.scope.get(QUESTION) or Question()

    def asked() -> Answer:
        with found.asked():
            return ask()

    return await run_in_threadpool(asked)


class Patience:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, seconds: float = ANSWER_SECONDS) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        waiting = _Waiting(scope, receive, send)
        scope[QUESTION] = waiting.question
        # Who sends a body is not watched: to see him go, the body would have to be read.
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
    """One caller, as long as he waits."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.question = Question()
        self._scope = scope
        self._is_refused = False
        self.gone = asyncio.Event()
        self._begun = asyncio.Event()
        self._body: asyncio.Queue[Message] = asyncio.Queue()
        self._receive, self._send = receive, send

    async def watch(self) -> None:
        """Until he hangs up, or has his answer."""
        while (message := await self._receive())["type"] != "http.disconnect":
            self._body.put_nowait(message)
        self.gone.set()
        self._body.put_nowait(message)
        await self._give_up("whoever asked has gone")

    async def expire(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._begun.wait(), seconds)
            return
        except TimeoutError:
            why = f"it took longer than {seconds:g} s: ask for less at a time, or again later"
        giving_up = asyncio.ensure_future(self._give_up(why))
        try:
            await asyncio.wait_for(self._begun.wait(), GRACE_SECONDS)
        except TimeoutError:
            await self._refuse(why)
            await giving_up  # until the work ends
        finally:
            giving_up.cancel()

    async def _refuse(self, why: str) -> None:
        """Whatever is answered from now on, nobody hears it."""
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
