"""Where a head takes records, from the address that people open."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from runwatch.address import Address
from runwatch.errors import HeadUnreachable
from runwatch.ship.finding import Found, find


@contextmanager
def page(answers: dict[str, Any], status: int = 200) -> Iterator[str]:
    """A server that answers these paths; it has nothing at others."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path in answers
            self.send_response(status if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answers.get(self.path, {})).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


SAID = {"grpc_port": 4711, "grpc_tls": False, "grpc_host": "", "id": "a1"}


def test_a_port_of_agents_is_not_asked() -> None:
    assert find("grpc://head") == Found(Address("head:8091"))
    assert find("grpcs://head:5") == Found(Address("head:5", tls=True))


def test_the_page_says_where() -> None:
    with page({"/api/v1/where": SAID}) as at:
        expected = Found(Address("127.0.0.1:4711"), "a1")
        assert find(at) == find(f"http://{at}/") == find(f"http://{at}/?token=t") == expected


def test_behind_a_path() -> None:
    with page({"/team/x/api/v1/where": SAID}) as at:
        assert find(f"http://{at}/team/x").address == Address("127.0.0.1:4711")


def test_the_head_may_name_another_host_with_tls() -> None:
    elsewhere = {**SAID, "grpc_host": "inner", "grpc_tls": True}
    with page({"/api/v1/where": elsewhere}) as at:
        assert find(at).address == Address("inner:4711", tls=True)


def test_an_older_head_has_its_agents_one_port_before() -> None:
    refusal = {"error": {"code": "not_found", "message": "there is nothing"}}
    with page({"/api/v1/where": refusal}, status=404) as at:
        port = int(at.rpartition(":")[2])
        assert find(at) == Found(Address(f"127.0.0.1:{port - 1}"))


@contextmanager
def listener(answer: bytes) -> Iterator[str]:
    """Says this to whoever comes, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as caller:
                caller.recv(1000)
                caller.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("answer", [b"\0\0\x18\x04\0\0\0\0\0", b""], ids=["settings", "nothing"])
def test_what_speaks_no_http_is_the_port_of_agents_itself(answer: bytes) -> None:
    with listener(answer) as at:
        assert find(at) == Found(Address(at))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({**SAID, "grpc_port": None}, "takes no records"),
        ({**SAID, "grpc_port": 70_000}, "takes no records"),
        ({"grpc_port": "many"}, "not a head"),
        ([], "not a head"),
        ({}, "not a head"),
    ],
)
def test_who_is_no_head_is_told_from_one(said: Any, why: str) -> None:
    with page({"/api/v1/where": said}) as at, pytest.raises(HeadUnreachable, match=why):
        find(at)


def test_another_program_with_that_page() -> None:
    with page({}) as at, pytest.raises(HeadUnreachable, match="answers 404"):
        find(at)


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(HeadUnreachable, match="nothing listens there"):
        find(f"127.0.0.1:{port}")
