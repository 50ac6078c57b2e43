"""What a file system does to a program that records on it: nothing.

Full, shared block by block with a copy, broken, standing still, or made shorter by somebody: what
is lost is counted, and the program goes on."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from runwatch.testing import read_stories
from tests.integration.file_systems import run_on

# The keeper opens the control socket soon: where there is no space it would say so, now and then.
_LOG = """
for number in range(1000):
    run.log(loss=float(number))
deadline = time.monotonic() + 100
while not (run._writer.directory / "control.sock").exists() and time.monotonic() < deadline:
    time.sleep(0.01)
"""
# Thaws a disk whose program has stopped: nobody could ever unmount it.
_GUARDIAN = """
guardian = subprocess.Popen([sys.executable, "-c", '''
import fcntl, os, select, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
if not select.select([0], [], [], 30)[0]:
    fcntl.ioctl(fd, 0xC0045878, 0)
    os.write(2, b"the program stood still")
''', disk], stdin=subprocess.PIPE)
"""
_THEN = """
rounds()
print("goes on", run._writer.lost_records)
"""


@pytest.mark.parametrize("kind", ["ext4", "tmpfs", "xfs", "btrfs"])
def test_a_full_disk_kills_nobody_and_what_is_lost_is_told(kind: str, tmp_path: Path) -> None:
    end = """
    os.unlink(f"{disk}/fill")
    os.sync()
    run._writer.keep()
    run._writer.keep()
    run.log(loss=-1.0)
    lost = run._writer.lost_records
    run.finish()
    print("lost", lost)
    """
    done = run_on(kind, f"{_LOG}\nfill()\n{_THEN}\n" + dedent(end), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    *_, last = done.stdout.splitlines()
    (story,) = read_stories(tmp_path / "copy")
    values = story.values("loss")
    assert values[:1000] == [float(number) for number in range(1000)]
    assert values[-1] == -1.0
    lost = int(last.removeprefix("lost "))
    told = story.bodies("journal_loss")
    assert len(values) + lost >= 5001 and (not lost or told[-1]["lost_records"] == lost)


def test_blocks_shared_with_a_copy_kill_nobody_when_there_is_no_space(tmp_path: Path) -> None:
    copy = """
    os.sync()
    for folder, _, names in os.walk(f"{disk}/runwatch"):
        for name in names:
            if name.endswith((".seg", ".tmp")):
                command = ["cp", "--reflink=always", f"{folder}/{name}", f"{disk}/copy-{name}"]
                subprocess.run(command, check=True)
    fill()
    """
    done = run_on("xfs", _LOG + dedent(copy) + _THEN, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("goes on")


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_disk_that_fails_kills_nobody(kind: str, tmp_path: Path) -> None:
    down = """
    os.sync()
    fd = os.open(disk, os.O_RDONLY)
    fcntl.ioctl(fd, 0x8004587D, struct.pack("I", 2))  # as after an error: no more writes
    """
    done = run_on(kind, _LOG + dedent(down) + _THEN + "run.finish()\n", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("goes on")


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_disk_that_stands_still_does_not_stop_the_program(kind: str, tmp_path: Path) -> None:
    freeze = """
    fd = os.open(disk, os.O_RDONLY)
    fcntl.ioctl(fd, 0xC0045877, 0)  # FIFREEZE
    try:
        # The keeper comes to beat the heart, and is stuck; this thread counts on.
        states = lambda: [
            open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split()[0]
            for task in os.listdir("/proc/self/task")]
        until(lambda: "D" in states())
        count = sum(range(1_000_000))
    finally:
        fcntl.ioctl(fd, 0xC0045878, 0)  # FITHAW
    run.log(loss=-1.0)
    run.finish()
    print("went on", count)
    """
    done = run_on(kind, _LOG + _GUARDIAN + dedent(freeze), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "went on 499999500000\n"
    (story,) = read_stories(tmp_path / "copy")
    assert story.values("loss") == [*map(float, range(1000)), -1.0]


_LOCKED = "on ext4 a record is a store to mapped memory, which waits with Python's lock held"


@pytest.mark.parametrize(
    "kind, mapped",
    [
        ("xfs", ""),
        ("btrfs", ""),
        ("ext4", "off"),
        pytest.param("ext4", "", marks=[pytest.mark.soak, pytest.mark.xfail(reason=_LOCKED)]),
    ],
)
def test_who_records_on_a_disk_that_stands_still_waits_alone(
    kind: str, mapped: str, tmp_path: Path
) -> None:
    freeze = """
    import threading
    logged = threading.Event()
    fd = os.open(disk, os.O_RDONLY)
    fcntl.ioctl(fd, 0xC0045877, 0)  # FIFREEZE
    try:
        recording = threading.Thread(target=lambda: (run.log(loss=-1.0), logged.set()))
        recording.start()
        state = lambda: open(f"/proc/self/task/{recording.native_id}/stat").read()
        until(lambda: state().rpartition(")")[2].split()[0] == "D")
        print("went on", logged.is_set())
    finally:
        fcntl.ioctl(fd, 0xC0045878, 0)  # FITHAW
    logged.wait()
    run.finish()
    """
    done = run_on(kind, _LOG + _GUARDIAN + dedent(freeze), tmp_path, RUNWATCH_MAPPED=mapped)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "went on False\n"
    (story,) = read_stories(tmp_path / "copy")
    assert story.values("loss")[-1] == -1.0


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_without_mapped_memory_a_file_made_shorter_kills_nobody(kind: str, tmp_path: Path) -> None:
    cut = """
    with run._writer._keeping:  # the keeper does not see it first
        os.truncate(run._writer._segment.path, 0)
        run.log(loss=-1.0)
    print("goes on")
    run.finish()
    """
    done = run_on(kind, _LOG + dedent(cut), tmp_path, RUNWATCH_MAPPED="off")
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr


def test_a_file_that_somebody_makes_shorter_is_left(tmp_path: Path) -> None:
    """As soon as the keeper looks.  Who records in that moment before cannot be saved: so a program
    has several tries here, and every one of them would die if nobody looked."""
    cut = """
    with run._writer._keeping:  # not while the keeper is at it
        os.truncate(run._writer._segment.path, 0)
    """
    for turn in range(5):
        place = tmp_path / str(turn)
        place.mkdir()
        done = run_on("ext4", _LOG + dedent(cut) + _THEN + "run.finish()\n", place)
        if done.returncode == 0:
            break
    assert (done.returncode, done.stderr) == (0, "")
    (story,) = read_stories(place / "copy")
    assert len(story.values("loss")) == 4000
    assert story.bodies("journal_loss")[-1]["dropped_records"] >= 1000
