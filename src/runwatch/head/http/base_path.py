"""Serving under a path prefix, whether or not the proxy in front strips it.

All our links and redirects are relative, so only requests need the prefix taken off.
"""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class BasePath:
    """ASGI middleware; the outermost."""

    def __init__(self, app: ASGIApp, base: str) -> None:
        self._app = app
        self._base = base

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if self._base and path == self._base:
            query = scope["query_string"].decode("latin-1")
            where = path.rsplit("/", 1)[-1] + "/" + (f"?{query}" if query else "")
            await RedirectResponse(where, 307)(scope, receive, send)
            return
        if self._base and path.startswith(f"{self._base}/"):
            rest = path[len(self._base) :]
            raw = scope.get("raw_path") or quote(path).encode()
            raw = raw.removeprefix(self._base.encode())
            scope = {**scope, "path": rest, "raw_path": raw}
        await self._app(scope, receive, send)
