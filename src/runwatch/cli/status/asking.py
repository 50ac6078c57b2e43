"""`runwatch status`: ask a head for its health; if it does not answer, say why."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Final

from runwatch.cli.status.types import Answer

TIMEOUT_SECONDS: Final = 3.0
MOST_BYTES: Final = 16 << 20


def ask(address: str, token: str, ca: Path | None = None) -> Answer:
    """Send one request.  Every failure of the other side becomes an `Answer`."""
    if not address.startswith(("http://", "https://")):
        return Answer("other", "that is not an HTTP address")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = urllib.request.Request(f"{address}/api/v1/health", headers=headers)
        context = _context(ca) if address.startswith("https") else None
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=context) as answer:
            health = json.loads(answer.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        return _refusal(error.code, error.read(MOST_BYTES))
    except (OSError, HTTPException, ValueError) as error:
        return _failure(error.reason if isinstance(error, urllib.error.URLError) else error)
    if not isinstance(health, dict) or health.get("status") not in ("ok", "degraded"):
        return Answer("other", "what answers there is not a head")
    if "version" in health:
        return Answer("well", health=health)
    why = "the head refuses our token" if token else "we have no token for the head"
    return Answer("token", why, health)


def _context(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca) if ca else None)
    except OSError as error:
        raise OSError(
            error.errno, f"RUNWATCH_CA ({ca}) cannot be used: {error.strerror}"
        ) from error


def _refusal(code: int, body: bytes) -> Answer:
    try:
        message = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return Answer("other", f"what answers there is not a head: it answers {code}")
    return Answer("unreachable", f"it answers {code}: {message}")


def _failure(error: object) -> Answer:
    if isinstance(error, ConnectionRefusedError):
        return Answer("refused", "connection refused: nothing listens there")
    if isinstance(error, TimeoutError):
        return Answer("silent", f"no answer within {TIMEOUT_SECONDS:g} s")
    if isinstance(error, socket.gaierror):
        return Answer("name", f"the host name is unknown ({error.strerror})")
    if isinstance(error, ssl.SSLCertVerificationError):
        return Answer("tls", f"its certificate is not accepted: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        why = getattr(error, "reason", None) or error
        return Answer("tls", f"TLS fails: {why}; perhaps the head does not use TLS")
    if isinstance(error, ConnectionResetError | HTTPException):
        return Answer("tls", "it closes the connection without an answer; perhaps it needs TLS")
    if isinstance(error, OSError):
        return Answer("unreachable", error.strerror or str(error))
    return Answer("other", "what answers there is not a head")
