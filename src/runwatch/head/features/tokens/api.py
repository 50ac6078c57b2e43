"""Tokens under /api/v1: make one, list them, take one back."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from runwatch.head.access.audit import CHANGED
from runwatch.head.access.roles import Role
from runwatch.head.access.tokens import Token
from runwatch.head.context import Context, Feature
from runwatch.head.http.answering import body_of
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import Given, Parameter
from runwatch.head.http.replies import json_reply
from runwatch.head.http.types import Answer, plain


class TokenInfo(Answer):
    id: str
    name: str
    role: Role
    created_ns: int
    expires_ns: int | None
    """Null: it never expires."""
    used_ns: int | None
    """When the token was last used since the head started; null: not since then."""
    projects: list[str]
    """The groups whose runs the token is for; empty: all runs."""
    file: str
    """The file that gives it to the head, for as long as it is there; empty: the head made it."""


class TokenMade(TokenInfo):
    token: str
    """The token itself; it is in this answer only."""


class TokenList(Answer):
    tokens: list[TokenInfo]
    """Newest first, without the main token."""


class TokenGone(Answer):
    id: str


class TokenRenewed(Answer):
    token: str
    """The new main token."""


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    role: Role
    name: str = ""
    days: float | None = None
    """How long the token is valid; null: until it is taken back."""
    projects: list[str] = []
    """The groups whose runs the token is for; empty: all runs."""


_ID: Final = Parameter("id", "string", "a token's id", "path", shortest=1)


class TokensApi(Feature):
    """Tokens beside the main token."""

    def __init__(self, context: Context) -> None:
        self._tokens = context.gate.tokens
        self._main = context.gate.main
        self._on_revoked = context.access_changed

    def operations(self) -> list[Operation]:
        base = "/api/v1/tokens"
        made, gone = {JSON: TokenMade}, {JSON: TokenGone}
        return [
            Operation(base, "Valid tokens", self._list, (), {JSON: TokenList}, (422,)),
            Operation(base, "Make a token", self._make, (), made, (422,), "POST", NewToken),
            Operation(
                f"{base}/renew",
                "Renew the main token",
                self._renew,
                (),
                {JSON: TokenRenewed},
                (422,),
                "POST",
            ),
            Operation(
                f"{base}/{{id}}",
                "Take a token back",
                self._revoke,
                (_ID,),
                gone,
                (404, 422),
                "DELETE",
            ),
        ]

    async def _list(self, request: Request, given: Given) -> Response:
        tokens = await run_in_threadpool(self._tokens.all)
        return json_reply(TokenList(tokens=[TokenInfo(**self._fields(each)) for each in tokens]))

    async def _make(self, request: Request, given: Given) -> Response:
        asked = await body_of(request, NewToken)
        token, word = await run_in_threadpool(
            self._tokens.add, asked.role, asked.name, asked.days, asked.projects
        )
        request.scope[CHANGED] = _about(token)
        return json_reply(TokenMade(**self._fields(token), token=word))

    async def _renew(self, request: Request, given: Given) -> Response:
        word = await run_in_threadpool(self._main.renew)
        self._on_revoked()
        return json_reply(TokenRenewed(token=word))

    async def _revoke(self, request: Request, given: Given) -> Response:
        token = await run_in_threadpool(self._tokens.revoke, given["id"])
        self._on_revoked()
        request.scope[CHANGED] = _about(token)
        return json_reply(TokenGone(id=token.id))

    def _fields(self, token: Token) -> dict[str, Any]:
        return {
            "id": token.id,
            "name": plain(token.name),
            "role": token.role,
            "created_ns": token.created_ns,
            "expires_ns": token.expires_ns or None,
            "used_ns": self._tokens.used_ns.get(token.id),
            "projects": [plain(name) for name in token.projects],
            "file": plain(token.file),
        }


def _about(token: Token) -> dict[str, Any]:
    """The token's details for the audit log."""
    about = {"token": token.id, "name": token.name, "role": token.role}
    return {**about, "projects": list(token.projects)} if token.projects else about
