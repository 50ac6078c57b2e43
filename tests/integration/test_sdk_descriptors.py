"""What a program does to its descriptors, and that ours are never taken for the program's."""

from __future__ import annotations

from pathlib import Path

import pytest

from runwatch.agent.errands.control import ask
from runwatch.testing import read_stories
from tests.integration.sdk_programs import run_program, start_program

_DAEMON = """
import os, socket, time
import runwatch
place = os.environ["RUNWATCH_DIR"]
run = runwatch.init("daemon")
journal = run._writer.directory

def until(condition):
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)

until(lambda: (journal / "control.sock").exists() and (journal / "next.tmp").exists())
for number in range(100):
    run.log(loss=number)

# As code that makes a daemon does; then it opens what it needs.
os.closerange(3, 1024)
mine, sockets = {}, []
for number in range(40):
    path = f"{place}/mine{number}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, b"mine " * 1000)
    mine[fd] = os.fstat(fd)
    if number % 2:
        line = socket.create_server(("127.0.0.1", 0))
        mine[line.fileno()] = os.fstat(line.fileno())
        line.settimeout(60)
        sockets.append(line)

# Through several segments, and rounds of the keeper.
for number in range(100, 60_000):
    run.log(loss=number)
for _ in range(3):
    run._writer.keep()
    run._keep()
for number in range(60_000, 60_100):
    run.log(loss=number)
"""

_CHECK = """
for line in sockets:
    with socket.create_connection(line.getsockname()) as other:
        taken, _ = line.accept()
        taken.close()
run.finish()
for fd, was in mine.items():
    now = os.fstat(fd)
    assert (now.st_dev, now.st_ino) == (was.st_dev, was.st_ino), fd
for number in range(40):
    path = f"{place}/mine{number}"
    assert open(path, "rb").read() == b"mine " * 1000, path
print("all mine")
"""


@pytest.mark.parametrize("segment_bytes", [1 << 20, 4 << 20])
def test_a_program_that_closes_all_descriptors_keeps_those_it_opens(
    segment_bytes: int, tmp_path: Path
) -> None:
    done = run_program(_DAEMON + _CHECK, tmp_path, RUNWATCH_SEGMENT_BYTES=str(segment_bytes))
    assert (done.stdout, done.stderr) == ("all mine\n", "")
    (story,) = read_stories(tmp_path)
    assert story.values("loss") == [float(n) for n in range(60_100)]
    assert story.end["status"] == "completed"
    assert story.warnings == {}


def test_after_that_it_can_be_asked_again_and_a_fault_is_told_in_our_file(tmp_path: Path) -> None:
    text = f"{_DAEMON}\nprint(journal, flush=True)\ntime.sleep(60)"
    with start_program(text, tmp_path) as program:
        try:
            assert program.stdout is not None
            journal = Path(program.stdout.readline().strip())
            assert ask(journal, "ping", {}, seconds=10.0) == {"pid": program.pid}
            program.send_signal(11)
            program.wait(100)
        finally:
            program.kill()
    assert "Fatal Python error: Segmentation fault" in (journal / "faults.txt").read_text()
    for number in range(40):
        assert (tmp_path / f"mine{number}").read_bytes() == b"mine " * 1000
    (story,) = read_stories(tmp_path)
    assert story.warnings == {}
