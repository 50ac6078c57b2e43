"""The login page, and the forms to log in and out."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response
from starlette.types import Receive

from runwatch.head.http.parameters import BadRequest
from runwatch.head.http.policy import inline_hashes

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
LARGEST_FORM: Final = 8192
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
            # With `no-referrer` a browser would not say where the form came from.
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
        """The page at the path `at`; after the login the browser goes to `where`.

        `said`: what went wrong; `ended`: the caller's link has expired or was taken back.
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
    """`where`, if it is a path of this head; else the front page."""
    return where if len(where) <= 2000 and _WHERE.fullmatch(where) else "/"


def onward(where: str) -> Response:
    """Redirects from /login to a path of this head.

    The address is relative, so it works under any prefix.  Behind `./` it cannot name another host.
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
        fields = parse_qs(body.decode(), max_num_fields=20)
    except ValueError as error:
        raise BadRequest(f"the body is not a form: {error}") from error
    return {name: values[-1] for name, values in fields.items()}
