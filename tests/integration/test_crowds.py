"""A real head, few files to open, and a crowd before its doors."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from runwatch.head.features.gswarm.grpc import NAME as GSWARM
from runwatch.ship.finding import find
from runwatch.testing import until
from runwatch.wire import spine_pb2 as pb
from tests.integration.processes import end

# One head for all of them.
pytestmark = pytest.mark.xdist_group("crowds")

TOKEN = "a-secret-of-this-test"
FILES = 256


class Crowded:
    def __init__(self, root: Path) -> None:
        limited = ["sh", "-c", f'ulimit -n {FILES} && exec "$@"', "sh"]
        command = ["-m", "runwatch.cli", "head", "--http-port", "0", "--grpc-port", "0"]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
        self.log = root / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*limited, sys.executable, *command],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment | {"RUNWATCH_DIR": str(root / "dir"), "RUNWATCH_TOKEN": TOKEN},
            )
        assert self.process.stdout is not None
        said = b"".join(self.process.stdout.readline() for _ in range(3)).decode()
        found = re.search(r"RUNWATCH_HEAD=http://127\.0\.0\.1:(\d+)", said)
        assert found is not None, said
        self.http = "127.0.0.1", int(found[1])
        self.grpc = find(f"http://127.0.0.1:{found[1]}").address.target

    def health(self) -> int:
        address = f"http://127.0.0.1:{self.http[1]}/api/v1/health"
        with urllib.request.urlopen(address, timeout=100) as reply:
            return int(reply.status)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowded]:
    crowded = Crowded(tmp_path_factory.mktemp("crowded"))
    yield crowded
    end(crowded.process, signal.SIGTERM)
    assert crowded.process.stdout is not None
    crowded.process.stdout.close()


def test_a_crowd_that_asks_nothing_locks_nobody_out(head: Crowded) -> None:
    with ExitStack() as stack:
        for _ in range(2 * FILES):
            stack.enter_context(socket.create_connection(head.http, timeout=100))
        assert head.health() == 200
    assert head.log.stat().st_size < 20_000


def test_noise_is_logged_a_few_times(head: Crowded) -> None:
    for _ in range(200):
        with socket.create_connection(head.http, timeout=100) as noisy:
            noisy.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
            while noisy.recv(4096):
                pass
    assert head.health() == 200
    assert head.log.stat().st_size < 20_000


def call(head: Crowded, method: str, message: bytes, token: str | None) -> tuple[object, str]:
    """The status with which a stream of one message ends."""
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(head.grpc) as channel:
        try:
            if method.endswith("Stream"):
                list(channel.stream_stream(method)(iter([message]), metadata=metadata, timeout=100))
            elif method.endswith(("Keep", "StreamMetrics")):
                channel.stream_unary(method)(iter([message]), metadata=metadata, timeout=100)
            else:
                channel.unary_unary(method)(message, metadata=metadata, timeout=100)
        except grpc.RpcError as error:
            return error.code(), error.details()
    return grpc.StatusCode.OK, ""


METHODS = (
    "/runwatch.v1.Spine/Stream",
    "/runwatch.v1.Spine/Keep",
    f"/{GSWARM}/StreamMetrics",
    f"/{GSWARM}/Connect",
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
)


@pytest.mark.parametrize("method", METHODS)
def test_a_malformed_message_gets_an_answer_and_no_traceback(head: Crowded, method: str) -> None:
    nonsense = b"\x0a\xff\xff\xff\x7fnonsense"
    code, _ = call(head, method, nonsense, None)
    assert code is grpc.StatusCode.UNAUTHENTICATED
    code, why = call(head, method, nonsense, TOKEN)
    assert code is grpc.StatusCode.INVALID_ARGUMENT and "malformed" in why
    assert "Traceback" not in head.log.read_text()


def test_guesses_by_grpc_are_braked_and_lock_nobody_out(head: Crowded) -> None:
    hello = pb.Up(hello=pb.Hello(host="x", oldest_wire_version=1, newest_wire_version=2))
    told = [call(head, METHODS[0], hello.SerializeToString(), f"guess-{i}")[1] for i in range(12)]
    assert "needs a token" in told[0]
    assert "too many wrong tokens" in told[-1]
    code, why = call(head, METHODS[0], hello.SerializeToString(), TOKEN)
    assert code is grpc.StatusCode.OK, why


def test_a_request_that_does_not_end_is_hung_up_on(head: Crowded) -> None:
    with socket.create_connection(head.http, timeout=100) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        while slow.recv(4096):
            pass


def test_live_pages_that_go_leave_no_place_taken(head: Crowded) -> None:
    """More than there is room for, one after the other, each hung up in another moment."""
    request = (
        f"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    ).encode()

    def visit(count: int) -> None:
        for i in range(count):
            with socket.create_connection(head.http, timeout=100) as page:
                page.sendall(request)
                if i % 3:
                    page.recv(1 << (i % 8))
                if i % 2:
                    page.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    threads = [threading.Thread(target=visit, args=(50,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: watching(head) == 0, what="all places are free again")


def watching(head: Crowded) -> float:
    address = f"http://127.0.0.1:{head.http[1]}/metrics?token={TOKEN}"
    with urllib.request.urlopen(address, timeout=100) as reply:
        text = reply.read().decode()
    found = re.search(r"^runwatch_\w*live_subscribers\S* (\S+)$", text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])
