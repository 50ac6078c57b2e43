"""Who may call which gRPC method.  A call is checked before any byte of a message is read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from runwatch.errors import WireError
from runwatch.head.access import roles
from runwatch.head.access.audit import Audit
from runwatch.head.access.guesses import Guesses
from runwatch.head.access.main_token import MainToken, Secret
from runwatch.head.access.projects import words
from runwatch.head.access.roles import Role
from runwatch.head.access.tokens import Token, Tokens
from runwatch.head.access.visits import TakenBack, Visit, Visits
from runwatch.peers import user_at

Context: TypeAlias = grpc.aio.ServicerContext
Shown: TypeAlias = Token | Secret | None
Admit: TypeAlias = Callable[[Context], Awaitable[Shown]]
MAIN: Final = "main token"
ANYBODY: Final = "anybody here"
_WANTED: Final = (
    "this head needs a token: set RUNWATCH_TOKEN to the one that it printed when it started, "
    "or send `authorization: Bearer TOKEN`"
)
_TAKEN_BACK: Final = "this token was taken back, or has expired; ask for a new one"
_LOUD: Final[tuple[Role, ...]] = ("operate", "admin")
"""The roles whose calls go to the audit log."""
PROJECTS: Final[ContextVar[tuple[str, ...]]] = ContextVar("runwatch.projects", default=())
"""The projects of this call's token; empty: all."""


class Admission(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Takes messages as bytes, so that a malformed one gets an answer and no traceback."""

    def __init__(
        self,
        token: str | MainToken = "",
        guesses: Guesses | None = None,
        *,
        tokens: Tokens | None = None,
        audit: Audit | None = None,
        open_gswarm: bool = False,
        open_ingest: bool = False,
    ) -> None:
        """`open_gswarm`: gswarm's methods need no token, except the one that ends the head.
        `open_ingest`: those of OTLP need none."""
        self._open = open_gswarm
        self._open_ingest = open_ingest
        self._main = token if isinstance(token, MainToken) else MainToken(token)
        self._tokens = tokens or Tokens()
        self._audit = audit or Audit()
        self._guesses = guesses or Guesses()
        self._visits = Visits()

    def look_soon(self) -> None:
        """Call this when a token was taken back: its streams end, silent ones too."""
        self._visits.look_soon()

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
            token = await admit(context)
            try:
                with self._visits.open(partial(self._holds, token)) as visit:
                    return await method(self._messages(read, requests, visit), context)
            except WireError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except TakenBack:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, _TAKEN_BACK)

        return answer

    def _talk(self, method: Any, read: Any, admit: Admit) -> Any:
        async def answer(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
            token = await admit(context)
            try:
                with self._visits.open(partial(self._holds, token)) as visit:
                    received = self._messages(read, requests, visit)
                    async with aclosing(method(received, context)) as messages:
                        async for message in messages:
                            visit.check()
                            yield message
            except WireError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except TakenBack:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, _TAKEN_BACK)

        return answer

    async def _messages(
        self, read: Callable[[bytes], Any], requests: AsyncIterator[bytes], visit: Visit
    ) -> AsyncIterator[Any]:
        received = aiter(requests)
        while True:
            with visit.waiting():
                request = await anext(received, None)
            if request is None:
                return
            visit.check()
            yield _read(read, request)

    def _holds(self, token: Shown) -> bool:
        """Whether the token is still valid.  If not, no message passes in either direction."""
        if isinstance(token, Secret):
            return self._main.now is token
        return token is None or self._tokens.holds(token)

    # ── who ───────────────────────────────────────────────────────────────────────────────────

    async def _admit(self, method: str, context: Context) -> Shown:
        """The token or secret that must stay valid during the call; None if none is needed.

        The right token is let in at once: a neighbour's mistakes lock nobody out.
        """
        main = self._main.now
        if not main.word:
            return None
        given = _given(context)
        need, word = roles.of_method(method), given.decode("utf-8", "replace")
        token = self._tokens.of_word(word)
        if main.is_it(given):
            await self._note(context, method, MAIN, "admin", "OK")
            return main
        if token is not None:
            await self._check_role(context, method, token, need)
            return token
        if self._open and method.startswith(roles.GSWARM):
            await self._check_user(context, method)
            return None
        if self._open_ingest and not given and method.startswith(roles.OTLP):
            return None
        await self._refuse(context, bool(given))
        return None

    async def _check_role(self, context: Context, method: str, token: Token, need: Role) -> None:
        why = f"this token is for {token.role!r}; {method} needs one for {need!r}"
        if roles.allows(token.role, need):
            if not token.projects or method in roles.BY_PROJECT:
                PROJECTS.set(token.projects)
                await self._note(context, method, token.name, token.role, "OK")
                return
            why = f"this token is for {words(token.projects)}, and {method} is about all runs"
        await self._note(context, method, token.name, token.role, "PERMISSION_DENIED")
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)

    async def _check_user(self, context: Context, method: str) -> None:
        """gswarm's clients send no token.  Only the head's own user and root may end the head."""
        is_end = roles.of_method(method) == "admin"
        if is_end and await _user(context) not in (os.geteuid(), 0):
            why = "only the head's own user, root, or a caller with an admin token may end the head"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        await self._note(context, method, ANYBODY, "", "OK")

    async def _refuse(self, context: Context, guessed: bool) -> None:
        address = address_of(context.peer())[0]
        if wait := self._guesses.wait_seconds(address):
            why = f"too many wrong tokens from this address; try again in {wait} s"
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, why)
        if guessed:
            self._guesses.wrong(address)
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, _WANTED)

    async def _note(self, context: Context, method: str, who: str, role: str, outcome: str) -> None:
        if roles.of_method(method) not in _LOUD:
            return
        address, user = address_of(context.peer())[0], await _user(context)
        note = partial(self._audit.note, role=role, address=address, uid=user)
        await asyncio.to_thread(note, who, method, outcome)


def _given(context: Context) -> bytes:
    """The token after `Bearer`.  Any other header counts as a wrong token, not as none."""
    header = dict(context.invocation_metadata() or ()).get("authorization", "")
    raw = header if isinstance(header, bytes) else header.encode("utf-8", "surrogateescape")
    scheme, _, token = raw.partition(b" ")
    return token if scheme == b"Bearer" else raw and b" " + raw


async def _user(context: Context) -> int | None:
    return await asyncio.to_thread(user_at, *address_of(context.peer()))


def address_of(peer: str) -> tuple[str, int]:
    """Address and port of a peer like `ipv4:10.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    address, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return address.strip("[]"), int(port) if port.isdigit() else 0


def _read(read: Callable[[bytes], Any], request: bytes) -> Any:
    try:
        return read(request)
    except DecodeError as error:
        raise WireError(f"a message of {len(request)} bytes is malformed: {error}") from error
