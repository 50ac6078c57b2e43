"""What a head does with peers and callers that are wrong, silent, huge, or not allowed in."""

from __future__ import annotations

import json
import resource
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from runwatch.ship.client import METHOD
from runwatch.testing import until
from runwatch.wire import spine_pb2 as pb
from tests import tokens
from tests.integration.processes import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        yield made
    finally:
        made.close()


def hello(oldest: int = 1, newest: int = 1) -> pb.Up:
    return pb.Up(hello=pb.Hello(oldest_wire_version=oldest, newest_wire_version=newest, host="h"))


def talk(port: int, *messages: pb.Up, token: str | None = None) -> list[pb.Down]:
    """Say these on a stream of their own; what came back, or the RpcError.

    With the head's own token, unless told otherwise.
    """
    unlimited = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=unlimited) as channel:
        stream = channel.stream_stream(METHOD, pb.Up.SerializeToString, pb.Down.FromString)
        shown = tokens.known(port) if token is None else token
        metadata = (("authorization", f"Bearer {shown}"),) if shown else ()
        return list(stream(iter(messages), metadata=metadata, timeout=100))


def refusal(port: int, *messages: pb.Up, token: str | None = None) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        talk(port, *messages, token=token)
    return caught.value.code(), caught.value.details()


def ask(port: int, path: str, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with tokens.urlopen(request, timeout=100) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_strangers_and_nonsense_are_told_why_and_the_head_lives(cluster: Cluster) -> None:
    cluster.start_head()
    port = cluster.grpc_port

    assert talk(port, hello())[0].welcome.wire_version == 1
    assert talk(port, hello(1, 2))[0].welcome.wire_version == 2
    assert talk(port, hello(1, 99))[0].welcome.wire_version == 2

    code, words = refusal(port, hello(3, 4))
    assert (code, "upgrade the head" in words) == (grpc.StatusCode.FAILED_PRECONDITION, True)
    code, words = refusal(port, hello(0, 0))
    assert (code, "upgrade the agent" in words) == (grpc.StatusCode.FAILED_PRECONDITION, True)
    code, words = refusal(port, pb.Up(ping=pb.Ping()))
    assert (code, "hello" in words) == (grpc.StatusCode.FAILED_PRECONDITION, True)

    code, words = refusal(port, hello(), pb.Up(open=pb.Open(journal="../../etc/passwd")))
    assert (code, "journal id" in words) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    code, _ = refusal(port, hello(), pb.Up(batch=pb.Batch(start=5, end=1)))
    assert code == grpc.StatusCode.INVALID_ARGUMENT

    huge = pb.Up(batch=pb.Batch(points=pb.Points(value=bytes(100_000_000))))
    code, _ = refusal(port, hello(), huge)
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED

    assert ask(cluster.http_port, "/api/v1/health")[1]["status"] == "ok"
    assert talk(port, hello())[0].welcome.wire_version == 1


@pytest.mark.parametrize("newest", [1, 2])
def test_several_batches_in_a_message_are_answered_as_the_agent_understands(
    cluster: Cluster, newest: int
) -> None:
    cluster.start_head()
    names = [f"6553f100-node-{number}-a{newest}" for number in range(5)]
    batches = [
        pb.Batch(origin=pb.Origin(journal=name, host="node", pid=1), start=0, end=200)
        for name in names
    ]
    opens = [pb.Up(open=pb.Open(journal=name)) for name in names]
    said = [pb.Up(batch=batch) for batch in batches]
    if newest > 1:
        said = [pb.Up(batches=pb.Batches(batches=batches))]
    reached: dict[str, int] = {}

    def words() -> Iterator[pb.Up]:
        yield from [hello(1, newest), *opens, *said]
        until(lambda: len(reached) == 5 and all(reached.values()), 30, "what was stored")

    with grpc.insecure_channel(f"127.0.0.1:{cluster.grpc_port}") as channel:
        stream = channel.stream_stream(METHOD, pb.Up.SerializeToString, pb.Down.FromString)
        for down in stream(words(), metadata=tokens.metadata(cluster.grpc_port), timeout=60):
            kind = down.WhichOneof("message")
            assert kind in ("welcome", "cursor") or newest > 1 and kind == "cursors"
            some = [down.cursor] if kind == "cursor" else down.cursors.cursors
            reached |= {cursor.journal: cursor.position for cursor in some}
    assert reached == dict.fromkeys(names, 200)


def test_a_hundred_megabytes_over_http(cluster: Cluster) -> None:
    cluster.start_head()
    with socket.create_connection(("127.0.0.1", cluster.http_port), timeout=100) as raw:
        raw.sendall(
            b"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n"
        )
        assert raw.recv(64).split()[1] == b"413"
    assert ask(cluster.http_port, "/api/v1/health")[1]["status"] == "ok"


def test_a_thousand_connections_that_say_nothing(cluster: Cluster) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, before[1]))
    silent: list[socket.socket] = []
    try:
        cluster.start_head()
        silent.extend(
            socket.create_connection(("127.0.0.1", port), timeout=100)
            for port in (cluster.http_port, cluster.grpc_port)
            for _ in range(1000)
        )
        assert ask(cluster.http_port, "/api/v1/health")[1]["status"] == "ok"
        assert talk(cluster.grpc_port, hello())[0].welcome.wire_version == 1
    finally:
        for connection in silent:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert ask(cluster.http_port, "/api/v1/runs") == (
        200,
        {"runs": [], "total": 0, "next_offset": None},
    )


