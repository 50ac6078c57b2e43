from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from runwatch.capture.dump_file import About, DumpFile, append, append_to, console_fd, heading

ABOUT = About("gpu 1/é", 3, 771, "llama", 12)


def test_a_name_is_safe_and_never_somebody_elses(tmp_path: Path) -> None:
    first = DumpFile.create(tmp_path / "a/b", ABOUT, 0)
    second = DumpFile.create(tmp_path / "a/b", ABOUT, 0)
    names = sorted(path.name for path in (tmp_path / "a/b").iterdir())
    assert [name.split("gpu-1--_3_")[1] for name in names] == ["771.txt", "771_2.txt"]
    first.close()
    second.close()
    assert list((tmp_path / "a/b").iterdir()) == []  # nothing was dumped


def test_a_link_that_someone_left_is_not_followed(tmp_path: Path) -> None:
    file = DumpFile.create(tmp_path, ABOUT, 0)
    file.close()
    (tmp_path / "target").write_text("precious")
    file.path.symlink_to(tmp_path / "target")
    other = DumpFile.create(tmp_path, ABOUT, 0)
    other.write("dump\n")
    other.close()
    assert other.path != file.path
    assert (tmp_path / "target").read_text() == "precious"


def test_a_heading_is_one_line_of_pairs_without_blanks() -> None:
    line = heading("dump", ABOUT.pairs(), 5)
    assert line.startswith("# dump ") and line.endswith("\n") and line.count("\n") == 1
    assert " host=gpu_1/_ rank=3 pid=771 run=llama step=12 time_ns=5 main=0x" in line
    assert "\n" not in heading("dump", {"host": "a\nb"}, 5)[:-1]


def test_a_large_file_is_copied_aside_and_the_descriptor_stays(tmp_path: Path) -> None:
    file = DumpFile.create(tmp_path, ABOUT, 0, max_bytes=1_000)
    for number in range(12):
        file.write(f"dump {number:03} " + "x" * 600 + "\n")
    os.write(file.fd, b"by a C thread\n")
    found = sorted(path.name.split(".", 1)[1] for path in tmp_path.iterdir())
    assert found == ["1.txt", "2.txt", "3.txt", "txt"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 4 * 2_500
    text = file.path.read_text()
    assert text.startswith("# opened ") and text.endswith("by a C thread\n")
    assert "dump 011" in file.path.with_suffix(".1.txt").read_text() + text
    file.close()


def test_no_space(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(OSError):
        append_to(tmp_path / "full")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="not a regular file"):
        append(tmp_path / "pipe", "text")
    os.close(reader)


def test_telling_a_journal_once(tmp_path: Path) -> None:
    file = DumpFile.create(tmp_path, ABOUT, 0)
    (tmp_path / "journal").mkdir()
    for _ in range(2):
        file.tell(tmp_path / "journal")
    assert (tmp_path / "journal/dumps.path").read_text() == f"{file.path}\n"
    file.close()


def test_consoles(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        fd = file.fileno()
        assert console_fd(file) == fd
    assert console_fd(file) is None
    assert console_fd(io.StringIO()) is None
    assert console_fd(None) is None
