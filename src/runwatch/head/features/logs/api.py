"""The log of a run under /api/v1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from runwatch.head.context import Context, Feature
from runwatch.head.features.logs import answers
from runwatch.head.features.logs.types import LogPage
from runwatch.head.http.answering import answered
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import RUN, Parameter, limit
from runwatch.views.logs import SOURCES

_TIME: Final = "in nanoseconds since the epoch"
_CURSOR: Final = "a cursor from an answer, or a time in nanoseconds followed by .0"
_LOGS: Final = (
    RUN,
    Parameter("rank", "integer", "only what these ranks said", minimum=-1, repeated=True),
    Parameter("stream", "string", "only this", choices=SOURCES, repeated=True),
    Parameter("grep", "string", "only lines with this text; small letters match both", default=""),
    Parameter("since", "integer", f"only what was said at or after this time, {_TIME}"),
    Parameter("until", "integer", f"only what was said before this time, {_TIME}"),
    Parameter("attempt", "integer", "only what was said in this attempt", minimum=1),
    Parameter("before", "string", f"what came before: {_CURSOR}", pattern=answers.CURSOR),
    Parameter("after", "string", f"what came after: {_CURSOR}", pattern=answers.CURSOR),
    limit(500, 5000),
)


class LogsApi(Feature):
    def __init__(self, context: Context) -> None:
        self._reading = context.reading

    def operations(self) -> Sequence[Operation]:
        return [
            Operation(
                "/api/v1/runs/{run}/logs",
                "What a run said on its console, and its exceptions; without a cursor, the newest",
                answered(partial(answers.page, self._reading)),
                _LOGS,
                {JSON: LogPage},
                (404, 409, 422),
            )
        ]
