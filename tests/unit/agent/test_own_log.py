"""The agent's own log keeps its end when it becomes too long; nobody else's is touched."""

from __future__ import annotations

import os
from pathlib import Path

from runwatch.agent.own_log import shorten


def opened(path: Path, lines: int) -> int:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"line {n:06d}\n" for n in range(lines)))
    return os.open(path, os.O_WRONLY | os.O_APPEND)


def test_only_its_end_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "agent" / "host.log"
    fd = opened(log, 1000)
    try:
        assert not shorten(tmp_path, fd=fd, most_bytes=20_000)
        assert shorten(tmp_path, fd=fd, most_bytes=2_000)
        os.write(fd, b"more\n")
        lines = log.read_text().splitlines()
        assert lines[-2:] == ["line 000999", "more"] and lines[0].startswith("line 000")
        assert log.stat().st_size <= 1_005
    finally:
        os.close(fd)


def test_a_log_elsewhere_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    elsewhere = tmp_path / "elsewhere.log"
    (tmp_path / "agent" / "host.log").symlink_to(elsewhere)
    fd = opened(elsewhere, 1000)
    try:
        before = elsewhere.read_text()
        assert not shorten(tmp_path, fd=fd, most_bytes=2_000)
        assert elsewhere.read_text() == before
    finally:
        os.close(fd)
    assert not shorten(tmp_path / "nowhere", fd=fd, most_bytes=2_000)
