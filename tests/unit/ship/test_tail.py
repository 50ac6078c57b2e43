"""Which journals are there, when there are many and when they come and go."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runwatch.journal.liveness import ENDED
from runwatch.journal.writer import JournalWriter
from runwatch.record import START, JournalId, Role
from runwatch.ship.tail import (
    AGAIN_SECONDS,
    LISTED_SECONDS,
    LIVENESS_SECONDS,
    SETTLED_SECONDS,
    NotTaken,
    Tail,
)
from runwatch.testing import FakeClock
from tests.unit.journal.journal_help import (
    origin,
)


class Listings:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._list = os.listdir
        monkeypatch.setattr(os, "listdir", self)

    def __call__(self, folder: Path) -> list[str]:
        self.count += folder.name == "journals"
        return self._list(folder)


def journal(root: Path, name: str) -> Path:
    writer = JournalWriter(root, origin(name))
    writer.close()
    return writer.directory


def found(tail: Tail) -> list[str]:
    return [followed.origin.journal for followed in tail.discover()]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def tail(tmp_path: Path, clock: FakeClock) -> Iterator[Tail]:
    """Of a folder with two journals that has not changed for long."""
    journal(tmp_path, "b")
    journal(tmp_path, "a")
    tail = Tail(tmp_path, clock=clock)
    assert found(tail) == ["a", "b"]
    clock.advance(SETTLED_SECONDS + 0.1)
    assert found(tail) == []
    yield tail
    tail.close()


def test_a_folder_that_stays_as_it_is_is_seldom_listed(
    tail: Tail, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    listings = Listings(monkeypatch)
    for _ in range(100):
        clock.advance(0.5)
        assert found(tail) == []
    assert 50 / LISTED_SECONDS - 2 <= listings.count <= 50 / LISTED_SECONDS


def test_who_comes_is_found_at_once(tail: Tail, tmp_path: Path) -> None:
    journal(tmp_path, "c")
    assert found(tail) == ["c"]
    assert found(tail) == []


def test_who_comes_in_the_moment_of_another_is_found(tail: Tail, tmp_path: Path) -> None:
    """As a folder's time has it, which ticks."""
    journal(tmp_path, "c")
    before = (tmp_path / "journals").stat()
    assert found(tail) == ["c"]
    journal(tmp_path, "d")
    os.utime(tmp_path / "journals", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found(tail) == ["d"]


def test_a_folder_that_does_not_tell_is_listed_now_and_then(
    tail: Tail, tmp_path: Path, clock: FakeClock
) -> None:
    before = (tmp_path / "journals").stat()
    journal(tmp_path, "c")
    os.utime(tmp_path / "journals", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found(tail) == []
    clock.advance(LISTED_SECONDS)
    assert found(tail) == ["c"]
    clock.advance(SETTLED_SECONDS + 0.1)
    assert found(tail) == []
    before = (tmp_path / "journals").stat()
    journal(tmp_path, "d")
    os.utime(tmp_path / "journals", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found(tail) == []
    assert [followed.origin.journal for followed in tail.discover(surely=True)] == ["d"]


def test_who_is_being_created_is_looked_at_again(
    tail: Tail, tmp_path: Path, clock: FakeClock
) -> None:
    made = journal(tmp_path / "elsewhere", "c")
    (tmp_path / "journals" / "c").mkdir()
    (tmp_path / "journals" / "no-journal").write_text("a file")
    for _ in range(3):
        clock.advance(LISTED_SECONDS)
        assert found(tail) == []
    for path in made.iterdir():  # which the folder of journals does not tell
        shutil.copy(path, tmp_path / "journals" / "c")
    assert found(tail) == ["c"]


def test_who_has_gone_is_let_go(tail: Tail, tmp_path: Path) -> None:
    """Whether it was read to its end or not: an agent lives for months."""
    list(tail.read())
    shutil.rmtree(tmp_path / "journals" / "a")
    assert found(tail) == []
    assert list(tail.journals) == [JournalId("b")]
    journal(tmp_path, "a")
    assert found(tail) == ["a"]


def test_a_folder_that_is_not_there_yet(tmp_path: Path, clock: FakeClock) -> None:
    tail = Tail(tmp_path, clock=clock)
    assert found(tail) == []
    journal(tmp_path, "a")
    assert found(tail) == ["a"]
    shutil.rmtree(tmp_path / "journals")
    assert found(tail) == [] and not tail.journals


def test_who_is_gone_is_known_when_all_was_read_and_no_agent_can_tell_more(
    tmp_path: Path, clock: FakeClock
) -> None:
    alive: dict[str, bool | None] = {"process": True, "agent": True, "elsewhere": None}
    for name in alive:
        host = "another node" if name == "elsewhere" else "node"
        role: Role = "agent" if name == "agent" else "process"
        JournalWriter(tmp_path, replace(origin(name, host=host), role=role)).close()
    tail = Tail(tmp_path, alive=lambda origin: alive[origin.journal], clock=clock)
    tail.discover()

    def look() -> list[str]:
        clock.advance(2 * LIVENESS_SECONDS)
        while list(tail.read()):
            pass
        return sorted(tail.gone())

    assert look() == []
    alive["process"] = False
    assert look() == []  # its agent will say how it ended
    alive["agent"] = False
    clock.advance(2 * LIVENESS_SECONDS)
    assert tail.gone() == []  # there may be a last word of it that was not read yet
    assert look() == ["agent", "process"]
    JournalWriter(tmp_path, replace(origin("next-agent"), role="agent")).close()
    alive["next-agent"] = True
    tail.discover(surely=True)
    assert look() == ["agent", "process"]  # what was said is not taken back
    tail.resume(JournalId("process"), START)
    assert sorted(tail.gone()) == ["agent"]
    (tmp_path / "journals" / "elsewhere" / ENDED).touch()  # the agent of its node has seen it
    assert look() == ["agent", "elsewhere"]
    tail.close()


def test_a_journal_is_set_aside_alone_and_tried_again(tmp_path: Path) -> None:
    clock = FakeClock()
    for name in ("one", "two"):
        JournalWriter(tmp_path, origin(name)).close()
    tail = Tail(tmp_path, clock=clock, alive=lambda _: True)
    assert len(tail.discover()) == 2
    tail.set_aside(JournalId("one"), OSError("too many open files"))
    assert {f.origin.journal for f, _ in tail.read()} == {"two"}
    assert tail.discover(surely=True) == []
    (aside,) = tail.aside()
    assert (aside.journal, aside.why) == ("one", "too many open files")
    clock.advance(AGAIN_SECONDS)
    assert [followed.origin.journal for followed in tail.discover()] == ["one"]
    assert tail.aside() == []
    tail.set_aside(JournalId("one"), ValueError("no number"))  # so it is, whoever reads it
    clock.advance(100 * AGAIN_SECONDS)
    assert tail.discover(surely=True) == []
    (aside,) = tail.aside()
    assert aside.why == "ValueError: no number" and aside.version
    tail.close()


def test_a_journal_that_says_to_be_another_is_set_aside(tmp_path: Path) -> None:
    JournalWriter(tmp_path, origin("mine")).close()
    (tmp_path / "journals" / "mine").rename(tmp_path / "journals" / "stolen")
    JournalWriter(tmp_path, origin("mine")).close()
    tail = Tail(tmp_path, clock=FakeClock(), alive=lambda _: True)
    assert [followed.origin.journal for followed in tail.discover()] == ["mine"]
    (aside,) = tail.aside()
    assert aside.journal == "stolen" and "says that it is journal 'mine'" in aside.why
    tail.close()


@pytest.mark.parametrize("name", [b"a b", b"..x", b"\xc3\xa9", b"x" * 220, b"x\xff"], ids=range(5))
def test_a_folder_that_no_journal_is_called_is_set_aside(name: bytes, tmp_path: Path) -> None:
    called = os.fsdecode(name)
    JournalWriter(tmp_path, origin("mine")).close()
    (tmp_path / "journals" / called).mkdir()
    (tmp_path / "journals" / called / "00000000.seg").write_bytes(b"x" * 500)
    tail = Tail(tmp_path, clock=FakeClock(), alive=lambda _: True)
    assert [followed.origin.journal for followed in tail.discover()] == ["mine"]
    assert [aside.journal for aside in tail.aside()] == [called]
    tail.close()


def test_a_journal_that_the_head_does_not_take_stays_aside_until_it_does(
    tail: Tail, clock: FakeClock
) -> None:
    name = JournalId("a")
    tail.set_aside(name, NotTaken("too much"))
    assert [(aside.why, aside.by_head) for aside in tail.aside()] == [("too much", True)]
    assert tail.discover(surely=True) == []
    clock.advance(AGAIN_SECONDS + 1)
    assert found(tail) == ["a"] and tail.is_aside(name)  # it is tried, and told as aside meanwhile
    tail.set_aside(name, NotTaken("too much"))
    clock.advance(AGAIN_SECONDS + 1)
    assert tail.discover(surely=True) == []  # after a longer pause
    tail.try_again()
    assert found(tail) == ["a"]
    tail.taken(name)
    assert not tail.is_aside(name)
