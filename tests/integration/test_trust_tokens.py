"""A head is its own user's: others of the machine see nothing, send nothing, end nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from runwatch.address import Listening, leave_note, read_address, token_for
from runwatch.peers import listeners, user_at
from runwatch.ship.client import METHOD
from runwatch.testing import until
from runwatch.wire import gswarm_pb2
from runwatch.wire import spine_pb2 as pb
from tests import tokens
from tests.integration.processes import Cluster, end, free_port
from tests.integration.strangers import ALICE, MALLORY, needs_users
from tests.integration.test_cli import runwatch

ROOT = Path(__file__).parents[2]
CLOSED = {
    "token file": False, "note": False, "address": False, "token": "",
    "runs": 401, "session": 401, "share": 401, "profile": 401, "start": 401, "status": 401,
    "inject": "UNAUTHENTICATED", "Connect": "UNAUTHENTICATED", "GetStatus": "UNAUTHENTICATED",
    "Exit": "UNAUTHENTICATED",
}  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def stranger(at: Listening, root: Path, uid: int = MALLORY) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.integration.stranger_asks", str(uid)]
    done = subprocess.run(
        [*command, at.http, at.grpc, str(root)], cwd=ROOT, capture_output=True, timeout=90
    )
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_users
def test_another_user_gets_nothing_of_a_head_and_its_own_needs_no_word(cluster: Cluster) -> None:
    at = cluster.start_head()
    assert stranger(at, cluster.head_root) == CLOSED
    assert cluster.head is not None and cluster.head.poll() is None
    for name in ("token", "head.json"):
        about = (cluster.head_root / name).stat()
        assert (about.st_mode & 0o777, about.st_uid) == (0o600, os.geteuid())
    # An agent, a program and the command line of its own user: none of them is told a token.
    cluster.start_agent()
    trainer = cluster.start_trainer(hertz=0, count=100)
    cluster.wait_until_stored()
    for words in (("--dir", str(cluster.head_root)), ("--head", at.http)):
        answer = json.loads(runwatch(cluster.node_root, "runs", "--json", *words).stdout)
        assert [run["name"] for run in answer["runs"]] == [trainer.run]


@needs_users
def test_the_page_of_a_directory_is_its_users_too(tmp_path: Path) -> None:
    """`runwatch ui`, the same."""
    root = tmp_path / "dir"
    (root / "journals").mkdir(parents=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    command = [sys.executable, "-m", "runwatch.cli", "ui", "--port", str(free_port())]
    with (tmp_path / "log").open("wb") as log:
        serving = subprocess.Popen(
            command, env=environment | {"RUNWATCH_DIR": str(root)}, stdout=log, stderr=log
        )
    try:
        at = until(lambda: read_address(root), 30, "the page")
        until(lambda: at.link in (tmp_path / "log").read_text(), what="the link")
        with tokens.urlopen(at.link.replace("/?", "/api/v1/runs?")) as answer:
            assert answer.status == 200
        found = stranger(Listening(at.http, "127.0.0.1:1", "", 0), root)
        assert {name: found[name] for name in CLOSED if name not in GRPC} == {
            name: how for name, how in CLOSED.items() if name not in GRPC
        }
    finally:
        end(serving, 15)
    assert read_address(root) is None


GRPC = ("inject", "Connect", "GetStatus", "Exit")


@needs_users
def test_clients_of_gswarm_may_come_without_and_change_nothing_else(tmp_path: Path) -> None:
    """`gsprof start`: plain curl and clients of gswarm know no token."""
    http_port, grpc_port = free_port(), free_port()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    command = [sys.executable, "-m", "gsprof", "start", "--port", str(grpc_port)]
    with (tmp_path / "log").open("wb") as log:
        head = subprocess.Popen(
            [*command, "--http-port", str(http_port), "--data-dir", str(tmp_path / "data")],
            env=environment | {"HOME": str(tmp_path)}, cwd=tmp_path, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        at = until(lambda: read_address(tmp_path / "data"), 30, "the head")
        found = stranger(at, tmp_path / "data")
        opened = {"start": 200, "status": 200, "runs": 200, "Connect": "OK", "GetStatus": "OK"}
        assert found == CLOSED | opened | {"Exit": "PERMISSION_DENIED"}
        assert head.poll() is None
        done = subprocess.run(
            [sys.executable, "-m", "gsprof", "exit", at.grpc], timeout=60,
            env=environment | {"HOME": str(tmp_path)}, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0 and head.wait(100) == 0
    finally:
        end(head, 9)


# ── what is found without being told ──────────────────────────────────────────────────────────


LISTEN = """
import os, socket, sys
uid = int(sys.argv[1])
os.setresuid(uid, uid, uid)
made = socket.create_server(("127.0.0.1", int(sys.argv[2])))
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def listening_as(uid: int, port: int) -> Iterator[None]:
    command = [sys.executable, "-c", LISTEN, str(uid), str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as made:
        assert made.stdin is not None and made.stdout is not None
        assert made.stdout.readline() == b"ready\n"
        yield
        made.stdin.close()


@needs_users
def test_who_took_the_port_of_a_head_that_is_gone_is_not_told_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path / "own"))
    port = free_port()
    address = f"127.0.0.1:{port}"
    (tmp_path / "head").mkdir()
    leave_note(tmp_path / "head", Listening("", address, "secret", os.getpid()))
    with listening_as(MALLORY, port):
        assert listeners(port) == {MALLORY}
        assert token_for(address, tmp_path / "head") == ""
    with listening_as(0, port):
        assert token_for(address, tmp_path / "head") == "secret"
        assert token_for(f"localhost:{port}", tmp_path / "nowhere") == "secret", "by the port"
        assert token_for(f"127.0.0.1:{port + 1}", tmp_path / "head") == ""
        assert token_for(address, tmp_path / "head", "given") == "given"
        with socket.create_connection(("127.0.0.1", port)) as mine:
            assert user_at(*mine.getsockname()) == os.geteuid()


