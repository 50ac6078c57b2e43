"""How many connections the HTTP port holds, and for how long.

No client has shown a token here yet, so none is trusted.  A request's headers must arrive within
seconds, its body within half a minute.  When all places are taken, the connection that has been
idle longest is closed: a thousand idle connections lock nobody out.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS: Final = 2_000
MOST_FILES: Final = 65_536
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\n"
    b"Content-Type: text/plain\r\n\r\nall connections of this head are in use; try again soon\n"
)
_LATE: Final = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\n\r\nthe request did not come in time\n"
)
logger = logging.getLogger("runwatch.head")


@dataclass(frozen=True, slots=True)
class Limits:
    connections: int = MOST_CONNECTIONS
    head_seconds: float = 10.0
    """Time for a request's headers: from the start of the connection, or from the first byte of a
    later request."""
    body_seconds: float = 30.0
    unread_seconds: float = 60.0
    """How long an answer may wait for a client that does not read it."""

    @property
    def at_once(self) -> int:
        """How many new connections may come in before any can be closed again."""
        return max(1, self.connections // 2)

    @property
    def per_address(self) -> int:
        """An address with this many connections loses one of its own for each new one."""
        return max(1, self.connections // 2)


def limits_here() -> Limits:
    """Limits that fit this process's open-file limit, after raising that as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    # Connections take a third of the files, for a moment half (`at_once`).  The store, the agents
    # and the viewers need the rest.
    places = MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else soft // 3
    return Limits(connections=min(MOST_CONNECTIONS, places))


class Door:
    """All connections of one server.  Used in its event loop only."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.turned_away = 0
        self._all: dict[Visitor, str] = {}
        self._idle: dict[Visitor, None] = {}
        """Connections without a request under way; the one idle longest is first."""
        self._by_address: Counter[str] = Counter()

    def protocol(self) -> Callable[..., Visitor]:
        """The protocol factory for uvicorn, which calls it for each connection."""

        def make(*args: Any, **kwargs: Any) -> Visitor:
            return Visitor(self, *args, **kwargs)

        return make

    def enter(self, visitor: Visitor, address: str) -> bool:
        if self._by_address[address] >= self.limits.per_address:
            self._make_room(address)
        elif len(self._all) >= self.limits.connections:
            self._make_room(None)
        if len(self._all) >= self.limits.connections:
            self.turned_away += 1
            return False
        self._all[visitor] = address
        self._by_address[address] += 1
        self._idle[visitor] = None
        return True

    def leave(self, visitor: Visitor) -> None:
        address = self._all.pop(visitor, None)
        self._idle.pop(visitor, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def busy(self, visitor: Visitor) -> None:
        self._idle.pop(visitor, None)

    def idle(self, visitor: Visitor) -> None:
        if visitor in self._all:
            self._idle[visitor] = None

    def _make_room(self, address: str | None) -> None:
        mine = (v for v in self._idle if address is None or self._all[v] == address)
        if (oldest := next(mine, None)) is not None:
            self.leave(oldest)
            self.turned_away += 1
            oldest.turn_away()


class Visitor(H11Protocol):
    """One connection, with a timer whenever the head waits for the client."""

    def __init__(self, door: Door, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._door = door
        self._waiting: asyncio.TimerHandle | None = None
        self._awaited = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._door.enter(self, str(self.client[0]) if self.client else ""):
            transport.write(_FULL)
            transport.close()
            return
        _give_up_on_the_unread(transport, self._door.limits.unread_seconds)
        self._await("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._await("")
        self._door.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def turn_away(self) -> None:
        """Closes this idle connection to make room."""
        self._await("")
        self.transport.abort()

    def _look(self) -> None:
        """Starts or stops the timer: the head waits for headers, for a body, or for nothing."""
        if self.transport.is_closing():
            self._await("")
            return
        theirs = self.conn.their_state
        if theirs is h11.SEND_BODY:
            self._door.busy(self)
            self._await("body")
        elif theirs is h11.IDLE:
            self._door.idle(self)
            # Between requests uvicorn's own keep-alive timer runs.
            self._await("head" if self.conn.trailing_data[0] else "")
        else:
            self._door.busy(self)
            self._await("")

    def _await(self, what: str) -> None:
        if what == self._awaited:
            return
        self._awaited = what
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if what:
            limits = self._door.limits
            seconds = limits.head_seconds if what == "head" else limits.body_seconds
            self._waiting = self.loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        self._door.turned_away += 1
        if not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_LATE)
            self.transport.close()


def _give_up_on_the_unread(transport: asyncio.Transport, seconds: float) -> None:
    """Has the kernel close a connection whose client reads nothing for so long, or is gone."""
    connection = transport.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
