"""Answers and errors as HTTP responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from starlette.responses import Response

from runwatch.head.http.types import ErrorAnswer, ErrorInfo


def json_reply(
    body: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        msgspec.json.encode(body),
        status_code=status,
        media_type="application/json",
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def error_reply(
    status: int,
    code: str,
    message: str,
    *,
    headers: Mapping[str, str] | None = None,
    choices: Sequence[str] = (),
) -> Response:
    error = ErrorInfo(code=code, message=message, choices=list(choices))
    return json_reply(ErrorAnswer(error=error), status=status, headers=headers)
