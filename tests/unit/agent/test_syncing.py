"""Which journals are put on the disk, and how far."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from runwatch.agent.syncing import DiskSync
from runwatch.journal.segment import segment_name
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId
from tests.unit.journal.journal_help import origin

A, B = JournalId("a"), JournalId("b")


def test_every_segment_is_reached_and_who_writes_no_more_is_done_once_more(tmp_path: Path) -> None:
    sync = DiskSync(tmp_path)
    sync.round()
    writers = [JournalWriter(tmp_path, origin(name)) for name in (A, B)]
    sync.look_at([A, B])
    sync.round()
    assert sync._reached == {A: 0, B: 0}
    with writers[0]._lock:
        assert writers[0]._turn()
    sync.round()
    assert sync._reached == {A: 1, B: 0}
    sync.look_at([B])
    sync.round()
    assert sync._reached == {B: 0}
    for writer in writers:
        writer.close()


def test_one_that_cannot_be_reached_leaves_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (A, B):
        JournalWriter(tmp_path, origin(name)).close()
    segment = tmp_path / "journals" / A / segment_name(0)
    segment.rename(tmp_path / "elsewhere")
    segment.symlink_to(tmp_path / "elsewhere")  # not followed, and not synced
    sync = DiskSync(tmp_path)
    sync.look_at([A, B])
    with caplog.at_level(logging.WARNING):
        sync.round()
        sync.round()
    assert sync._reached == {B: 0}
    [said] = caplog.messages
    assert "journal a may not survive a power loss" in said
    shutil.rmtree(tmp_path / "journals")
    sync.round()
    assert sync._reached == {}
