"""Who may ask, and what a browser may do with the answer.

With a token every request must know it: `Authorization: Bearer`, the cookie, or `?token=`, which
sets the cookie.  Without one we serve this machine only, and since any web page may make its
browser ask us, the request must name us by a loopback name and come from our own page.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runwatch.errors import UsageError
from runwatch.head.parameters import BadRequest, decoded
from runwatch.head.replies import error_reply

COOKIE: Final = "runwatch"
HEALTH: Final = "/api/v1/health"
TRUSTED: Final = "runwatch.trusted"
"""Key in the scope: whether the request may see everything."""
_LARGEST_BODY: Final = 1_000_000
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
}


@dataclass(frozen=True, slots=True)
class AccessSettings:
    token: str = ""
    loopback: bool = True
    """Whether we listen on a loopback address only."""
    tls: bool = False

    def __post_init__(self) -> None:
        if not self.token and not self.loopback:
            raise UsageError("an address other than 127.0.0.1 needs a token (RUNWATCH_TOKEN)")


@dataclass(frozen=True, slots=True)
class _Proof:
    """How a request showed the token, if it did."""

    explicit: bool = False
    """In a header or the address: no web page of others can do that."""
    by_address: bool = False
    by_cookie: bool = False

    @property
    def ok(self) -> bool:
        return self.explicit or self.by_cookie


class Access:
    """ASGI middleware; the outermost."""

    def __init__(self, app: ASGIApp, settings: AccessSettings) -> None:
        self._app = app
        self._token = settings.token.encode()
        self._tls = settings.tls
        self._cookie = hmac.new(self._token, b"runwatch cookie", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        proof = self._proof(scope, headers)
        scope[TRUSTED] = proof.ok or not self._token
        refusal = self._refusal(scope, headers, proof)
        cookie = self._set_cookie() if proof.by_address and refusal is None else ""
        await (refusal or self._app)(scope, receive, _with_headers(send, cookie))

    def _proof(self, scope: MutableMapping[str, Any], headers: Headers) -> _Proof:
        said = _take_token(scope)
        if not self._token:
            return _Proof()
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        by_address = said is not None and _same(said.encode(), self._token)
        # Header text is bytes in disguise; whoever sends a token in UTF-8 means that.
        sent = bearer.strip().encode("latin-1")
        by_header = scheme.lower() == "bearer" and _same(sent, self._token)
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        return _Proof(
            by_address or by_header, by_address, _same(cookie.encode(), self._cookie.encode())
        )

    def _refusal(
        self, scope: MutableMapping[str, Any], headers: Headers, proof: _Proof
    ) -> Response | None:
        if _body_size(headers) > _LARGEST_BODY:
            return error_reply(413, "too_large", f"a body may have {_LARGEST_BODY} bytes at most")
        if self._token:
            if not proof.ok and scope["path"] != HEALTH:
                return _unauthorised()
        elif _name(headers.get("host", "")) not in _LOOPBACK_NAMES:
            return error_reply(
                403,
                "wrong_host",
                f"this head has no token and answers to localhost only, not to "
                f"{headers.get('host', '')[:80]!r}; start it with a token to use another name",
            )
        if not proof.explicit and _from_elsewhere(headers):
            return error_reply(
                403, "cross_origin", "requests from other web pages are refused; use a token header"
            )
        return None

    def _set_cookie(self) -> str:
        secure = "; Secure" if self._tls else ""
        return f"{COOKIE}={self._cookie}; Path=/; HttpOnly; SameSite=Strict{secure}"


def _unauthorised() -> Response:
    return error_reply(
        401,
        "token_needed",
        "a token is needed: open the address that was printed when the head started, "
        "or send Authorization: Bearer TOKEN",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _take_token(scope: MutableMapping[str, Any]) -> str | None:
    """The token from the address, which then no longer holds it: nothing behind us sees it."""
    parts = scope["query_string"].split(b"&")
    rest = [part for part in parts if not part.startswith(b"token=")]
    if len(rest) == len(parts):
        return None
    scope["query_string"] = b"&".join(rest)
    try:
        return decoded(next(p for p in parts if p not in rest).removeprefix(b"token="))
    except BadRequest:
        return ""


def _same(said: bytes, secret: bytes) -> bool:
    return hmac.compare_digest(said, secret)


def _body_size(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else _LARGEST_BODY + 1


def _name(host: str) -> str:
    """The host without its port."""
    if host.startswith("["):
        return host[: host.find("]") + 1].lower()
    return host.partition(":")[0].lower()


def _from_elsewhere(headers: Headers) -> bool:
    origin = headers.get("origin")
    return origin is not None and _authority(origin) != headers.get("host", "").lower()


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _with_headers(send: Send, cookie: str) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if cookie:
                headers.append("Set-Cookie", cookie)
        await send(message)

    return send_with_headers
