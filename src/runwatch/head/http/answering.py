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
"""Key in the scope: the route that the request is counted under."""
Body = TypeVar("Body", bound=msgspec.Struct)
Answering = Callable[[Request], Awaitable[Response]]


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request without fields."""


def answered(answer: Callable[[Given], object]) -> Respond:
    """Makes the answer in a thread, and gives up when the caller hangs up."""

    async def respond(request: Request, given: Given) -> Response:
        return await for_caller(request, lambda: json_reply(answer(given)))

    return respond


async def body_of(request: Request, kind: type[Body]) -> Body:
    """The request's body, read as JSON of this shape.  No body counts as `{}`."""
    text = await text_of(request)
    try:
        return msgspec.json.decode(text.strip() or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        body = shortened(text.decode("latin-1"))
        raise BadRequest(f"the body {body} cannot be read: {error}") from error


async def text_of(request: Request) -> bytes:
    """The request's body, which is not large."""
    text = b""
    async for piece in request.stream():
        text += piece
        if len(text) > LARGEST_BODY:
            raise BadRequest(f"the body is larger than {LARGEST_BODY} bytes")
    return text


def routed(path: str, answer: Answering) -> Answering:
    """Counts the answer under this path."""

    async def respond(request: Request) -> Response:
        request.scope[ROUTE] = path
        return await answer(request)

    return respond
