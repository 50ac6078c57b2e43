"""Data-parallel jobs on this machine (torch.distributed, Gloo) in which one rank goes wrong.

`python -m tests.integration.gloo_jobs` imports torch once and then forks the ranks of one job
after the other, as JSON lines on its standard input say (`Job`).  It answers each with the ranks'
pids, and ends a job's ranks when the next line comes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    import torch.utils.data

CAUSES: Final = ("loader", "skip", "killed", "stopped", "order")
WAYS: Final = ("socket", "sleep", "lock", "pipe", "loop")
"""How a data loader may stall."""


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    world: int
    cause: str
    culprit: int
    step: int
    """At which it goes wrong."""
    port: int
    seed: int
    steps: int = 10**6
    step_seconds: float = 0.02
    checkpoint_every: int = 0
    checkpoint_seconds: float = 0.0

    @property
    def way(self) -> str:
        return random.Random(self.seed).choice(WAYS)


def chosen(cause: str, seed: int, world: int, port: int) -> Job:
    """A job whose culprit and moment are drawn by lot."""
    draw = random.Random(f"{cause} {seed}")
    return Job(
        name=f"{cause}-{seed}",
        world=world,
        cause=cause,
        culprit=draw.randrange(world),
        step=draw.randrange(12, 30),
        port=port,
        seed=seed,
    )


# ── one rank ──────────────────────────────────────────────────────────────────────────────────


class Rank:
    """What one process of a job does.  Torch is imported before it is made."""

    def __init__(self, job: Job, rank: int) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        self.job, self.rank = job, rank
        self.draw = random.Random(f"{job.seed} {rank}")
        self.ours, self.theirs = socket.socketpair()
        self.lock = threading.Lock()

    def run(self) -> None:
        import runwatch

        job = self.job
        self.torch.manual_seed(self.rank)
        self.dist.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{job.port}",
            rank=self.rank,
            world_size=job.world,
            timeout=timedelta(minutes=30),
        )
        with runwatch.init(job.name) as run:
            self.train(run)

    def train(self, run: Any) -> None:
        job = self.job
        samples = cast("torch.utils.data.Dataset[Any]", Samples(self))
        loader = self.torch.utils.data.DataLoader(samples, batch_size=None)
        model = self.torch.nn.Linear(16, 16)
        for step, batch in run.steps(loader):
            self.strike(step, "step")
            loss = model(batch).square().mean()
            loss.backward()
            time.sleep(self.draw.lognormvariate(0, 0.3) * job.step_seconds)
            self.average(step, model, loss)
            if job.checkpoint_every and step % job.checkpoint_every == job.checkpoint_every - 1:
                with run.span("checkpoint_save"):
                    time.sleep(job.checkpoint_seconds)
                    self.dist.barrier()

    def average(self, step: int, model: Any, loss: Any) -> None:
        if self.is_bad(step) and self.job.cause == "order":
            self.gather(loss)
            self.reduce(model)
            return
        if not (self.is_bad(step) and self.job.cause == "skip"):
            self.reduce(model)
        self.gather(loss)

    def reduce(self, model: Any) -> None:
        for parameter in model.parameters():
            self.dist.all_reduce(parameter.grad)

    def gather(self, loss: Any) -> None:
        found = [self.torch.empty(()) for _ in range(self.job.world)]
        self.dist.all_gather(found, loss.detach())

    def is_bad(self, step: int) -> bool:
        return self.rank == self.job.culprit and step == self.job.step

    def strike(self, step: int, where: str) -> None:
        """SIGKILL or SIGSTOP: in the step, while data is fetched, or from a collective on."""
        job = self.job
        number = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}.get(job.cause)
        at = ("step", "data", "collective")[job.seed % 3]
        if number is None or not self.is_bad(step):
            return
        if at == where:
            os.kill(os.getpid(), number)
        elif at == "collective" and where == "step":
            threading.Timer(job.step_seconds, os.kill, (os.getpid(), number)).start()

    def stall(self) -> None:
        way = self.job.way
        if way == "socket":
            self.ours.recv(1)
        elif way == "sleep":
            time.sleep(3600)
        elif way == "lock":
            self.lock.acquire()
            self.lock.acquire()
        elif way == "pipe":
            os.read(os.pipe()[0], 1)
        else:
            self.spin()

    def spin(self) -> None:
        found = 0
        while True:
            found = (found * 31 + 7) % 1009


class Samples:
    """A dataset."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank

    def __len__(self) -> int:
        return self._rank.job.steps

    def __getitem__(self, index: int) -> Any:
        rank = self._rank
        rank.strike(index, "data")
        if rank.job.cause == "loader" and rank.is_bad(index):
            rank.stall()
        return rank.torch.full((16,), float(index % 7))


# ── the process that forks them ───────────────────────────────────────────────────────────────


def serve() -> None:
    import torch
    import torch.distributed
    import torch.utils.data

    torch.set_num_threads(1)
    ranks: list[int] = []
    _say([])
    for line in sys.stdin:
        _end(ranks)
        asked = json.loads(line)
        ranks = [_fork(Job(**asked), rank) for rank in range(asked["world"])] if asked else []
        _say(ranks)
    _end(ranks)


def _say(pids: list[int]) -> None:
    print(json.dumps(pids), flush=True)


def _fork(job: Job, rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(job.world), "LOCAL_RANK": str(rank)}
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(2, 1)
        Rank(job, rank).run()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def _end(ranks: list[int]) -> None:
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    for pid in ranks:
        os.waitpid(pid, 0)


class Zygote:
    """The process that forks jobs; used in a `with` block."""

    def __init__(self, environment: Mapping[str, str], log: Any = subprocess.DEVNULL) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.gloo_jobs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**environment, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            cwd=Path(__file__).parents[2],
            text=True,
        )
        self._answer()

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def start(self, job: Job) -> list[int]:
        """The pids of its ranks; those of the job before are ended first."""
        return self._ask(dataclasses.asdict(job))

    def stop(self) -> None:
        self._ask({})

    def _ask(self, asked: Mapping[str, Any]) -> list[int]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that forks jobs ended: {self._process.wait()}")
        found: list[int] = json.loads(line)
        return found


def jobs(causes: tuple[str, ...], each: int, world: int, seed: int) -> Iterator[Job]:
    from tests.integration.processes import free_port

    for number in range(each):
        for cause in causes:
            yield chosen(cause, seed + number, world, free_port())


if __name__ == "__main__":
    serve()
