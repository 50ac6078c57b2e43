"""Speedscope, which draws stacks as flame graphs, under `/viewers/speedscope/`.

Its files were put beside the page when that was built.  `…/#profileURL=ADDRESS` opens what this
same head answers there; its policy lets it reach no other host.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Route

from runwatch.errors import NotFound, UsageError
from runwatch.head.http.answering import routed
from runwatch.head.http.pages import BUILT, VIEWERS

BASE: Final = "/viewers/speedscope"
_FOLDER: Final = BUILT / VIEWERS / "speedscope"
_FRONT: Final = "index.html"
_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".md": "text/plain",
}
_POLICY: Final = (
    # It makes its styles while it runs, and reads one kind of file by wasm.
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "font-src 'self'; img-src 'self' data: blob:; connect-src 'self'; worker-src 'none'; "
    "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
_FOR_EVER: Final = "private, max-age=31536000, immutable"


class Speedscope:
    def __init__(self, folder: Path = _FOLDER) -> None:
        self._folder = folder

    def routes(self) -> list[Route]:
        return [
            Route(BASE, routed(BASE, self._entrance), methods=["GET"]),
            Route(BASE + "/", routed(BASE, self._serve), methods=["GET"]),
            Route(BASE + "/{name}", routed(BASE, self._serve), methods=["GET"]),
        ]

    async def _entrance(self, request: Request) -> Response:
        return RedirectResponse("speedscope/", 307)

    async def _serve(self, request: Request) -> Response:
        if not (self._folder / _FRONT).is_file():
            raise UsageError(
                "the flame graph viewer is missing: this Runwatch was installed without its page "
                "(in a clone of it, `make web` builds both)"
            )
        name = request.path_params.get("name", _FRONT)
        path = self._folder / name
        kind = _TYPES.get(path.suffix)
        if kind is None or path.name != name or not path.is_file():
            raise NotFound(f"speedscope has no file {name[:80]!r}")
        return FileResponse(
            path,
            media_type=kind,
            headers={
                # All but the front are named after their content.
                "Cache-Control": "no-cache" if name == _FRONT else _FOR_EVER,
                "Content-Security-Policy": _POLICY,
                "X-Frame-Options": "SAMEORIGIN",
            },
        )
