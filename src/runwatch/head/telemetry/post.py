"""A POST that ends in time, whatever the other side does."""

from __future__ import annotations

import base64
import http.client
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from socket import SHUT_RDWR
from typing import Final
from urllib.parse import unquote, urlsplit

from runwatch._version import __version__
from runwatch.clock import system_clock
from runwatch.head.forward.forwarder import Trouble
from runwatch.head.telemetry.settings import without_password

MOST_ANSWER: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    retry_seconds: float = 0.0
    """How long it asks us to wait."""

    @property
    def words(self) -> str:
        """For people: one line, and not too long."""
        said = " ".join(self.body[:300].decode(errors="replace").split())
        return f"it answered {self.status}{': ' if said else ''}{said}"


class Poster:
    """One connection, which is kept open.  `interrupt` is for any thread, the rest for one."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_seconds: float) -> None:
        parts = urlsplit(url)
        self._tls = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"User-Agent": f"runwatch/{__version__}", **headers}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._timeout_seconds = timeout_seconds
        self._connection: http.client.HTTPConnection | None = None
        self._is_cut = False
        self.name = without_password(url)

    def post(self, body: bytes) -> Answer:
        """Raises `Trouble` if there is no answer."""
        is_fresh = self._connection is None
        try:
            return self._exchange(body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # The other side may have closed a connection that was idle.
            if not is_fresh and isinstance(error, ConnectionError | http.client.BadStatusLine):
                return self.post(body)
            raise Trouble(self._why(error), "is it up, and is the address right?") from error

    def interrupt(self) -> None:
        self._is_cut = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):  # it is closed already
                connection.sock.shutdown(SHUT_RDWR)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, body: bytes) -> Answer:
        if self._connection is None:
            self._connection = self._connected()
        # A timeout of the socket is about each byte: one that sends a byte now and then would hold
        # us for ever.
        self._is_cut = False
        deadline = threading.Timer(self._timeout_seconds, self.interrupt)
        deadline.daemon = True
        deadline.start()
        try:
            self._connection.request("POST", self._target, body, self._headers)
            response = self._connection.getresponse()
            said = response.read(MOST_ANSWER)
            if response.will_close or response.read(1):
                self.close()
        finally:
            deadline.cancel()
            deadline.join()
        if self._is_cut:  # half an answer may look like a whole one
            raise TimeoutError
        return Answer(response.status, said, _seconds(response.headers.get("Retry-After")))

    def _connected(self) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_seconds)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_seconds, context=context
        )

    def _why(self, error: Exception) -> str:
        words = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            words = f"it was silent for {self._timeout_seconds:g} s"
        return f"no answer: {words}"


def _seconds(header: str | None) -> float:
    """Seconds, or a date."""
    if not header:
        return 0.0
    try:
        return max(float(header), 0.0)
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(header).timestamp()
    except ValueError:
        return 0.0
    return max(until - system_clock.wall_ns() / 1e9, 0.0)
