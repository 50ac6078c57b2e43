"""Who may call by gRPC: asked before a single byte of a message is looked at."""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from runwatch.errors import WireError
from runwatch.head import roles
from runwatch.head.login import Guesses
from runwatch.peers import user_at

Context: TypeAlias = grpc.aio.ServicerContext
Admit: TypeAlias = Callable[[Context], Awaitable[None]]
_WANTED: Final = (
    "this head wants a token: set RUNWATCH_TOKEN to the one it printed at its start, "
    "or send `authorization: Bearer TOKEN`"
)


class Admission(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Messages come here as bytes: one that is malformed gets an answer, and no traceback."""

    def __init__(
        self, token: str = "", guesses: Guesses | None = None, *, open_gswarm: bool = False
    ) -> None:
        """`open_gswarm`: what is gswarm's asks for no token, but for the end of the head."""
        self._open = open_gswarm
        self._expected = f"Bearer {token}".encode() if token else b""
        self._guesses = guesses or Guesses()

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        admit = partial(self._admit, details.method)
        read = handler.request_deserializer
        write = handler.response_serializer
        if handler.unary_unary is not None:
            one = self._one(handler.unary_unary, read, admit)
            return grpc.unary_unary_rpc_method_handler(one, None, write)
        if handler.stream_unary is not None:
            several = self._several(handler.stream_unary, read, admit)
            return grpc.stream_unary_rpc_method_handler(several, None, write)
        talk = self._talk(handler.stream_stream, read, admit)
        return grpc.stream_stream_rpc_method_handler(talk, None, write)

    def _one(self, method: Any, read: Any, admit: Admit) -> Any:
        async def answer(request: bytes, context: Context) -> Any:
            await admit(context)
            try:
                message = _read(read, request)
            except WireError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return await method(message, context)

        return answer

    def _several(self, method: Any, read: Any, admit: Admit) -> Any:
        async def answer(requests: AsyncIterator[bytes], context: Context) -> Any:
            await admit(context)
            try:
                return await method(_messages(read, requests), context)
            except WireError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

        return answer

    def _talk(self, method: Any, read: Any, admit: Admit) -> Any:
        async def answer(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
            await admit(context)
            try:
                async with aclosing(method(_messages(read, requests), context)) as messages:
                    async for message in messages:
                        yield message
            except WireError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

        return answer

    async def _admit(self, method: str, context: Context) -> None:
        """The right token is let in at once: a neighbour's mistakes lock nobody out."""
        if not self._expected:
            return
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        if hmac.compare_digest(_bytes(given), self._expected):
            return
        if self._open and method.startswith(roles.GSWARM):
            await _check_user(method, context)
            return
        address = _address(context.peer())
        if wait := self._guesses.wait_seconds(address):
            said = f"too many wrong tokens from this address; try again in {wait} s"
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, said)
        if given:
            self._guesses.wrong(address)
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, _WANTED)


async def _check_user(method: str, context: Context) -> None:
    """Clients of gswarm know no token; of this machine's users its own and root may end a head."""
    if method != f"{roles.GSWARM}Exit":
        return
    address, port = _address_and_port(context.peer())
    user = await asyncio.to_thread(user_at, address, port)
    if user not in (os.geteuid(), 0):
        said = "only who has the token, or the user whose head it is, may end it"
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, said)


def _bytes(given: str | bytes) -> bytes:
    return given if isinstance(given, bytes) else given.encode("utf-8", "surrogateescape")


def _address(peer: str) -> str:
    return _address_and_port(peer)[0]


def _address_and_port(peer: str) -> tuple[str, int]:
    """Of `ipv4:10.0.0.1:5000`, `ipv6:%5B::1%5D:5000`."""
    address, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return address.strip("[]"), int(port) if port.isdigit() else 0


async def _messages(
    read: Callable[[bytes], Any], requests: AsyncIterator[bytes]
) -> AsyncIterator[Any]:
    async for request in requests:
        yield _read(read, request)


def _read(read: Callable[[bytes], Any], request: bytes) -> Any:
    try:
        return read(request)
    except DecodeError as error:
        raise WireError(f"a message of {len(request)} bytes is malformed: {error}") from error
