"""The routes that the unmodified google-cloud-mldiagnostics asks (`DIAGON_BASE_URL`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runwatch.errors import StoreBusy
from runwatch.head.context import Context
from runwatch.head.features.otlp.book import peer_of
from runwatch.head.features.otlp.receiver import Receiver, Refused, failed
from runwatch.head.features.otlp.runs import MlRuns, Told
from runwatch.head.http.access import CALLER
from runwatch.head.http.answering import Answering, routed, text_of
from runwatch.head.http.parameters import BadRequest
from runwatch.head.http.replies import error_reply, json_reply

RUNS: Final = "/v1/machineLearningRuns"
RUN: Final = f"{RUNS}/{{run}}"
SESSIONS: Final = f"{RUN}/profilerSessions"
SESSION: Final = f"{SESSIONS}/{{session}}"
PATIENCE_SECONDS: Final = 10.0
"""The client waits five seconds, and goes on without us.  An error would end its program."""


class MlRunRoutes:
    def __init__(self, context: Context, receiver: Receiver) -> None:
        self._receiver = receiver
        self._runs = MlRuns(context, receiver)
        self._where = context.where

    def routes(self) -> list[Route]:
        table: list[tuple[str, str, Answering]] = [
            ("PATCH", RUNS, self._patch),
            ("PATCH", RUN, self._patch),
            ("GET", RUNS, self._list),
            ("GET", RUN, self._get),
            ("POST", SESSIONS, self._session),
            ("PATCH", SESSION, self._session),
            ("GET", SESSIONS, self._sessions),
            ("GET", SESSION, self._one_session),
            ("GET", "/v1/agent-info", self._agent_info),
        ]
        return [Route(path, routed(path, answer), methods=[m]) for m, path, answer in table]

    # ── reading ───────────────────────────────────────────────────────────────────────────────

    async def _agent_info(self, request: Request) -> Response:
        id = await run_in_threadpool(lambda: self._where().id)
        return json_reply({"cluster_id": id or "runwatch"})

    async def _list(self, request: Request) -> Response:
        found = await run_in_threadpool(self._runs.listed)
        return json_reply({"machineLearningRuns": found})

    async def _get(self, request: Request) -> Response:
        return json_reply(await run_in_threadpool(self._runs.found, request.path_params["run"]))

    async def _sessions(self, request: Request) -> Response:
        found = await run_in_threadpool(self._runs.sessions, request.path_params["run"])
        return json_reply({"profilerSessions": found})

    async def _one_session(self, request: Request) -> Response:
        asked = request.path_params
        return json_reply(
            await run_in_threadpool(self._runs.session, asked["run"], asked["session"])
        )

    # ── changing ──────────────────────────────────────────────────────────────────────────────

    async def _patch(self, request: Request) -> Response:
        given, query = await _object(request), request.query_params
        mask = [each for each in _either(query, "update_mask").split(",") if each.strip()]
        missing = _either(query, "allow_missing").lower() in ("true", "1")
        id, peer, projects = (
            request.path_params.get("run", ""),
            peer_of(request),
            _projects(request),
        )
        return await self._told(
            lambda: self._runs.patched(id, given, mask, missing, peer, projects)
        )

    async def _session(self, request: Request) -> Response:
        given, asked = await _object(request), request.path_params
        name = asked.get("session") or _either(request.query_params, "profiler_session_id")
        peer, projects = peer_of(request), _projects(request)
        return await self._told(
            lambda: self._runs.session_told(asked["run"], name, given, peer, projects)
        )

    async def _told(self, work: Callable[[], Told]) -> Response:
        """Answers when the store has it."""
        try:
            told = await self._receiver.call(work)
        except Refused as error:
            return error_reply(403, "not_allowed", str(error))
        waiting = asyncio.ensure_future(asyncio.wrap_future(told.stored))
        _, late = await asyncio.wait({waiting}, timeout=PATIENCE_SECONDS)
        if late or failed(told.stored):
            raise StoreBusy(self._receiver.ingest.problem or "the store does not answer")
        return json_reply(told.resource)


def _either(query: Any, name: str) -> str:
    """A parameter, in snake case or in camel case."""
    first, *rest = name.split("_")
    return str(query.get(name) or query.get(first + "".join(map(str.title, rest))) or "")


def _projects(request: Request) -> tuple[str, ...]:
    token = request.scope[CALLER].token
    return () if token is None else token.projects


async def _object(request: Request) -> dict[str, Any]:
    text = await text_of(request)
    try:
        given = msgspec.json.decode(text.strip() or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadRequest("the body is not a JSON object")
    return given