@needs_users
def test_a_note_that_somebody_else_laid_is_not_gone_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path / "own"))
    note = tmp_path / "head.json"
    said = {"http": "http://127.0.0.1:9", "grpc": "", "token": "theirs", "pid": 1}
    note.write_text(json.dumps(said))
    assert token_for("http://127.0.0.1:9", tmp_path) == "theirs"
    os.chown(note, ALICE, ALICE)
    assert token_for("http://127.0.0.1:9", tmp_path) == ""


# ── roles ─────────────────────────────────────────────────────────────────────────────────────


def token_command(cluster: Cluster, *words: str) -> Any:
    """As its own user types it, who names no token."""
    said = runwatch(cluster.node_root, "token", *words, "--dir", str(cluster.head_root), "--json")
    return json.loads(said.stdout)


def http(at: Listening, path: str, token: str, body: Any = None) -> tuple[int, Any]:
    said = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"{at.http}/api/v1{path}", data=said)
    asked.add_header("Authorization", f"Bearer {token}")
    asked.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(asked, timeout=100) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def hello() -> pb.Up:
    return pb.Up(hello=pb.Hello(oldest_wire_version=1, newest_wire_version=1, host="node"))


def stream(at: Listening, token: str, said: Iterator[pb.Up]) -> Iterator[pb.Down]:
    metadata = (("authorization", f"Bearer {token}"),)
    with grpc.insecure_channel(at.grpc) as channel:
        call = channel.stream_stream(METHOD, pb.Up.SerializeToString, pb.Down.FromString)
        yield from call(said, metadata=metadata, timeout=100)


def told(at: Listening, token: str) -> str:
    """What comes of an agent's greeting."""
    try:
        return str(next(stream(at, token, iter([hello()]))).WhichOneof("message"))
    except grpc.RpcError as error:
        return str(error.code().name)


def gswarm(at: Listening, token: str, method: str, message: Any, reply: Any) -> str:
    with grpc.insecure_channel(at.grpc) as channel:
        call = channel.unary_unary(
            f"/gswarm_profiler.ProfilerService/{method}",
            type(message).SerializeToString,
            reply.FromString,
        )
        try:
            call(message, metadata=(("authorization", f"Bearer {token}"),), timeout=100)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"


