"""What a caller may ask who may not see all runs: one with a link of a run, or a token of projects.

The patterns below name what is allowed; every other route stays closed.  A route about one run is
open if the caller may see that run.  Some answers about all runs are narrowed: the code that makes
them asks `seen` about each run.  A run that the caller may not see does not exist for the caller.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from starlette.types import Message, Scope, Send

from runwatch.errors import NotFound
from runwatch.head.access import roles
from runwatch.head.access.projects import words
from runwatch.head.http.parameters import Given
from runwatch.head.state.profiles import folder_name
from runwatch.record import RunId

SHARES: Final = "/api/v1/shares"
IDS: Final = "runwatch.ids"
"""Key in the scope: the runs that this request may be about; name or id in the request → id."""
_LOOKING: Final = ("GET", "HEAD")
_XPROF: Final = "/viewers/xprof"
_VIEWERS: Final = ("/viewers/perfetto", "/viewers/speedscope")
"""Programs without data of their own."""
_XPROF_LIST: Final = f"{_XPROF}/data/plugin/profile/runs"
_FREE: Final = frozenset(
    {
        "/",
        "/api/v1/access",
        "/api/v1/health",
        "/api/v1/where",
        "/api/v1/openapi.json",
        "/api/v1/runs",
    }
)
_PAGE: Final = re.compile(r"/assets/[^/]+|/[^/]+\.(?:js|css|svg|png|ico|webmanifest)")
_OF_RUN: Final = re.compile(r"/api/v1/runs/([^/]+)(?:/.*)?", re.DOTALL)
_LOGS: Final = re.compile(r"/api/v1/runs/.+/logs/?", re.DOTALL)
"""Anything may be in what a program prints: who has nothing but a link does not see it."""
_OF_PROFILES: Final = re.compile(r"/api/v1/profiles/([^/]+)/.*", re.DOTALL)
_BY_QUERY: Final = ("/api/v1/devices", "/api/v1/live")
"""Routes about all runs, or about the one that `run=` names."""
_NARROWED: Final = re.compile(
    r"/api/v1/(?:devices|live|goodput|profiles|commands/[^/]+|deleted|deleted/([^/]+)/restore)",
    re.DOTALL,
)
"""Routes about all runs; a token of projects gets its own runs only."""
_XPROF_PARTS: Final = re.compile(
    rf"{_XPROF}(?:/|/data/plugin/profile/(?:config|version)?|/.*\.(?:js|css|html|wasm|woff2|map))?"
)


Sees: TypeAlias = Callable[[str], bool]
"""Whether a run may be seen, by its id."""


class Runs(Protocol):
    """Looks up runs."""

    def run(self, key: str, sees: Sees | None = None) -> RunId:
        """The id of the run with this id or name, among the runs that the caller may see.  Raises
        NotFound or Ambiguous."""
        ...

    def project(self, run: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Sight:
    """Which runs a caller may see: one run, the runs of some projects, or all."""

    run: str = ""
    projects: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.run and not self.projects

    @property
    def words(self) -> str:
        """Why a request beyond this sight is refused."""
        if self.run:
            return f"this link shows run {self.run[:80]!r} and nothing else"
        return f"this token is for {words(self.projects)}, and this request is about more"

    def shows(self, run: str, project: str) -> bool:
        if self.run:
            return run == self.run
        return not self.projects or project in self.projects


def seen(sight: Sight, runs: Runs) -> Sees:
    if sight.is_whole:
        return lambda run: True
    return cache(lambda run: sight.shows(run, runs.project(run)))


EVERYTHING: Final = Sight()


@dataclass(frozen=True, slots=True)
class Ruling:
    why_not: str = ""
    runs: tuple[str, ...] = ()
    """Names or ids in the request; the request is allowed only if the caller may see each run."""
    as_said: tuple[str, ...] = ()
    """Names or ids that the route checks itself; they are passed on unchanged."""
    query: bytes | None = None
    """The query that replaces the request's; None: leave the query as it is."""


