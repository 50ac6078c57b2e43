"""What an agent says of itself, and what is made of a note that says something else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from runwatch.agent.note import (
    MOST_JOURNALS,
    PROGRESS_SECONDS,
    AgentNote,
    HeadState,
    LeftAside,
    StatusNote,
    note_name,
    read_note,
)
from runwatch.agent.settings import AgentSettings
from runwatch.files import shelf
from runwatch.record import JournalId, Position
from runwatch.testing import FakeClock
from tests.unit.journal.journal_help import (
    SECOND,
)

HOST = "node"
FACTS: dict[str, Any] = {"connected": True, "problem": "", "aside": (), "aside_count": 0}


def read(root: Path) -> AgentNote | None:
    with shelf(root, "agent") as folder:
        return read_note(folder, HOST, (os.geteuid(),))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "agent").mkdir()
    return tmp_path


def note(root: Path, clock: FakeClock) -> StatusNote:
    return StatusNote(AgentSettings(dir=root, head="head:8090", all_hosts=True), HOST, clock)


def at(position: int) -> dict[JournalId, Position]:
    return {JournalId("j"): Position(position)}


def test_what_was_said_is_read(root: Path) -> None:
    clock = FakeClock()
    aside = LeftAside("bad", "it is damaged", 5, by_head=True)
    told = note(root, clock)
    told.write(
        connected=False, problem="gone", aside=(aside,), aside_count=3, dropped_records=7,
        reached=at(9),
    )  # fmt: skip
    found = read(root)
    assert found is not None
    assert (found.pid, found.head, found.all_hosts) == (os.getpid(), "head:8090", True)
    assert (found.connected, found.problem, found.reached) == (False, "gone", at(9))
    assert (found.aside, found.aside_count) == ((aside,), 3)
    assert (found.dropped_records, found.dropped_ns, found.ended_ns) == (7, clock.wall, 0)


def test_a_change_is_written_at_once_and_progress_now_and_then(root: Path) -> None:
    clock = FakeClock()
    told = note(root, clock)
    told.write(**FACTS, reached=at(1))
    begun = read(root)
    assert begun is not None and begun.changed_ns == clock.wall
    clock.advance(PROGRESS_SECONDS / 2)
    told.write(**FACTS, reached=at(2))
    assert read(root) == begun, "only more was sent, a moment ago"
    clock.advance(PROGRESS_SECONDS / 2)
    told.write(**FACTS, reached=at(3))
    later = read(root)
    assert later is not None and later.reached == at(3)
    assert later.changed_ns == begun.changed_ns, "it is connected since then"
    clock.advance(1)
    told.write(**(FACTS | {"connected": False, "problem": "refused"}), reached=at(3))
    away = read(root)
    assert away is not None
    assert (away.connected, away.problem, away.changed_ns) == (False, "refused", clock.wall)
    (root / "agent" / note_name(HOST)).unlink()
    clock.advance(10 * PROGRESS_SECONDS)
    told.write(**(FACTS | {"connected": False, "problem": "refused"}), reached=at(3))
    assert read(root) is None, "nothing is new: nothing is written"


def test_a_full_disk_or_a_missing_folder_keeps_no_agent_from_working(tmp_path: Path) -> None:
    note(tmp_path, FakeClock()).write(**FACTS, reached={})
    assert list(tmp_path.iterdir()) == []


def test_of_very_many_journals_the_newest_are_told(root: Path) -> None:
    many = {JournalId(f"j-{n:06d}"): Position(n) for n in range(MOST_JOURNALS + 5)}
    note(root, FakeClock()).write(**FACTS, reached=many)
    found = read(root)
    assert found is not None and len(found.reached) == MOST_JOURNALS
    assert JournalId("j-000004") not in found.reached


@pytest.mark.parametrize(
    "said",
    [
        "", "null", "[]", "7", "{", '{"pid": "x"}', '{"aside": 5}', '{"aside": [{"journal": 1}]}',
        '{"reached": [1]}', '{"reached": {"a": "b"}}', '{"pid": Infinity}', '{"since_ns": []}',
        "[" * 100_000,
    ],
)  # fmt: skip
def test_a_note_that_makes_no_sense_is_none(root: Path, said: str) -> None:
    (root / "agent" / note_name(HOST)).write_text(said)
    assert read(root) is None


def test_a_later_version_may_say_more_and_an_earlier_one_less(root: Path) -> None:
    file = root / "agent" / note_name(HOST)
    file.write_text(json.dumps({"version": 9, "pid": 12, "colour": "green", "since_ns": SECOND}))
    found = read(root)
    assert found is not None
    assert (found.pid, found.since_ns, found.head, found.aside) == (12, SECOND, "", ())


def test_what_a_link_leads_to_is_not_read(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({"pid": 1}))
    (root / "agent" / note_name(HOST)).symlink_to(secret)
    assert read(root) is None


def test_every_head_is_told_and_an_older_agent_had_one(root: Path) -> None:
    heads = (HeadState("one", True, True), HeadState("two", False, False, "gone", 5, True))
    reached_at = {"two": at(3)}
    note(root, FakeClock()).write(**FACTS, heads=heads, reached=at(1), reached_at=reached_at)
    found = read(root)
    assert found is not None and (found.heads, found.reached_at) == (heads, reached_at)
    written = json.loads((root / "agent" / note_name(HOST)).read_text())
    del written["heads"], written["reached_at"]
    (root / "agent" / note_name(HOST)).write_text(json.dumps(written))
    found = read(root)
    assert found is not None and [head.address for head in found.heads] == ["head:8090"]
    assert found.heads[0].own and found.heads[0].connected
