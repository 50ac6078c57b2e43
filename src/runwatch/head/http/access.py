"""Who may ask, and what a browser may do with the answer.

Every request must show a token: `Authorization: Bearer`, the cookie, or `?token=`, which sets the
cookie.  The token's role says what the request may do (`roles.py`).  A head inside a program may
have no token.  Such a head serves this machine only.  Any web page can make a browser on this
machine send requests, so each request must use a loopback name and come from our own page.

A caller with the token of a shared link may only read (`guests.py`), even where nobody else needs
a token.  A browser that shows no token gets the login page.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import os
import re
import socket
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runwatch.clock import Clock, system_clock
from runwatch.errors import NotFound, UsageError
from runwatch.head.access import roles, shares, tokens
from runwatch.head.access.audit import CHANGED, Audit
from runwatch.head.access.guesses import Guesses
from runwatch.head.access.main_token import MainToken, Secret
from runwatch.head.access.origins import EVERYWHERE
from runwatch.head.access.roles import Role
from runwatch.head.access.shares import Share, Shares
from runwatch.head.access.tokens import Token, Tokens
from runwatch.head.http import guests
from runwatch.head.http.cors import LISTED
from runwatch.head.http.guests import Runs, Sight
from runwatch.head.http.login import LOGIN, LOGOUT, LoginPage, form_of, onward
from runwatch.head.http.parameters import BadRequest, decoded
from runwatch.head.http.replies import error_reply, json_reply
from runwatch.head.reading import Ambiguous, Unknown
from runwatch.journal.liveness import this_host
from runwatch.peers import user_at

COOKIE: Final = "runwatch"
OPEN: Final = ("/api/v1/health", "/api/v1/where")
"""What everybody may ask."""
TRUSTED: Final = "runwatch.trusted"
"""Key in the scope: whether the caller may see everything."""
CALLER: Final = "runwatch.caller"
MAIN: Final = "main token"
ANYBODY: Final = "anybody here"
_LARGEST_BODY: Final = 1_000_000
_LARGEST_DATA: Final = 8 << 20
"""Of what programs send."""
_TOKEN_PATH: Final = re.compile(r"/t/([^/]+)(/v1/.+)")
"""Some programs can only be told an address: the token is a part of its path."""
_LOOKING: Final = ("GET", "HEAD")
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
}
_NEEDED: Final = (
    "a token is needed: open the address that was printed when the head started, "
    "or send Authorization: Bearer TOKEN"
)
_ENDED: Final = "this link has expired or was taken back; ask for a new one"
_WRONG: Final = "This head does not know that token."


@dataclass(frozen=True, slots=True)
class AccessSettings:
    token: str = ""
    loopback: bool = True
    """Whether the head listens on a loopback address only."""
    tls: bool = False
    base_path: str = ""
    open_gswarm: bool = False
    """Whether a caller without a token may read, and use gswarm's routes: `gsprof start`."""
    open_ingest: bool = False
    """Whether programs on this machine may send OTLP without a token."""
    gswarm_address: str = ""
    """Callers without a token may use gswarm's routes, and nothing else, at this address."""
    gswarm_apart: bool = False
    """That address is for gswarm's programs alone: nothing else is there, for nobody."""
    origins: tuple[str, ...] = ()
    """Pages of these origins may ask."""

    def __post_init__(self) -> None:
        if not self.token and not self.loopback:
            raise UsageError("an address other than 127.0.0.1 needs a token (RUNWATCH_TOKEN)")
        if self.open_gswarm and not self.loopback:
            raise UsageError("only a head on 127.0.0.1 can be open to clients of gswarm")
        if self.open_ingest and not self.loopback:
            raise UsageError(
                "only a head on 127.0.0.1 can take OTLP without a token; elsewhere send one "
                "(OTEL_EXPORTER_OTLP_HEADERS, or http://HEAD/t/TOKEN as the address)"
            )


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent the request, as far as the head knows."""

    role: Role | None
    """None: the request shows nothing that is valid."""
    name: str = ""
    """The caller's name in the audit log."""
    share: Share | None = None
    """The shared link that the caller uses."""
    token: Token | None = None
    """The token that the caller showed, if it is not the main token."""
    main: Secret | None = None
    """The main token, as it was when the request came."""
    explicit: bool = False
    """The token is in a header or in the address.  No foreign web page can put it there."""
    cookie: str = ""
    """The cookie that the answer sets."""
    ended: bool = False
    """The caller's link has expired or was taken back."""
    is_open: bool = False
    """The caller showed no token, and this head asks gswarm's clients for none."""

    @property
    def level(self) -> Literal["full", "read", "none"]:
        """The caller's rights in the page's words."""
        if self.role is None or self.role == "ingest":
            return "none"
        return "read" if self.role == "view" else "full"

    @property
    def sight(self) -> Sight:
        if self.share is not None:
            return Sight(self.share.run)
        return Sight(projects=self.token.projects if self.token is not None else ())


