"""Rounds and pauses of a forwarder's thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from runwatch.errors import StoreDamaged
from runwatch.head.forward.forwarder import Forwarder, Pauses, Trouble
from runwatch.head.forward.report import Report
from runwatch.testing import until
from tests.unit.leftovers import nothing_is_left


@dataclass
class Source:
    """Fails as often as it is told to."""

    failures: list[Exception] = field(default_factory=list)
    rounds: int = 0
    failed_rounds: int = 0
    is_closed: bool = False
    during: Callable[[], object] = lambda: None
    interrupted: threading.Event = field(default_factory=threading.Event)

    def round(self) -> bool:
        self.rounds += 1
        self.during()
        if self.failures:
            raise self.failures.pop(0)
        return False

    def standing(self) -> Report:
        return Report("somewhere", "Somewhere", sent=self.rounds)

    def failed(self) -> None:
        self.failed_rounds += 1

    def interrupt(self) -> None:
        self.interrupted.set()

    def close(self) -> None:
        self.is_closed = True


def forwarder(source: Source) -> Forwarder:
    return Forwarder(source, idle_seconds=0.01, pauses=Pauses(0.01))


def test_pauses_double_up_to_a_limit_and_heed_the_service() -> None:
    longest = Pauses(300.0, jitter=lambda: 1.0)
    assert [longest.after(n) for n in (1, 2, 3, 9, 10, 500)] == [1, 2, 4, 256, 300, 300]
    shortest = Pauses(300.0, jitter=lambda: 0.0)
    assert [shortest.after(n) for n in (1, 2, 3)] == [0.5, 1, 2]
    assert shortest.after(1, asked_seconds=42.0) == 42.0
    assert longest.after(9, asked_seconds=2.0) == 256
    assert longest.after(1, asked_seconds=1e9) == 3600


def test_a_healthy_one_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    with caplog.at_level(logging.INFO):
        going = forwarder(source)
        going.start()
        until(lambda: source.rounds > 3)
        report = going.report()
        going.close()
    assert (report.problem, report.problem_since_ns, source.failed_rounds) == ("", None, 0)
    assert source.is_closed and caplog.text == ""
    nothing_is_left()


def test_a_trouble_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    again = [Trouble("refused", "ask for a role") for _ in range(5)]
    source = Source([*again, StoreDamaged("a block is gone"), *again[:1]])
    going = forwarder(source)
    gate = threading.Semaphore(0)
    source.during = lambda: gate.acquire(timeout=100)
    going.start()
    gate.release()
    until(lambda: going.report().problem)
    assert (going.report().problem, going.report().todo) == ("refused", "ask for a role")
    assert going.report().problem_since_ns is not None
    for _ in range(10):
        gate.release()
    until(lambda: not going.report().problem)
    assert source.failed_rounds == 7
    source.during = lambda: None
    gate.release()
    going.close()
    assert [record.getMessage() for record in caplog.records] == [
        "Somewhere: refused (ask for a role); it is kept, and sent later",
        "Somewhere: a block is gone; it is kept, and sent later",
        "Somewhere: refused (ask for a role); it is kept, and sent later",
        "Somewhere takes data again",
    ]


def test_the_end_interrupts_what_is_under_way() -> None:
    source = Source([Trouble("interrupted")])
    source.during = lambda: source.interrupted.wait(100)
    going = forwarder(source)
    going.start()
    until(lambda: source.rounds)
    going.close()
    assert source.is_closed and source.rounds == 1
    assert going.report().problem == ""  # a head that ends is no trouble
    nothing_is_left()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_mistake_of_ours_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    source = Source([KeyError("oops")])
    going = forwarder(source)
    going.start()
    until(lambda: source.is_closed)
    assert "nothing is sent any more: KeyError" in going.report().problem
    assert "restart" in going.report().todo
    going.close()
