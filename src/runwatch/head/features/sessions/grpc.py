"""Sessions over gRPC, for a head that has no HTTP port: list, resume, export.

`runwatch.v1.Sessions` carries JSON: what /api/v1/sessions answers over HTTP.  A question is one
message, {"key": NAME or id, "compat": bool}; an export is answered in pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeAlias

import grpc
import msgspec

from runwatch.errors import NotFound, RunwatchError
from runwatch.head.features.sessions.api import SessionsApi

NAME: Final = "runwatch.v1.Sessions"
Context: TypeAlias = grpc.aio.ServicerContext
_encode: Final = msgspec.json.Encoder().encode


class Question(msgspec.Struct):
    key: str = ""
    compat: bool = False


class SessionsService:
    def __init__(self, api: SessionsApi) -> None:
        self._api = api

    def handler(self) -> Any:
        one = grpc.unary_unary_rpc_method_handler
        methods = {
            "List": one(self._list, _question, _encode),
            "One": one(self._one, _question, _encode),
            "Resume": one(self._resume, _question, _encode),
            "Export": grpc.stream_stream_rpc_method_handler(self._export, _question, bytes),
        }
        return grpc.method_handlers_generic_handler(NAME, methods)

    async def _list(self, asked: Question, context: Context) -> Any:
        return await _answer(context, self._api.listed)

    async def _one(self, asked: Question, context: Context) -> Any:
        return await _answer(context, lambda: self._api.one(asked.key))

    async def _resume(self, asked: Question, context: Context) -> Any:
        return await _answer(context, lambda: self._api.resumed(asked.key))

    async def _export(
        self, questions: AsyncIterator[Question], context: Context
    ) -> AsyncIterator[bytes]:
        asked = await anext(aiter(questions), Question())
        pieces = await _answer(context, lambda: self._api.exported(asked.key, asked.compat))
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece


def _question(said: bytes) -> Question:
    try:
        return msgspec.json.decode(said or b"{}", type=Question)
    except (msgspec.DecodeError, ValueError):
        return Question()


async def _answer(context: Context, work: Callable[[], Any]) -> Any:
    try:
        return await asyncio.to_thread(work)
    except NotFound as error:
        await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
    except RunwatchError as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