@dataclass(frozen=True, slots=True)
class _Shown:
    """The secrets in a request."""

    address: str | None
    bearer: str | None
    cookie: str
    password: str | None = None
    """As programs send it whose address is `http://any:TOKEN@head:8091`."""

    @classmethod
    def of(cls, scope: MutableMapping[str, Any], headers: Headers) -> _Shown:
        """Each head on a machine has its own cookie name: browsers share cookies across ports."""
        scheme, _, credential = headers.get("authorization", "").partition(" ")
        # Starlette reads headers as Latin-1.  Tokens are UTF-8.
        bearer = credential.strip().encode("latin-1").decode("utf-8", "surrogateescape")
        in_path = _take_path_token(scope)
        if in_path and scheme.lower() != "bearer":
            scheme, bearer = "bearer", in_path
        cookies = cookie_parser(headers.get("cookie", ""))
        cookie = cookies.get(_cookie_name(scope)) or cookies.get(COOKIE, "")
        return cls(
            _take_token(scope),
            bearer if scheme.lower() == "bearer" else None,
            cookie,
            _password(credential) if scheme.lower() == "basic" else None,
        )

    @property
    def tokens(self) -> list[tuple[str, bool]]:
        """Each token, and whether it was in the address."""
        places = ((self.address, True), (self.bearer, False), (self.password, False))
        return [(token, in_address) for token, in_address in places if token is not None]

    @property
    def names_a_token(self) -> bool:
        named = any(token.startswith(tokens.TOKEN) for token, _ in self.tokens)
        return named or self.cookie.startswith(tokens.COOKIE)

    @property
    def names_a_link(self) -> bool:
        return any(_is_link(token) for token, _ in self.tokens) or self.cookie.startswith(
            shares.COOKIE
        )


