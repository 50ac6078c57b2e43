"""Small test runs that leave programs behind, or are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.testing import until
from tests.integration.file_systems import missing
from tests.integration.pods import memory
from tests.sampling import sampled

ROOT = Path(__file__).parents[2]
CONFTEST = """
pytest_plugins = ["tests.sandbox"]
def pytest_configure():
    from tests import sandbox
    sandbox.SECONDS = 0.5
"""
PROGRAMS = """
import os, signal, subprocess, sys, tempfile, time
from pathlib import Path

PLACE = Path({place!r})
WAIT = '''
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
if sys.argv[1] == "daemon" and os.fork(): os._exit(0)
open(sys.argv[2] + "/new", "w").write(str(os.getpid()))
os.rename(sys.argv[2] + "/new", sys.argv[2] + "/" + sys.argv[1])
time.sleep(600)
'''

def start(name, *before, **options):
    options |= {{"stdin": -3, "stdout": -3, "stderr": -3}}
    folder = PLACE / "pids" / str(os.getpid())
    folder.mkdir(exist_ok=True, parents=True)
    command = [*before, sys.executable, "-IS", "-c", WAIT, name, str(folder)]
    process = subprocess.Popen(command, **options)
    while not (folder / name).exists():
        assert name == "daemon" or process.poll() is None
        time.sleep(0.01)
    return process

def start_all(tmp_path):
    start("stubborn")
    start("daemon", start_new_session=True).wait()
    start("bare", env={{}}, start_new_session=True)
    if os.geteuid() == 0:
        (PLACE / "pids" / str(os.getpid())).chmod(0o777)
        start("stranger", "setpriv", "--reuid=61001", "--clear-groups", env={{}}, cwd="/")
    tempfile.mkdtemp()
    locked = tmp_path / "locked" / "folder"
    locked.mkdir(parents=True)
    locked.parent.chmod(0)
"""
INTERRUPTED = """
def test_of_one_worker(tmp_path):
    start_all(tmp_path)
    Path(PLACE, "ready-1").touch()
    time.sleep(600)
def test_of_another_worker(tmp_path):
    start_all(tmp_path)
    Path(PLACE, "ready-2").touch()
    time.sleep(600)
"""
MOUNTS = """
from tests.integration.file_systems import mount_of
from tests.integration.pods import memory
def test_mount(tmp_path):
    (tmp_path / "disk").mkdir()
    mount = mount_of("ext4", tmp_path / "disk", tmp_path / "image")
    subprocess.run(mount, shell=True, check=True)
    subprocess.run(["losetup", "--find", tmp_path / "image"], check=True)
    Path(PLACE, "group").write_text(str(memory.Group().folder))
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Other users' programs enter it."""
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_uid == os.geteuid():
            above.chmod(above.stat().st_mode | 0o111)
    (tmp_path / "tmp").mkdir()
    yield tmp_path


def run(
    place: Path,
    text: str,
    *options: str,
    program: tuple[str, ...] = ("-m", "pytest"),
    ended_by: signal.Signals | None = None,
) -> tuple[int, str]:
    """Returns the exit status and the output, which ends with pytest and with its reaper."""
    (place / "conftest.py").write_text(CONFTEST)
    (place / "pytest.ini").write_text("[pytest]\n")
    (place / "test_small.py").write_text(PROGRAMS.format(place=str(place)) + text)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    more = {"WORKERS": "0", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with subprocess.Popen(
        [sys.executable, *program, *options],
        cwd=place, env=environment | more | {"TMPDIR": str(place / "tmp")},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        if ended_by is not None:
            until(lambda: len([*place.glob("ready-*")]) == 2, 60, "the programs of both workers")
            assert len(living(place)) == (8 if os.geteuid() == 0 else 6)
            process.send_signal(ended_by)
        output, _ = process.communicate()
    return process.returncode, output


def programs(place: Path) -> list[int]:
    return [int(file.read_text()) for file in place.glob("pids/*/*")]


def living(place: Path) -> list[int]:
    return [pid for pid in programs(place) if Path(f"/proc/{pid}/exe").exists()]


@pytest.mark.parametrize(
    "number", sampled([signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP], 2)
)
def test_nothing_is_left_of_a_run_that_is_ended_by(number: signal.Signals, place: Path) -> None:
    _, output = run(place, INTERRUPTED, "-p", "xdist", "-n", "2", ended_by=number)
    assert (" processes of its tests\n" in output) == (number != signal.SIGINT), output
    assert living(place) == []
    assert list((place / "tmp").iterdir()) == []


def test_mounts_devices_and_control_groups_are_gone(place: Path) -> None:
    if why := missing("ext4") or memory.why_not():
        pytest.skip(why)
    status, output = run(place, MOUNTS, "-p", "xdist", "-n", "1")
    assert status == pytest.ExitCode.OK, output
    assert not Path((place / "group").read_text()).exists()
    for command in ("mount", "losetup"):
        assert str(place) not in subprocess.check_output(command, text=True)
    assert list((place / "tmp").iterdir()) == []


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "1")], ids=["plain", "xdist"])
def test_a_process_that_is_left_behind_fails_the_run(place: Path, options: tuple[str, ...]) -> None:
    leak = "def test_leak(): start('daemon').wait()\ndef test_fine(): pass"
    status, output = run(place, leak, *options)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert living(place) == []
    (pid,) = programs(place)
    assert f"\nleft behind: {pid} {sys.executable}" in output
    assert "\nERROR test_small.py::test_leak" in output
    assert " 2 passed, 1 error in " in output


def test_a_process_that_is_left_behind_is_not_forgiven(place: Path) -> None:
    leak = "def test_leak(): start('daemon').wait()\n"
    flaky = "def test_flaky():\n    (PLACE / 'seen').mkdir()\n    assert 0"
    run_tests = str(ROOT / "scripts" / "run_tests.py")
    status, output = run(place, leak + flaky, program=(run_tests,))
    assert status == 1
    assert "\nnot repeated: processes were left behind\n" in output


def test_the_directory_is_kept_until_the_next_failure(place: Path) -> None:
    text = "def test_red(tmp_path): (tmp_path / 'file').touch(); start('daemon').wait(); assert 0"
    kept = []
    for _ in range(2):
        _, output = run(place, text)
        (directory,) = (place / "tmp").iterdir()
        kept.append(directory)
        assert f"the files of the tests are kept in {directory}" in output
        assert list(directory.glob("t/*/file"))
        assert "left by a failed test, test_small.py::test_red: " in output
        assert " 1 failed in " in output
    assert kept[0] != kept[1]
    assert living(place) == []
