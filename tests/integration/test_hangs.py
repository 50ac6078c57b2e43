"""A run stands still: the incident names the rank and the line, or why nobody could look."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from runwatch.cli.asgi import Exchange
from runwatch.head.features.stacks.api import StacksApi
from runwatch.head.main import LocalHead, LocalSettings
from runwatch.head.settings import HangSettings, ServingSettings
from runwatch.record import RunId
from runwatch.record.stacks import Incident
from runwatch.rows import EventRow
from runwatch.testing import until
from runwatch.views.pace import Limits
from tests.integration.processes import Cluster, end

HERE = Path(__file__).parent
STALL_SECONDS = 1.5
SETTINGS = HangSettings(limits=Limits(floor_seconds=STALL_SECONDS))
KINDS = (
    "gil", "deadlock", "orphan", "stopped", "loop", "read_socket", "read_pipe", "fork",
)  # fmt: skip


def line_of(kind: str) -> str:
    """`stuck.py:88`: where the program says that it is stuck."""
    path = HERE / ("hung.py" if kind == "stopped" else "stuck.py")
    lines = path.read_text().splitlines()
    (number,) = (i for i, line in enumerate(lines, 1) if line.endswith(f"# stuck: {kind}"))
    return f"{path.name}:{number}"


class Job:
    """Programs, the node's agent, and a head that reads the directory itself."""

    def __init__(self, root: Path) -> None:
        self.cluster = Cluster(root)
        self.cluster.start_agent(head="127.0.0.1:9")  # nobody there
        self.head = LocalHead(
            self.cluster.node_root, settings=LocalSettings(serving=ServingSettings(hangs=SETTINGS))
        )
        self.processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.head.tail.start()
        self.head.feature(StacksApi).watch()
        until(self.head.tail.agents, 60, "the agent")

    def start(self, kind: str, **environment: str) -> subprocess.Popen[bytes]:
        process = self.cluster._python(
            "-m", "tests.integration.hung", kind, environment=environment
        )
        self.processes.append((kind, process))
        return process

    def incident(self, kind: str, seconds: float = 60.0) -> Incident:
        """The newest that is more than a note."""

        def alarm() -> Incident | None:
            incidents = self.head.feature(StacksApi).incidents.of(RunId(f"hung-{kind}"))
            return next((incident for incident in incidents if incident.is_alarm), None)

        return until(alarm, seconds, f"an alarm of {kind}; {self.cluster.words()}")

    def end(self, kind: str) -> None:
        for each, process in self.processes:
            if each == kind and process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                end(process, signal.SIGKILL)

    def close(self) -> None:
        for kind, _ in self.processes:
            self.end(kind)
        self.head.close()
        self.cluster.close()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    made = Job(tmp_path_factory.mktemp("hangs"))
    try:
        for kind in KINDS:
            made.start(kind)
        yield made
    finally:
        made.close()


@pytest.mark.xdist_group("hangs")
@pytest.mark.parametrize("kind", KINDS)
def test_the_line_is_named(kind: str, job: Job) -> None:
    incident = job.incident(kind)
    assert incident.is_open and incident.ranks == (0,), incident.text
    assert incident.confidence in ("likely", "certain")
    if kind == "stopped":
        assert "stopped (state T" in incident.text
    else:
        assert line_of(kind) in incident.text
    if kind == "loop":
        job.end(kind)  # it keeps a processor busy
    took = (incident.named_ns - incident.since_ns) / 1e9
    print(f"{kind}: named {took - STALL_SECONDS:.1f} s after the threshold: {incident.text}")


# ── what the API tells ────────────────────────────────────────────────────────────────────────


