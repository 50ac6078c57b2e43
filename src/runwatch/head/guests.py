"""What someone with a shared link may ask: to look, and if the link is of one run, at that alone.

For one run the table names what is allowed; a route that nobody thought of here stays closed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from starlette.types import Message, Scope, Send

from runwatch.head import roles
from runwatch.head.viewer_process import folder_name

SHARES: Final = "/api/v1/shares"
_LOOKING: Final = ("GET", "HEAD")
_XPROF: Final = "/viewers/xprof"
_VIEWERS: Final = ("/viewers/perfetto", "/viewers/speedscope")
"""Programs without data of their own."""
_XPROF_LIST: Final = f"{_XPROF}/data/plugin/profile/runs"
_FREE: Final = frozenset(
    {"/", "/api/v1/access", "/api/v1/health", "/api/v1/openapi.json", "/api/v1/runs"}
)
_PAGE: Final = re.compile(r"/assets/[^/]+|/[^/]+\.(?:js|css|svg|png|ico|webmanifest)")
_OF_RUN: Final = re.compile(r"/api/v1/runs/([^/]+)(?:/.*)?", re.DOTALL)
_OF_PROFILES: Final = re.compile(r"/api/v1/profiles/([^/]+)/.*", re.DOTALL)
_BY_QUERY: Final = ("/api/v1/devices", "/api/v1/live")
"""About all runs, or about those that `run=` names."""
_XPROF_PARTS: Final = re.compile(
    rf"{_XPROF}(?:/|/data/plugin/profile/(?:config|version)?|/.*\.(?:js|css|html|wasm|woff2|map))?"
)


@dataclass(frozen=True, slots=True)
class Ruling:
    why_not: str = ""
    runs: tuple[str, ...] = ()
    """Names or ids in the request; allowed only if each is the shared run."""
    query: bytes | None = None
    """Asked so instead."""


def reads(method: str, path: str) -> str:
    """Why someone who may only look is refused; empty: he is not."""
    if path == SHARES or path.startswith(f"{SHARES}/"):
        return "only the owner of this head sees its links"
    asked = roles.route(method, path)
    if method in _LOOKING and (asked is None or roles.allows("view", roles.ROUTES[asked])):
        return ""
    return "this link is for looking only"


def ruling(run: str, path: str, query: bytes) -> Ruling:
    """For a link of one run."""
    if path in _FREE or _PAGE.fullmatch(path) or path.startswith(_VIEWERS):
        return Ruling()
    if of_run := _OF_RUN.fullmatch(path):
        return Ruling(runs=(of_run[1],))
    said = _said(query, "run")
    if path in _BY_QUERY:
        one = f"run={quote(run, safe='')}".encode()
        return Ruling(runs=said) if said else Ruling(query=query + b"&" + one if query else one)
    # Folders of profiles may be called what another run is: here only its own id will do.
    if path == "/viewers/trace" and set(said) == {run}:
        return Ruling()
    if (of_profiles := _OF_PROFILES.fullmatch(path)) and of_profiles[1] == run:
        return Ruling()
    if path.startswith(_XPROF) and _xprof_shows(run, path, said):
        return Ruling()
    return Ruling(f"this link shows run {run[:80]!r} and nothing else")


def _xprof_shows(run: str, path: str, said: tuple[str, ...]) -> bool:
    """XProf knows runs by the names of folders, which are not always theirs."""
    if folder_name(run) != run:
        return False
    mine = all(name.startswith(f"{run}/") and ".." not in name for name in said)
    return mine and (bool(said) or path == _XPROF_LIST or bool(_XPROF_PARTS.fullmatch(path)))


def _said(query: bytes, name: str) -> tuple[str, ...]:
    """All values of a parameter, by whatever separator somebody behind us may go."""
    pairs = [part.partition(b"=") for part in query.replace(b";", b"&").split(b"&")]
    return tuple(_text(value) for key, _, value in pairs if _text(key).strip().lower() == name)


def _text(raw: bytes) -> str:
    return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8", "replace")


# ── answers that must be narrowed ─────────────────────────────────────────────────────────────


def narrowed(run: str, scope: Scope, send: Send) -> tuple[Scope, Send]:
    """XProf lists the profiles of all runs; a guest of one run is told of that one's."""
    if scope["path"] != _XPROF_LIST:
        return scope, send
    packing = (b"accept-encoding", b"if-none-match")
    headers = [pair for pair in scope["headers"] if pair[0] not in packing]
    return {**scope, "headers": headers}, _Narrow(send, lambda name: name.startswith(f"{run}/"))


class _Narrow:
    """Holds a JSON list back until it is whole, and hands on what may be seen of it."""

    def __init__(self, send: Send, keeps: Callable[[str], bool]) -> None:
        self._send = send
        self._keeps = keeps
        self._start: Message = {}
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        body = self._kept() if self._start["status"] == 200 else self._body
        headers = [(k, v) for k, v in self._start["headers"] if k.lower() != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await self._send({**self._start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _kept(self) -> bytes:
        try:
            found: Any = json.loads(self._body)
        except ValueError:
            return b"[]"
        names = found if isinstance(found, list) else []
        return json.dumps([n for n in names if isinstance(n, str) and self._keeps(n)]).encode()
