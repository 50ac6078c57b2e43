"""Shared links under /api/v1: make one, list them, take one back; and what the caller may do."""

from __future__ import annotations

from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from runwatch.head.access.audit import CHANGED
from runwatch.head.access.roles import Role
from runwatch.head.access.shares import Share
from runwatch.head.context import Context, Feature
from runwatch.head.http.access import CALLER, Caller
from runwatch.head.http.answering import body_of
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import Given, Parameter
from runwatch.head.http.replies import json_reply
from runwatch.head.http.types import Answer, plain
from runwatch.record import RunId

DEFAULT_DAYS: Final = 7.0


class AccessInfo(Answer):
    """What the caller may do and see."""

    level: Literal["full", "read", "none"]
    role: Role | None
    """The caller's role; "view" for a shared link."""
    run: str | None
    """The only run that the caller may see; null: all."""
    projects: list[str]
    """The groups whose runs the caller may see; empty: all."""
    expires_ns: int | None
    note: str
    link: bool
    """Whether the caller uses a shared link."""
    login: bool
    """Whether this head has a token, so that the caller can log out."""


class ShareInfo(Answer):
    id: str
    run: str | None
    """The only run that the link shows; null: all runs."""
    run_name: str
    note: str
    created_ns: int
    expires_ns: int
    used_ns: int | None
    """When the link was last used since the head started; null: not since then."""


class ShareMade(ShareInfo):
    """A new link.  `token`, `path` and `link` are in this answer only."""

    token: str
    path: str
    """The link's address, relative to the head's."""
    link: str


class ShareList(Answer):
    shares: list[ShareInfo]
    """Newest first."""


class ShareGone(Answer):
    id: str


class NewShare(msgspec.Struct, forbid_unknown_fields=True):
    run: str | None = None
    """A run's id or name; null: the link shows all runs."""
    days: float = DEFAULT_DAYS
    note: str = ""


_ID: Final = Parameter("id", "string", "a link's id", "path", shortest=1)


class SharesApi(Feature):
    """Shared links, and what the caller may do."""

    def __init__(self, context: Context) -> None:
        self._reading = context.reading
        self._shares = context.gate.shares
        self._has_token = bool(context.gate.settings.token)
        self._base = context.serving.base_path
        self._on_revoked = context.access_changed

    def operations(self) -> list[Operation]:
        base = "/api/v1/shares"
        made, gone = {JSON: ShareMade}, {JSON: ShareGone}
        return [
            Operation(
                "/api/v1/access",
                "What the caller may do and see",
                self._access,
                (),
                {JSON: AccessInfo},
            ),
            Operation(base, "Shared links", self._list, (), {JSON: ShareList}, (422,)),
            Operation(
                base,
                "Make a read-only link",
                self._make,
                (),
                made,
                (404, 409, 422),
                "POST",
                NewShare,
            ),
            Operation(
                f"{base}/{{id}}",
                "Take a link back",
                self._revoke,
                (_ID,),
                gone,
                (404, 422),
                "DELETE",
            ),
        ]

    async def _access(self, request: Request, given: Given) -> Response:
        caller: Caller = request.scope[CALLER]
        share, known = caller.share, caller.share or caller.token
        return json_reply(
            AccessInfo(
                level=caller.level,
                role=caller.role,
                run=caller.sight.run or None,
                projects=[plain(name) for name in caller.sight.projects],
                expires_ns=(known.expires_ns or None) if known else None,
                note=plain(share.note) if share else "",
                link=share is not None,
                login=self._has_token,
            )
        )

    async def _list(self, request: Request, given: Given) -> Response:
        def listed() -> ShareList:
            shares = self._shares.all()
            return ShareList(shares=[ShareInfo(**self._fields(share)) for share in shares])

        return json_reply(await run_in_threadpool(listed))

    async def _make(self, request: Request, given: Given) -> Response:
        asked = await body_of(request, NewShare)

        def made() -> ShareMade:
            run = "" if asked.run is None else self._reading.run(asked.run)
            share, token = self._shares.add(run, asked.days, asked.note)
            request.scope[CHANGED] = {"link": share.id, "run": run, "note": asked.note}
            path = f"?token={token}" + (f"#/run/{quote(run, safe='')}" if run else "")
            url = request.url
            link = f"{url.scheme}://{url.netloc}{self._base}/{path}"
            return ShareMade(**self._fields(share), token=token, path=path, link=link)

        return json_reply(await run_in_threadpool(made))

    async def _revoke(self, request: Request, given: Given) -> Response:
        share = await run_in_threadpool(self._shares.revoke, given["id"])
        self._on_revoked()
        request.scope[CHANGED] = {"link": share.id, "run": share.run, "note": share.note}
        return json_reply(ShareGone(id=share.id))

    def _fields(self, share: Share) -> dict[str, Any]:
        return {
            "id": share.id,
            "run": share.run or None,
            "run_name": self._name(share.run),
            "note": plain(share.note),
            "created_ns": share.created_ns,
            "expires_ns": share.expires_ns,
            "used_ns": self._shares.used_ns.get(share.id),
        }

    def _name(self, run: str) -> str:
        rows = self._reading.store.processes(RunId(run)) if run else []
        return next((row.run_name for row in rows if row.run_name), run)
