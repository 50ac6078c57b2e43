"""HTTP for programs made for gswarm-profiler: its routes at the root, beside /api/v1."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runwatch.head.context import Context, Feature
from runwatch.head.features.gswarm.profiler import Outcome, Profiler
from runwatch.head.http.answering import body_of, routed
from runwatch.head.http.parameters import Parameter, parse
from runwatch.head.http.replies import json_reply
from runwatch.views.sessions import check_name

_COMPAT: Final = Parameter("compat", "string", "in the units of", choices=("gswarm",))


class Start(msgspec.Struct):
    """Unknown keys are ignored: other versions send some."""

    name: str | None = None
    report_metrics: list[str] | None = None


class Stop(msgspec.Struct):
    name: str | None = None


class GswarmApi(Feature):
    """gswarm-profiler's routes at the root.  Its gRPC service uses the same `profiler`."""

    def __init__(self, context: Context) -> None:
        self.profiler = Profiler(context.sessions)

    def routes(self) -> list[Route]:
        profiler = self.profiler
        table: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
            ("GET", "/status", self._told(profiler.status)),
            ("GET", "/clients", self._told(profiler.clients)),
            ("GET", "/profiling/sessions", self._told(profiler.listed)),
            ("GET", "/metrics/latest", self._latest),
            ("POST", "/profiling/start", self._start),
            ("POST", "/profiling/stop", self._stop),
        ]
        return [Route(path, routed(path, answer), methods=[m]) for m, path, answer in table]

    def _told(self, ask: Callable[[], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            parse((), request.scope["query_string"], {})
            return await run_in_threadpool(lambda: json_reply(ask()))

        return answer

    async def _latest(self, request: Request) -> Response:
        given = parse((_COMPAT,), request.scope["query_string"], {})
        compat = given["compat"] is not None
        return await run_in_threadpool(lambda: json_reply(self.profiler.latest(compat=compat)))

    async def _start(self, request: Request) -> Response:
        asked = await body_of(request, Start)
        if asked.name is not None:
            check_name(asked.name)
        metrics = asked.report_metrics or []
        return _outcome(await run_in_threadpool(self.profiler.start, asked.name, metrics))

    async def _stop(self, request: Request) -> Response:
        asked = await body_of(request, Stop)
        if asked.name is not None:
            check_name(asked.name)
        return _outcome(await self.profiler.stop(asked.name))


def _outcome(outcome: Outcome) -> Response:
    return json_reply(outcome.answer())
