"""Trials: a job hangs or goes down for a known reason; does the report name the right rank?"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from runwatch.head.features.stacks.api import StacksApi
from runwatch.head.main import LocalHead, LocalSettings
from runwatch.head.settings import HangSettings, ServingSettings
from runwatch.record import RunId
from runwatch.record.stacks import Incident
from runwatch.testing import until
from runwatch.views.pace import Limits
from tests.integration.gloo_jobs import Job, Zygote
from tests.integration.healthy import SHAPES
from tests.integration.processes import Cluster, end, free_port

STALL_SECONDS: Final = 1.5
Verdict = Literal["right", "cannot tell", "wrong", "wrong with confidence", "nothing"]


@dataclass(frozen=True, slots=True)
class Trial:
    job: Job
    incident: Incident | None

    @property
    def verdict(self) -> Verdict:
        incident = self.incident
        if incident is None:
            return "nothing"
        if not incident.ranks:
            return "cannot tell"
        if incident.ranks == (self.job.culprit,):
            return "right"
        return "wrong" if incident.confidence == "cannot tell" else "wrong with confidence"

    @property
    def seconds(self) -> float:
        """From the last progress to the report."""
        incident = self.incident
        return 0.0 if incident is None else (incident.named_ns - incident.since_ns) / 1e9

    @property
    def words(self) -> str:
        job, said = self.job, "" if self.incident is None else self.incident.text
        return (
            f"{self.verdict}: {job.cause}, rank {job.culprit} of {job.world} at step {job.step} "
            f"(seed {job.seed}): {self.seconds:.1f} s: {said}"
        )


class Ground:
    """A directory, its agent, and a head with a hang watch, for one trial after the other."""

    def __init__(self, root: Path, stall_seconds: float = STALL_SECONDS) -> None:
        self.cluster = Cluster(root)
        self.cluster.start_agent(head="127.0.0.1:9")  # nobody there
        settings = HangSettings(limits=Limits(floor_seconds=stall_seconds))
        self.head = LocalHead(
            self.cluster.node_root, settings=LocalSettings(serving=ServingSettings(hangs=settings))
        )
        self.head.tail.start()
        self.head.feature(StacksApi).watch()
        until(self.head.tail.agents, 60, "the agent")
        self.zygote = Zygote(self.cluster.environment, self.cluster.log)

    def close(self) -> None:
        self.zygote.__exit__()
        self.head.close()
        self.cluster.close()

    def trials(self, jobs: Iterable[Job], seconds: float = 60.0) -> Iterator[Trial]:
        for job in jobs:
            yield self.trial(job, seconds)

    def trial(self, job: Job, seconds: float = 60.0) -> Trial:
        self.zygote.start(job)
        deadline = time.monotonic() + seconds
        incident = None
        while not is_told(job, incident) and time.monotonic() < deadline:
            incident = self.incident(job)
            time.sleep(0.05)
        self.zygote.stop()
        return Trial(job, incident)

    def healthy(self, seconds: float, seed: int) -> list[tuple[RunId, Incident]]:
        """What is found wrong with runs that are well, among them a job of four ranks."""
        programs = [
            self.cluster._python("-m", "tests.integration.healthy", name, str(seconds), str(seed))
            for name in SHAPES
        ]
        job = Job(
            "healthy-job", 4, "none", 0, 0, free_port(), seed,
            step_seconds=0.1, checkpoint_every=300, checkpoint_seconds=15.0,
        )  # fmt: skip
        self.zygote.start(job)
        try:
            for program in programs:
                assert program.wait(seconds + 300) == 0, self.cluster.words()
        finally:
            for program in programs:
                end(program, signal.SIGKILL)
            self.zygote.stop()
        return self.head.feature(StacksApi).incidents.all()

    def incident(self, job: Job) -> Incident | None:
        return next(iter(self.head.feature(StacksApi).incidents.of(RunId(job.name))), None)


def is_told(job: Job, incident: Incident | None) -> bool:
    """An endless loop moves from line to line as one that ends does: a note is all it gets."""
    quiet = job.cause == "loader" and job.way == "loop"
    return incident is not None and (incident.is_alarm or quiet)


def counted(trials: Iterable[Trial]) -> Counter[Verdict]:
    return Counter(trial.verdict for trial in trials)