class Api:
    """The head's API, without a port."""

    def __init__(self, head: LocalHead) -> None:
        self._app = head.app
        self._loop = asyncio.new_event_loop()

    def ask(self, path: str, body: Any = None, **parameters: Any) -> tuple[int, bytes]:
        said = None if body is None else json.dumps(body).encode()
        target = f"/api/v1{path}?{urlencode(parameters)}"
        answer = Exchange(self._app, self._loop, target, said)
        return answer.status, b"".join(answer.body())

    def get(self, path: str, **parameters: Any) -> Any:
        return self._json(*self.ask(path, **parameters))

    def post(self, path: str, body: Any) -> Any:
        return self._json(*self.ask(path, body))

    def _json(self, status: int, text: bytes) -> Any:
        assert status == 200, text
        return json.loads(text)

    def close(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


@pytest.fixture(scope="module")
def api(job: Job) -> Iterator[Api]:
    made = Api(job.head)
    yield made
    made.close()


@pytest.mark.xdist_group("hangs")
def test_incidents_over_http(job: Job, api: Api) -> None:
    incident = job.incident("read_pipe")
    (told,) = api.get("/runs/hung-read_pipe/incidents")["incidents"]
    assert (told["id"], told["state"], told["ranks"]) == (incident.id, "open", [0])
    assert told["severity"] in ("warning", "incident")
    detail = api.get(f"/runs/hung-read_pipe/incidents/{incident.id}")
    assert detail["report"]["groups"][0]["ranks"] == [0]
    assert {stacks["round"] for stacks in detail["stacks"]} >= {0, 1}
    assert all(stacks["incident"] == incident.id for stacks in detail["stacks"])
    run = api.get("/runs/hung-read_pipe")
    assert run["state"] == "running" and run["stalled"] and run["shown_state"] == "stalled"
    assert line_of("read_pipe") in run["reason"]
    assert api.ask("/runs/hung-read_pipe/incidents/no")[0] == 404


@pytest.mark.xdist_group("hangs")
def test_stacks_over_http(job: Job, api: Api) -> None:
    job.incident("read_socket")
    answer = api.post("/runs/hung-read_socket/stacks", {"rounds": 1, "wait_seconds": 20})
    assert answer["waiting_for"] == [] and answer["unreachable"] == {}
    (process,) = answer["processes"]
    places = [
        f"{Path(frame['file']).name}:{frame['line']}"
        for thread in process["threads"]
        for frame in thread["frames"]
    ]
    assert line_of("read_socket") in places
    command = api.get(f"/commands/{answer['command']}")
    assert command["done"] and command["kind"] == "stacks"
    again = api.get("/runs/hung-read_socket/stacks", command=answer["command"])
    assert again["processes"] == [process]
    newest = api.get("/runs/hung-read_socket/stacks")
    assert newest["groups"][0]["ranks"] == [0]
    assert api.get("/runs/hung-read_socket/stacks", time=1)["processes"] == []
    assert api.ask("/runs/hung-read_socket/stacks", {"rounds": 0})[0] == 422
    assert api.ask("/commands/no")[0] == 404


@pytest.mark.xdist_group("hangs")
def test_a_flame_graph_over_http(job: Job, api: Api) -> None:
    job.incident("read_socket")
    graph = api.get("/runs/hung-read_socket/flame", incident="last")
    (profile,) = graph["profiles"]
    assert profile["name"] == "rank 0" and profile["endValue"] == sum(profile["weights"]) >= 2
    names = {graph["shared"]["frames"][i]["name"] for stack in profile["samples"] for i in stack}
    assert "read_socket" in {name.rpartition(".")[2] for name in names}
    _, raw = api.ask("/runs/hung-read_socket/flame", format="collapsed", incident="last")
    text = raw.decode()
    assert re.fullmatch(r"(rank 0;.* \d+\n)+", text) and "read_socket (stuck.py:" in text


# ── what opens and closes an incident ─────────────────────────────────────────────────────────


@pytest.mark.xdist_group("hangs")
def test_it_closes_when_the_run_goes_on(job: Job) -> None:
    job.incident("stopped")
    (process,) = (p for kind, p in job.processes if kind == "stopped")
    os.killpg(process.pid, signal.SIGCONT)
    closed = until(lambda: None if (i := job.incident("stopped")).is_open else i, 30)
    assert "it went on at" in closed.why


@pytest.mark.xdist_group("hangs")
def test_it_closes_when_the_run_ends(job: Job) -> None:
    job.incident("orphan")
    (process,) = (p for kind, p in job.processes if kind == "orphan")
    os.killpg(process.pid, signal.SIGKILL)
    closed = until(lambda: None if (i := job.incident("orphan")).is_open else i, 30)
    assert closed.why == "the run ended: killed"


def _ranks_of(job: Job, run: str) -> set[int]:
    """Of its own processes: the agent has a part in it, too."""
    found = job.head.store.processes(RunId(run))
    return {row.rank for row in found if row.role == "process"}


@pytest.mark.xdist_group("hangs")
def test_a_rank_that_falls_behind_the_others_is_named(job: Job) -> None:
    gate = job.cluster.root / "gate"
    for rank in ("0", "1", "2"):
        kind = "read_pipe" if rank == "1" else "nothing"
        ranks = {"RANK": rank, "WORLD_SIZE": "3", "LOCAL_RANK": rank, "HUNG_RUN": "apart"}
        job.start(kind, **ranks, HUNG_GATE=str(gate))
    # They begin together, else the one that hangs may do so before the others have begun.
    until(lambda: _ranks_of(job, "hung-apart") == {0, 1, 2}, 60, "all to be there")
    gate.touch()
    incident = job.incident("apart")
    assert incident.ranks == (1,)
    assert incident.report["stall"]["kind"] == "rank"
    assert line_of("read_pipe") in incident.text


@pytest.mark.xdist_group("hangs")
def test_a_fault_is_stored_with_its_stacks(job: Job) -> None:
    process = job.start("segfault")
    assert process.wait(60) == -signal.SIGSEGV

    def faults() -> list[EventRow]:
        rows = job.head.store.events(RunId("hung-segfault"), kinds=["stacks"])
        return [row for row in rows if row.body["how"] == "fault"]

    (row,) = until(faults, 30, job.cluster.words())
    assert row.body["fault"] == "Segmentation fault" and row.rank == 0
    functions = {f["function"] for t in row.body["threads"] for f in t["frames"]}
    assert "crash" in functions


@pytest.mark.xdist_group("hangs")
def test_native_frames_tell_more_afterwards(job: Job) -> None:
    thorough = until(lambda: i if (i := job.incident("deadlock")).rounds >= 3 else None, 60)
    assert thorough.id == job.incident("deadlock").id and thorough.ranks == (0,)
    assert line_of("deadlock") in thorough.text
    stacks = job.head.feature(StacksApi).incidents.taker.taken(
        RunId("hung-deadlock"), incident=thorough.id
    )
    if any(f.native for each in stacks for t in each.threads for f in t.frames):
        assert line_of("deadlock-one") in thorough.text  # which of them waits for which
        assert line_of("deadlock-other") in thorough.text