def test_a_token_does_what_its_role_may_and_no_more(cluster: Cluster) -> None:
    at = cluster.start_head()
    made = {
        role: token_command(cluster, "create", "--role", role, "--name", f"of {role}")
        for role in ("ingest", "view", "operate", "admin")
    }
    seen = {}
    for role, token in made.items():
        word = token["token"]
        seen[role] = (
            http(at, "/runs", word)[0],
            http(at, "/sessions", word, {"name": role})[0],
            http(at, "/shares", word, {})[0],
            http(at, "/tokens", word)[0],
            http(at, "/audit", word)[0],
            told(at, word),
            gswarm(at, word, "GetStatus", gswarm_pb2.Empty(), gswarm_pb2.StatusResponse),
            gswarm(
                at, word, "StartProfiling",
                gswarm_pb2.StartProfilingRequest(name=f"g {role}"),
                gswarm_pb2.StartProfilingResponse,
            ),
        )  # fmt: skip
    no = "PERMISSION_DENIED"
    assert seen == {
        "ingest": (403, 403, 403, 403, 403, "welcome", no, no),
        "view": (200, 403, 403, 403, 403, no, "OK", no),
        "operate": (200, 200, 403, 403, 403, no, "OK", "OK"),
        "admin": (200, 200, 200, 200, 200, "welcome", "OK", "OK"),
    }
    refused = http(at, "/shares", made["view"]["token"], {})[1]["error"]
    assert refused["code"] == "not_allowed" and "'admin'" in refused["message"]
    for role in ("ingest", "view", "operate"):
        word = made[role]["token"]
        assert gswarm(at, word, "Exit", gswarm_pb2.Empty(), gswarm_pb2.Empty) == no
    assert cluster.head is not None and cluster.head.poll() is None
    told_of = http(at, "/access", made["operate"]["token"])[1]
    assert (told_of["level"], told_of["role"]) == ("full", "operate")
    listed = token_command(cluster, "list")["tokens"]
    assert {(each["name"], each["used_ns"] is not None) for each in listed} == {
        (f"of {role}", True) for role in made
    }

    lines = http(at, "/audit?limit=1000", at.token)[1]["lines"]
    done = [(line["who"], line["what"], line["outcome"]) for line in lines]
    assert done.count(("main token", "POST /api/v1/tokens", "200")) == 4
    assert ("of operate", "POST /api/v1/sessions", "200") in done
    assert ("of view", "POST /api/v1/sessions", "403") in done
    assert ("of ingest", "/gswarm_profiler.ProfilerService/Exit", no) in done
    assert {(line["address"], line["uid"]) for line in lines} == {("127.0.0.1", os.geteuid())}
    created = next(line for line in lines if line["what"] == "POST /api/v1/tokens")
    assert created["about"] == {
        "token": made["admin"]["id"], "name": "of admin", "role": "admin"
    }  # fmt: skip
    kept = (cluster.head_root / "audit.jsonl").read_text()
    assert not any(token["token"] in kept for token in made.values()) and at.token not in kept


def test_one_that_is_taken_back_ends_what_is_open(cluster: Cluster) -> None:
    at = cluster.start_head()
    viewer = token_command(cluster, "create", "--role", "view")
    job = token_command(cluster, "create", "--role", "ingest", "--days", "1")
    asked = urllib.request.Request(f"{at.http}/api/v1/live")
    asked.add_header("Authorization", f"Bearer {viewer['token']}")
    more = threading.Event()

    def words() -> Iterator[pb.Up]:
        yield hello()
        assert more.wait(100)
        yield pb.Up(ping=pb.Ping(wall_ns=1))

    with urllib.request.urlopen(asked, timeout=100) as page:
        assert page.readline()
        sending = stream(at, job["token"], words())
        assert next(sending).WhichOneof("message") == "welcome"
        for token in (viewer, job):
            assert token_command(cluster, "revoke", token["id"]) == {"id": token["id"]}
        more.set()
        with pytest.raises(grpc.RpcError) as caught:
            list(sending)
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert "taken back" in caught.value.details()
        while page.read1():  # and then it is over
            pass
    assert http(at, "/runs", viewer["token"])[0] == 401
    assert told(at, job["token"]) == "UNAUTHENTICATED"
    assert token_command(cluster, "list") == {"tokens": []}


