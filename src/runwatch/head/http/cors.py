"""Pages of other origins that may ask this head: those that its owner listed, and no others.

Such a page brings a token in a header, or asks what needs none.  Nothing that a browser adds on its
own counts: the cookie is taken off, so a listed page acts as itself and never as its reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LISTED: Final = "runwatch.listed_origin"
"""Key in the scope: the request comes from a page of a listed origin."""
_METHODS: Final = "GET, HEAD, POST"
_HEADERS: Final = "Authorization, Content-Type"
_KEPT_SECONDS: Final = "600"


class Cors:
    """ASGI middleware.  Without listed origins it does nothing."""

    def __init__(self, app: ASGIApp, origins: Iterable[str] = ()) -> None:
        self._app = app
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._origins:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        if origin not in self._origins:
            await self._app(scope, receive, _varied(send))
            return
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight(headers, origin)(scope, receive, send)
            return
        kept = [pair for pair in scope["headers"] if not _is_ambient(*pair)]
        scope = {**scope, "headers": kept, LISTED: True}
        await self._app(scope, receive, _varied(send, origin))


def _is_ambient(name: bytes, value: bytes) -> bool:
    """Whether a browser sends it without the page's doing."""
    return name == b"cookie" or name == b"authorization" and value[:6].lower() == b"basic "


def _preflight(headers: Headers, origin: str) -> Response:
    allowed = {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Allow-Headers": _HEADERS,
        "Access-Control-Max-Age": _KEPT_SECONDS,
        "Vary": "Origin",
    }
    if "access-control-request-private-network" in headers:
        allowed["Access-Control-Allow-Private-Network"] = "true"
    return Response(status_code=204, headers=allowed)


def _varied(send: Send, origin: str = "") -> Send:
    async def send_varied(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.add_vary_header("Origin")
            if origin:
                headers["Access-Control-Allow-Origin"] = origin
        await send(message)

    return send_varied
