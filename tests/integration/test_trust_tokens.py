"""A head is its own user's: others of the machine see nothing, send nothing, end nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runwatch.address import Listening, leave_note, read_address, token_for
from runwatch.peers import listeners, user_at
from tests import tokens
from tests.integration.processes import Cluster, end, free_port, until
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
        assert done.returncode == 0 and head.wait(30) == 0
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
