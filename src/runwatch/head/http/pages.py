"""The web page: the build of `web/`, served from memory.

File names under `assets/` change with their content, so browsers may keep these files for ever.
Browsers ask for every other file each time, and get `304` while the file is the same.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runwatch._version import __version__
from runwatch.head.http.answering import routed
from runwatch.head.http.parameters import parse
from runwatch.head.http.replies import json_reply

BUILT: Final = Path(__file__).parents[1] / "static" / "page"
FRONT: Final = "index.html"
VIEWERS: Final = "viewers/"
"""Other projects' programs beside the page; each has its own module that serves it."""
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; frame-src 'self'; worker-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_WORTH_PACKING: Final = 1024
_NOT_BUILT: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Runwatch</title>
<p>This Runwatch was installed without its page. In a clone, <code>make web</code> builds the page.
<p>The same data is at <a href="api/v1/runs">api/v1/runs</a>, and in <code>runwatch show</code>.
</html>
"""


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    packed: bytes
    """The body after gzip; empty where gzip saves nothing."""
    media_type: str
    tag: str
    caching: str

    @classmethod
    @lru_cache(maxsize=100)
    def of(cls, name: str, body: bytes) -> _File:
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        packed = gzip.compress(body, 6, mtime=0) if len(body) >= _WORTH_PACKING else b""
        return cls(
            body,
            packed if len(packed) < len(body) else b"",
            "text/javascript" if kind.endswith("javascript") else kind,
            f'"{hashlib.sha256(body).hexdigest()[:32]}"',
            _FOR_EVER if name.startswith("assets/") else "no-cache",
        )

    def reply(self, request: Request) -> Response:
        headers = {
            "Content-Security-Policy": _POLICY,
            "Cache-Control": self.caching,
            "ETag": self.tag,
            "Vary": "Accept-Encoding",
        }
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if self.packed and "gzip" in request.headers.get("accept-encoding", ""):
            packing = {"Content-Encoding": "gzip"}
            return Response(self.packed, media_type=self.media_type, headers=headers | packing)
        return Response(self.body, media_type=self.media_type, headers=headers)


class Pages:
    """The page at the root, and the files that it loads."""

    def __init__(self, built: Path = BUILT) -> None:
        self._files = {name: _File.of(name, body) for name, body in _contents(built)}
        self._files.setdefault(FRONT, _File.of(FRONT, _NOT_BUILT.encode()))

    def routes(self) -> list[Route]:
        loose = [name for name in self._files if "/" not in name and name != FRONT]
        return [
            Route("/", routed("/", self._front), methods=["GET"]),
            Route("/assets/{name}", routed("/assets/", self._asset), methods=["GET"]),
            *(
                Route(f"/{name}", routed("/assets/", self._loose), methods=["GET"])
                for name in loose
            ),
        ]

    async def _front(self, request: Request) -> Response:
        """The page for a browser, which asks for text/html; JSON for programs, which those made
        for gswarm-profiler expect here."""
        parse((), request.scope["query_string"], {})
        if "text/html" not in request.headers.get("accept", "").lower():
            return json_reply({"message": "GSwarm Profiler HTTP API", "version": __version__})
        return self._files[FRONT].reply(request)

    async def _asset(self, request: Request) -> Response:
        return self._reply(f"assets/{request.path_params['name']}", request)

    async def _loose(self, request: Request) -> Response:
        return self._reply(request.scope["path"].lstrip("/"), request)

    def _reply(self, name: str, request: Request) -> Response:
        file = self._files.get(name)
        if file is None:
            raise HTTPException(404)
        return file.reply(request)


def _contents(built: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted([*built.glob("*"), *built.glob("assets/*")]):
        name = path.relative_to(built).as_posix()
        if path.is_file() and path.suffix != ".txt" and not name.startswith(VIEWERS):
            yield name, path.read_bytes()
