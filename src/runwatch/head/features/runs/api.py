"""Runs under /api/v1: the list, one run with its configuration, processes and events; deleting."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from runwatch.head.context import Context, Feature
from runwatch.head.features.runs import answers, listing
from runwatch.head.features.runs.deletions import DeletionDesk
from runwatch.head.features.runs.types import (
    ConfigsInfo,
    EventList,
    ProcessList,
    RunDetail,
    RunList,
)
from runwatch.head.http.access import CALLER
from runwatch.head.http.answering import answered
from runwatch.head.http.guests import Sight
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import END, OFFSET, RUN, START, Given, Parameter, limit
from runwatch.head.http.patience import for_caller
from runwatch.head.http.replies import json_reply
from runwatch.head.http.types import Answer
from runwatch.head.reading import Reading
from runwatch.views.life import SHOWN_STATES
from runwatch.views.logs import KINDS as LOG_KINDS

_RUNS: Final = (
    Parameter(
        "state",
        "string",
        "only runs in these states; one that is stalled is running, too",
        choices=SHOWN_STATES,
        repeated=True,
    ),
    Parameter("group", "string", "only runs of this group"),
    Parameter("name", "string", "only runs of this name"),
    Parameter("workload", "string", "only runs of the cluster's workload with this uid"),
    Parameter("search", "string", "only runs with this text in name, id or group, in any case"),
    Parameter(
        "order",
        "string",
        "sort by this; - is descending",
        choices=listing.ORDERS,
        default="-started",
    ),
    Parameter(
        "metrics", "string", "add the newest point of these metrics", shortest=1, repeated=True
    ),
    limit(100, 10_000),
    OFFSET,
)
_EVENTS: Final = (
    RUN,
    Parameter("kind", "string", "only events of these kinds", shortest=1, repeated=True),
    START,
    END,
    limit(1000, 10_000),
    Parameter("newest_first", "boolean", "list the newest events first", default=False),
)


class RunsApi(Feature):
    def __init__(self, context: Context) -> None:
        self._reading = context.reading
        self._board = context.board
        self._notes = context.notes
        self._deleting = DeletionDesk(context.deletions)

    def operations(self) -> Sequence[Operation]:
        one = "/api/v1/runs/{run}"
        return [
            Operation("/api/v1/runs", "Runs", self._runs, _RUNS, {JSON: RunList}),
            self._ask(one, "One run", answers.run, RunDetail),
            self._ask(
                f"{one}/configs",
                "A run's configuration, software and system",
                answers.configs,
                ConfigsInfo,
            ),
            self._ask(
                f"{one}/processes",
                "A run's processes and their states",
                answers.processes,
                ProcessList,
            ),
            Operation(
                f"{one}/events",
                "A run's events",
                self._events,
                _EVENTS,
                {JSON: EventList},
                (404, 409, 422),
            ),
            *self._deleting.operations(),
        ]

    def _ask(
        self,
        path: str,
        summary: str,
        answer: Callable[[Reading, Given], Answer],
        kind: type[Answer],
    ) -> Operation:
        respond = answered(partial(answer, self._reading))
        return Operation(path, summary, respond, (RUN,), {JSON: kind}, (404, 409))

    async def _events(self, request: Request, given: Given) -> Response:
        # Whoever has nothing but a link sees no logs, here neither (`http/guests.py`).
        hidden = LOG_KINDS if request.scope[CALLER].share is not None else ()
        answer = partial(answers.events, self._reading, given, hidden)
        return await for_caller(request, lambda: json_reply(answer()))

    async def _runs(self, request: Request, given: Given) -> Response:
        return await for_caller(request, lambda: self._listed(request, given))

    def _listed(self, request: Request, given: Given) -> Response:
        """A list that the caller already has is not built again."""
        summaries, state = self._board.summaries()
        sight: Sight = request.scope[CALLER].sight
        summaries = [run for run in summaries if sight.shows(run.run, run.group)]
        asked = f"{state} {sight} ".encode() + request.scope["query_string"]
        tag = f'"{hashlib.sha256(asked).hexdigest()[:24]}"'
        headers = {
            "ETag": tag,
            "Cache-Control": "private, no-cache",
            "Vary": "Authorization, Cookie",
        }
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        answer = listing.runs(self._board, self._reading, given, summaries)
        if self._notes is not None:
            self._notes.want((info.run, info.last_ns) for info in answer.runs)
        return json_reply(answer, headers=headers)
