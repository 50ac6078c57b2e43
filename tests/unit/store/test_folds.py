"""Folds in files: what was written comes back whole or not at all, and they stay within bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runwatch.record import RunId
from runwatch.store.folds import FoldFiles

RUN = RunId("run")


@pytest.fixture
def files(tmp_path: Path) -> FoldFiles:
    return FoldFiles(tmp_path / "folds", spare_bytes=0)


@pytest.mark.parametrize("run", ["run", "a/../b", "", "ünï \udcff", "x" * 70_000])
def test_what_was_written_comes_back(files: FoldFiles, run: str) -> None:
    assert files.read(RunId(run)) is None
    assert files.write(RunId(run), b"payload")
    assert files.read(RunId(run)) == b"payload"
    assert files.path(RunId(run)).parent.name == "folds"
    assert files.write(RunId(run), b"another")
    assert files.read(RunId(run)) == b"another"
    files.delete(RunId(run))
    assert files.read(RunId(run)) is None


def test_every_torn_or_flipped_byte_is_seen(files: FoldFiles) -> None:
    files.write(RUN, b"payload")
    path = files.path(RUN)
    whole = path.read_bytes()
    harmed = [whole[:at] for at in range(len(whole))]
    harmed += [whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :] for at in range(len(whole))]
    for content in harmed:
        path.write_bytes(content)
        assert files.read(RUN) is None
        assert not path.exists()


def test_a_file_of_another_run_is_not_taken(files: FoldFiles) -> None:
    files.write(RUN, b"payload")
    os.rename(files.path(RUN), files.path(RunId("other")))
    assert files.read(RunId("other")) is None


def test_those_not_used_for_longest_make_room(tmp_path: Path) -> None:
    files = FoldFiles(tmp_path, most_bytes=3 * 130, spare_bytes=0)
    for at, name in enumerate("abc"):
        files.write(RunId(name), b"x" * 100)
        os.utime(files.path(RunId(name)), ns=(at, at))
    assert files.read(RunId("a")) is not None  # used just now
    files.write(RunId("d"), b"x" * 100)
    kept = [name for name in "abcd" if files.path(RunId(name)).exists()]
    assert kept == ["a", "c", "d"]


def test_one_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    files = FoldFiles(tmp_path, most_bytes=200, spare_bytes=0)
    assert files.write(RUN, b"x")
    assert not files.write(RUN, b"x" * 200)
    assert files.read(RUN) is None


def test_a_full_disk_is_left_to_records(tmp_path: Path) -> None:
    files = FoldFiles(tmp_path, spare_bytes=1 << 62)
    assert not files.write(RUN, b"x")
    assert list(tmp_path.iterdir()) == []


def test_what_is_left_of_runs_that_are_gone(files: FoldFiles) -> None:
    files.keep_only([RUN])  # nothing is there yet
    for name in ("run", "gone"):
        files.write(RunId(name), b"x")
    torn = files.path(RUN).with_suffix(".tmp")
    torn.write_bytes(b"half")
    files.keep_only([RUN, RunId("never folded")])
    assert files.read(RUN) == b"x"
    assert files.read(RunId("gone")) is None
    assert not torn.exists()