def reads(method: str, path: str) -> str:
    """Why a caller with a shared link is refused; empty: the caller is not."""
    if path == SHARES or path.startswith(f"{SHARES}/"):
        return "only the owner of this head sees its links"
    if _LOGS.fullmatch(path):
        return "this link shows no logs: a program may print anything"
    asked = roles.route(method, path)
    if method in _LOOKING and (asked is None or roles.allows("view", roles.ROUTES[asked])):
        return ""
    return "this link is for looking only"


def ruling(sight: Sight, sees: Sees, path: str, query: bytes) -> Ruling:
    """Whether a caller who may not see all runs may make this request."""
    if path in _FREE or _PAGE.fullmatch(path) or path.startswith(_VIEWERS):
        return Ruling()
    if of_run := _OF_RUN.fullmatch(path):
        return Ruling(runs=(of_run[1],))
    runs = _values(query, "run")
    if path in _BY_QUERY:
        if runs:
            return Ruling(runs=runs)
        if sight.run:
            one = f"run={quote(sight.run, safe='')}".encode()
            asked = query + b"&" + one if query else one
            return Ruling(as_said=(sight.run,), query=asked)
    if sight.projects and (about := _NARROWED.fullmatch(path)):
        return Ruling(as_said=(about[1],) if about[1] else ())
    # A folder of profiles may bear another run's name, so here only the run's own id counts.
    if path == "/viewers/trace" and len(set(runs)) == 1:
        return Ruling() if sees(runs[0]) else Ruling(sight.words)
    if (of_profiles := _OF_PROFILES.fullmatch(path)) and sees(of_profiles[1]):
        return Ruling(as_said=(of_profiles[1],))
    if path.startswith(_XPROF) and _xprof_shows(sees, path, runs):
        return Ruling()
    return Ruling(sight.words)


def _xprof_shows(sees: Sees, path: str, runs: tuple[str, ...]) -> bool:
    if not all(_xprof_keeps(sees, name) for name in runs):
        return False
    return bool(runs) or path == _XPROF_LIST or bool(_XPROF_PARTS.fullmatch(path))


def _xprof_keeps(sees: Sees, name: str) -> bool:
    """XProf names runs by their folders, and a folder's name is not always the run's id."""
    run, slash, _ = name.partition("/")
    return bool(slash) and ".." not in name and folder_name(run) == run and sees(run)


def _values(query: bytes, name: str) -> tuple[str, ...]:
    """All values of a parameter.  XProf may split a query at `;` too, so both separators count."""
    pairs = [part.partition(b"=") for part in query.replace(b";", b"&").split(b"&")]
    return tuple(_text(value) for key, _, value in pairs if _text(key).strip().lower() == name)


def _text(raw: bytes) -> str:
    return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8", "replace")


def by_id(scope: Scope, given: Given) -> Given:
    """Replaces a run's name by its id, for a caller who may not see all runs.  A run that `ruling`
    did not check does not exist."""
    ids, asked = scope.get(IDS), given.get("run")
    if ids is None or asked is None:
        return given
    if asked not in ids:
        raise NotFound(f"there is no run with id or name {asked[:80]!r}; /api/v1/runs lists all")
    return given | {"run": ids[asked]}


# ── answers that must be narrowed ─────────────────────────────────────────────────────────────


def narrowed(sees: Sees, scope: Scope, send: Send) -> tuple[Scope, Send]:
    """XProf lists the profiles of all runs; a guest gets only those of runs that it may see."""
    if scope["path"] != _XPROF_LIST:
        return scope, send
    packing = (b"accept-encoding", b"if-none-match")
    headers = [pair for pair in scope["headers"] if pair[0] not in packing]
    return {**scope, "headers": headers}, _Narrow(send, lambda name: _xprof_keeps(sees, name))


class _Narrow:
    """Waits until a JSON list is whole, and sends only the entries that the caller may see."""

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
            decoded: Any = json.loads(self._body)
        except ValueError:
            return b"[]"
        names = decoded if isinstance(decoded, list) else []
        return json.dumps([n for n in names if isinstance(n, str) and self._keeps(n)]).encode()
