"""Asking heads that tests began, with the token that each left in its note."""

from __future__ import annotations

import urllib.request
from typing import Any, Final
from urllib.parse import urlsplit

from runwatch.address import Listening

_TOKENS: Final[dict[int, str]] = {}


def remember(at: Listening) -> Listening:
    for address in (at.http, f"grpc://{at.grpc.rpartition('://')[2]}"):
        if port := urlsplit(address).port:
            _TOKENS[port] = at.token
    return at


def known(port: int) -> str:
    return _TOKENS.get(port, "")


def metadata(port: int) -> tuple[tuple[str, str], ...]:
    token = known(port)
    return (("authorization", f"Bearer {token}"),) if token else ()


def headers(url: str) -> dict[str, str]:
    """What who knows the head at this address says."""
    token = known(urlsplit(url).port or 0)
    return {"Authorization": f"Bearer {token}"} if token else {}


def urlopen(asked: str | urllib.request.Request, **more: Any) -> Any:
    request = urllib.request.Request(asked) if isinstance(asked, str) else asked
    for name, value in headers(request.full_url).items():
        if not request.has_header(name):
            request.add_header(name, value)
    return urllib.request.urlopen(request, **more)


def link(address: str) -> str:
    """As the head printed it: a browser that opened it may go anywhere there."""
    token = known(urlsplit(address).port or 0)
    return f"{address}/?token={token}" if token else address
