"""The HTTP port: every feature's operations and routes in one app.

Store reads run in a pool of threads.  Errors leave in one shape, {"error": {"code", "message"}}.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import cache
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runwatch._version import __version__
from runwatch.errors import NotFound, RunwatchError, StoreBusy, StoreDamaged, StoreFull, UsageError
from runwatch.exports.prometheus import CONTENT_TYPE, HeadMetrics
from runwatch.head.access import roles
from runwatch.head.context import Context, Feature
from runwatch.head.http import health, streams
from runwatch.head.http.access import CALLER, TRUSTED, Access
from runwatch.head.http.answering import ROUTE, Answering, answered, routed
from runwatch.head.http.base_path import BasePath
from runwatch.head.http.cors import Cors
from runwatch.head.http.feed import Cards, feed
from runwatch.head.http.guests import by_id
from runwatch.head.http.live import TooManySubscribers
from runwatch.head.http.openapi import JSON, Operation, document
from runwatch.head.http.pages import Pages
from runwatch.head.http.parameters import BadRequest, Given, Parameter, decoded, parse
from runwatch.head.http.patience import Patience
from runwatch.head.http.replies import error_reply, json_reply
from runwatch.head.http.types import Health, LiveHello, LivePoints, RunInfo, Where
from runwatch.head.reading import Ambiguous, Unknown
from runwatch.head.state.sessions import SessionActive
from runwatch.views.sessions import BadName


def create_app(context: Context, features: Sequence[Feature]) -> Starlette:
    """The app of one head.  Call `context.live.close()` before you stop the server."""
    operations, pages = operations_of(context, features), Pages()
    routes = [
        *(Route(op.path, _endpoint(op), methods=[op.method]) for op in operations),
        Route("/api/v1/openapi.json", _described(operations), methods=["GET"]),
        Route("/metrics", _prometheus(context.metrics), methods=["GET"]),
        *pages.routes(),
        *(route for feature in features for route in feature.routes()),
    ]
    if missing := roles.unknown(routes):
        raise RuntimeError(f"head/access/roles.py names no role for {missing}; add them there")
    gate, serving = context.gate, context.serving
    app = Starlette(
        routes=routes,
        exception_handlers=_HANDLERS,
        middleware=[
            Middleware(BasePath, base=serving.base_path),
            Middleware(Cors, origins=gate.settings.origins),
            Middleware(_Counted, metrics=context.metrics),
            Middleware(
                Access,
                settings=gate.settings,
                links=gate.shares,
                known_tokens=gate.tokens,
                audit=gate.audit,
                main=gate.main,
                runs=context.reading,
                clock=context.reading.clock,
            ),
            Middleware(Patience, seconds=serving.answer_seconds),
        ],
    )
    app.router.redirect_slashes = False
    return app


def operations_of(context: Context, features: Sequence[Feature]) -> list[Operation]:
    """Every operation of /api/v1."""
    return [
        *_Own(context).operations(),
        *(operation for feature in features for operation in feature.operations()),
    ]


# ── what the port itself answers ───────────────────────────────────────────────────────────────

_LIVE: Final = (
    Parameter("run", "string", "follow only this run, and its points", shortest=1),
    Parameter(
        "values",
        "string",
        "off: a message says that new points came, but leaves out their values",
        choices=("on", "off"),
        default="on",
    ),
)


class _Own:
    """Health, where agents connect, and the live stream."""

    def __init__(self, context: Context) -> None:
        self._reading = context.reading
        self._where = context.where
        self._live = context.live
        self._pace = context.serving.pace
        self._cards = Cards(
            context.reading,
            context.live,
            fresh_seconds=self._pace.all_seconds,
            board=context.board,
        )

    def operations(self) -> list[Operation]:
        return [
            Operation("/api/v1/health", "The head's health", self._health, (), {JSON: Health}),
            Operation(
                "/api/v1/where",
                "Where agents connect",
                answered(lambda given: self._where()),
                (),
                {JSON: Where},
            ),
            Operation(
                "/api/v1/live",
                "Live changes, as server-sent events: hello, run (RunInfo), points (LivePoints)",
                self._stream,
                _LIVE,
                {"text/event-stream": None},
                (404, 409),
                events={"hello": LiveHello, "run": RunInfo, "points": LivePoints},
            ),
        ]

    async def _health(self, request: Request, given: Given) -> Response:
        if request.scope[TRUSTED]:
            return await answered(lambda given: health.health(self._reading))(request, given)
        return json_reply(await run_in_threadpool(health.public_health, self._reading))

    async def _stream(self, request: Request, given: Given) -> Response:
        run = await run_in_threadpool(self._reading.run, given["run"]) if given["run"] else None
        self._live.check_capacity()
        stream: AsyncIterator[bytes] = feed(
            self._reading,
            self._live,
            self._cards,
            run=run,
            values=given["values"] == "on",
            last_id=request.headers.get("last-event-id", ""),
            pace=self._pace,
            sight=request.scope[CALLER].sight,
        )
        if request.method == "HEAD":
            stream = streams.nothing()
        return StreamingResponse(
            stream,
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )


def _prometheus(metrics: HeadMetrics) -> Answering:
    async def respond(request: Request) -> Response:
        parse((), request.scope["query_string"], {})
        text = await run_in_threadpool(metrics.text)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    return routed("/metrics", respond)


def _endpoint(op: Operation) -> Answering:
    async def respond(request: Request) -> Response:
        request.scope[ROUTE] = op.path
        decoded(request.scope.get("raw_path", b"").replace(b"+", b"%2B"))
        given = parse(op.parameters, request.scope["query_string"], request.path_params)
        return await op.respond(request, by_id(request.scope, given))

    return respond


def _described(operations: Sequence[Operation]) -> Answering:
    """The OpenAPI document.  It is slow to make, so it is made at the first request."""
    reply = cache(lambda: json_reply(document(operations, version=__version__)))

    async def respond(request: Request) -> Response:
        request.scope[ROUTE] = request.scope["path"]
        parse((), request.scope["query_string"], {})
        return await run_in_threadpool(reply)

    return respond


# ── errors and counting ────────────────────────────────────────────────────────────────────────


async def _on_bad_request(request: Request, error: Exception) -> Response:
    return error_reply(400, "bad_request", str(error))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed"}
    messages = {
        404: f"there is nothing at {request.url.path[:200]!r}; see /api/v1/openapi.json",
        405: f"{request.method[:20]} is not possible here; see /api/v1/openapi.json",
    }
    status = error.status_code
    return error_reply(
        status,
        codes.get(status, "refused"),
        messages.get(status, error.detail),
        headers=error.headers,
    )


async def _on_ambiguous(request: Request, error: Exception) -> Response:
    assert isinstance(error, Ambiguous)
    return error_reply(409, "ambiguous", str(error), choices=error.choices)


async def _on_not_found(request: Request, error: Exception) -> Response:
    choices = error.choices if isinstance(error, Unknown) else ()
    return error_reply(404, "not_found", str(error), choices=choices)


async def _on_active(request: Request, error: Exception) -> Response:
    return error_reply(409, "active", str(error))


async def _on_impossible(request: Request, error: Exception) -> Response:
    return error_reply(422, "impossible", str(error))


async def _on_unavailable(request: Request, error: Exception) -> Response:
    return error_reply(503, "unavailable", str(error), headers={"Retry-After": "5"})


async def _on_bug(request: Request, error: Exception) -> Response:
    return error_reply(500, "internal", "this is a bug in Runwatch; the head's log has the details")


_HANDLERS: Final[dict[Any, Any]] = {
    BadRequest: _on_bad_request,
    BadName: _on_bad_request,
    SessionActive: _on_active,
    HTTPException: _on_http,
    Ambiguous: _on_ambiguous,
    NotFound: _on_not_found,
    UsageError: _on_impossible,
    TooManySubscribers: _on_unavailable,
    StoreBusy: _on_unavailable,
    StoreDamaged: _on_unavailable,
    StoreFull: _on_unavailable,
    RunwatchError: _on_unavailable,
    Exception: _on_bug,
}


class _Counted:
    """ASGI middleware that counts answers by route and status."""

    def __init__(self, app: ASGIApp, metrics: HeadMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(scope.get(ROUTE, "other"), message["status"])
            await send(message)

        await self._app(scope, receive, counting)
