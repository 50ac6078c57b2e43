"""Sessions under /api/v1: list, start, stop, resume, export."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from runwatch.clock import Clock, system_clock
from runwatch.exports.session import SessionExport
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import BadRequest, Given, Parameter, shortened
from runwatch.head.http.replies import json_reply
from runwatch.head.http.types import Answer
from runwatch.head.state.clients import Clients
from runwatch.head.state.frame_counts import FrameCounts
from runwatch.head.state.sessions import Sessions
from runwatch.views.sessions import Session

MOST_LISTED: Final = 1_000
PARQUET: Final = "application/vnd.apache.parquet"
Body = TypeVar("Body", bound=msgspec.Struct)


class StretchInfo(Answer):
    start_ns: int
    end_ns: int | None


class SessionInfo(Answer):
    """A name and the time that it covers; `frames` is how many moments were sampled in it."""

    id: str
    name: str
    active: bool
    started_ns: int
    ended_ns: int | None
    stretches: list[StretchInfo]
    period_ns: int
    bandwidth: bool
    nvlink: bool
    metrics: list[str]
    frames: int


class SessionList(Answer):
    sessions: list[SessionInfo]
    """Newest first."""


class NewSession(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    """Without one it is named by the time."""
    metrics: list[str] = []


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    pass


_SESSION: Final = Parameter(
    "session", "string", "a session's id, or its name: then the newest of it", "path", shortest=1
)
_FORMATS: Final = (
    _SESSION,
    Parameter("format", "string", "how", choices=("json", "parquet"), default="json"),
    Parameter("compat", "string", "in the units and types of", choices=("gswarm",)),
)


class SessionDesk:
    """What HTTP and gRPC ask of sessions; `operations` is its part of the API's table."""

    def __init__(
        self, sessions: Sessions, clients: Clients, *, clock: Clock = system_clock
    ) -> None:
        self.sessions = sessions
        self.clients = clients
        self.clock = clock
        self.counts = FrameCounts(sessions.store, clients.fleet, clock=clock)

    def operations(self) -> list[Operation]:
        one, base = "/api/v1/sessions/{session}", "/api/v1/sessions"
        info = {JSON: SessionInfo}
        return [
            Operation(base, "Sessions", self._list, (), {JSON: SessionList}),
            Operation(base, "Start a session", self._start, (), info, (409,), "POST", NewSession),
            Operation(one, "One session", self._one, (_SESSION,), info, (404,)),
            Operation(
                f"{one}/stop", "Stop it", self._stop, (_SESSION,), info, (404,), "POST", Nothing
            ),
            Operation(
                f"{one}/resume",
                "Go on with it",
                self._resume,
                (_SESSION,),
                info,
                (404, 409),
                "POST",
                Nothing,
            ),
            Operation(
                f"{one}/export",
                "All its frames",
                self._export,
                _FORMATS,
                {JSON: None, PARQUET: None},
                (404,),
            ),
        ]

    # ── answers ───────────────────────────────────────────────────────────────────────────────

    def info(self, session: Session) -> SessionInfo:
        return SessionInfo(
            id=session.id,
            name=session.name,
            active=session.is_active,
            started_ns=session.start_ns,
            ended_ns=session.end_ns,
            stretches=[
                StretchInfo(start_ns=s.start_ns, end_ns=s.end_ns) for s in session.stretches
            ],
            period_ns=session.period_ns,
            bandwidth=session.bandwidth,
            nvlink=session.nvlink,
            metrics=list(session.metrics),
            frames=self.counts.of(session),
        )

    async def _list(self, request: Request, given: Given) -> Response:
        def made() -> SessionList:
            found = islice(reversed(self.sessions.all()), MOST_LISTED)
            return SessionList(sessions=[self.info(session) for session in found])

        return json_reply(await run_in_threadpool(made))

    async def _one(self, request: Request, given: Given) -> Response:
        return await self._told(lambda: self.sessions.find(given["session"]))

    async def _start(self, request: Request, given: Given) -> Response:
        asked = await body_of(request, NewSession)
        return await self._told(lambda: self.sessions.start(asked.name, asked.metrics))

    async def _stop(self, request: Request, given: Given) -> Response:
        await body_of(request, Nothing)

        def stop() -> Session:
            session = self.sessions.find(given["session"])
            stopped = self.sessions.stop(session.id)
            return stopped[0] if stopped else session

        return await self._told(stop)

    async def _resume(self, request: Request, given: Given) -> Response:
        await body_of(request, Nothing)
        return await self._told(lambda: self.sessions.resume(given["session"]))

    async def _told(self, act: Callable[[], Session]) -> Response:
        return json_reply(await run_in_threadpool(lambda: self.info(act())))

    # ── export ────────────────────────────────────────────────────────────────────────────────

    def export(self, session: Session, *, compat: bool = False) -> SessionExport:
        return SessionExport(
            self.sessions.store,
            self.clients.fleet(),
            session,
            now_ns=self.clock.wall_ns(),
            compat=compat,
        )

    async def _export(self, request: Request, given: Given) -> Response:
        session = await run_in_threadpool(self.sessions.find, given["session"])
        export = await run_in_threadpool(
            lambda: self.export(session, compat=given["compat"] is not None)
        )
        headers = {"Content-Disposition": f'attachment; filename="session.{given["format"]}"'}
        if given["format"] == "json":
            return StreamingResponse(_pieces(export.json()), media_type=JSON, headers=headers)
        scratch = tempfile.TemporaryDirectory(prefix="runwatch-session-")
        path = Path(scratch.name, "session.parquet")
        try:
            await run_in_threadpool(export.parquet, path)
        except BaseException:
            scratch.cleanup()
            raise
        headers["Content-Length"] = str(path.stat().st_size)
        return StreamingResponse(_file(scratch, path), media_type=PARQUET, headers=headers)


async def body_of(request: Request, kind: type[Body]) -> Body:
    """The body as JSON of that shape; none at all is an empty one."""
    text = b""
    async for piece in request.stream():
        text += piece
        if len(text) > _LARGEST_BODY:
            raise BadRequest(f"the body is larger than {_LARGEST_BODY} bytes")
    try:
        return msgspec.json.decode(text.strip() or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body {shortened(text.decode('latin-1'))}: {error}") from error


_LARGEST_BODY: Final = 100_000


async def _pieces(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Made in threads; a client that leaves half-way ends the store's reading."""
    try:
        while (piece := await run_in_threadpool(next, pieces, None)) is not None:
            yield piece
    finally:
        close: Any = getattr(pieces, "close", None)
        if close is not None:
            close()


async def _file(scratch: tempfile.TemporaryDirectory[str], path: Path) -> AsyncIterator[bytes]:
    try:
        with path.open("rb") as file:
            while piece := await run_in_threadpool(file.read, 1 << 18):
                yield piece
    finally:
        scratch.cleanup()
