"""Which directory a command reads, and what it says when there is none for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runwatch.cli.__main__ import main
from runwatch.cli.source import check_open
from runwatch.errors import UsageError
from runwatch.journal.moved import fallback_place


@pytest.mark.parametrize("closed", ["", "journals"])
def test_another_users_directory_is_named_before_it_is_read(tmp_path: Path, closed: str) -> None:
    """Root may read everything: what the system says is given here."""
    shut = tmp_path / closed
    shut.mkdir(exist_ok=True)
    with pytest.raises(UsageError, match="you may not read"):
        check_open(tmp_path, may=lambda folder, how: folder != shut)
    check_open(tmp_path)
    check_open(tmp_path / "none yet", may=lambda folder, how: False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_closed_directory_is_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "journals").mkdir(mode=0)
    assert main(["runs", "--dir", str(tmp_path)]) != 0
    assert "you may not read" in capsys.readouterr().err


def test_what_was_recorded_elsewhere_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    nowhere = str(tmp_path / "nowhere")
    assert main(["runs", "--dir", nowhere]) != 0
    said = capsys.readouterr().err
    assert nowhere in said and "could not record" not in said
    fallback_place().mkdir()
    assert main(["runs", "--dir", nowhere]) != 0
    assert str(fallback_place()) in capsys.readouterr().err


def test_settings_are_readable_on_a_narrow_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["config", "head"]) == 0
    narrow = capsys.readouterr().out
    assert "head.bind = 127.0.0.1\n" in narrow
    assert "    address to listen on [RUNWATCH_BIND]" in narrow
    assert "(from environment RUNWATCH_DIR)" in " ".join(narrow.split())
