"""`runwatch stacks` as a process, over a directory in which a program is stuck."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.head.features.stacks.api import StacksApi
from runwatch.head.main import Head
from runwatch.head.settings import HeadSettings
from runwatch.journal.liveness import this_host
from runwatch.record import RunId
from runwatch.testing import until
from tests.integration.processes import Cluster, end
from tests.integration.sdk_programs import run_program
from tests.integration.test_cli import runwatch
from tests.integration.test_hangs import line_of

RUN = "hung-read_socket"


def start(cluster: Cluster, kind: str = "read_socket") -> subprocess.Popen[bytes]:
    process = cluster._python("-m", "tests.integration.hung", kind)
    until(lambda: b"ready" in (cluster.root / "log").read_bytes(), 60, "the program to be stuck")
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    end(process, signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("stacks"))
    process = start(made)
    yield made
    stop(process)
    made.close()


@pytest.mark.xdist_group("stacks command")
def test_without_an_agent_it_looks_by_itself(cluster: Cluster) -> None:
    said = runwatch(cluster.node_root, "stacks", RUN).stdout
    assert "rank 0: " in said and line_of("read_socket") in said
    full = runwatch(cluster.node_root, "stacks", RUN, "--rank", "0").stdout
    assert "MainThread" in full and "runwatch-control" in full
    assert "has no incident" in runwatch(cluster.node_root, "stacks", RUN, "--history").stdout


@pytest.mark.xdist_group("stacks command")
def test_through_the_agent_and_exported(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_agent(head="127.0.0.1:9")  # nobody there
    root = cluster.node_root

    def through_the_agent() -> dict[str, Any] | None:
        answer: dict[str, Any] = json.loads(
            runwatch(root, "stacks", RUN, "--json", check=False).stdout
        )
        return answer if answer["command"] not in ("", "here") else None

    answer = until(through_the_agent, 60, cluster.words())
    assert answer["unreachable"] == {} and answer["waiting_for"] == []
    (group,) = answer["groups"]
    assert group["ranks"] == [0] and line_of("read_socket") in group["text"]
    graph, lines = tmp_path / "graph.json", tmp_path / "lines.txt"
    runwatch(root, "stacks", RUN, "--speedscope", str(graph), "--collapsed", str(lines))
    assert json.loads(graph.read_text())["profiles"][0]["name"] == "rank 0"
    assert "read_socket (stuck.py:" in lines.read_text()
    again = runwatch(root, "stacks", RUN, "--speedscope", str(graph), check=False)
    assert again.returncode == 2 and "--force" in again.stderr


@pytest.mark.xdist_group("stacks command")
def test_what_cannot_be(cluster: Cluster) -> None:
    unknown = runwatch(cluster.node_root, "stacks", "nobody", check=False)
    assert unknown.returncode == 1 and "nobody" in unknown.stderr
    neither = runwatch(cluster.node_root, "stacks", check=False)
    assert neither.returncode == 2 and "--pid" in neither.stderr
    nothing = runwatch(cluster.node_root, "stacks", RUN, "--incident", "last", check=False)
    assert nothing.returncode == 1 and "no incident" in nothing.stderr


@pytest.mark.xdist_group("stacks command")
def test_a_process_of_no_run(tmp_path: Path) -> None:
    program = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            said = runwatch(tmp_path, "stacks", "--pid", str(process.pid)).stdout
        finally:
            process.kill()
    assert "MainThread" in said and "<module>" in said
    gone = runwatch(tmp_path, "stacks", "--pid", str(process.pid), check=False)
    assert gone.returncode == 1 and "ended" in gone.stdout


@pytest.mark.xdist_group("stacks command")
def test_a_head_and_its_agent_name_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way of a cluster: the agent ships, the head asks down the stream."""
    cluster = Cluster(tmp_path)
    monkeypatch.setenv("RUNWATCH_DIR", str(cluster.node_root))
    settings = HeadSettings(
        dir=cluster.head_root,
        grpc_port=cluster.grpc_port,
        http_port=cluster.http_port,
        stall_floor_seconds=1.5,
    )
    head = Head(settings)
    ready = threading.Event()
    thread = threading.Thread(target=head.run, args=(lambda _: ready.set(),))
    thread.start()
    assert ready.wait(100)
    cluster.start_agent()
    until(lambda: head.service.agents, 60, "the agent")
    process = start(cluster, "read_pipe")
    try:
        (incident,) = until(
            lambda: head.local.feature(StacksApi).incidents.of(RunId("hung-read_pipe")), 60
        )
        assert incident.ranks == (0,) and line_of("read_pipe") in incident.text
        assert incident.report["unreachable"] == {}, this_host()
        at = f"http://127.0.0.1:{cluster.http_port}"
        shown = runwatch(cluster.node_root, "show", "hung-read_pipe", "--head", at, "--once").stdout
        assert "■ stalled" in shown and "stands still since" in shown
        assert "■ stalled" in runwatch(cluster.node_root, "runs", "--head", at).stdout
        stalled = runwatch(cluster.node_root, "runs", "--state", "stalled", "--head", at).stdout
        assert "■ stalled" in stalled
        said = runwatch(cluster.node_root, "stacks", "hung-read_pipe", "--head", at).stdout
        assert "stands still" in said and line_of("read_pipe") in said
        told = runwatch(
            cluster.node_root, "stacks", "hung-read_pipe", "--head", at, "--incident", "last"
        )
        assert "rank 0: waits in read" in told.stdout
    finally:
        stop(process)
        head.stop()
        thread.join(100)
        cluster.close()
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("", "it never hung or crashed as far as we know"),
        (
            "raise ValueError('no data')",
            "has no incident, and is failed: rank 0 failed: ValueError",
        ),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "has no incident, and is lost: rank 0"),
    ],
)
def test_a_history_without_incidents_tells_how_the_run_ended(
    end: str, words: str, tmp_path: Path
) -> None:
    run_program(f"import os, runwatch, signal\nrunwatch.init('ended').log(loss=1)\n{end}", tmp_path)
    said = runwatch(tmp_path, "stacks", "ended", "--history").stdout
    assert words in said
