"""Connections that ask nothing, or ask slowly, take nobody's place: real sockets, a real server."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from runwatch.head.http.door import Door, Limits
from runwatch.testing import until

ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"


class Site:
    """Answers what it was sent; /slow waits until it is let go, /live has no end."""

    def __init__(self, limits: Limits) -> None:
        self.door = Door(limits)
        self.go_on = threading.Event()
        self.asked = 0
        self.live = 0
        config = uvicorn.Config(
            self._answer,
            http=self.door.protocol(),  # type: ignore[arg-type]
            interface="asgi3",
            log_config=None,
            lifespan="off",
            timeout_keep_alive=30,
        )
        self.server = uvicorn.Server(config)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = self.listening.getsockname()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.asked += 1
        if scope["path"] == "/slow":
            await asyncio.to_thread(self.go_on.wait, 30)
        if scope["path"] == "/live":
            await self._tell_for_ever(receive, send)
            return
        length = str(len(body) + 2).encode()
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", length)],
            }
        )
        await send({"type": "http.response.body", "body": b"ok" + body})

    async def _tell_for_ever(self, receive: Receive, send: Send) -> None:
        self.live += 1
        gone = asyncio.ensure_future(receive())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while not gone.done():
                message = {"type": "http.response.body", "body": bytes(1 << 16), "more_body": True}
                await send(message)
        finally:
            gone.cancel()
            self.live -= 1


@contextmanager
def served(limits: Limits) -> Iterator[Site]:
    site = Site(limits)
    thread = threading.Thread(
        target=lambda: asyncio.run(site.server.serve(sockets=[site.listening]))
    )
    thread.start()
    try:
        until(lambda: site.server.started)
        yield site
    finally:
        site.go_on.set()
        site.server.should_exit = True
        thread.join()
        site.listening.close()


class Client:
    def __init__(self, site: Site, stack: ExitStack) -> None:
        self.socket = stack.enter_context(socket.create_connection(site.address, timeout=100))

    def say(self, words: bytes) -> None:
        self.socket.sendall(words)

    def heard(self) -> bytes:
        """One answer, or all there was before the other side hung up."""
        found = b""
        try:
            while not (b"\r\n\r\n" in found and found.partition(b"\r\n\r\n")[2][:2] == b"ok"):
                if not (piece := self.socket.recv(4096)):
                    break
                found += piece
        except ConnectionResetError:
            pass
        return found

    @property
    def is_answered(self) -> bool:
        self.say(ASK)
        return b" 200 " in self.heard()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_idle_connections_lock_nobody_out(stack: ExitStack) -> None:
    with served(Limits(connections=20)) as site:
        crowd = [Client(site, stack) for _ in range(100)]
        assert Client(site, stack).is_answered
        assert crowd[0].heard() == b""  # who came first went first
        assert site.door.turned_away >= 81


def test_who_is_being_answered_stays(stack: ExitStack) -> None:
    with served(Limits(connections=8)) as site:
        busy = Client(site, stack)
        busy.say(ASK.replace(b"/ ", b"/slow "))
        until(lambda: site.asked == 1)
        for _ in range(50):
            Client(site, stack)
        assert Client(site, stack).is_answered
        site.go_on.set()
        assert b" 200 " in busy.heard()


def test_when_all_are_being_answered_the_next_is_told_so(stack: ExitStack) -> None:
    with served(Limits(connections=3)) as site:
        for count in range(1, 4):
            Client(site, stack).say(ASK.replace(b"/ ", b"/slow "))
            until(lambda wanted=count: site.asked == wanted)
        assert Client(site, stack).heard().startswith(b"HTTP/1.1 503")


def test_a_head_that_does_not_end_is_not_waited_for(stack: ExitStack) -> None:
    with served(Limits(head_seconds=0.1)) as site:
        silent, slow = Client(site, stack), Client(site, stack)
        slow.say(b"GET / HTTP/1.1\r\nX: ")
        assert silent.heard().startswith(b"HTTP/1.1 408")
        assert slow.heard().startswith(b"HTTP/1.1 408")


def test_a_second_heads_clock_runs_too(stack: ExitStack) -> None:
    with served(Limits(head_seconds=0.1)) as site:
        client = Client(site, stack)
        assert client.is_answered
        client.say(b"GET / HT")
        assert client.heard().startswith(b"HTTP/1.1 408")


def test_a_body_that_does_not_end_is_not_waited_for(stack: ExitStack) -> None:
    with served(Limits(body_seconds=0.1)) as site:
        client = Client(site, stack)
        client.say(POST + b"ab")
        assert client.heard() == b""
        assert site.asked == 0


def test_who_asks_in_time_is_never_hurried(stack: ExitStack) -> None:
    """Between requests, and while an answer is made, neither clock runs."""
    with served(Limits(head_seconds=0.1, body_seconds=0.1)) as site:
        client = Client(site, stack)
        client.say(POST + b"abcd")
        assert client.heard().endswith(b"okabcd")
        client.say(ASK.replace(b"/ ", b"/slow "))
        until(lambda: site.asked == 2)
        late = Client(site, stack)
        assert late.heard().startswith(b"HTTP/1.1 408")  # so the time is over for sure
        site.go_on.set()
        assert b" 200 " in client.heard()
        assert client.is_answered


def test_several_requests_at_once_are_answered(stack: ExitStack) -> None:
    with served(Limits(head_seconds=5)) as site:
        client = Client(site, stack)
        client.say(ASK * 3)
        until(lambda: site.asked == 3)
        assert client.heard()


def test_who_stops_reading_a_live_page_leaves_no_place_taken(stack: ExitStack) -> None:
    with served(Limits(unread_seconds=1)) as site:
        for _ in range(3):
            Client(site, stack).say(ASK.replace(b"/ ", b"/live "))
        until(lambda: site.live == 3)
        until(lambda: site.live == 0, 30, "their places are free again")
        assert Client(site, stack).is_answered


def test_who_goes_leaves_no_place_taken(stack: ExitStack) -> None:
    with served(Limits(connections=10)) as site:
        for _ in range(5):
            with ExitStack() as short:
                clients = [Client(site, short) for _ in range(10)]
                assert clients[-1].is_answered
        until(lambda: not site.door._all and not site.door._idle and not site.door._by_address)
