"""Programs as their owners start them: the run and the attempt are right, whatever started them.

Ranks are killed, jobs are started again, resumed and hang.  Disruptions and goodput agree with what
was done.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from runwatch.cli.local_source import LocalSource
from runwatch.head.features.stacks.api import StacksApi
from runwatch.head.main import LocalHead, LocalSettings
from runwatch.head.settings import HangSettings, ServingSettings
from runwatch.record import RunId
from runwatch.record.stacks import Incident
from runwatch.testing import until
from runwatch.views.pace import Limits
from tests.integration.processes import free_port
from tests.integration.sdk_programs import program_environment, run_program
from tests.sampling import sampled

PROGRAM = Path(__file__).with_name("launched.py")
Environment = Mapping[str, str]
OTHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI", "PMI", "RAY_", "LWS_", "JOB")


class Place:
    """A directory, and what a head would say of the runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "runwatch"
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, command: Sequence[str], **environment: str) -> subprocess.Popen[bytes]:
        inherited = program_environment(self.root)
        kept = {k: v for k, v in inherited.items() if not k.startswith(OTHERS)}
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command, env={**kept, **environment}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        self.running.append(process)
        return process

    def rank(self, name: str, end: str, **environment: str) -> subprocess.Popen[bytes]:
        return self.start([sys.executable, str(PROGRAM), name, end], **environment)

    def launch(self, end: str, ranks: Sequence[Environment], name: str = "job") -> None:
        """Every rank at once, as launchers do.  When one dies they end the others."""
        started = [self.rank(name, end, **environment) for environment in ranks]
        if end == "end":
            assert [process.wait(60) for process in started] == [0] * len(started)
            return
        first = int(end.removeprefix("kill:"))
        assert started[first].wait(60) == -signal.SIGKILL
        for number, process in enumerate(started):
            if number != first:
                self.waits(number, name)
                process.terminate()
                process.wait(60)

    def waits(self, rank: int, name: str = "job") -> None:
        """Until that rank has done its steps."""
        marks = f"{name}.{rank}.*.waits"
        for mark in until(lambda: list(self.folder.glob(marks)), 60, f"rank {rank}"):
            mark.unlink()

    def close(self) -> None:
        for process in self.running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)

    @contextmanager
    def asked(self) -> Iterator[LocalSource]:
        source = LocalSource(self.root, in_memory=True)
        try:
            yield source
        finally:
            source.close()

    def runs(self) -> dict[str, Any]:
        with self.asked() as source:
            return {run["name"]: run for run in source.get("/runs")["runs"]}

    def history(self, run: str = "job") -> tuple[list[str], Any]:
        """`2 ranks, completed` for each attempt, and the goodput."""
        with self.asked() as source:
            attempts = source.get(f"/runs/{run}")["history"]
            goodput = source.get(f"/runs/{run}/goodput")
        spent = sum(each["ns"] for each in goodput["spent"])
        assert spent == goodput["total_ns"] == goodput["end_ns"] - goodput["start_ns"]
        return [f"{a['ranks']} ranks, {a['state']}" for a in attempts], goodput


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


# ── what a launcher says in variables ─────────────────────────────────────────────────────────


def slurm(launch: int, rank: int) -> Environment:
    """`srun`, twice in one job."""
    return {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": str(launch), "SLURM_PROCID": str(rank),
            "SLURM_NTASKS": "2", "SLURM_JOB_NAME": "sbatch.sh"}  # fmt: skip


def requeued(launch: int, rank: int) -> Environment:
    return {"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": str(launch), "SLURM_PROCID": str(rank),
            "SLURM_STEP_ID": "0"}  # fmt: skip


def resubmitted(launch: int, rank: int) -> Environment:
    return {"SLURM_JOB_ID": str(77 + launch), "SLURM_PROCID": str(rank), "SLURM_STEP_ID": "0"}


