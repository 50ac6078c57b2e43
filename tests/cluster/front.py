"""Requests as they arrive over HTTP: who asks, whether they may, what goes wrong, the answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from tests.cluster import (
    accounts,
    answers,
    discovery,
    forwarding,
    openapi,
    patching,
    protobuf,
    rbac,
    reviews,
    tables,
    watching,
)
from tests.cluster.accounts import Accounts
from tests.cluster.answers import Refusal
from tests.cluster.faults import CUT, Asked, Faults
from tests.cluster.kinds import Kind, Kinds
from tests.cluster.rbac import Deed, User
from tests.cluster.rendering import listed, presented, shown
from tests.cluster.routes import FORWARD, Review, Route, parts_of, route
from tests.cluster.storage import Storage, Stored
from tests.cluster.subresources import Subresources
from tests.cluster.verbs import Ask, Verbs

Thing = dict[str, Any]

_JSON: Final = "application/json"
_LONGEST_BODY_BYTES: Final = 3 * 1024 * 1024
_HEALTH: Final = ("healthz", "livez", "readyz")
_FAILURES: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(eq=False)
class Watching:
    """A watch that runs."""

    transport: asyncio.Transport | None
    ending: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Front:
    storage: Storage
    kinds: Kinds
    verbs: Verbs
    subresources: Subresources
    accounts: Accounts
    faults: Faults
    now: Callable[[], float]
    enforced: bool
    """Whether anybody but an admin needs rights."""
    ports: Mapping[tuple[str, str], forwarding.Ports]
    """Of pods, by namespace and name: where they really are."""
    asked: list[Asked] = field(default_factory=list)
    watches: set[Watching] = field(default_factory=set)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """As aiohttp's server wants it."""
        began = time.monotonic()
        watched = request.query.get("watch") in ("true", "1")
        method = "WATCH" if watched else request.method
        await asyncio.sleep(self.faults.delay_seconds(method, request.path))
        failure = self.faults.failure(method, request.path)
        user: User | None = None
        try:
            if failure == CUT:
                return cut(request)
            if failure is not None:
                raise _planned(failure)
            user = self._user(request)
            response = await self._answered(request, user)
        except Refusal as refusal:
            response = _json(refusal.code, json.dumps(refusal.status()).encode())
            response.headers.update(refusal.headers)
        asked = Asked(
            method,
            request.path,
            dict(request.query),
            user.name if user else "",
            response.status,
            time.monotonic() - began,
        )
        self.asked.append(asked)
        for told in list(self.faults.done):
            told(asked)
        return cut(request) if self.faults.loses(method, request.path) else response

    def _user(self, request: web.BaseRequest) -> User:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        user = self.accounts.user(token.strip()) if scheme.lower() == "bearer" else None
        if user is None and request.path.strip("/") not in (*_HEALTH, "version"):
            raise answers.unauthorized()
        if user is not None and "Impersonate-User" in request.headers:
            return self._impersonated(request, user)
        return user or User("system:anonymous", ("system:unauthenticated",))

    def _impersonated(self, request: web.BaseRequest, user: User) -> User:
        """As `kubectl --as`."""
        name = request.headers["Impersonate-User"]
        other = accounts.account_user(name) or User(name)
        namespace, _, short = name.removeprefix(accounts.PREFIX).rpartition(":")
        plural = "serviceaccounts" if other.is_account else "users"
        deed = Deed("impersonate", "", plural, namespace, short)
        if self.enforced and not rbac.allowed(self.storage, user, deed):
            raise rbac.refused(user, deed)
        groups = request.headers.getall("Impersonate-Group", [])
        return User(other.name, (*other.groups, *groups))

    async def _answered(self, request: web.BaseRequest, user: User) -> web.StreamResponse:
        parts = parts_of(request.path)
        if parts and parts[0] in _HEALTH:
            return web.Response(text="ok")
        found = route(request.method, parts, request.query, self.kinds)
        if found is None:
            return self._page(request, parts)
        if isinstance(found, Review):
            body = _object(await _body(request))
            answer = reviews.answered(
                found.plural, user, body, self.storage, self.accounts, enforced=self.enforced
            )
            return _json(201, json.dumps(answer).encode())
        deed = found.deed(request.query)
        if self.enforced and not rbac.allowed(self.storage, user, deed):
            raise rbac.refused(user, deed)
        ask = Ask(
            user,
            found.kind,
            found.namespace,
            found.name,
            found.subresource,
            dict(request.query),
            agent=request.headers.get("User-Agent", ""),
        )
        if found.subresource == FORWARD:
            place = self.verbs.get(ask).place
            return await forwarding.forwarded(request, self.ports.get(place, {}))
        if found.verb == "watch":
            return await self._watched(request, ask)
        response = await self._done(request, found, ask)
        for warning in dict.fromkeys(ask.warnings):
            quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{quoted}"')
        return response

    def _page(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        accept = request.headers.get("Accept", "")
        page, form = discovery.aggregated(parts, accept, self.kinds), discovery.AGGREGATED
        if page is None:
            page, form = (
                discovery.answer(parts, self.kinds) or openapi.page(parts, self.kinds),
                _JSON,
            )
        if page is None:
            raise answers.no_such_resource()
        if request.method != "GET":
            raise answers.method_not_allowed()
        return _json(200, json.dumps(page).encode(), form)

    async def _done(self, request: web.BaseRequest, found: Route, ask: Ask) -> web.Response:
        body = b"" if found.verb in ("get", "list") else await _body(request)
        if found.subresource and found.subresource != "status":
            code, thing = self.subresources.done(found.verb, ask, request.content_type, body)
            return _json(code, json.dumps(thing).encode())
        match found.verb:
            case "list":
                return self._list(request, ask)
            case "get":
                return self._one(request, ask, self.verbs.get(ask))
            case "create":
                return self._one(request, ask, await self.verbs.create(ask, _object(body)), 201)
            case "update":
                return self._one(request, ask, self.verbs.update(ask, _object(body)))
            case "patch":
                new = self.storage.get(ask.kind.key, ask.namespace, ask.name) is None
                stored = await self.verbs.patch(ask, request.content_type, body)
                return self._one(request, ask, stored, 201 if new else 200)
            case "delete":
                stored, gone = self.verbs.delete(ask, _object(body) if body else {})
                if not gone:
                    return self._one(request, ask, stored)
                meta = stored.thing["metadata"]
                told = answers.success(ask.kind, meta["name"], meta["uid"])
                return _json(200, json.dumps(told).encode())
        return self._delete_all(request, ask, _object(body) if body else {})

    def _delete_all(self, request: web.BaseRequest, ask: Ask, options: Thing) -> web.Response:
        found, meta = self.verbs.list(ask)
        for stored in found:
            namespace, name = stored.place
            self.verbs.delete(Ask(ask.user, ask.kind, namespace, name, query=ask.query), options)
        return _json(200, listed(ask.kind, found, meta))

    # ── the form of an answer ─────────────────────────────────────────────────────────────────

    def _one(
        self, request: web.BaseRequest, ask: Ask, stored: Stored, code: int = 200
    ) -> web.Response:
        return _json(code, self._rendered(request, ask.kind, stored))

    def _rendered(self, request: web.BaseRequest, kind: Kind, stored: Stored) -> bytes:
        accept = request.headers.get("Accept", "")
        thing = presented(kind, stored.thing)
        if tables.wanted(accept):
            meta = {"resourceVersion": thing["metadata"]["resourceVersion"]}
            include = request.query.get("includeObject", "")
            return json.dumps(tables.table(kind, [thing], meta, self.now(), include)).encode()
        if "as=PartialObjectMetadata" in accept:
            return json.dumps(_partial(thing)).encode()
        return shown(kind, stored)

    def _list(self, request: web.BaseRequest, ask: Ask) -> web.Response:
        found, meta = self.verbs.list(ask)
        accept = request.headers.get("Accept", "")
        things = (presented(ask.kind, stored.thing) for stored in found)
        if tables.wanted(accept):
            include = request.query.get("includeObject", "")
            table = tables.table(ask.kind, list(things), meta, self.now(), include)
            return _json(200, json.dumps(table).encode())
        if "as=PartialObjectMetadataList" in accept:
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
            items = [_partial(thing) for thing in things]
            return _json(200, json.dumps({**head, "metadata": meta, "items": items}).encode())
        return _json(200, listed(ask.kind, found, meta))

    # ── watches ───────────────────────────────────────────────────────────────────────────────

    async def _watched(self, request: web.BaseRequest, ask: Ask) -> web.StreamResponse:
        watching.refuse_lists(ask)
        began = watching.from_revision(ask, self.storage, self.faults)
        watch = Watching(request.transport)
        self.watches.add(watch)
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        response.enable_chunked_encoding()

        def render(stored: Stored) -> bytes:
            return self._rendered(request, ask.kind, stored)

        lines = watching.events(ask, self.storage, self.faults, began, render, watch.ending)
        try:
            await response.prepare(request)
            async for line in lines:
                await response.write(line)
            await response.write_eof()
        except ConnectionError:
            pass  # who watched is gone
        finally:
            await lines.aclose()
            self.watches.discard(watch)
        return response


def _json(code: int, body: bytes, form: str = _JSON) -> web.Response:
    return web.Response(status=code, body=body, headers={"Content-Type": form})


def _partial(thing: Thing) -> Thing:
    meta = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return {**meta, "metadata": thing["metadata"]}


def cut(request: web.BaseRequest) -> web.Response:
    """The answer goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _planned(status: int) -> Refusal:
    reason = _FAILURES.get(status, "InternalError" if status >= 500 else "BadRequest")
    headers = {"Retry-After": "1"} if status in (429, 503, 504) else {}
    return Refusal(status, reason, f"a test wants it so: {status} {reason}", None, headers)


async def _body(request: web.BaseRequest) -> bytes:
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > _LONGEST_BODY_BYTES:
            message = f"Request entity too large: limit is {_LONGEST_BODY_BYTES}"
            raise Refusal(413, "RequestEntityTooLarge", message)
    if request.content_type == protobuf.FORM:
        return json.dumps(protobuf.decoded(bytes(body))).encode()
    return bytes(body)


def _object(body: bytes) -> Any:
    return patching.parsed(body)
