"""Where an export goes: a file is replaced whole, and what is no file is never replaced."""

from __future__ import annotations

import argparse
import os
import stat
import threading
from pathlib import Path

import pytest

from runwatch.cli.output import check_export, check_output, export, is_stream
from runwatch.errors import UsageError


def given(output: Path, *, force: bool = False) -> argparse.Namespace:
    return argparse.Namespace(output=output, force=force, format="csv")


def test_devices_and_descriptors_are_streams(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "plain").touch()
    (tmp_path / "to-null").symlink_to("/dev/null")
    names = ("/dev/null", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
    for path in (*map(Path, names), tmp_path / "pipe", tmp_path / "to-null"):
        assert is_stream(path)
    for path in (tmp_path, tmp_path / "plain", tmp_path / "nowhere"):
        assert not is_stream(path)


@pytest.mark.parametrize("force", [False, True])
def test_a_pipe_is_written_to_and_stays(
    tmp_path: Path, force: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """As root, `export --force -o /dev/null` had replaced the device by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_export(given(pipe, force=force))
    writing = threading.Thread(target=export, args=(iter([b"a,b\n", b"1,2\n"]), pipe))
    writing.start()
    assert pipe.read_bytes() == b"a,b\n1,2\n"
    writing.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
    assert capsys.readouterr().out == ""


def test_what_is_no_file_is_not_replaced_even_by_force(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        with pytest.raises(UsageError, match="not a regular file"):
            check_output(path, force=True)
    with pytest.raises(UsageError, match="not a regular file"):
        check_export(given(tmp_path, force=True))


def test_a_file_is_replaced_by_force_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "points.csv"
    file.write_text("mine")
    with pytest.raises(UsageError, match="--force"):
        check_export(given(file))
    check_export(given(file, force=True))
    export(iter([b"new"]), file)
    assert file.read_text() == "new"
    assert capsys.readouterr().out == f"Wrote {file}\n"
