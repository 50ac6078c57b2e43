"""The HTTP API: parse → view → JSON.  The table `operations` is all there is under /api/v1.

Store reads run in a pool of threads.  Errors leave in one shape, {"error": {"code", "message"}}.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
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
from runwatch.clock import Clock, system_clock
from runwatch.errors import NotFound, RunwatchError, StoreBusy, StoreDamaged, StoreFull, UsageError
from runwatch.exports.csv import csv_text
from runwatch.exports.json import json_text
from runwatch.exports.parquet import write_parquet
from runwatch.exports.perfetto import MEDIA_TYPE as _TRACE
from runwatch.exports.perfetto import perfetto_text
from runwatch.exports.prometheus import CONTENT_TYPE, HeadMetrics
from runwatch.exports.rows import export_batches
from runwatch.head import answers, device_answers, roles, streams
from runwatch.head import api_types as types
from runwatch.head.access import CALLER, TRUSTED, Access, AccessSettings
from runwatch.head.audit import Audit
from runwatch.head.audit_answers import AuditDesk
from runwatch.head.bands import BandDesk
from runwatch.head.base_path import BasePath
from runwatch.head.capture_answers import CaptureDesk
from runwatch.head.captures import Captures
from runwatch.head.clients import Clients
from runwatch.head.deletion_answers import DeletionDesk
from runwatch.head.deletions import Deletions
from runwatch.head.feed import Cards, Pace, feed
from runwatch.head.goodput import Accounts
from runwatch.head.goodput_desk import GoodputDesk
from runwatch.head.goodput_notes import GoodputKeeper
from runwatch.head.gswarm import Profiler
from runwatch.head.gswarm_http import GswarmHttp, info, wants_json
from runwatch.head.guests import by_id, seen
from runwatch.head.incidents import Incidents, StackTaker
from runwatch.head.live import Live, TooManySubscribers
from runwatch.head.main_token import MainToken
from runwatch.head.openapi import JSON, Operation, Respond, document
from runwatch.head.page_desk import PageDesk
from runwatch.head.pages import Pages
from runwatch.head.parameters import BadRequest, Given, Parameter, decoded, parse
from runwatch.head.patience import ANSWER_SECONDS, Patience, for_caller
from runwatch.head.profile_room import ProfileRoom
from runwatch.head.reading import Ambiguous, Reading, Standing
from runwatch.head.replies import error_reply, json_reply
from runwatch.head.run_board import RunBoard
from runwatch.head.session_answers import SessionDesk
from runwatch.head.sessions import SessionActive, Sessions
from runwatch.head.share_answers import ShareDesk
from runwatch.head.shares import Shares
from runwatch.head.speedscope import Speedscope
from runwatch.head.stack_answers import StackDesk
from runwatch.head.token_answers import TokenDesk
from runwatch.head.tokens import Tokens
from runwatch.record import JournalId, RunId
from runwatch.store.store import Store
from runwatch.views.devices import ORDERS as device_orders
from runwatch.views.sessions import BadName

_ROUTE: Final = "runwatch.route"
_PARQUET: Final = "application/vnd.apache.parquet"


def create_app(
    store: Store,
    *,
    access: AccessSettings | None = None,
    clock: Clock = system_clock,
    live: Live | None = None,
    metrics: HeadMetrics | None = None,
    alive: Callable[[], Collection[JournalId]] = tuple,
    gone: Callable[[], Collection[JournalId]] = tuple,
    standing: Callable[[], Standing] = Standing,
    pace: Pace | None = None,
    accounts: Accounts | None = None,
    clock_offsets: device_answers.Offsets = dict,
    desk: SessionDesk | None = None,
    profiler: Profiler | None = None,
    profiles: ProfileRoom | None = None,
    captures: Captures | None = None,
    incidents: Incidents | None = None,
    shares: Shares | None = None,
    tokens: Tokens | None = None,
    audit: Audit | None = None,
    main: MainToken | None = None,
    board: RunBoard | None = None,
    keeper: GoodputKeeper | None = None,
    deletions: Deletions | None = None,
    answer_seconds: float = ANSWER_SECONDS,
    base_path: str = "",
    price_per_device_hour: float | None = None,
) -> Starlette:
    """The app of one store.  Whoever stops the server calls `live.close()` first."""
    reading = Reading(store, clock=clock, alive=alive, gone=gone, standing=standing)
    api = Api(
        reading,
        live or Live(),
        metrics or HeadMetrics(store.health),
        pace or Pace(),
        accounts or Accounts(reading),
        board or RunBoard(reading),
        clock_offsets,
    )
    desk = desk or SessionDesk(
        Sessions(store, clock=clock), Clients(store, clock=clock), clock=clock
    )
    profiles = profiles or ProfileRoom(reading)
    capturing = CaptureDesk(captures or Captures(reading))
    stacks = StackDesk(incidents or Incidents(StackTaker(reading)))
    access = access or AccessSettings()
    shares = shares or Shares(clock=clock)
    tokens, audit = tokens or Tokens(clock=clock), audit or Audit(clock=clock)
    main = main or MainToken(access.token)

    def on_revoked() -> None:
        """Those that are open look whether they may stay."""
        api.live.changed([JournalId("")])

    sharing = ShareDesk(
        reading,
        shares,
        has_token=bool(access.token),
        base_path=base_path,
        on_revoked=on_revoked,
    )
    operations = [
        *api.operations(),
        *GoodputDesk(reading, api.accounts, api.board, price_per_device_hour).operations(),
        *desk.operations(),
        *profiles.operations(),
        *capturing.operations(),
        *stacks.operations(),
        *sharing.operations(),
        *TokenDesk(tokens, main, on_revoked=on_revoked).operations(),
        *AuditDesk(audit).operations(),
        *BandDesk(reading).operations(),
        *PageDesk(reading, api.accounts, api.board, keeper).operations(),
        *DeletionDesk(
            deletions or Deletions(reading, api.accounts, api.board, profiles.profiles)
        ).operations(),
    ]
    pages = Pages()
    routes = [Route(op.path, api.endpoint(op), methods=[op.method]) for op in operations]
    routes += [
        Route("/api/v1/openapi.json", _described(operations), methods=["GET"]),
        Route("/metrics", api.prometheus, methods=["GET"]),
        Route("/", _routed("/", _front(pages)), methods=["GET"]),
        *pages.routes(_routed),
        *GswarmHttp(profiler or Profiler(desk)).routes(_routed),
        *profiles.routes(_routed),
        *Speedscope().routes(_routed),
    ]
    if missing := roles.unknown(routes):
        raise RuntimeError(f"head/roles.py does not say who may ask for {missing}")
    app = Starlette(
        routes=routes,
        exception_handlers=_HANDLERS,
        middleware=[
            Middleware(BasePath, base=base_path),
            Middleware(_Counted, metrics=api.metrics),
            Middleware(
                Access,
                settings=access,
                links=shares,
                known_tokens=tokens,
                audit=audit,
                main=main,
                runs=reading,
                clock=clock,
            ),
            Middleware(Patience, seconds=answer_seconds),
        ],
    )
    app.router.redirect_slashes = False
    return app


# ── what may be asked ──────────────────────────────────────────────────────────────────────────

_RUN = Parameter("run", "string", "a run's id, or its name if only one has it", "path", shortest=1)
_FILTERS = (
    Parameter("rank", "integer", "only these ranks", repeated=True),
    Parameter("host", "string", "only these hosts", repeated=True),
    Parameter("device", "string", "only these devices", repeated=True),
    Parameter("attempt", "integer", "only these attempts", minimum=1, repeated=True),
)
_METRIC = Parameter("metric", "string", "only these metrics", shortest=1, repeated=True)
_CURVE_METRIC = Parameter(
    "metric", "string", "the metrics to draw", shortest=1, repeated=True, required=True
)
_START = Parameter("start", "integer", "from here on, in nanoseconds since the epoch")
_END = Parameter("end", "integer", "up to but without here, in nanoseconds since the epoch")
_OFFSET = Parameter("offset", "integer", "leave out so many", minimum=0, maximum=10**9, default=0)


def _limit(default: int, most: int) -> Parameter:
    return Parameter(
        "limit", "integer", "at most so many", minimum=1, maximum=most, default=default
    )


_CURVES = (
    _RUN,
    _CURVE_METRIC,
    *_FILTERS,
    Parameter("axis", "string", "along what", choices=("time", "step"), default="time"),
    Parameter("start", "integer", "from this time in ns, or step, on"),
    Parameter("end", "integer", "up to but without this time in ns, or step"),
    Parameter("buckets", "integer", "reduce to so many", minimum=1, maximum=10_000, default=1000),
)
_EVENTS = (
    _RUN,
    Parameter("kind", "string", "only these kinds", shortest=1, repeated=True),
    _START,
    _END,
    _limit(1000, 10_000),
    Parameter("newest_first", "boolean", "the newest first", default=False),
)
_EXPORT = (
    _RUN,
    Parameter(
        "format", "string", "how", choices=("csv", "json", "parquet", "perfetto"), default="csv"
    ),
    _METRIC,
    *_FILTERS,
    _START,
    _END,
)
_DEVICES = (
    Parameter("run", "string", "only of this run, by id or name", shortest=1),
    Parameter("host", "string", "only of these hosts", repeated=True),
    Parameter("sort", "string", "by what", choices=device_orders, default="hurt"),
    Parameter(
        "within",
        "integer",
        "those heard of in the last so many seconds",
        minimum=1,
        maximum=10**9,
        default=device_answers.WITHIN_SECONDS,
    ),
    _limit(10_000, 100_000),
    _OFFSET,
)
_LIVE = (
    Parameter("run", "string", "follow this run, points included", shortest=1),
    Parameter(
        "values", "string", "off: only that points came", choices=("on", "off"), default="on"
    ),
)


class Api:
    def __init__(
        self,
        reading: Reading,
        live: Live,
        metrics: HeadMetrics,
        pace: Pace,
        accounts: Accounts,
        board: RunBoard,
        clock_offsets: device_answers.Offsets = dict,
    ) -> None:
        self.reading = reading
        self.live = live
        self.metrics = metrics
        self.accounts = accounts
        self.board = board
        self._clock_offsets = clock_offsets
        self._pace = pace
        self._cards = Cards(reading, live, fresh_seconds=pace.all_seconds, board=board)

    def operations(self) -> list[Operation]:
        def ask(
            path: str,
            summary: str,
            answer: Callable[[Reading, Given], types.Answer],
            kind: type[types.Answer],
            parameters: Sequence[Parameter],
            errors: tuple[int, ...] = (404, 409),
        ) -> Operation:
            respond = self._json(answer)
            return Operation(
                f"/api/v1{path}", summary, respond, tuple(parameters), {JSON: kind}, errors
            )

        of_run = "/runs/{run}"
        page = (_limit(1000, 10_000), _OFFSET)
        return [
            Operation("/api/v1/health", "How the head is", self._health, (), {JSON: types.Health}),
            ask(of_run, "One run", answers.run, types.RunDetail, [_RUN]),
            ask(
                f"{of_run}/configs",
                "What it was told, and what it ran on",
                answers.configs,
                types.ConfigsInfo,
                [_RUN],
            ),
            ask(
                f"{of_run}/series",
                "Its series, each with its newest point",
                answers.series,
                types.SeriesList,
                [_RUN, _METRIC, *_FILTERS, *page],
            ),
            ask(
                f"{of_run}/curves",
                "Series reduced to buckets along time or step",
                answers.curves,
                types.CurveList,
                _CURVES,
                (404, 409, 422),
            ),
            ask(
                f"{of_run}/latest",
                "The newest point of each series",
                answers.latest,
                types.LatestList,
                [_RUN, _METRIC, *_FILTERS],
            ),
            ask(
                f"{of_run}/events",
                "What happened",
                answers.events,
                types.EventList,
                _EVENTS,
                (404, 409, 422),
            ),
            ask(
                f"{of_run}/processes",
                "Its processes and how each stands",
                answers.processes,
                types.ProcessList,
                [_RUN],
            ),
            Operation(
                "/api/v1/devices",
                "Every accelerator now, those first that hurt",
                self._devices,
                _DEVICES,
                {JSON: types.DeviceList},
                (404, 409),
            ),
            Operation(
                f"/api/v1{of_run}/export",
                "Every point, one row each",
                self._export,
                _EXPORT,
                {"text/csv": None, JSON: list[types.ExportedPoint], _PARQUET: None, _TRACE: None},
                (404, 409, 422),
            ),
            Operation(
                "/api/v1/live",
                "Server-sent events: hello, run (RunInfo), points (LivePoints)",
                self._live,
                _LIVE,
                {"text/event-stream": None},
                (404, 409),
                events={
                    "hello": types.LiveHello,
                    "run": types.RunInfo,
                    "points": types.LivePoints,
                },
            ),
        ]

    def endpoint(self, op: Operation) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            request.scope[_ROUTE] = op.path
            _check_path(request)
            given = parse(op.parameters, request.scope["query_string"], request.path_params)
            return await op.respond(request, by_id(request.scope, given))

        return respond

    def _json(self, answer: Callable[[Reading, Given], types.Answer]) -> Respond:
        async def respond(request: Request, given: Given) -> Response:
            def encoded() -> Response:
                return json_reply(answer(self.reading, given))

            return await for_caller(request, encoded)

        return respond

    async def _devices(self, request: Request, given: Given) -> Response:
        sees, offsets = seen(request.scope[CALLER].sight, self.reading), self._clock_offsets
        found = partial(device_answers.devices, offsets=offsets, sees=sees)
        return await self._json(lambda reading, given: found(reading, given=given))(request, given)

    async def _health(self, request: Request, given: Given) -> Response:
        if request.scope[TRUSTED]:
            return await self._json(answers.health)(request, given)
        return json_reply(await run_in_threadpool(answers.public_health, self.reading))

    async def prometheus(self, request: Request) -> Response:
        request.scope[_ROUTE] = "/metrics"
        parse((), request.scope["query_string"], {})
        text = await run_in_threadpool(self.metrics.text)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    # ── streams ────────────────────────────────────────────────────────────────────────────────

    async def _export(self, request: Request, given: Given) -> Response:
        run = await run_in_threadpool(answers.run_id, self.reading, given)
        headers = {"Content-Disposition": f'attachment; filename="points.{given["format"]}"'}
        if given["format"] == "parquet":
            return await self._export_parquet(request, run, given, headers)
        batches = self._batches(run, given)
        if given["format"] == "perfetto":
            trace = perfetto_text(
                self.reading.store, run, batches, start_ns=given["start"], end_ns=given["end"]
            )
            named = {"Content-Disposition": 'attachment; filename="trace.json"'}
            pieces = streams.streamed(request, trace, batches)
            return StreamingResponse(pieces, media_type=_TRACE, headers=named)
        as_json = given["format"] == "json"
        text = json_text(batches) if as_json else csv_text(batches)
        pieces, media = streams.streamed(request, text, batches), JSON if as_json else "text/csv"
        return StreamingResponse(pieces, media_type=media, headers=headers)

    def _batches(self, run: RunId, given: Given) -> Iterator[Any]:
        return export_batches(
            self.reading.store,
            run,
            question=answers.question(given),
            start_ns=given["start"],
            end_ns=given["end"],
        )

    async def _export_parquet(
        self, request: Request, run: RunId, given: Given, headers: dict[str, str]
    ) -> Response:
        """The engine writes the file whole, so it is made first; then it is sent."""

        def make() -> tuple[tempfile.TemporaryDirectory[str], Path]:
            scratch = tempfile.TemporaryDirectory(prefix="runwatch-export-")
            path = Path(scratch.name, "points.parquet")
            try:
                write_parquet(self._batches(run, given), path)
            except BaseException:
                scratch.cleanup()
                raise
            return scratch, path

        scratch, path = await for_caller(request, make)
        return StreamingResponse(
            streams.file(scratch, path),
            media_type=_PARQUET,
            headers={**headers, "Content-Length": str(path.stat().st_size)},
        )

    async def _live(self, request: Request, given: Given) -> Response:
        run = await run_in_threadpool(self.reading.run, given["run"]) if given["run"] else None
        self.live.check_capacity()
        stream: AsyncIterator[bytes] = feed(
            self.reading,
            self.live,
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


def _check_path(request: Request) -> None:
    decoded(request.scope.get("raw_path", b"").replace(b"+", b"%2B"))


# ── the page ───────────────────────────────────────────────────────────────────────────────────


def _front(pages: Pages) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        page = await pages.front(request)
        return info() if wants_json(request) else page

    return respond


def _routed(path: str, answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        request.scope[_ROUTE] = path
        found: Response = await answer(request)
        return found

    return respond


def _described(operations: Sequence[Operation]) -> Callable[[Request], Any]:
    """The OpenAPI document, once somebody asks: it takes longer to make than all the rest."""
    made = cache(lambda: json_reply(document(operations, version=__version__)))

    async def respond(request: Request) -> Response:
        request.scope[_ROUTE] = request.scope["path"]
        parse((), request.scope["query_string"], {})
        return await run_in_threadpool(made)

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
    return error_reply(404, "not_found", str(error))


async def _on_active(request: Request, error: Exception) -> Response:
    return error_reply(409, "active", str(error))


async def _on_impossible(request: Request, error: Exception) -> Response:
    return error_reply(422, "impossible", str(error))


async def _on_unavailable(request: Request, error: Exception) -> Response:
    return error_reply(503, "unavailable", str(error), headers={"Retry-After": "5"})


async def _on_bug(request: Request, error: Exception) -> Response:
    return error_reply(500, "internal", "this is a fault in Runwatch; its log has the details")


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
                self._metrics.answered(scope.get(_ROUTE, "other"), message["status"])
            await send(message)

        await self._app(scope, receive, counting)
