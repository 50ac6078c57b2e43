"""The note beside a journal that says which head it is for."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from runwatch.journal.heads import (
    HEADS,
    Destination,
    NamedHead,
    note,
    place_in,
    read_note,
    write_note,
)
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin

HEAD = NamedHead("http://head:8090", "head:8090", "secret", "", "/ca.pem")


def begun(root: Path, heads: bytes = b"") -> Path:
    writer = JournalWriter(root, Origin(JournalId("one"), "node", 1, 1), heads=heads)
    writer.close()
    return writer.directory


def test_it_comes_back_as_it_was_and_only_its_user_reads_it(tmp_path: Path) -> None:
    directory = begun(tmp_path, note(Destination([HEAD])))
    assert read_note(directory) == Destination((HEAD,), {}, os.getuid())
    assert place_in(directory) == "head:8090"
    assert stat.S_IMODE((directory / HEADS).stat().st_mode) == 0o600
    assert "secret" not in repr(HEAD)


def test_it_is_there_before_the_first_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an agent could send the journal to another head."""
    seen: list[list[str]] = []
    rename = os.rename

    def look(source: Path, name: Path) -> None:
        seen.append(os.listdir(tmp_path / "journals" / "one"))
        rename(source, name)

    monkeypatch.setattr(os, "rename", look)
    begun(tmp_path, note(Destination([HEAD])))
    assert HEADS in seen[0]


def test_a_journal_that_cannot_be_opened_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(JournalWriter, "_begin", full)
    with pytest.raises(OSError, match="no space"):
        begun(tmp_path, note(Destination([HEAD])))
    assert not (tmp_path / "journals" / "one" / HEADS).exists()


def test_an_agent_s_note_grows(tmp_path: Path) -> None:
    directory = begun(tmp_path)
    assert read_note(directory).heads == () and place_in(directory) == ""
    more = Destination((HEAD, NamedHead("grpc://other")), {"run-1": "head:8090"}, os.getuid())
    write_note(directory, more)
    assert read_note(directory) == more


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"heads": 7, "runs": []}', '{"heads": [7, {}, {"token": "t"}]}', "[" * 10_000],
)
def test_what_is_no_note_names_no_head(tmp_path: Path, text: str) -> None:
    directory = begun(tmp_path)
    (directory / HEADS).write_text(text)
    assert read_note(directory).heads == ()


def test_what_a_later_version_adds_is_left_alone(tmp_path: Path) -> None:
    directory = begun(tmp_path)
    (directory / HEADS).write_text('{"version": 2, "heads": [{"address": "a", "more": 1}], "x": 1}')
    assert read_note(directory).heads == (NamedHead("a"),)
