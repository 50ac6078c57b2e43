"""Where journals are that could not be where they were wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from runwatch.journal.moved import WANTED, fallback_place, moved_from, note_wanted, told_of
from runwatch.journal.writer import JournalWriter
from tests.unit.journal.journal_help import origin


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return fallback_place()


def record(place: Path, name: str, wanted: Path | None) -> Path:
    writer = JournalWriter(place, origin(name))
    writer.close()
    if wanted is not None:
        note_wanted(writer.directory, wanted)
    return writer.directory


def test_each_directory_hears_of_its_own(place: Path, tmp_path: Path) -> None:
    assert moved_from(tmp_path) == [] and told_of(tmp_path) == ""
    record(place, "a", tmp_path / "one")
    record(place, "b", tmp_path / "two")
    record(place, "c", None)
    assert moved_from(tmp_path / "one") == ["a"]
    assert moved_from(tmp_path / "x" / ".." / "two") == ["b"]
    assert str(place) in told_of(tmp_path / "one") and told_of(place) == ""


def test_what_somebody_laid_there_is_not_believed(place: Path, tmp_path: Path) -> None:
    lured = tmp_path / "lure"
    journal = record(lured, "a", tmp_path / "one")
    place.symlink_to(lured)
    assert moved_from(tmp_path / "one") == []
    assert moved_from(tmp_path / "one", lured) == ["a"]
    note = journal / WANTED
    note.rename(tmp_path / "note")
    note.symlink_to(tmp_path / "note")
    assert moved_from(tmp_path / "one", lured) == []
