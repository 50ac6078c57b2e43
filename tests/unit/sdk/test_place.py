"""Which head a program's journal is for, and where people look at its run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runwatch.address import Listening, leave_note
from runwatch.journal.heads import NamedHead, read_note
from runwatch.journal.liveness import this_host
from runwatch.sdk import place as places
from runwatch.sdk.guard import tally
from runwatch.sdk.place import named_head
from runwatch.sdk.run import Run

Begin = Callable[..., Run]


@pytest.fixture(autouse=True)
def nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_has_said", False)
    for name in ("HEAD", "TOKEN", "TOKEN_FILE", "CA", "QUIET"):
        monkeypatch.delenv(f"RUNWATCH_{name}", raising=False)


def test_the_environment_names_it(tmp_path: Path) -> None:
    named = {"RUNWATCH_HEAD": "head-1", "RUNWATCH_TOKEN": "t", "RUNWATCH_CA": "ca.pem"}
    ca = str(Path("ca.pem").absolute())
    assert named_head(named, tmp_path) == NamedHead("head-1", "head-1:8090", "t", "", ca)
    file = named | {"RUNWATCH_TOKEN_FILE": "/secret"}
    head = named_head(file, tmp_path)
    assert head is not None and (head.token, head.token_file) == ("", "/secret")
    assert named_head({}, tmp_path) is None


def test_a_whole_link_has_its_token_with_it(tmp_path: Path) -> None:
    head = named_head({"RUNWATCH_HEAD": "http://head-1:8090/?token=t#/runs"}, tmp_path)
    assert head == NamedHead("http://head-1:8090", "head-1:8090", "t")


def test_the_settings_file_names_it_unless_the_environment_does(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[agent]\nhead = "head-2"\ntoken_file = "/secret"\n')
    assert named_head({}, tmp_path) == NamedHead("head-2", "head-2:8090", "", "/secret")
    head = named_head({"RUNWATCH_HEAD": "head-1"}, tmp_path)
    assert head == NamedHead("head-1", "head-1:8090")


def test_a_journal_says_it_from_its_beginning(
    begin: Begin, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_HEAD", "head-1")
    begin("named")
    [journal] = (place / "journals").iterdir()
    assert [head.address for head in read_note(journal).heads] == ["head-1"]


def test_a_wrong_address_is_counted_and_recording_goes_on(
    begin: Begin, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_HEAD", "ftp://head-1")
    run = begin("named")
    run.log(loss=1.0)
    assert run.url == ""
    assert any("which head is named" in what for what in tally.counts)
    [journal] = (place / "journals").iterdir()
    assert read_note(journal).heads == ()


def test_rank_0_says_once_where_to_look(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNWATCH_HEAD", "head-1")
    run = begin("a b", id="a-b")
    run.finish()
    begin("another").finish()
    assert run.url == "http://head-1:8090/#/run/a-b"
    assert capfd.readouterr().err == f"runwatch: run 'a b' is shown at {run.url}\n"


@pytest.mark.parametrize("quiet", [{"RUNWATCH_QUIET": "1"}, {"RANK": "3", "WORLD_SIZE": "4"}])
def test_nothing_is_said_by_others_and_if_nobody_wants_it(
    begin: Begin,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    quiet: dict[str, str],
) -> None:
    for name, value in {"RUNWATCH_HEAD": "head-1", **quiet}.items():
        monkeypatch.setenv(name, value)
    begin("quiet")
    assert capfd.readouterr().err == ""


def test_without_a_head_nothing_is_said_but_to_a_terminal(
    begin: Begin, capfd: pytest.CaptureFixture[str]
) -> None:
    assert begin("alone").url == ""
    assert capfd.readouterr().err == ""


def test_a_head_that_serves_the_directory_is_known_while_it_runs(begin: Begin, place: Path) -> None:
    run = begin("here")
    at = Listening("http://127.0.0.1:8090", "", "t", os.getpid(), this_host())
    leave_note(place, at)
    assert run.url == "http://127.0.0.1:8090/#/run/here"
    leave_note(place, Listening(at.http, "", "t", 2**22 + 1, this_host()))
    assert run.url == "", "that process is gone"
    (place / "head.json").unlink()


def test_a_full_pipe_is_not_waited_for(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWATCH_HEAD", "head-1")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    with os.fdopen(writing, "w") as full, os.fdopen(reading):
        monkeypatch.setattr("sys.stderr", full)
        begin("stuck").finish()
        monkeypatch.undo()