class Access:
    """ASGI middleware: lets a request in, or refuses it."""

    def __init__(
        self,
        app: ASGIApp,
        settings: AccessSettings,
        runs: Runs,
        links: Shares | None = None,
        known_tokens: Tokens | None = None,
        audit: Audit | None = None,
        main: MainToken | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._app = app
        self._main = main or MainToken(settings.token)
        self._has_token = bool(self._main.now.word)
        self._tls = settings.tls
        self._path = settings.base_path or "/"
        self._open = settings.open_gswarm
        self._open_ingest = settings.open_ingest
        self._gswarm = _gswarm_addresses(settings.gswarm_address)
        self._gswarm_is_all = settings.gswarm_address in EVERYWHERE
        self._gswarm_apart = settings.gswarm_apart
        self._links = links or Shares()
        self._tokens = known_tokens or Tokens()
        self._audit = audit or Audit()
        self._runs = runs
        self._guesses = Guesses(clock=clock)
        self._clock = clock
        self._page = LoginPage()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        shown = _Shown.of(scope, headers)
        caller, wait = self._caller(shown, _address(scope))
        takes_data = _takes_data(scope)
        if takes_data and self._open_ingest and _is_nobody(caller, shown):
            caller = Caller("ingest", ANYBODY, is_open=True)
        elif caller.role is None and self._is_gswarm(scope, headers):
            caller = Caller("view", ANYBODY, is_open=True)
        refusal = self._elsewhere(scope, headers) or self._refusal(scope, headers, caller, wait)
        if caller.role is not None and scope["method"] not in _LOOKING:
            send = self._noting(caller, scope, send)
        if refusal is None and scope["path"] in (LOGIN, LOGOUT):
            answer = await self._door(scope, receive, headers)
            await answer(scope, receive, _with_headers(send, ""))
        elif refusal is None and _is_guest(caller, takes_data):
            await self._guest(caller, scope, receive, send)
        else:
            await self._let_in(refusal, caller, scope, receive, send)

    # ── gswarm's programs, which know no token ────────────────────────────────────────────────

    def _is_gswarm(self, scope: MutableMapping[str, Any], headers: Headers) -> bool:
        """Whether such a program may ask this without a token."""
        return self._is_at_gswarm(scope) and _is_for_gswarm(scope, headers)

    def _is_at_gswarm(self, scope: MutableMapping[str, Any]) -> bool:
        server = scope.get("server") or ("", 0)
        return self._gswarm_is_all or server[0] in self._gswarm

    def _elsewhere(self, scope: MutableMapping[str, Any], headers: Headers) -> Response | None:
        if self._gswarm_apart and self._is_at_gswarm(scope) and not _is_for_gswarm(scope, headers):
            why = "this address is for gswarm's programs only; ask the head at its own"
            return error_reply(403, "not_here", why)
        return None

    # ── who ───────────────────────────────────────────────────────────────────────────────────

    def _caller(self, shown: _Shown, address: str) -> tuple[Caller, int]:
        """The caller, and how many seconds to wait after too many wrong tokens; 0: no wait.

        The right token is always let in: else a neighbour's mistakes would lock its owner out.
        """
        tried = [(t, place) for t, place in shown.tokens if self._has_token or _is_made(t)]
        for token, by_address in tried:
            caller = self._by_token(token, by_address)
            if caller is not None:
                # A browser sends a password again by itself, also for another site's page.
                is_said = token in (shown.address, shown.bearer)
                return replace(caller, explicit=is_said), 0
        wait = self._guesses.wait_seconds(address) if tried else 0
        if not wait and any(token for token, _ in tried):
            self._guesses.wrong(address)
        return self._by_cookie(shown), wait

    def _by_token(self, token: str, by_address: bool) -> Caller | None:
        main = self._main.now
        if main.is_it(token.encode("utf-8", "surrogateescape")):
            cookie = main.cookie if by_address else ""
            return Caller("admin", MAIN, main=main, explicit=True, cookie=cookie)
        known = self._tokens.of_word(token)
        if known is not None:
            cookie = tokens.cookie_of(token) if by_address else ""
            return Caller(known.role, known.name, token=known, explicit=True, cookie=cookie)
        share = self._links.of_token(token)
        if share is None:
            return None
        cookie = shares.cookie_of(token) if by_address else ""
        return Caller("view", f"link {share.id}", share, explicit=True, cookie=cookie)

    def _by_cookie(self, shown: _Shown) -> Caller:
        main = self._main.now
        if self._has_token and _same(shown.cookie.encode(), main.cookie.encode()):
            return Caller("admin", MAIN, main=main)
        known = self._tokens.of_cookie(shown.cookie)
        if known is not None:
            return Caller(known.role, known.name, token=known)
        share = self._links.of_cookie(shown.cookie)
        if share is not None:
            return Caller("view", f"link {share.id}", share)
        # Without a token a caller may be trusted.  A token that was taken back must not be.
        ended = shown.names_a_link or shown.names_a_token
        if ended or (self._has_token and not self._open):
            return Caller(None, ended=shown.names_a_link)
        if self._has_token:
            return Caller("view", ANYBODY, is_open=True)
        return Caller("admin", "this program")

    def _refusal(
        self, scope: MutableMapping[str, Any], headers: Headers, caller: Caller, wait: int
    ) -> Response | None:
        largest = _LARGEST_DATA if scope["path"].startswith("/v1/") else _LARGEST_BODY
        if _body_size(headers) > largest:
            return error_reply(413, "too_large", f"a body may have at most {largest} bytes")
        host = headers.get("host", "")
        if (caller.is_open or not self._has_token) and not self._is_own_name(_name(host)):
            names = "its address" if self._gswarm else "the name localhost"
            return error_reply(
                403,
                "wrong_host",
                f"without a token this head answers only under {names}, not under "
                f"{host[:80]!r}; send its token to use another name",
            )
        is_door = scope["path"] in (LOGIN, LOGOUT)
        if caller.role is None and scope["path"] not in OPEN and not is_door:
            return self._nobody(scope, headers, caller, wait)
        if not caller.explicit and not scope.get(LISTED) and _from_elsewhere(headers):
            return error_reply(
                403, "cross_origin", "requests from other web pages are refused; use a token header"
            )
        return None if is_door or caller.share is not None else _beyond(scope, caller)

    def _is_own_name(self, name: str) -> bool:
        """A page of another site may have its own name lead here, to be taken for our page: only
        names that its owner cannot give to an address of ours count."""
        if name in _LOOPBACK_NAMES:
            return True
        return bool(self._gswarm) and (name in self._gswarm or is_address(name))

    def _nobody(
        self, scope: MutableMapping[str, Any], headers: Headers, caller: Caller, wait: int
    ) -> Response:
        if wait:
            return self._braked(scope, headers, wait)
        message = _ENDED if caller.ended else _NEEDED
        if _wants_page(headers):
            words = _sentence(message) if caller.ended else ""
            at, where = scope["path"], _where(scope)
            return self._page.reply(at, where, status=401, said=words, ended=caller.ended)
        code = "link_ended" if caller.ended else "token_needed"
        return error_reply(401, code, message, headers={"WWW-Authenticate": "Bearer"})

    def _braked(self, scope: MutableMapping[str, Any], headers: Headers, seconds: int) -> Response:
        message = f"too many wrong tokens from this address; try again in {seconds} s"
        if _wants_page(headers):
            at, words = scope["path"], _sentence(message)
            return self._page.reply(at, _where(scope), status=429, said=words, seconds=seconds)
        return error_reply(429, "too_many", message, headers={"Retry-After": str(seconds)})

    def _noting(self, caller: Caller, scope: Scope, send: Send) -> Send:
        """Writes a request that changes something, and its status, to the audit log."""
        asked = roles.route(scope["method"], scope["path"])
        if asked is None or not roles.changes(asked):
            return send

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                await run_in_threadpool(self._note, asked, caller, scope, message["status"])
            await send(message)

        return send_and_note

    def _note(self, asked: str, caller: Caller, scope: Scope, status: int) -> None:
        address, port = scope.get("client") or ("", 0)
        self._audit.note(
            caller.name,
            asked,
            str(status),
            role=caller.role or "",
            address=address,
            uid=user_at(address, port) if port else os.geteuid(),
            path=scope["path"],
            about=scope.get(CHANGED),
        )

    # ── in ────────────────────────────────────────────────────────────────────────────────────

    async def _let_in(
        self,
        refusal: Response | None,
        caller: Caller,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        scope[CALLER] = caller
        scope[TRUSTED] = caller.role is not None and caller.sight.is_whole
        if caller.token is not None or caller.main is not None:
            send = _while_it_holds(send, lambda: self._still_holds(caller))
        cookie, answer = "", refusal or self._app
        if refusal is None and caller.cookie:
            cookie = self._set_cookie(caller, scope)
            if _wants_page(Headers(scope=scope)) and scope["method"] in ("GET", "HEAD"):
                answer = _the_same(scope)
        await answer(scope, receive, _with_headers(send, cookie))

    def _still_holds(self, caller: Caller) -> bool:
        """Whether the caller's token is still valid."""
        if caller.token is not None:
            return self._tokens.holds(caller.token)
        return self._main.now is caller.main

    async def _guest(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        share, sight, refusal = caller.share, caller.sight, None
        if share is not None and (why := guests.reads(scope["method"], scope["path"])):
            refusal = error_reply(403, "read_only", why)
        if refusal is None and not sight.is_whole:
            sees = guests.seen(sight, self._runs)
            refusal = await run_in_threadpool(self._ruled, sight, sees, scope)
            scope, send = guests.narrowed(sees, scope, send)
        if share is not None:
            send = _while_it_holds(send, lambda: self._links.holds(share))
        await self._let_in(refusal, caller, scope, receive, send)

    def _ruled(self, sight: Sight, sees: guests.Sees, scope: Scope) -> Response | None:
        """The refusal, if any.  Run names are looked up among the runs that the caller may see."""
        ruling = guests.ruling(sight, sees, scope["path"], scope["query_string"])
        if ruling.why_not:
            code = "not_shared" if sight.run else "other_project"
            return error_reply(403, code, ruling.why_not)
        if ruling.query is not None:
            scope["query_string"] = ruling.query
        try:
            ids = {name: self._runs.run(name, sees) for name in ruling.runs}
        except Ambiguous as error:
            return error_reply(409, "ambiguous", str(error), choices=error.choices)
        except NotFound as error:
            if not sight.run:
                choices = error.choices if isinstance(error, Unknown) else ()
                return error_reply(404, "not_found", str(error), choices=choices)
            why = f"this link shows run {sight.run[:80]!r} and no other"
            return error_reply(404, "not_shared", why)
        scope[guests.IDS] = {name: name for name in ruling.as_said} | ids
        return None

    # ── the door ──────────────────────────────────────────────────────────────────────────────

    async def _door(self, scope: Scope, receive: Receive, headers: Headers) -> Response:
        if scope["method"] != "POST":
            is_login = scope["path"] == LOGIN and scope["method"] in ("GET", "HEAD")
            if is_login:
                return self._page.reply(LOGIN, "/", status=200)
            allowed = {"Allow": "GET, POST" if scope["path"] == LOGIN else "POST"}
            message = f"{scope['method'][:20]} is not possible here; use POST"
            return error_reply(405, "method_not_allowed", message, headers=allowed)
        if scope["path"] == LOGOUT:
            return self._left(scope, headers)
        try:
            return self._entered(await form_of(receive), scope, headers)
        except BadRequest as error:
            return error_reply(400, "bad_request", str(error))

    def _entered(self, form: dict[str, str], scope: Scope, headers: Headers) -> Response:
        address, token = _address(scope), form.get("token", "").strip()
        caller = self._by_token(token, True)
        if caller is None:
            if wait := self._guesses.wait_seconds(address):
                return self._braked(scope, headers, wait)
            self._guesses.wrong(address)
            return self._page.reply(LOGIN, form.get("next", "/"), status=401, said=_WRONG)
        answer = onward(form.get("next", "/"))
        answer.headers.append("Set-Cookie", self._set_cookie(caller, scope))
        return answer

    def _left(self, scope: Scope, headers: Headers) -> Response:
        is_page = "text/html" in headers.get("accept", "")
        answer = onward("/") if is_page else json_reply({"level": "none"})
        answer.headers.append("Set-Cookie", self._made_cookie(scope, "", "; Max-Age=0"))
        return answer

    def _set_cookie(self, caller: Caller, scope: Scope) -> str:
        known = caller.share or caller.token
        if known is None or not known.expires_ns:
            return self._made_cookie(scope, caller.cookie)
        seconds = (known.expires_ns - self._clock.wall_ns()) // 10**9
        return self._made_cookie(scope, caller.cookie, f"; Max-Age={max(0, seconds)}")

    def _made_cookie(self, scope: Scope, value: str, more: str = "") -> str:
        secure, name = "; Secure" if self._tls else "", _cookie_name(scope)
        return f"{name}={value}; Path={self._path}; HttpOnly; SameSite=Lax{secure}{more}"


def _gswarm_addresses(address: str) -> frozenset[str]:
    """The address that is open, and the names of this machine."""
    if not address:
        return frozenset()
    return frozenset({address.strip("[]").lower(), this_host().lower(), socket.getfqdn().lower()})


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _is_for_gswarm(scope: MutableMapping[str, Any], headers: Headers) -> bool:
    """A browser gets the page at the root, which is not for everybody."""
    asked = roles.route(scope["method"], scope["path"])
    return asked in roles.GSWARM_ROUTES and not (scope["path"] == "/" and _wants_page(headers))


def _cookie_name(scope: MutableMapping[str, Any]) -> str:
    server = scope.get("server")
    return f"{COOKIE}-{server[1]}" if server and server[1] else COOKIE


def _beyond(scope: MutableMapping[str, Any], caller: Caller) -> Response | None:
    """The refusal for a caller whose role does not allow this request."""
    if caller.role == "admin":
        return None
    asked = roles.route(scope["method"], scope["path"])
    if asked is None or roles.allows(caller.role, roles.ROUTES[asked]):
        return None  # an unknown path gets its 404 from the router
    if caller.is_open and asked in roles.OPEN:
        return None
    need = roles.ROUTES[asked]
    if caller.is_open:
        return error_reply(401, "token_needed", _NEEDED, headers={"WWW-Authenticate": "Bearer"})
    why = f"this token is for {caller.role!r}; {asked} needs one for {need!r} (`runwatch token`)"
    return error_reply(403, "not_allowed", why)


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:] + "."


def _address(scope: MutableMapping[str, Any]) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _wants_page(headers: Headers) -> bool:
    return "text/html" in headers.get("accept", "").lower()


def _where(scope: MutableMapping[str, Any]) -> str:
    """The path and query of the request, without the prefix that the head is served under."""
    if scope["path"] in (LOGIN, LOGOUT):
        return "/"
    query = scope["query_string"].decode("latin-1")
    return quote(scope["path"]) + (f"?{query}" if query else "")


def _the_same(scope: MutableMapping[str, Any]) -> Response:
    """A redirect to the same address without the token.  The browser keeps the part after #."""
    query = scope["query_string"].decode("latin-1")
    last = "./" + quote(scope["path"].rsplit("/", 1)[-1])
    headers = {"Cache-Control": "no-store"}
    return RedirectResponse(last + (f"?{query}" if query else ""), 303, headers)


def _password(credential: str) -> str:
    """Of a Basic header; the name, if the password is empty.  Wrong ones count as a wrong token."""
    try:
        said = base64.b64decode(credential.strip(), validate=True).decode("utf-8", "replace")
    except ValueError:
        return ""
    name, _, password = said.partition(":")
    return password or name


def _is_link(token: str) -> bool:
    return token.startswith(shares.TOKEN)


def _is_made(token: str) -> bool:
    return token.startswith((shares.TOKEN, tokens.TOKEN))


def _take_token(scope: MutableMapping[str, Any]) -> str | None:
    """Takes the token out of the address, so that no later code sees it."""
    parts = scope["query_string"].split(b"&")
    rest = [part for part in parts if not part.startswith(b"token=")]
    if len(rest) == len(parts):
        return None
    scope["query_string"] = b"&".join(rest)
    try:
        return decoded(next(p for p in parts if p not in rest).removeprefix(b"token="))
    except BadRequest:
        return ""


def _take_path_token(scope: MutableMapping[str, Any]) -> str:
    """The token of `/t/TOKEN/v1/…`, which is `/v1/…` for all later code."""
    found = _TOKEN_PATH.fullmatch(scope["path"])
    if found is None:
        return ""
    scope["path"] = found[2]
    scope["raw_path"] = quote(found[2]).encode()
    return found[1]


def _takes_data(scope: MutableMapping[str, Any]) -> bool:
    path = scope["path"]
    return path.startswith("/v1/") and roles.takes_data(roles.route(scope["method"], path))


def _is_nobody(caller: Caller, shown: _Shown) -> bool:
    """A token that is wrong or was taken back is not the same as none."""
    return (caller.role is None or caller.is_open) and not shown.tokens and not caller.ended


def _is_guest(caller: Caller, takes_data: bool) -> bool:
    """Whether the caller sees some runs only.  What takes data looks at projects itself."""
    return caller.share is not None or not (caller.sight.is_whole or takes_data)


def _same(shown: bytes, secret: bytes) -> bool:
    return hmac.compare_digest(shown, secret)


def _body_size(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else _LARGEST_DATA + 1


def _name(host: str) -> str:
    """The host name without its port."""
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


def _while_it_holds(send: Send, holds: Callable[[], bool]) -> Send:
    """Ends a live stream when its link or token is no longer valid."""
    is_live = ended = False

    async def send_while_it_holds(message: Message) -> None:
        nonlocal is_live, ended
        if message["type"] == "http.response.start":
            kind = Headers(raw=message["headers"]).get("content-type", "")
            is_live = kind.startswith("text/event-stream")
        elif ended:
            return
        elif is_live and not holds():
            ended = True
            message = {"type": "http.response.body", "body": b""}
        await send(message)

    return send_while_it_holds
