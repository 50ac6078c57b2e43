"""Asks the page of a head where its agents connect.

People know one address of a head: the one that they open.  The head answers there, at
`/api/v1/where`, on which port it takes records, whether with TLS, and which head it is (its id is
that of its store: it stays when the head moves to another address).

Two older arrangements still work.  An older head does not know the question: its agents connect at
the port before that of its page.  And what is named may be the port of agents itself, which speaks
no HTTP/1: then we connect there.
"""

from __future__ import annotations

import json
import socket
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from runwatch.address import Address, http_address, is_direct
from runwatch.errors import HeadUnreachable

WHERE: Final = "/api/v1/where"
ASK_SECONDS: Final = 5.0
_MOST_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Found:
    """Where a head takes records."""

    address: Address
    id: str = ""
    """Of the head's store; empty: an older head, or one that was not asked."""


def find(head: str, ca: bytes | None = None, *, seconds: float = ASK_SECONDS) -> Found:
    """Where this head takes records.  Raises HeadUnreachable, with the reason."""
    if is_direct(head):
        return Found(Address.parse(head))
    page = http_address(head)
    parts = urlsplit(page)
    tls = parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    try:
        context = _context(ca) if tls else None
        request = urllib.request.Request(page + WHERE)
        with urllib.request.urlopen(request, timeout=seconds, context=context) as answer:
            said = json.loads(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404 and _is_head(error.read(_MOST_BYTES)):
                return Found(Address(f"{host}:{port - 1}", tls))
        raise HeadUnreachable(f"{page} answers {error.code}: it is not a head") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if _speaks_otherwise(reason):
            return Found(Address(f"{host}:{port}", tls))
        raise HeadUnreachable(f"no answer from {page}: {_words(reason)}") from error
    return _found(said, page, str(host))


def _found(said: Any, page: str, host: str) -> Found:
    try:
        port, tls = int(said["grpc_port"] or 0), bool(said["grpc_tls"])
        elsewhere, id = str(said.get("grpc_host") or ""), str(said.get("id") or "")
    except (LookupError, TypeError, ValueError, AttributeError):
        raise HeadUnreachable(f"what answers at {page} is not a head") from None
    if not 0 < port < 65536:
        raise HeadUnreachable(
            f"the head at {page} takes no records from agents: it has no gRPC port (`runwatch ui` "
            "has none, `runwatch head` has one)"
        )
    return Found(Address(f"{elsewhere or host}:{port}", tls), id)


def _is_head(body: bytes) -> bool:
    """Whether an error has the shape of a head's."""
    try:
        return isinstance(json.loads(body)["error"]["message"], str)
    except (ValueError, LookupError, TypeError):
        return False


def _speaks_otherwise(reason: object) -> bool:
    """Whether somebody is there who does not speak HTTP/1, as a gRPC port does not."""
    return isinstance(reason, HTTPException | ConnectionResetError)


def _context(ca: bytes | None) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca.decode("ascii", "replace") if ca else None)


def _words(reason: object) -> str:
    if isinstance(reason, ConnectionRefusedError):
        return "connection refused: nothing listens there"
    if isinstance(reason, TimeoutError):
        return "it is silent"
    if isinstance(reason, socket.gaierror):
        return f"the host name is unknown ({reason.strerror})"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {reason.verify_message}"
    if isinstance(reason, ssl.SSLError):
        return f"TLS fails: {reason.reason or reason}; perhaps the head does not use TLS"
    if isinstance(reason, OSError):
        return reason.strerror or str(reason)
    return str(reason)