def open_mpi(launch: int, rank: int) -> Environment:
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2",
            "PMIX_NAMESPACE": f"prterun-node-{100 + launch}@1"}  # fmt: skip


def hydra(launch: int, rank: int) -> Environment:
    return {"PMI_RANK": str(rank), "PMI_SIZE": "2"}


def jobset(launch: int, rank: int) -> Environment:
    return {"JOB_COMPLETION_INDEX": str(rank), "JOBSET_RESTART_ATTEMPT": str(launch),
            "JOBSET_NAME": "maxtext"}  # fmt: skip


def lws(launch: int, rank: int) -> Environment:
    return {"LWS_LEADER_ADDRESS": "llama-0.llama.default", "LWS_WORKER_INDEX": str(rank),
            "LWS_GROUP_SIZE": "2"}  # fmt: skip


def ray(launch: int, rank: int) -> Environment:
    return {"RAY_JOB_ID": "01000000", "RANK": str(rank), "WORLD_SIZE": "2"}


def plain_torchrun(launch: int, rank: int) -> Environment:
    return {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0", "RANK": str(rank),
            "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # fmt: skip


def two_hosts(launch: int, rank: int) -> Environment:
    """torchrun's agents do not count restarts alike."""
    return {"TORCHELASTIC_RUN_ID": "j", "TORCHELASTIC_RESTART_COUNT": str(launch * rank),
            "RANK": str(rank), "WORLD_SIZE": "2", "RUNWATCH_HOST": f"host-{rank}"}  # fmt: skip


LAUNCHERS = (slurm, requeued, jobset, plain_torchrun, two_hosts, resubmitted, open_mpi, hydra, lws,
             ray)  # fmt: skip


@pytest.mark.parametrize("launcher", sampled(LAUNCHERS, 5))
def test_a_job_that_is_killed_and_resumed(launcher: Any, place: Place) -> None:
    place.launch("kill:1", [launcher(0, rank) for rank in range(2)])
    place.launch("end", [launcher(1, rank) for rank in range(2)])
    attempts, goodput = place.history()
    # A process of another host is thought to live for as long as it may be silent.
    first = "running" if launcher is two_hosts else "lost"
    assert attempts == [f"2 ranks, {first}", "2 ranks, completed"]
    assert len(goodput["disruptions"]) == 1
    assert goodput["max_productive_step"] == 19
    assert list(place.runs()) == ["job"]


def test_a_loop_in_bash(place: Place) -> None:
    """It starts a program again until it ends well, and then the next."""
    script = """
    for end in kill:0 kill:0 end; do "$@" train $end; done
    "$@" evaluate end
    for rank in 0 1; do RANK=$rank WORLD_SIZE=2 "$@" both kill:$rank & done; wait
    for rank in 0 1; do RANK=$rank WORLD_SIZE=2 "$@" both end & done; wait
    """
    shell = place.start(["bash", "-c", script, "loop", sys.executable, str(PROGRAM)])
    assert shell.wait(120) == 0
    assert {name: run["attempts"] for name, run in place.runs().items()} == {
        "train": 3, "evaluate": 1, "both": 2,
    }  # fmt: skip
    attempts, goodput = place.history("train")
    assert attempts == ["1 ranks, lost", "1 ranks, lost", "1 ranks, completed"]
    assert (len(goodput["disruptions"]), goodput["steps"]) == (2, 30)
    assert place.history("both")[0] == ["2 ranks, lost", "2 ranks, completed"]


def test_several_programs_in_one_allocation(place: Place) -> None:
    """`salloc`, then one program after the other: what they are called is what they are."""
    allocation = {"SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "interactive", "SLURM_NTASKS": "4"}
    for name in ("a", "b", "a"):
        place.launch("end", [allocation], name)
    script = place.folder / "nameless.py"
    script.write_text("import runwatch\nrunwatch.init()\nrunwatch.log(loss=1)\n")
    assert place.start([sys.executable, str(script)], **allocation).wait(60) == 0
    runs = place.runs()
    assert {name: (run["attempts"], run["ranks"]) for name, run in runs.items()} == {
        "a": (2, 1), "b": (1, 1), "nameless": (1, 1),
    }  # fmt: skip
    assert all(run["run"] == name for name, run in runs.items())


def test_a_job_that_has_a_name_where_the_program_has_none(place: Place) -> None:
    for launch in range(2):
        ranks = [{**slurm(launch, rank), "SLURM_JOB_NAME": "nightly"} for rank in range(2)]
        place.launch("end", ranks, "-")
    place.launch("end", [{"RUNWATCH_NAME": "asked for", "RUNWATCH_GROUP": "team"}], "-")
    runs = place.runs()
    assert {name: (run["attempts"], run["group"]) for name, run in runs.items()} == {
        "nightly": (2, ""), "asked for": (1, "team"),
    }  # fmt: skip


def test_a_run_that_was_recorded_before_keeps_its_id(place: Place) -> None:
    """Slurm's job used to be the run: such runs are there, beside those of the name."""
    job = {"SLURM_JOB_ID": "77"}
    id = hashlib.sha256(b"slurm_77").hexdigest()
    place.launch("end", [{**job, "RUNWATCH_RUN_ID": id}], "a")  # what an older SDK wrote
    place.launch("end", [job], "a")
    with place.asked() as source:
        assert {run["run"] for run in source.get("/runs")["runs"]} == {id, "a"}
        assert source.get(f"/runs/{id}")["name"] == "a"


def test_two_jobs_of_one_name_at_once(place: Place) -> None:
    jobs = [{**slurm(0, 0), "SLURM_JOB_ID": job} for job in ("77", "78")]
    for job in jobs:
        place.rank("job", "hang", **job)
        place.waits(0)
    assert place.history()[0] == ["1 ranks, running"] * 2
    assert place.runs()["job"]["attempts"] == 2


@pytest.mark.soak
def test_it_is_said_that_two_jobs_have_one_name(place: Place) -> None:
    """Not at once: what ends within seconds was only stopped late."""
    for job in ("77", "78"):
        place.rank("job", "hang", SLURM_JOB_ID=job)
        place.waits(0)
    words = "2 jobs of this name run at once: give one of them another name or id"
    until(lambda: words in [w["text"] for w in place.runs()["job"]["warnings"]], 60, "the words")
    _, goodput = place.history()
    assert goodput["disruptions"] == []


def test_a_job_that_hangs_after_its_restart_is_named(place: Place) -> None:
    place.launch("kill:1", [plain_torchrun(0, rank) for rank in range(2)])
    hangs = HangSettings(limits=Limits(floor_seconds=1.5))
    settings = LocalSettings(serving=ServingSettings(hangs=hangs))
    head = LocalHead(place.root, settings=settings, in_memory=True)
    try:
        head.tail.start()
        head.feature(StacksApi).watch()
        for rank in range(2):
            place.rank("job", "hang", **plain_torchrun(1, rank))
        told = until(lambda: head.store.events(RunId("job"), kinds=[Incident.KIND]), 60, "the hang")
        assert Incident.of(told[0].body).is_open
        states = head.context.reading.processes(RunId("job"))
        assert [(s.attempt, s.state) for s in states] == [
            (1, "lost"), (1, "lost"), (2, "running"), (2, "running"),
        ]  # fmt: skip
    finally:
        head.close()


# ── libraries in one process ──────────────────────────────────────────────────────────────────

RECORDER = """
recorder = goodput.GoodputRecorder("job", "log", True)
recorder.record_job_start_time()
"""
DIAGNOSTICS = 'machinelearning_run("job")\n'


@pytest.mark.parametrize("order", [(RECORDER, DIAGNOSTICS), (DIAGNOSTICS, RECORDER)])
@pytest.mark.parametrize("environment", [{}, {"SLURM_JOB_ID": "77"}])
def test_a_recorder_and_diagnostics_of_one_name(
    order: tuple[str, str], environment: dict[str, str], place: Place
) -> None:
    """As MaxText has them."""
    imports = (
        "from ml_goodput_measurement import goodput\n"
        "from google_cloud_mldiagnostics import machinelearning_run\n"
        "import time\n"
    )
    steps = (
        "for step in range(20):\n    recorder.record_step_start_time(step)\n    time.sleep(0.01)\n"
        "recorder.record_job_end_time()\n"
    )
    run_program(imports + "".join(order) + steps, place.root, **environment)
    assert [run["attempts"] for run in place.runs().values()] == [1]
    attempts, goodput = place.history()
    assert attempts == ["1 ranks, completed"]
    assert goodput["disruptions"] == []
    assert goodput["goodput"] > 0.3


# ── the launchers themselves ──────────────────────────────────────────────────────────────────


def torchrun(*options: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *options, str(PROGRAM), "job"]


def test_a_plain_torchrun_that_is_started_again(place: Place) -> None:
    pytest.importorskip("torch")
    command = torchrun("--nproc-per-node=3", f"--master-port={free_port()}")
    assert place.start([*command, "kill:2"]).wait(100) != 0
    assert place.start([*command, "end"]).wait(100) == 0
    attempts, goodput = place.history()
    assert attempts == ["3 ranks, lost", "3 ranks, completed"]
    assert (len(goodput["disruptions"]), goodput["max_productive_step"]) == (1, 19)


@pytest.mark.soak
def test_torchrun_that_restarts_its_workers(place: Place) -> None:
    pytest.importorskip("torch")
    command = torchrun("--nproc-per-node=2", "--standalone", "--max-restarts=2")
    assert place.start([*command, "kill:1"]).wait(200) != 0
    assert place.start([*command, "end"]).wait(100) == 0
    attempts, goodput = place.history()
    assert attempts == ["2 ranks, lost"] * 3 + ["2 ranks, completed"]
    assert len(goodput["disruptions"]) == 3


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["static", "c10d"])
def test_two_agents_of_torchrun(backend: str, place: Place) -> None:
    """On one machine, as two hosts."""
    pytest.importorskip("torch")
    port = free_port()

    def both(end: str) -> list[int]:
        agents = []
        for node in range(2):
            where = (
                ["--node-rank", str(node), "--master-addr=127.0.0.1", f"--master-port={port}"]
                if backend == "static"
                else [
                    "--rdzv-backend=c10d",
                    f"--rdzv-endpoint=127.0.0.1:{port}",
                    "--rdzv-id=elastic",
                    "--max-restarts=1",
                ]  # fmt: skip
            )
            command = torchrun("--nnodes=2", "--nproc-per-node=2", *where)
            agents.append(place.start([*command, end], RUNWATCH_HOST=f"host-{node}"))
        if end != "end":  # the other agent does not hear of it: somebody has to end it
            until(lambda: any(agent.poll() is not None for agent in agents), 100, "the end")
            for agent in agents:
                agent.terminate()
        return [agent.wait(100) for agent in agents]

    assert 0 not in both("kill:3")
    assert both("end") == [0, 0]
    attempts, goodput = place.history()
    tries = 1 if backend == "static" else 2
    assert attempts[-1] == "4 ranks, completed"
    assert [each.split(",")[0] for each in attempts] == ["4 ranks"] * (tries + 1)
    assert len(goodput["disruptions"]) == tries


@pytest.mark.soak
def test_accelerate(place: Place) -> None:
    pytest.importorskip("accelerate")
    command = [
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2",
        "--num_machines=1", f"--main_process_port={free_port()}", "--mixed_precision=no",
        "--dynamo_backend=no", str(PROGRAM), "job",
    ]  # fmt: skip
    assert place.start([*command, "kill:1"]).wait(200) != 0
    assert place.start([*command, "end"]).wait(200) == 0
    attempts, _ = place.history()
    assert attempts == ["2 ranks, lost", "2 ranks, completed"]
