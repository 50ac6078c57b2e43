"""Who changed what, under /api/v1/audit."""

from __future__ import annotations

from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from runwatch.head.access.audit import Done
from runwatch.head.context import Context, Feature
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import Given, Parameter, limit
from runwatch.head.http.replies import json_reply
from runwatch.head.http.types import Answer, plain


class AuditLine(Answer):
    time_ns: int
    who: str
    """The token's name; "main token" for the head's own."""
    role: str
    address: str
    uid: int | None
    """The user id of a caller on the head's machine, if the kernel tells it."""
    what: str
    """The route or the gRPC method."""
    path: str
    outcome: str
    about: dict[str, str]


class AuditList(Answer):
    lines: list[AuditLine]
    """Newest first."""


_BEFORE: Final = Parameter(
    "before", "integer", "only lines before this time, in nanoseconds since the epoch"
)


class AuditApi(Feature):
    def __init__(self, context: Context) -> None:
        self._audit = context.gate.audit

    def operations(self) -> list[Operation]:
        about = "Who changed what"
        answers = {JSON: AuditList}
        return [
            Operation("/api/v1/audit", about, self._list, (limit(100, 10_000), _BEFORE), answers)
        ]

    async def _list(self, request: Request, given: Given) -> Response:
        newest = await run_in_threadpool(self._audit.newest, given["limit"], given["before"])
        return json_reply(AuditList(lines=[_line(done) for done in newest]))


def _line(done: Done) -> AuditLine:
    return AuditLine(
        time_ns=done.time_ns,
        who=plain(done.who),
        role=done.role,
        address=done.address,
        uid=done.uid,
        what=done.what,
        path=plain(done.path),
        outcome=done.outcome,
        about={plain(name): plain(value) for name, value in done.about.items()},
    )
