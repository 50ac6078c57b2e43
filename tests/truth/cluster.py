"""A cluster that gives a job's pods their nodes, as it physically happens, and what it says of it.

A pod is wanted, gets a node, gets its image, starts; then its program imports, and a process is
there.  The API server says when, by its own clock, and cuts each time to the second.  While a pod
that the job needs has no node, or has one and does not run, nothing of the job can go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from tests.truth.machine import Clock, Job, Launch, Program
from tests.truth.passing import SECOND, Gate, Moves, Task

NODELESS, STARTING = "scheduling_wait", "pod_startup"


class Said(NamedTuple):
    """By the API server, about one pod."""

    time_ns: int
    uid: str
    what: str
    restarts: int = 0


class Way(NamedTuple):
    """How long each part of a pod's way takes, in seconds."""

    node: float = 0.3
    image: float = 2.0
    imports: float = 3.0

    @property
    def whole(self) -> float:
        return self.node + self.image + self.imports


@dataclass(frozen=True)
class Come:
    """A launch whose ranks come each in a pod of its own."""

    program: Program
    ways: Sequence[Way]
    from_step: int = 0
    noticed_s: float = 4.0
    """After the one before ended, until its controller makes the pods."""
    given_up_s: Sequence[float] = ()
    """Before that pods were made that never got a node, and were deleted after so long."""
    in_place: bool = False
    """In the pods of the one before, whose containers were started again; `noticed_s` later."""


class Cluster:
    def __init__(self, job: Job, ahead_s: float = 0.0) -> None:
        self.job = job
        self.said: list[Said] = []
        self.held_up: list[tuple[int, int, str]] = []
        """When the job could not go on, and why not."""
        self._clock = Clock(ahead_s)
        self._needed: Counter[str] = Counter()
        self._since = 0
        self._made = 0
        job.cluster = self

    def run(self, *comes: Come) -> Job:
        def controller() -> Moves:
            before: Launch | None = None
            for come in comes:
                if before is not None:
                    if not come.in_place:
                        self._delete(before)
                    yield round(come.noticed_s * SECOND)
                for seconds in come.given_up_s:
                    yield from self._given_up(seconds)
                if come.in_place and before is not None:
                    before = self._start_again(come, before)
                else:
                    before = yield from self._bring_up(come)
                yield before.over
            if before is not None:
                self._delete(before)

        self.job.operate(controller())
        return self.job

    def spare(self, seconds: float) -> None:
        """A pod that the job does not need waits for a node from some time on."""

        def waits() -> Moves:
            yield round(seconds * SECOND)
            self._says(self._new(), "created")

        self.job.operate(waits())

    def _delete(self, launch: Launch) -> None:
        for uid in launch.pods:
            self._says(uid, "deleted")

    def _start_again(self, come: Come, before: Launch) -> Launch:
        for uid in before.pods:
            self._says(uid, "started", 1)
        ranks = len(before.pods)
        return self.job.launch(ranks, come.program, from_step=come.from_step, pods=before.pods)

    def _bring_up(self, come: Come) -> Generator[int | Gate, None, Launch]:
        pods = [self._new() for _ in come.ways]
        for uid, way in zip(pods, come.ways, strict=True):
            Task(self.job.world, self._pod(uid, way))
        first_s = min(way.whole for way in come.ways)
        yield round(first_s * SECOND)
        return self.job.launch(
            len(pods),
            come.program,
            from_step=come.from_step,
            delays_s=[way.whole - first_s for way in come.ways],
            pods=pods,
        )

    def _pod(self, uid: str, way: Way) -> Moves:
        self._says(uid, "created")
        with self._holds_up(NODELESS):
            yield round(way.node * SECOND)
        self._says(uid, "scheduled")
        with self._holds_up(STARTING):
            yield round(way.image * SECOND)
        self._says(uid, "started")

    def _given_up(self, seconds: float) -> Moves:
        uid = self._new()
        self._says(uid, "created")
        with self._holds_up(NODELESS):
            yield round(seconds * SECOND)
        self._says(uid, "deleted")

    def _new(self) -> str:
        self._made += 1
        return f"pod-{self._made}"

    def _says(self, uid: str, what: str, restarts: int = 0) -> None:
        time_ns = self._clock.reads(self.job.world.now) // SECOND * SECOND
        self.said.append(Said(time_ns, uid, what, restarts))

    @contextmanager
    def _holds_up(self, why: str) -> Iterator[None]:
        self._changes(why, 1)
        try:
            yield
        finally:
            self._changes(why, -1)

    def _changes(self, why: str, by: int) -> None:
        now = self.job.world.now
        held = NODELESS if self._needed[NODELESS] else STARTING if self._needed[STARTING] else ""
        if held and self._since < now:
            self.held_up.append((self._since, now, held))
        self._since = now
        self._needed[why] += by
