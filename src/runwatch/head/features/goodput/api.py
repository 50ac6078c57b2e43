"""Goodput under /api/v1: of one run, of several runs together, and a run's log entries."""

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

_SINCE: Final = Parameter("since", "integer", "the window's start, in nanoseconds since the epoch")
_TIME: Final = Parameter(
    "time", "integer", "an instant of the run, in nanoseconds since the epoch", required=True
)
_UNTIL: Final = Parameter("until", "integer", "the window's end, in nanoseconds since the epoch")
_PRICE: Final = Parameter(
    "price_per_device_hour",
    "number",
    "the price of an accelerator per hour, instead of the head's own setting",
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
        "START/END, both in nanoseconds since the epoch: leave this time out of the account",
        pattern="^-?[0-9]{1,19}/-?[0-9]{1,19}$",
        repeated=True,
    ),
    Parameter("buckets", "integer", "add this many equal parts", minimum=1, maximum=2000),
    Parameter("intervals", "integer", "add at most this many intervals", minimum=1, maximum=20_000),
    Parameter("program", "boolean", "add how well it used its accelerators", default=False),
    _PRICE,
)
_ROLLED_UP: Final = (
    Parameter("group", "string", "only runs of this group"),
    Parameter("user", "string", "only runs of this user"),
    _SINCE,
    _UNTIL,
    Parameter("by", "string", "add the sum of each of these", choices=("group", "user", "week")),
    limit(200, 1000),
    _PRICE,
)
_ENTRIES: Final = (
    RUN,
    Parameter(
        "after",
        "string",
        "the `next` of the last answer",
        longest=goodput_answers.LONGEST_CURSOR,
        pattern="^[A-Za-z0-9_=-]*$",
        default="",
    ),
    Parameter("logger", "string", "only entries of the log with this name"),
    limit(10_000, 100_000),
)


class GoodputApi(Feature):
    """The accounts of one run and of several runs, and a run's log entries."""

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
                "The classes of time: names, words, meanings, colours",
                answered(lambda given: goodput_answers.classes()),
                (),
                {JSON: ClassList},
            ),
            Operation(
                f"{of_run}/goodput",
                "How a run's time was spent",
                answered(self._goodput),
                _GOODPUT,
                {JSON: GoodputInfo},
                errors,
            ),
            Operation(
                f"{of_run}/goodput/explain",
                "Why an instant of a run is in its class",
                answered(
                    lambda given: goodput_answers.explained(self._reading, self._accounts, given)
                ),
                (RUN, _TIME),
                {JSON: ExplainedInfo},
                errors,
            ),
            Operation(
                "/api/v1/goodput",
                "How the time of several runs together was spent",
                self._rolled_up,
                _ROLLED_UP,
                {JSON: RolledUp},
                (422,),
            ),
            Operation(
                f"{of_run}/goodput/entries",
                "The log entries of a run's GoodputRecorder",
                answered(lambda given: goodput_answers.entries(self._reading, given)),
                _ENTRIES,
                {JSON: EntryList},
                errors,
            ),
        ]

    def _goodput(self, given: Given) -> GoodputInfo:
        info = goodput_answers.account(self._reading, self._accounts, self._priced(given))
        if not (given["since"] or given["until"] or given["exclude"]):
            spent = {each.name: each.share for each in info.spent if each.share}
            self._board.note(RunId(info.run), GoodputNote(info.end_ns, info.goodput, spent))
        return info

    async def _rolled_up(self, request: Request, given: Given) -> Response:
        sight: Sight = request.scope[CALLER].sight

        def summed() -> RolledUp:
            summaries, _ = self._board.summaries()
            shown = [run for run in summaries if sight.shows(run.run, run.group)]
            return goodput_figures.rolled_up(
                self._reading, self._accounts, shown, self._priced(given)
            )

        return await for_caller(request, lambda: json_reply(summed()))

    def _priced(self, given: Given) -> Given:
        """Adds the head's price if the request has none."""
        price = given["price_per_device_hour"]
        return given | {"price_per_device_hour": self._price if price is None else price}