def test_a_second_head_on_the_same_store_is_refused_with_the_pid(cluster: Cluster) -> None:
    at = cluster.start_head()
    second = subprocess.run(
        cluster.python + ["-m", "runwatch.cli", "head", "--dir", str(cluster.head_root),
        "--grpc-port", "0", "--http-port", "0"],
        env=cluster.environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert second.returncode == 1
    assert str(at.pid) in second.stderr
    assert "Traceback" not in second.stderr


def test_a_port_in_use_is_named(cluster: Cluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", cluster.http_port))
        taken.listen()
        tried = subprocess.run(
            cluster.python + ["-m", "runwatch.cli", "head", "--dir", str(cluster.head_root),
            "--grpc-port", "0", "--http-port", str(cluster.http_port)],
            env=cluster.environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert tried.returncode == 2
    assert str(cluster.http_port) in tried.stderr
    assert "Traceback" not in tried.stderr


@pytest.mark.parametrize("bind", ["0.0.0.0", "127.0.0.1"])
def test_every_address_needs_a_token_which_is_made_and_printed(cluster: Cluster, bind: str) -> None:
    at = cluster.start_head("--bind", bind)
    assert len(at.token) > 20
    until(lambda: f"RUNWATCH_TOKEN={at.token}" in cluster.words(), what="the token to be printed")
    assert (cluster.head_root / "token").stat().st_mode & 0o077 == 0

    assert ask(cluster.http_port, "/api/v1/runs", Authorization="")[0] == 401
    health = ask(cluster.http_port, "/api/v1/health", Authorization="")
    assert health == (200, {"status": "ok"})
    assert ask(cluster.http_port, "/metrics", Authorization="")[0] == 401
    assert ask(cluster.http_port, "/api/v1/runs", Authorization=f"Bearer {at.token}")[0] == 200

    code, words = refusal(cluster.grpc_port, hello(), token="")
    assert (code, "RUNWATCH_TOKEN" in words) == (grpc.StatusCode.UNAUTHENTICATED, True)
    assert refusal(cluster.grpc_port, hello(), token="x")[0] == grpc.StatusCode.UNAUTHENTICATED
    assert talk(cluster.grpc_port, hello(), token=at.token)[0].welcome.wire_version == 1

    cluster.stop_head()
    assert cluster.start_head("--bind", bind).token == at.token


def test_tls_from_the_trainer_to_the_page(cluster: Cluster, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    with (tmp_path / "cert.pem").open("wb") as file:
        for part in certificate.cert_chain_pems:
            file.write(part.bytes())
    at = cluster.start_head(
        "--tls-certificate", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")
    )
    assert at.http.startswith("https://")
    trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    trainer = cluster.start_trainer(hertz=1000, count=50)
    cluster.start_agent(head=f"grpcs://localhost:{cluster.grpc_port}", ca=tmp_path / "ca.pem")

    def arrived() -> bool:
        url = f"{at.http}/api/v1/runs/{trainer.run}/latest?metric=value"
        try:
            with tokens.urlopen(url, timeout=10, context=trusted) as answer:
                points = json.load(answer)["points"]
        except urllib.error.HTTPError:
            return False
        return bool(points) and points[0]["value"] == 49.0

    until(arrived, 30, "the trainer's last value over TLS")


def test_a_truncated_store_is_set_aside_and_filled_again_from_the_journals(
    cluster: Cluster,
) -> None:
    cluster.start_head()
    cluster.start_agent()
    cluster.start_trainer(hertz=0, count=5_000).wait_for(5_000)
    cluster.wait_until_stored()
    cluster.stop_head()
    hot = cluster.head_root / "store" / "hot.duckdb"
    with hot.open("r+b") as file:
        file.truncate(hot.stat().st_size // 2)
    (hot.parent / "hot.duckdb.wal").unlink(missing_ok=True)

    cluster.start_head()
    notes = ask(cluster.http_port, "/api/v1/health")[1]["notes"]
    assert any("damaged" in note for note in notes), notes
    cluster.wait_until_stored()
    cluster.check_exactly_once()
