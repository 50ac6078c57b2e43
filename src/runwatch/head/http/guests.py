"""What someone may ask who may not see all runs: with a link of one run, or a token of projects.

The table names what is allowed; a route that nobody thought of here stays closed.  What is about
one run is open if that run may be seen.  Some answers about all runs are narrowed to those that may
be seen, by who makes them: they ask `seen`.  A run that may not be seen is as good as none.
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
"""Key in the scope: the runs that a request may be about, as it calls them, and their ids."""
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
_NARROWED: Final = re.compile(
    r"/api/v1/(?:devices|live|goodput|profiles|commands/[^/]+|deleted|deleted/([^/]+)/restore)",
    re.DOTALL,
)
"""About all runs; who has a token of projects is told of those of its own."""
_XPROF_PARTS: Final = re.compile(
    rf"{_XPROF}(?:/|/data/plugin/profile/(?:config|version)?|/.*\.(?:js|css|html|wasm|woff2|map))?"
)


Sees: TypeAlias = Callable[[str], bool]
"""Whether a run may be seen, by its id."""


class Runs(Protocol):
    """Where runs are found."""

    def run(self, key: str, sees: Sees | None = None) -> RunId:
        """The id of the one with this id or name, among those that may be seen.  Raises NotFound
        or Ambiguous."""
        ...

    def project(self, run: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Sight:
    """Which runs somebody may see: one, those of some projects, or all."""

    run: str = ""
    projects: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.run and not self.projects

    @property
    def words(self) -> str:
        """Why something else is refused."""
        if self.run:
            return f"this link shows run {self.run[:80]!r} and nothing else"
        return f"this token is for {words(self.projects)}, and this is about more"

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
    """Names or ids in the request; allowed only if each is of a run that may be seen."""
    as_said: tuple[str, ...] = ()
    """Those that who answers looks at himself."""
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


def ruling(sight: Sight, sees: Sees, path: str, query: bytes) -> Ruling:
    """For who may not see all runs."""
    if path in _FREE or _PAGE.fullmatch(path) or path.startswith(_VIEWERS):
        return Ruling()
    if of_run := _OF_RUN.fullmatch(path):
        return Ruling(runs=(of_run[1],))
    said = _said(query, "run")
    if path in _BY_QUERY:
        if said:
            return Ruling(runs=said)
        if sight.run:
            one = f"run={quote(sight.run, safe='')}".encode()
            asked = query + b"&" + one if query else one
            return Ruling(as_said=(sight.run,), query=asked)
    if sight.projects and (about := _NARROWED.fullmatch(path)):
        return Ruling(as_said=(about[1],) if about[1] else ())
    # Folders of profiles may be called what another run is: here only its own id will do.
    if path == "/viewers/trace" and len(set(said)) == 1:
        return Ruling() if sees(said[0]) else Ruling(sight.words)
    if (of_profiles := _OF_PROFILES.fullmatch(path)) and sees(of_profiles[1]):
        return Ruling(as_said=(of_profiles[1],))
    if path.startswith(_XPROF) and _xprof_shows(sees, path, said):
        return Ruling()
    return Ruling(sight.words)


def _xprof_shows(sees: Sees, path: str, said: tuple[str, ...]) -> bool:
    if not all(_xprof_keeps(sees, name) for name in said):
        return False
    return bool(said) or path == _XPROF_LIST or bool(_XPROF_PARTS.fullmatch(path))


def _xprof_keeps(sees: Sees, name: str) -> bool:
    """XProf knows runs by the names of folders, which are not always theirs."""
    run, slash, _ = name.partition("/")
    return bool(slash) and ".." not in name and folder_name(run) == run and sees(run)


def _said(query: bytes, name: str) -> tuple[str, ...]:
    """All values of a parameter, by whatever separator somebody behind us may go."""
    pairs = [part.partition(b"=") for part in query.replace(b";", b"&").split(b"&")]
    return tuple(_text(value) for key, _, value in pairs if _text(key).strip().lower() == name)


def _text(raw: bytes) -> str:
    return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8", "replace")


def by_id(scope: Scope, given: Given) -> Given:
    """For who may not see all runs: what is asked for by a name is asked for by its id from here
    on, and what was not looked at before does not exist."""
    ids, asked = scope.get(IDS), given.get("run")
    if ids is None or asked is None:
        return given
    if asked not in ids:
        raise NotFound(f"there is no run with id or name {asked[:80]!r}; /api/v1/runs lists all")
    return given | {"run": ids[asked]}


# ── answers that must be narrowed ─────────────────────────────────────────────────────────────


def narrowed(sees: Sees, scope: Scope, send: Send) -> tuple[Scope, Send]:
    """XProf lists the profiles of all runs; a guest is told of those that may be seen."""
    if scope["path"] != _XPROF_LIST:
        return scope, send
    packing = (b"accept-encoding", b"if-none-match")
    headers = [pair for pair in scope["headers"] if pair[0] not in packing]
    return {**scope, "headers": headers}, _Narrow(send, lambda name: _xprof_keeps(sees, name))


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
