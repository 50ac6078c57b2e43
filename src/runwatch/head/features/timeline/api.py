"""The page's own routes under /api/v1: the list of runs, a run's timeline, heat maps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from runwatch.head.features.goodput.notes import GoodputKeeper
from runwatch.head.features.timeline import answers as page_answers
from runwatch.head.features.timeline import heatmaps
from runwatch.head.features.timeline.types import HeatmapInfo, HeatMetrics, TimelineInfo
from runwatch.head.http.access import CALLER
from runwatch.head.http.guests import Sight
from runwatch.head.http.openapi import JSON, Operation, Respond
from runwatch.head.http.parameters import Given, Parameter
from runwatch.head.http.patience import for_caller
from runwatch.head.http.replies import json_reply
from runwatch.head.http.types import Answer, RunList
from runwatch.head.reading import Reading
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.head.state.board import RunBoard
from runwatch.views.runs import STATES

_RUN: Final = Parameter("run", "string", "a run's id, or its name", "path", shortest=1)
_START: Final = Parameter("start", "integer", "from here on, in nanoseconds since the epoch")
_END: Final = Parameter("end", "integer", "up to but without here, in nanoseconds since the epoch")


def _number(name: str, words: str, default: int, most: int, least: int = 1) -> Parameter:
    return Parameter(name, "integer", words, minimum=least, maximum=most, default=default)


_RUNS: Final = (
    Parameter("state", "string", "only runs in these states", choices=STATES, repeated=True),
    Parameter("group", "string", "only runs of this group"),
    Parameter("name", "string", "only runs of this name"),
    Parameter("search", "string", "only those with this in name, id or group, in any case"),
    Parameter(
        "order",
        "string",
        "by what; - is descending",
        choices=page_answers.ORDERS,
        default="-started",
    ),
    Parameter("metrics", "string", "also the newest of these", shortest=1, repeated=True),
    _number("limit", "at most so many", 100, 10_000),
    _number("offset", "leave out so many", 0, 10**9, 0),
)
_TIMELINE: Final = (
    _RUN,
    _START,
    _END,
    _number("pixels", "merge what is shorter than the window / this", 1500, 10_000),
    _number("events", "at most so many events", 500, 5000, 0),
)
_HEATMAP: Final = (
    _RUN,
    Parameter("metric", "string", "of each device", shortest=1, required=True),
    _START,
    _END,
    _number("columns", "at most so many", 600, 4000),
    _number("rows", "at most so many; neighbours then share one", 256, 10_000),
    Parameter(
        "statistic",
        "string",
        "of what is in a cell",
        choices=heatmaps.STATISTICS,
        default="mean",
    ),
)


class PageDesk:
    """`operations` is its part of the API's table."""

    def __init__(
        self,
        reading: Reading,
        accounts: Accounts,
        board: RunBoard,
        keeper: GoodputKeeper | None = None,
    ) -> None:
        self._reading = reading
        self._board = board
        self._keeper = keeper
        self._timelines = page_answers.Timelines(reading, accounts, board)

    def operations(self) -> list[Operation]:
        of_run = "/api/v1/runs/{run}"
        errors = (404, 409, 422)
        return [
            Operation("/api/v1/runs", "Runs", self._runs, _RUNS, {JSON: RunList}),
            Operation(
                f"{of_run}/timeline",
                "All that its timeline shows of a window",
                _json(self._timelines.of),
                _TIMELINE,
                {JSON: TimelineInfo},
                errors,
            ),
            Operation(
                f"{of_run}/heatmap",
                "A metric of all its devices over time",
                _json(lambda given: heatmaps.heatmap(self._reading, given)),
                _HEATMAP,
                {JSON: HeatmapInfo},
                errors,
            ),
            Operation(
                f"{of_run}/heatmap/metrics",
                "Metrics that its devices have",
                _json(lambda given: heatmaps.metrics(self._reading, given)),
                (_RUN,),
                {JSON: HeatMetrics},
                (404, 409),
            ),
        ]

    async def _runs(self, request: Request, given: Given) -> Response:
        return await for_caller(request, lambda: self._listed(request, given))

    def _listed(self, request: Request, given: Given) -> Response:
        """A list that the caller has already is not made again."""
        summaries, state = self._board.summaries()
        sight: Sight = request.scope[CALLER].sight
        summaries = [run for run in summaries if sight.shows(run.run, run.group)]
        said = f"{state} {sight} ".encode() + request.scope["query_string"]
        tag = f'"{hashlib.sha256(said).hexdigest()[:24]}"'
        headers = {
            "ETag": tag,
            "Cache-Control": "private, no-cache",
            "Vary": "Authorization, Cookie",
        }
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        answer = page_answers.runs(self._board, self._reading, given, summaries)
        if self._keeper is not None:
            self._keeper.want(answer.runs)
        return json_reply(answer, headers=headers)


def _json(answer: Callable[[Given], Answer]) -> Respond:
    async def respond(request: Request, given: Given) -> Response:
        return await for_caller(request, lambda: json_reply(answer(given)))

    return respond
