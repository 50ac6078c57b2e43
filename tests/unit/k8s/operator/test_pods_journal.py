"""The operator's own journal: what is told there is there, exactly, whatever became of the head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runwatch.k8s.operator import own_journal
from runwatch.k8s.operator.own_journal import OwnJournal, Row
from runwatch.k8s.operator.pods import Told
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.record import RunId
from runwatch.record.pods import PodTold
from runwatch.testing import read_stories

NOWHERE = "http://127.0.0.1:9"
"""Nothing listens at the port of `discard`."""


@contextmanager
def opened(root: Path) -> Iterator[tuple[OwnJournal, list[Row]]]:
    journal = OwnJournal(OperatorSettings(head=NOWHERE, dir=root))
    earlier = journal.open()
    try:
        yield journal, earlier
    finally:
        journal.close()


def told(number: int) -> Told:
    return Told(1_780_000_000_123_456_000 + number, PodTold(pod="a", uid="u", what="created"))


def test_the_cluster_s_times_are_kept_to_the_nanosecond(tmp_path: Path) -> None:
    with opened(tmp_path) as (journal, earlier):
        assert earlier == []
        assert journal.tell(RunId("r"), "name", told(7))
        assert journal.tell(RunId("r"), "name", Told(1, PodTold(pod="old", what="created")))
    (story,) = read_stories(tmp_path / "operator")
    assert [each.time_ns for each in story.events if each.kind == "pod"] == [told(7).time_ns, 1]
    assert [(each.run, each.rank, each.world_size) for each in story.scopes] == [("r", -1, 0)]


@pytest.mark.parametrize("time_ns", [-62_135_596_800 * 10**9, 0, 250_000_000_000 * 10**9])
def test_what_has_no_time_is_not_told(tmp_path: Path, time_ns: int) -> None:
    with opened(tmp_path) as (journal, _):
        assert journal.tell(RunId("r"), "name", told(0)._replace(time_ns=time_ns))
    (story,) = read_stories(tmp_path / "operator")
    assert story.bodies("pod") == []


def test_more_runs_than_one_journal_can_name_are_told_of(tmp_path: Path) -> None:
    count = 5_000
    with opened(tmp_path) as (journal, _):
        for number in range(count):
            assert journal.tell(RunId(f"run-{number}"), "a name " * 10, told(number))
    assert len(read_stories(tmp_path / "operator")) > 1
    with opened(tmp_path) as (_, earlier):
        assert {row.run for row in earlier} == {f"run-{number}" for number in range(count)}


def test_old_journals_go_when_there_is_no_room_and_the_one_that_is_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        with opened(tmp_path) as (journal, _):
            journal.tell(RunId("r"), "name", told(number))
    monkeypatch.setattr(own_journal, "ALL_BYTES", 1)
    with opened(tmp_path) as (journal, earlier):
        assert len(earlier) == 3
        journal.tell(RunId("r"), "name", told(9))
        journal.tidy()
        (story,) = read_stories(tmp_path / "operator")
        assert [each.time_ns for each in story.events if each.kind == "pod"] == [told(9).time_ns]


def test_a_damaged_journal_keeps_nobody_from_beginning(tmp_path: Path) -> None:
    with opened(tmp_path) as (journal, _):
        journal.tell(RunId("r"), "name", told(1))
    folder = tmp_path / "operator" / "journals" / "damaged"
    folder.mkdir()
    (folder / "00000000.seg").write_bytes(b"\xff" * 5000)
    with opened(tmp_path) as (journal, earlier):
        assert [row.told.time_ns for row in earlier] == [told(1).time_ns]
        assert journal.tell(RunId("r"), "name", told(2))
        journal.tidy()
