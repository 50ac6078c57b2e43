"""Whose journals an agent takes over, and whose it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runwatch.agent.lock import AgentLock
from runwatch.journal.liveness import ENDED, boot_id, pid_namespace, this_host
from runwatch.journal.segment import HEARTBEAT_OFFSET, WORD, segment_name
from runwatch.journal.writer import JournalWriter
from runwatch.record import Origin
from runwatch.ship import estates
from runwatch.ship.estates import HOSTS_AT_ONCE, STILL_SECONDS, Estates
from runwatch.ship.tail import Tail
from runwatch.testing import FakeClock
from tests.unit.journal.journal_help import (
    origin,
)

UNKNOWN = 12345
"""A pid namespace that we are not in: whether its processes live cannot be asked."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def of(host: str, name: str, **more: object) -> Origin:
    made = replace(origin(name), host=host, boot=boot_id(), pid_namespace=UNKNOWN)
    return replace(made, **more)  # type: ignore[arg-type]


def write(root: Path, about: Origin, clock: FakeClock) -> Path:
    """The first segment of a journal whose heart beats when we say so."""
    writer = JournalWriter(root, about, clock=clock)
    writer.close()
    return writer.directory / segment_name(0)


def beat(segment: Path, number: int) -> None:
    with segment.open("r+b") as file:
        file.seek(HEARTBEAT_OFFSET)
        file.write(WORD.pack(number))


def heir(root: Path, clock: FakeClock, host: str = "new") -> Tail:
    return Tail(root, of_host=host, estates=Estates(root, clock=clock), clock=clock)


@pytest.fixture
def old(tmp_path: Path, clock: FakeClock) -> Path:
    return write(tmp_path, of("old", "a"), clock)


@pytest.fixture
def tail(tmp_path: Path, clock: FakeClock) -> Iterator[Tail]:
    tail = heir(tmp_path, clock)
    yield tail
    tail.close()


def taken(tail: Tail, clock: FakeClock, seconds: float = 2 * STILL_SECONDS) -> list[str]:
    """What it follows after so long."""
    for _ in range(int(seconds)):
        tail.discover()
        clock.advance(1.0)
    return sorted(tail.journals)


def test_what_is_still_for_long_enough_is_taken(old: Path, tail: Tail, clock: FakeClock) -> None:
    assert taken(tail, clock, STILL_SECONDS - 1) == []
    [aside] = tail.aside()
    assert (aside.journal, "to host old, which has no agent" in aside.why) == ("a", True)
    assert taken(tail, clock, 10) == ["a"]
    assert tail.aside() == []


def test_what_beats_is_not_whatever_its_clock_says(old: Path, tail: Tail, clock: FakeClock) -> None:
    for number in range(10):
        beat(old, 1_000 - number)
        assert taken(tail, clock, STILL_SECONDS / 2) == []
    assert [aside.journal for aside in tail.aside()] == ["a"]


def test_a_host_whose_agent_is_there_keeps_what_is_its(
    old: Path, tail: Tail, clock: FakeClock, tmp_path: Path
) -> None:
    lock = AgentLock(tmp_path, "old")
    assert lock.acquire()
    assert taken(tail, clock) == [] and tail.aside() == []
    lock.release()
    assert taken(tail, clock) == ["a"]
    assert lock.acquire()  # it is there again
    assert taken(tail, clock, 10) == []
    lock.release()


def test_a_writer_that_is_surely_dead_is_not_waited_for(
    tmp_path: Path, tail: Tail, clock: FakeClock
) -> None:
    nobody, here = 2**22 - 3, pid_namespace()
    write(tmp_path, of("old", "dead", pid=nobody, pid_namespace=here), clock)
    write(tmp_path, of("old", "alive", pid=1, process_start_ticks=0, pid_namespace=here), clock)
    write(tmp_path, of("old", "seen"), clock)
    (tmp_path / "journals" / "seen" / ENDED).write_text("{}")
    write(tmp_path, of("old", "unknown"), clock)
    assert taken(tail, clock, 2) == ["dead", "seen"]


def test_one_heir_is_enough(old: Path, tail: Tail, clock: FakeClock, tmp_path: Path) -> None:
    other = heir(tmp_path, clock, "other")
    assert taken(tail, clock) == ["a"]
    assert taken(other, clock) == [] and other.aside() == []
    tail.close()  # it is gone, too
    assert taken(other, clock) == ["a"]
    other.close()


def test_an_agent_waits_for_what_may_soon_be_its(
    tmp_path: Path, old: Path, clock: FakeClock
) -> None:
    estate = Estates(tmp_path, clock=clock)
    tail = Tail(tmp_path, of_host="new", estates=estate, clock=clock)
    taken(tail, clock, 10)
    assert estate.is_waiting
    beat(old, 7)
    taken(tail, clock, 5)
    assert not estate.is_waiting  # it lives: that may take for ever
    assert taken(tail, clock) == ["a"]
    assert not estate.is_waiting
    tail.close()


def test_hosts_have_their_turns(tmp_path: Path, clock: FakeClock, tail: Tail) -> None:
    names = [f"{number:02}" for number in range(3 * HOSTS_AT_ONCE)]
    for name in names:
        write(tmp_path, of(f"host-{name}", name), clock)
    assert taken(tail, clock, 3 * STILL_SECONDS) == names


def test_of_very_many_journals_a_part_is_taken_at_a_time(
    tmp_path: Path, clock: FakeClock, tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estates, "MOST_JOURNALS", 2)
    names = [f"{number}" for number in range(5)]
    for name in names:
        write(tmp_path, of("old", name), clock)
    assert len(taken(tail, clock, STILL_SECONDS + 10)) == 2
    assert taken(tail, clock, 4 * STILL_SECONDS) == names


def test_nobody_inherits_from_itself(tmp_path: Path, clock: FakeClock) -> None:
    write(tmp_path, of(this_host(), "own"), clock)
    tail = heir(tmp_path, clock, this_host())
    assert taken(tail, clock, 1) == ["own"]
    assert not list((tmp_path / "agent").glob("*.heir"))
    tail.close()
