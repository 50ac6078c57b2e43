"""Asking an HTTP application in this process, without a port."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote, urlsplit

MOST_CHUNKS_WAITING: Final = 4


class Exchange:
    """One GET.  `status` is known after construction; `body` yields as the application sends."""

    def __init__(self, application: Any, loop: asyncio.AbstractEventLoop, target: str) -> None:
        parts = urlsplit(target)
        self._loop = loop
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_CHUNKS_WAITING)
        self._status: asyncio.Future[int] = loop.create_future()
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(b"host", b"localhost")],
            "client": ("127.0.0.1", 0),
            "server": ("localhost", 80),
        }
        self._asked = False
        self._running = loop.create_task(self._run(application))
        self.status: int = loop.run_until_complete(self._status)

    def body(self) -> Iterator[bytes]:
        while (chunk := self._loop.run_until_complete(self._chunks.get())) is not None:
            yield chunk
        self._loop.run_until_complete(self._running)

    async def _run(self, application: Any) -> None:
        try:
            await application(self._scope, self._receive, self._send)
        except BaseException as error:
            if not self._status.done():
                self._status.set_exception(error)
            raise
        finally:
            await self._chunks.put(None)

    async def _receive(self) -> dict[str, Any]:
        if self._asked:
            await asyncio.Event().wait()  # we never hang up before the answer is complete
        self._asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._status.set_result(message["status"])
        elif message.get("body"):
            await self._chunks.put(message["body"])