@pytest.mark.parametrize("how", ["revoked", "renewed", "by hand"])
def test_a_silent_stream_is_ended_with_its_token(cluster: Cluster, how: str) -> None:
    """It says hello and then nothing more, and its token ends; `by hand`: in the file."""
    at = cluster.start_head()
    job = token_command(cluster, "create", "--role", "ingest")
    silent = threading.Event()

    def words() -> Iterator[pb.Up]:
        yield hello()
        silent.wait(60)

    sending = stream(at, at.token if how == "renewed" else job["token"], words())
    try:
        assert next(sending).WhichOneof("message") == "welcome"
        if how == "revoked":
            token_command(cluster, "revoke", job["id"])
        elif how == "renewed":
            token_command(cluster, "renew", "--yes")
        else:
            (cluster.head_root / "tokens.json").write_text('{"version": 1, "tokens": []}')
        with pytest.raises(grpc.RpcError) as caught:
            list(sending)  # its own deadline is 30 s
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert "taken back" in caught.value.details()
        assert not silent.is_set()
    finally:
        silent.set()
    assert "Traceback" not in cluster.words()


def test_an_agent_with_a_token_of_its_own_sends_and_a_second_follows(cluster: Cluster) -> None:
    """Rotation: nothing is lost, and nobody starts a head anew."""
    at = cluster.start_head()
    made = token_command(cluster, "create", "--role", "ingest", "--name", "jobs")
    cluster.agent = cluster._python(
        "-m", "runwatch.agent", "--dir", str(cluster.node_root), "--idle", "0", "--head", at.grpc,
        environment={"RUNWATCH_TOKEN": made["token"]},
    )  # fmt: skip
    cluster.start_trainer(hertz=200, count=400)
    cluster.trainers[0].wait_for(50)
    until(lambda: http(at, "/runs", at.token)[1]["total"] == 1, 30, "the run")
    token_command(cluster, "revoke", made["id"])
    until(lambda: "taken back" in cluster.words() or "unauthenticated" in cluster.words(), 30)
    end(cluster.agent, 15)
    second = token_command(cluster, "create", "--role", "ingest", "--name", "jobs")
    cluster.agent = cluster._python(
        "-m", "runwatch.agent", "--dir", str(cluster.node_root), "--idle", "0", "--head", at.grpc,
        environment={"RUNWATCH_TOKEN": second["token"]},
    )  # fmt: skip
    cluster.trainers[0].wait_for(400)
    cluster.wait_until_stored()
    cluster.check_exactly_once()


def test_the_heads_own_token_is_changed_while_it_runs(cluster: Cluster) -> None:
    at = cluster.start_head()
    cluster.start_agent()  # which finds the next one by itself, as it found this one
    trainer = cluster.start_trainer(hertz=200, count=600)
    trainer.wait_for(50)
    until(lambda: http(at, "/runs", at.token)[1]["total"] == 1, 30, "the run")
    asked = urllib.request.Request(f"{at.http}/api/v1/live")
    asked.add_header("Authorization", f"Bearer {at.token}")
    refused = runwatch(
        cluster.node_root, "token", "renew", "--dir", str(cluster.head_root), check=False
    )
    assert refused.returncode == 2 and "--yes" in refused.stderr
    with urllib.request.urlopen(asked, timeout=100) as page:
        assert page.readline()
        made = token_command(cluster, "renew", "--yes")
        while page.read1():  # it ends
            pass
    word = made["token"]
    assert word != at.token and made["link"] == f"{at.http}/?token={word}"
    assert (cluster.head_root / "token").read_text() == word
    assert http(at, "/runs", at.token)[0] == 401 and http(at, "/runs", word)[0] == 200
    assert told(at, at.token) == "UNAUTHENTICATED" and told(at, word) == "welcome"
    renewed = read_address(cluster.head_root)
    assert renewed is not None and renewed.token == word
    tokens.remember(renewed)
    trainer.wait_for(600)
    cluster.wait_until_stored()
    done = http(at, "/audit", word)[1]["lines"][0]
    assert (done["who"], done["what"]) == ("main token", "POST /api/v1/tokens/renew")
    cluster.check_exactly_once()
    assert cluster.start_head().token == word


def test_a_token_that_was_named_is_changed_where_it_was_named(cluster: Cluster) -> None:
    at = cluster.start_head("--token", "of-my-own")
    status, answer = http(at, "/tokens/renew", at.token, {})
    assert status == 422 and "RUNWATCH_TOKEN" in answer["error"]["message"]
    assert http(at, "/runs", "of-my-own")[0] == 200
