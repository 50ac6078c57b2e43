from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from runwatch.agent.collectors.base import Target
from runwatch.agent.queues import desk
from runwatch.agent.queues.base import Job, NoAnswer, Waited
from runwatch.agent.queues.desk import QueueDesk, QueueEvent
from runwatch.record.node import JobQueued, QueueUnknown
from runwatch.testing import FakeClock, until


class Clerk:
    """Tells what it was given, when it is let."""

    name = "clerk"

    def __init__(self) -> None:
        self.answers: dict[str, Waited | Exception] = {}
        self.asked: list[Job] = []
        self.open = threading.Event()
        self.open.set()

    def job(self, environment: Mapping[str, str], root: Path) -> Job | None:
        number = environment.get("CLERK_JOB")
        return Job(number, environment.get("CLERK_GO", "0")) if number else None

    def ask(self, job: Job) -> Waited:
        self.asked.append(job)
        assert self.open.wait(100)
        answer = self.answers.get(job.name, NoAnswer("no such job"))
        if isinstance(answer, Exception):
            raise answer
        return answer


class World:
    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.clock = FakeClock()
        self.clerk = Clerk()
        self.desk = QueueDesk((self.clerk,), clock=self.clock, proc=proc)
        self.targets: list[Target] = []
        self.said: list[QueueEvent] = []

    def process(self, pid: int, rank: int = 0, **environment: str) -> None:
        place = self.proc / str(pid)
        place.mkdir()
        pairs = "".join(f"{name}={value}\0" for name, value in environment.items())
        (place / "environ").write_text(pairs)
        labels = {"rank": str(rank), "pid": str(pid), "journal": f"j{pid}"}
        self.targets.append(Target(pid, pid, labels, "run"))

    def look(self) -> int:
        self.said += self.desk.look(self.targets)
        return len(self.said)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    yield found
    found.clerk.open.set()
    found.desk.stop()


def test_a_job_is_asked_about_once(world: World) -> None:
    world.clerk.answers["7"] = Waited(5, 9)
    world.process(1, CLERK_JOB="7")
    world.process(2, rank=1, CLERK_JOB="7")
    until(world.look)
    world.process(3, CLERK_JOB="7")  # its program, started again in the same go
    until(lambda: world.look() == 2)
    assert world.said == [
        QueueEvent(world.targets[0], JobQueued("j1", "clerk", "7", 5, 9)),
        QueueEvent(world.targets[2], JobQueued("j3", "clerk", "7", 5, 9)),
    ]
    assert world.clerk.asked == [Job("7", "0")]
    world.process(4, CLERK_JOB="7", CLERK_GO="1")
    until(lambda: world.look() == 3)
    assert world.clerk.asked == [Job("7", "0"), Job("7", "1")]


def test_what_is_not_told_is_not_recorded(world: World) -> None:
    world.clerk.answers["7"] = Waited(5)
    world.process(1, CLERK_JOB="7")
    until(world.look)
    assert "granted_at_ns" not in world.said[0].message.body()


def test_who_has_said_it_or_has_no_scheduler_is_not_asked_about(world: World) -> None:
    world.process(1, CLERK_JOB="7", RUNWATCH_QUEUED_AT="1700000000")
    world.process(2, OTHER="7")
    world.process(3, rank=1, CLERK_JOB="8")
    world.targets.append(Target(4, 4, {"rank": "0", "journal": "j4"}, "run"))  # of another user
    world.look()
    assert world.desk._thread is None
    assert not world.clerk.asked


def test_a_scheduler_that_hangs_holds_nobody_up(world: World) -> None:
    world.clerk.open.clear()
    world.clerk.answers |= {"7": Waited(5), "8": Waited(6)}
    world.process(1, CLERK_JOB="7")
    world.look()
    until(lambda: world.clerk.asked)
    world.process(2, CLERK_JOB="8")
    assert world.look() == 0, "and the loop goes on"
    world.clerk.open.set()
    until(lambda: world.look() == 2)


@pytest.mark.parametrize("error", [NoAnswer("?"), OSError("gone"), ValueError("odd")])
def test_a_failure_is_tried_again_and_counted(world: World, error: Exception) -> None:
    world.clerk.answers["7"] = error
    world.process(1, CLERK_JOB="7")
    for tries in range(1, desk.TRIES + 1):
        until(lambda tries=tries: world.look() or world.desk.failures == tries)
        assert len(world.clerk.asked) == tries
        world.clock.advance(desk.RETRY_SECONDS - 1)
        world.look()
        assert len(world.clerk.asked) == tries, "not before its time"
        world.clock.advance(1)
    [said] = world.said
    assert isinstance(said.message, QueueUnknown) and said.message.tries == desk.TRIES
    assert str(error) in said.message.why


def test_one_that_tells_late_is_heard(world: World) -> None:
    world.process(1, CLERK_JOB="7")
    until(lambda: world.look() or world.desk.failures)
    world.clerk.answers["7"] = Waited(5)
    world.clock.advance(desk.RETRY_SECONDS)
    until(world.look)
    assert [said.message.KIND for said in world.said] == ["job_queued"]


def test_what_was_heard_is_told_in_the_end(world: World) -> None:
    world.clerk.answers["7"] = Waited(5)
    world.process(1, CLERK_JOB="7")
    world.look()
    until(lambda: world.desk._heard)
    assert [said.message.KIND for said in world.desk.stop()] == ["job_queued"]
    world.process(2, CLERK_JOB="8")
    assert world.look() == 0
    assert world.clerk.asked == [Job("7", "0")], "nobody is asked any more"
