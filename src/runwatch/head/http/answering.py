"""What every part of the API needs to answer a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from runwatch.head.http.openapi import Respond
from runwatch.head.http.parameters import BadRequest, Given, shortened
from runwatch.head.http.patience import for_caller
from runwatch.head.http.replies import json_reply

LARGEST_BODY: Final = 100_000
ROUTE: Final = "runwatch.route"
"""Where a request's scope has the route that it is counted under."""
Body = TypeVar("Body", bound=msgspec.Struct)
Answering = Callable[[Request], Awaitable[Response]]


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that has nothing to say."""


def answered(answer: Callable[[Given], object]) -> Respond:
    """Makes the answer in a thread, for as long as the caller waits for it."""

    async def respond(request: Request, given: Given) -> Response:
        return await for_caller(request, lambda: json_reply(answer(given)))

    return respond


async def body_of(request: Request, kind: type[Body]) -> Body:
    """The body as JSON of that shape; none at all is an empty one."""
    text = b""
    async for piece in request.stream():
        text += piece
        if len(text) > LARGEST_BODY:
            raise BadRequest(f"the body is larger than {LARGEST_BODY} bytes")
    try:
        return msgspec.json.decode(text.strip() or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body {shortened(text.decode('latin-1'))}: {error}") from error


def routed(path: str, answer: Answering) -> Answering:
    """Counts the answer under its route's path."""

    async def respond(request: Request) -> Response:
        request.scope[ROUTE] = path
        return await answer(request)

    return respond
