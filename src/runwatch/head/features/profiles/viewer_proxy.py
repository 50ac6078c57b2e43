"""XProf under `/viewers/xprof/`: what may be asked of it, handed on to its process.

It has routes that make it dial any address or read any directory, and no notion of who asks; so
only what reads the profiles that are here gets through.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import h11
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from runwatch.head.features.profiles.pages import missing
from runwatch.head.features.profiles.viewer_process import (
    Viewer,
    ViewerCrashed,
    ViewerFailed,
    is_installed,
)
from runwatch.head.http.answering import routed
from runwatch.head.http.replies import error_reply

BASE: Final = "/viewers/xprof"
ENTRY: Final = "data/plugin/profile/"
ANSWER_SECONDS: Final = 600.0
"""A large profile is converted when it is first looked at."""
CHUNK: Final = 1 << 16
_REFUSED: Final = frozenset({"capture_profile", "generate_cache"})
_REFUSED_ARGUMENTS: Final = frozenset({"session_path", "run_path", "service_addr"})
_FOR_THE_PAGE: Final = "trace_data_url"
"""Which the browser asks for in turn, of us."""
_HANDED_ON: Final = (b"accept", b"accept-encoding", b"if-none-match")
_HANDED_BACK: Final = frozenset(
    {"content-type", "content-encoding", "content-length", "content-disposition"}
    | {"content-security-policy", "etag", "last-modified", "cache-control"}
)


class XprofProxy:
    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer

    def routes(self) -> list[Route]:
        return [
            Route(BASE, routed(BASE, self._entrance), methods=["GET"]),
            Route(BASE + "/{path:path}", routed(BASE, self._serve), methods=["GET"]),
        ]

    async def _entrance(self, request: Request) -> Response:
        return _to_entry(request, f"{BASE.rsplit('/', 1)[-1]}/{ENTRY}")

    async def _serve(self, request: Request) -> Response:
        path = request.path_params["path"]
        if not path:
            return _to_entry(request, ENTRY)
        if path == ENTRY and not is_installed():
            return missing("XProf")
        why = refused(path, request.scope["query_string"])
        if why:
            return error_reply(403, "refused", why)
        try:
            return await self._answer(path, request)
        except ViewerFailed as error:
            return error_reply(503, "viewer", str(error), headers={"Retry-After": "2"})

    async def _answer(self, path: str, request: Request) -> Response:
        try:
            return await _Asked(self._viewer, path, request).answer()
        except ViewerCrashed:
            # Not by its own doing, perhaps: it is started anew and asked once more.
            return await _Asked(self._viewer, path, request).answer()


def _to_entry(request: Request, where: str) -> Response:
    """A relative address holds behind any proxy.  Its page needs this path to find its parts."""
    query = request.scope["query_string"].decode("latin-1")
    return RedirectResponse(where + (f"?{query}" if query else ""), 307)


def refused(path: str, query: bytes) -> str:
    """Why this is not handed on; empty when it is."""
    parts = path.split("/")
    if _REFUSED & set(parts):
        return "XProf is for looking here; capture with `runwatch capture`"
    if ".." in parts or "\\" in path or not path.isprintable():
        return f"{path[:80]!r} is no path of XProf"
    for part in query.replace(b";", b"&").split(b"&"):
        name, _, value = (unquote_to_bytes(p.replace(b"+", b" ")) for p in part.partition(b"="))
        said = name.decode("latin-1").strip().lower()
        if said in _REFUSED_ARGUMENTS:
            return f"{said[:80]!r}: only profiles that lie here are shown"
        if said == _FOR_THE_PAGE:
            continue
        if b".." in value.split(b"/") or value.startswith(b"/") or b"\0" in value:
            return f"{value.decode('latin-1')[:80]!r} names no profile that lies here"
    return ""


class _Asked:
    """One request on its way through the viewer's socket."""

    def __init__(self, viewer: Viewer, path: str, request: Request) -> None:
        self._viewer = viewer
        self._target = b"/" + quote(path, safe="/@:").encode()
        if query := request.scope["query_string"]:
            self._target += b"?" + query
        headers = request.scope["headers"]
        self._headers = [(name, value) for name, value in headers if name in _HANDED_ON]
        # Its pages ask for these to learn what there is.
        self._fresh = path.rstrip("/").rsplit("/", 1)[-1] in ("profile", "runs", "run_tools")
        self._connection = h11.Connection(h11.CLIENT)
        self._held = contextlib.AsyncExitStack()
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def answer(self) -> Response:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._connect()
                head = await self._ask()
        except TimeoutError:
            await self._held.aclose()
            raise ViewerFailed(f"XProf did not answer within {ANSWER_SECONDS:g} s") from None
        except (OSError, h11.RemoteProtocolError) as error:
            await self._held.aclose()
            why = self._viewer.ended_because
            if why:
                raise ViewerFailed(f"XProf was ended before it answered: {why}") from error
            raise ViewerCrashed(f"XProf ended before it answered: {error}") from error
        except BaseException:
            await self._held.aclose()
            raise
        return _Handed(self._body(), self._held, head.status_code, _headers(head))

    async def _connect(self) -> None:
        self._viewer.hold()
        self._held.callback(self._viewer.release)
        socket = await run_in_threadpool(self._viewer.socket, fresh=self._fresh)
        try:
            opened = await asyncio.open_unix_connection(socket)
        except ConnectionRefusedError:
            socket = await run_in_threadpool(self._viewer.after, socket, fresh=self._fresh)
            opened = await asyncio.open_unix_connection(socket)
        self._reader, self._writer = opened
        self._held.callback(self._writer.close)

    async def _ask(self) -> h11.Response:
        fields = [(b"host", b"localhost"), (b"connection", b"close"), *self._headers]
        request = h11.Request(method="GET", target=self._target, headers=fields)
        self._writer.write(self._connection.send(request) or b"")
        self._writer.write(self._connection.send(h11.EndOfMessage()) or b"")
        await self._writer.drain()
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event

    async def _next(self) -> Any:
        while (event := self._connection.next_event()) is h11.NEED_DATA:
            self._connection.receive_data(await self._reader.read(CHUNK))
        return event

    async def _body(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)


class _Handed(StreamingResponse):
    """Lets go of the viewer whatever becomes of the caller, also before the first piece."""

    def __init__(
        self,
        body: AsyncIterator[bytes],
        held: contextlib.AsyncExitStack,
        status: int,
        headers: dict[str, str],
    ) -> None:
        super().__init__(body, status, headers)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)


def _headers(head: h11.Response) -> dict[str, str]:
    said = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers}
    kept = {name: value for name, value in said.items() if name in _HANDED_BACK}
    return {**kept, "X-Frame-Options": "SAMEORIGIN", "Cache-Control": "no-cache"}
