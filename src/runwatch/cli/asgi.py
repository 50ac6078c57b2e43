"""Call an HTTP application in this process, without a port."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote, urlsplit

MOST_CHUNKS_WAITING: Final = 4


class Exchange:
    """One request.  `status` is set by the constructor; `body()` yields chunks as they are sent.

    The default method is POST with a request body, and GET without one.
    """

    def __init__(
        self,
        application: Any,
        loop: asyncio.AbstractEventLoop,
        target: str,
        request_body: bytes | None = None,
        method: str = "",
    ) -> None:
        parts = urlsplit(target)
        self._loop = loop
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(MOST_CHUNKS_WAITING)
        self._status: asyncio.Future[int] = loop.create_future()
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method or ("GET" if request_body is None else "POST"),
            "scheme": "http",
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(b"host", b"localhost")],
            "client": ("127.0.0.1", 0),
            "server": ("localhost", 80),
        }
        self._request_body = request_body or b""
        self._body_sent = False
        self._running = loop.create_task(self._run(application))
        self.status: int = loop.run_until_complete(self._status)

    def body(self) -> Iterator[bytes]:
        try:
            while (chunk := self._loop.run_until_complete(self._next())) is not None:
                yield chunk
        finally:
            self.hang_up()

    async def _next(self) -> bytes | None:
        """The next chunk, or None at the end.  Raises the application's error if it failed."""
        getting = asyncio.ensure_future(self._chunks.get())
        both = {getting, self._running}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            return getting.result()
        getting.cancel()
        if not self._chunks.empty():
            return self._chunks.get_nowait()
        self._running.result()
        return None

    def hang_up(self) -> None:
        """Stop the application: the reader wants no more of the answer."""
        if not self._loop.is_closed():
            self._running.cancel()
            self._loop.run_until_complete(asyncio.wait([self._running]))

    async def _run(self, application: Any) -> None:
        try:
            await application(self._scope, self._receive, self._send)
        except BaseException as error:
            if not self._status.done():
                self._status.set_exception(error)
            raise

    async def _receive(self) -> dict[str, Any]:
        if self._body_sent:
            await asyncio.Event().wait()  # wait: a second message would mean that we hung up
        self._body_sent = True
        return {"type": "http.request", "body": self._request_body, "more_body": False}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._status.set_result(message["status"])
        elif message.get("body"):
            await self._chunks.put(message["body"])
