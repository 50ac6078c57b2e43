"""What is asked about a node's agent, and what somebody else may have laid in its folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from runwatch.journal import agents

NAME = agents.lock_name("host")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / agents.FOLDER).mkdir()
    return tmp_path / agents.FOLDER


def test_a_lock_is_held_while_somebody_has_it(folder: Path) -> None:
    root = folder.parent
    assert agents.is_held(root / "nowhere", NAME) is False
    assert agents.is_held(root, NAME) is False
    with (folder / NAME).open("w") as file:
        assert agents.is_held(root, NAME) is False
        assert agents.hold(file.fileno())
        assert agents.is_held(root, NAME) is True
        with (folder / NAME).open() as other:
            assert not agents.hold(other.fileno())
    assert agents.is_held(root, NAME) is False


def test_who_only_asks_does_not_keep_an_agent_from_beginning(folder: Path) -> None:
    asking = os.open(folder / NAME, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(asking, fcntl.LOCK_SH)
    with (folder / NAME).open() as file:
        assert not agents.hold(file.fileno())  # it asks for very long
        os.close(asking)
        assert agents.hold(file.fileno())


def test_a_pipe_and_a_link_are_no_lock_and_no_note(folder: Path, tmp_path: Path) -> None:
    ended = folder / agents.ended_name("host")
    os.mkfifo(folder / NAME)
    os.mkfifo(ended)
    assert agents.is_held(tmp_path, NAME) is False
    assert agents.ended_ns(tmp_path, "host") == 0
    ended.unlink()
    (tmp_path / "elsewhere").write_text("7")
    ended.symlink_to(tmp_path / "elsewhere")
    assert agents.ended_ns(tmp_path, "host") == 0
    ended.unlink()
    ended.write_text("7")
    assert agents.ended_ns(tmp_path, "host") == 7
    ended.write_text("seven")
    assert agents.ended_ns(tmp_path, "host") == 0


def test_an_agent_that_has_come_and_gone_has_come(folder: Path, tmp_path: Path) -> None:
    assert not agents.came_since(tmp_path, "host", 0)
    (folder / NAME).touch()
    came_ns = (folder / NAME).stat().st_mtime_ns
    assert agents.came_since(tmp_path, "host", came_ns)
    assert not agents.came_since(tmp_path, "host", came_ns + 1)


def test_a_log_is_appended_to_and_is_ours(tmp_path: Path) -> None:
    for words in (b"one ", b"two"):
        fd = agents.open_log(tmp_path, "host.log")
        os.write(fd, words)
        os.close(fd)
    log = tmp_path / agents.FOLDER / "host.log"
    assert log.read_bytes() == b"one two"
    log.unlink()
    log.symlink_to(tmp_path / "precious")
    os.close(agents.open_log(tmp_path, "host.log"))
    assert not log.is_symlink() and not (tmp_path / "precious").exists()
