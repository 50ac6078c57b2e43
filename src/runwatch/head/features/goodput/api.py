"""The accounts' routes under /api/v1: of one run, of several together, and a run's log entries."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from runwatch.head.context import Context, Feature
from runwatch.head.features.goodput import answers as goodput_answers
from runwatch.head.features.goodput import figures as goodput_figures
from runwatch.head.features.goodput.types import (
    ClassList,
    EntryList,
    ExplainedInfo,
    GoodputInfo,
    RolledUp,
)
from runwatch.head.http.access import CALLER
from runwatch.head.http.answering import answered
from runwatch.head.http.guests import Sight
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import RUN, Given, Parameter, limit
from runwatch.head.http.patience import for_caller
from runwatch.head.http.replies import json_reply
from runwatch.head.settings import MOST_EXPENSIVE
from runwatch.head.state.board import GoodputNote
from runwatch.record import RunId

_SINCE: Final = Parameter("since", "integer", "only from here on, in nanoseconds since the epoch")
_TIME: Final = Parameter(
    "time", "integer", "an instant of the run, in nanoseconds since the epoch", required=True
)
_UNTIL: Final = Parameter("until", "integer", "only up to here, in nanoseconds since the epoch")
_PRICE: Final = Parameter(
    "price_per_device_hour",
    "number",
    "what an accelerator costs in an hour, if not what the head was told",
    minimum=0,
    maximum=MOST_EXPENSIVE,
)


_GOODPUT: Final = (
    RUN,
    _SINCE,
    _UNTIL,
    Parameter(
        "exclude",
        "string",
        "START/END, both in nanoseconds since the epoch; this time is not counted",
        pattern="^-?[0-9]{1,19}/-?[0-9]{1,19}$",
        repeated=True,
    ),
    Parameter("buckets", "integer", "also in so many equal parts", minimum=1, maximum=2000),
    Parameter("intervals", "integer", "also as at most so many", minimum=1, maximum=20_000),
    Parameter("program", "boolean", "also how much of its accelerators it used", default=False),
    _PRICE,
)
_ROLLED_UP: Final = (
    Parameter("group", "string", "only runs of this group"),
    Parameter("user", "string", "only runs of this user"),
    _SINCE,
    _UNTIL,
    Parameter("by", "string", "also summed for each of these", choices=("group", "user", "week")),
    limit(200, 1000),
    _PRICE,
)
_ENTRIES: Final = (
    RUN,
    Parameter(
        "after",
        "string",
        "what `next` said the last time",
        longest=goodput_answers.LONGEST_CURSOR,
        pattern="^[A-Za-z0-9_=-]*$",
        default="",
    ),
    Parameter("logger", "string", "only of the log with this name"),
    limit(10_000, 100_000),
)


class GoodputApi(Feature):
    """The accounts of one run, of several together, and a run's log entries."""

    def __init__(self, context: Context) -> None:
        self._reading = context.reading
        self._accounts = context.accounts
        self._board = context.board
        self._price = context.serving.price_per_device_hour

    def operations(self) -> list[Operation]:
        of_run = "/api/v1/runs/{run}"
        errors = (404, 409, 422)
        return [
            Operation(
                "/api/v1/goodput/classes",
                "What time can go into: names, words, meanings, colours",
                answered(lambda given: goodput_answers.classes()),
                (),
                {JSON: ClassList},
            ),
            Operation(
                f"{of_run}/goodput",
                "What its time went into",
                answered(self._goodput),
                _GOODPUT,
                {JSON: GoodputInfo},
                errors,
            ),
            Operation(
                f"{of_run}/goodput/explain",
                "Why an instant of it is in its class",
                answered(
                    lambda given: goodput_answers.explained(self._reading, self._accounts, given)
                ),
                (RUN, _TIME),
                {JSON: ExplainedInfo},
                errors,
            ),
            Operation(
                "/api/v1/goodput",
                "What the time of several runs went into, together",
                self._rolled_up,
                _ROLLED_UP,
                {JSON: RolledUp},
                (422,),
            ),
            Operation(
                f"{of_run}/goodput/entries",
                "What its GoodputRecorder recorded, as log entries",
                answered(lambda given: goodput_answers.entries(self._reading, given)),
                _ENTRIES,
                {JSON: EntryList},
                errors,
            ),
        ]

    def _goodput(self, given: Given) -> GoodputInfo:
        found = goodput_answers.account(self._reading, self._accounts, self._priced(given))
        if not (given["since"] or given["until"] or given["exclude"]):
            spent = {each.name: each.share for each in found.spent if each.share}
            self._board.note(RunId(found.run), GoodputNote(found.end_ns, found.goodput, spent))
        return found

    async def _rolled_up(self, request: Request, given: Given) -> Response:
        sight: Sight = request.scope[CALLER].sight

        def made() -> RolledUp:
            summaries, _ = self._board.summaries()
            shown = [run for run in summaries if sight.shows(run.run, run.group)]
            return goodput_figures.rolled_up(
                self._reading, self._accounts, shown, self._priced(given)
            )

        return await for_caller(request, lambda: json_reply(made()))

    def _priced(self, given: Given) -> Given:
        """With this head's price, unless who asks brings one."""
        price = given["price_per_device_hour"]
        return given | {"price_per_device_hour": self._price if price is None else price}
