"""Sessions under /api/v1: list, start, stop, resume, export."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from runwatch.head.context import Context, Feature
from runwatch.head.http import streams
from runwatch.head.http.answering import Nothing, body_of
from runwatch.head.http.openapi import JSON, PARQUET, Operation
from runwatch.head.http.parameters import Given, Parameter
from runwatch.head.http.replies import json_reply
from runwatch.head.http.types import Answer
from runwatch.views.sessions import Session

MOST_LISTED: Final = 1_000


class StretchInfo(Answer):
    start_ns: int
    end_ns: int | None


class SessionInfo(Answer):
    """A named stretch of time.  `frames` is how many samples were taken in it."""

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
    missing_clients: list[str] | None
    """Clients of which records of the session may still come; null: nobody has looked."""


class SessionList(Answer):
    sessions: list[SessionInfo]
    """Newest first."""


class NewSession(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    """Null: the session is named after the time."""
    metrics: list[str] = []


_SESSION: Final = Parameter(
    "session",
    "string",
    "a session's id, or a name: the newest session of that name",
    "path",
    shortest=1,
)
_FORMATS: Final = (
    _SESSION,
    Parameter("format", "string", "the file's format", choices=("json", "parquet"), default="json"),
    Parameter("compat", "string", "use the units and types of this tool", choices=("gswarm",)),
)


class SessionsApi(Feature):
    """Sessions: list, start, stop, resume, export."""

    def __init__(self, context: Context) -> None:
        self._room = context.sessions
        self._sessions = context.sessions.sessions

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
                "All frames of a session",
                self._export,
                _FORMATS,
                {JSON: None, PARQUET: None},
                (404,),
            ),
        ]

    # ── answers ───────────────────────────────────────────────────────────────────────────────

    def _info(self, session: Session, missing: list[str] | None = None) -> SessionInfo:
        if missing is None and session.saved is not None and session.saved.state != "due":
            missing = list(session.saved.missing)
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
            frames=self._room.counts.of(session),
            missing_clients=missing,
        )

    def listed(self) -> SessionList:
        newest = islice(reversed(self._sessions.all()), MOST_LISTED)
        return SessionList(sessions=[self._info(session) for session in newest])

    def one(self, key: str) -> SessionInfo:
        session = self._sessions.find(key)
        return self._info(session, self._room.missing(session))

    def resumed(self, key: str) -> SessionInfo:
        session = self._sessions.resume(key)
        return self._info(session, self._room.missing(session))

    def exported(self, key: str, compat: bool) -> Iterator[bytes]:
        return self._room.export(self._sessions.find(key), compat=compat).json()

    async def _list(self, request: Request, given: Given) -> Response:
        return json_reply(await run_in_threadpool(self.listed))

    async def _one(self, request: Request, given: Given) -> Response:
        return json_reply(await run_in_threadpool(self.one, given["session"]))

    async def _start(self, request: Request, given: Given) -> Response:
        asked = await body_of(request, NewSession)

        def start() -> SessionInfo:
            return self._info(self._sessions.start(asked.name, asked.metrics), [])

        return json_reply(await run_in_threadpool(start))

    async def _stop(self, request: Request, given: Given) -> Response:
        await body_of(request, Nothing)

        def stop() -> tuple[Session, bool]:
            session = self._sessions.find(given["session"])
            stopped = self._sessions.stop(session.id)
            return (stopped[0], True) if stopped else (session, False)

        session, is_new = await run_in_threadpool(stop)
        if is_new:
            await self._room.gathered([session])
        return json_reply(await run_in_threadpool(self.one, session.id))

    async def _resume(self, request: Request, given: Given) -> Response:
        await body_of(request, Nothing)
        return json_reply(await run_in_threadpool(self.resumed, given["session"]))

    # ── export ────────────────────────────────────────────────────────────────────────────────

    async def _export(self, request: Request, given: Given) -> Response:
        session = await run_in_threadpool(self._sessions.find, given["session"])
        export = await run_in_threadpool(
            lambda: self._room.export(session, compat=given["compat"] is not None)
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
        return StreamingResponse(streams.file(scratch, path), media_type=PARQUET, headers=headers)


async def _pieces(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The text, made in threads.  The store's reading ends when the client hangs up."""
    try:
        while (piece := await run_in_threadpool(next, pieces, None)) is not None:
            yield piece
    finally:
        close: Any = getattr(pieces, "close", None)
        if close is not None:
            close()
