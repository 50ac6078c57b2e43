"""The page that asks for the token, the way in and out by form, and a brake for those who guess."""

from __future__ import annotations

import ipaddress
import re
from collections import OrderedDict
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response
from starlette.types import Receive

from runwatch.clock import Clock, system_clock
from runwatch.head.http.parameters import BadRequest
from runwatch.head.http.policy import inline_hashes

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
LARGEST_FORM: Final = 8192
BURST: Final = 10
"""Wrong tokens in a row that an address has, and …"""
EVERY_SECONDS: Final = 3.0
"""… how long it takes until it has one more."""
MOST_ADDRESSES: Final = 10_000
_PAGE: Final = Path(__file__).with_name("login.html")
_WHERE: Final = re.compile(r"/[\x21-\x5b\x5d-\x7e]*")


class LoginPage:
    def __init__(self) -> None:
        self._text = _PAGE.read_text("utf-8")
        scripts, styles = inline_hashes("script", self._text), inline_hashes("style", self._text)
        self._headers = {
            "Content-Security-Policy": (
                f"default-src 'none'; img-src data:; script-src {scripts}; style-src {styles}; "
                "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
            ),
            "Cache-Control": "no-store",
            # With none at all a browser would not say where the form came from.
            "Referrer-Policy": "same-origin",
        }

    def reply(
        self,
        at: str,
        where: str,
        *,
        status: int,
        said: str = "",
        ended: bool = False,
        seconds: int = 0,
    ) -> Response:
        """Shown at the path `at`; after it one comes to `where`.

        `said`: what went wrong; `ended`: the link that one came by did.
        """
        fields = {
            "root": "../" * (at.count("/") - 1) or "./",
            "next": checked(where),
            "said": said,
            "out": "" if ended else "hidden",
        }
        text = self._text
        for name, value in fields.items():
            text = text.replace("{{" + name + "}}", escape(value, quote=True))
        headers = self._headers | ({"WWW-Authenticate": "Bearer"} if status == 401 else {})
        headers |= {"Retry-After": str(seconds)} if seconds else {}
        return Response(text, status, headers, "text/html")


def checked(where: str) -> str:
    """A place of this head; anything else is its front page."""
    return where if len(where) <= 2000 and _WHERE.fullmatch(where) else "/"


def onward(where: str) -> Response:
    """To a place of this head from /login.

    Relative, so that it holds under any prefix; and behind `./` nothing names another host.
    """
    return RedirectResponse("./" + checked(where)[1:], 303, {"Cache-Control": "no-store"})


async def form_of(receive: Receive) -> dict[str, str]:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or not message.get("more_body"):
            break
        if len(body) > LARGEST_FORM:
            raise BadRequest(f"the form is larger than {LARGEST_FORM} bytes")
    try:
        said = parse_qs(body.decode(), max_num_fields=20)
    except ValueError as error:
        raise BadRequest("this is not a form") from error
    return {name: values[-1] for name, values in said.items()}


class Guesses:
    """How many wrong tokens each address may still show."""

    def __init__(self, *, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._spent: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Address → how many were spent, and when that was counted; the newest last."""

    def wait_seconds(self, address: str) -> int:
        """0: it may try."""
        over = self._now(_block(address)) - (BURST - 1)
        return max(0, int(over * EVERY_SECONDS) + 1) if over > 0 else 0

    def wrong(self, address: str) -> None:
        block = _block(address)
        self._spent[block] = self._now(block) + 1, self._clock.mono_ns()
        self._spent.move_to_end(block)
        if len(self._spent) > MOST_ADDRESSES:
            self._spent.popitem(last=False)

    def _now(self, block: str) -> float:
        spent, since_ns = self._spent.get(block, (0.0, 0))
        back = (self._clock.mono_ns() - since_ns) / 1e9 / EVERY_SECONDS
        return max(0.0, spent - back)


def _block(address: str) -> str:
    """Who has one address of IPv6 has 2⁶⁴ of them."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False))
