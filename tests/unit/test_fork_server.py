"""A command that the fork server starts is the one that `subprocess` would have started."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from runwatch.testing import until
from tests import fork_server
from tests.sampling import sampled

RUNWATCH = [sys.executable, "-m", "runwatch"]
Popen = Callable[..., subprocess.Popen[Any]]
(COLD,) = fork_server.Popen.__bases__


@pytest.fixture
def forked() -> Popen:
    if not issubclass(subprocess.Popen, fork_server.Popen):
        pytest.skip("COLD_START is set: no command is forked")
    return subprocess.Popen


@pytest.fixture(params=["forked", "cold"])
def popen(request: pytest.FixtureRequest, forked: Popen) -> Popen:
    return forked if request.param == "forked" else COLD


def status(popen: Popen, directory: Path, *words: str, **options: Any) -> tuple[int, bytes, bytes]:
    options = {"cwd": directory, "env": os.environ | {"RUNWATCH_DIR": str(directory)}} | options
    pipe = subprocess.PIPE
    with popen([*RUNWATCH, *words], stdin=pipe, stdout=pipe, stderr=pipe, **options) as process:
        out, err = process.communicate(b"", timeout=60)
    return process.returncode, out, err


SCRIPT = str(Path(sys.executable).with_name("runwatch"))


@pytest.mark.parametrize("command", [RUNWATCH, [SCRIPT], ["runwatch"]], ids=" ".join)
def test_commands_are_forked_and_others_are_not(command: list[str], forked: Popen) -> None:
    path = f"{Path(SCRIPT).parent}{os.pathsep}{os.environ['PATH']}"
    with forked(
        [*command, "--version"], stdout=subprocess.DEVNULL, env=os.environ | {"PATH": path}
    ) as process:
        assert isinstance(process, fork_server.Popen) and process._status is not None
    with forked([sys.executable, "-c", ""]) as process:
        assert isinstance(process, fork_server.Popen) and process._status is None


@pytest.mark.parametrize(
    "words",
    sampled(
        [
            ["runs"],
            ["show", "nothing"],
            ["--version"],
            ["runs", "--json"],
            ["no-command"],
            ["show"],
        ],
        2,
    ),
    ids=" ".join,
)
def test_output_and_exit_code_are_those_of_a_cold_start(
    words: list[str], forked: Popen, tmp_path: Path
) -> None:
    cold = status(COLD, tmp_path, *words)
    assert status(forked, tmp_path, *words) == cold


@pytest.mark.parametrize(
    "options",
    [
        {"preexec_fn": lambda: None},
        {"shell": True},
        {"umask": 0o27},
        {"env": {**os.environ, "PYTHONHASHSEED": "7"}},
        {"env": {**os.environ, "LD_PRELOAD": ""}},
        {"executable": "/bin/true"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_a_fork_cannot_reproduce_starts_as_usual(
    options: dict[str, Any], forked: Popen
) -> None:
    with forked([*RUNWATCH, "--version"], stdout=subprocess.DEVNULL, **options) as process:
        assert isinstance(process, fork_server.Popen) and process._status is None


@pytest.mark.parametrize("change", ["limit", "signal mask", "ignored signal"])
def test_a_process_whose_starter_has_changed_starts_as_usual(change: str, forked: Popen) -> None:
    """A process inherits these from the thread that starts it; a forked one would not."""
    with contextlib.ExitStack() as undo:
        if change == "limit":
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
            undo.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        elif change == "signal mask":
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
            undo.callback(signal.pthread_sigmask, signal.SIG_UNBLOCK, [signal.SIGUSR1])
        else:
            undo.callback(signal.signal, signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        with forked([*RUNWATCH, "--version"], stdout=subprocess.DEVNULL) as process:
            assert isinstance(process, fork_server.Popen) and process._status is None


def test_process_has_its_own_command_line_environment_directory_and_streams(
    popen: Popen, tmp_path: Path
) -> None:
    words = [*RUNWATCH, "ui", str(tmp_path), "--port", "0"]
    environment = os.environ | {"OF_ITS_OWN": "yes"}
    mask = os.umask(0o27)
    try:
        process = popen(
            words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    finally:
        os.umask(mask)
    try:
        assert process.stdout is not None
        assert b"http://" in process.stdout.readline()
        about = Path(f"/proc/{process.pid}")
        assert (about / "cmdline").read_bytes().split(b"\0")[:-1] == list(map(os.fsencode, words))
        assert b"\0OF_ITS_OWN=yes\0" in b"\0" + (about / "environ").read_bytes()
        assert "Umask:\t0027" in (about / "status").read_text()
        assert os.readlink(about / "cwd") == str(tmp_path)
        assert os.getsid(process.pid) == process.pid
        held = {os.readlink(each) for each in (about / "fd").iterdir()}
        assert not [each for each in held if "/pytest-capture" in each]
        assert process.poll() is None
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_killed_process_has_the_signal_as_its_exit_code(popen: Popen, tmp_path: Path) -> None:
    process = popen(
        [*RUNWATCH, "ui", str(tmp_path), "--port", "0"],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None and process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not Path(f"/proc/{process.pid}").exists()


def test_several_threads_start_and_wait(forked: Popen, tmp_path: Path) -> None:
    codes: list[int] = []

    def start() -> None:
        codes.append(status(forked, tmp_path, "show", "nothing")[0])

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [1] * 8


def test_server_ends_with_its_tests(tmp_path: Path) -> None:
    """Also when they are killed."""
    program = (
        "import os, subprocess, sys, time\n"
        "from tests import fork_server\n"
        "with fork_server.install():\n"
        "    subprocess.run([sys.executable, '-m', 'runwatch', '--version'])\n"
        "    print(fork_server.Popen.servers._servers['head'][0].pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != fork_server.COLD_START}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=fork_server.ROOT,
        env=environment,
        stdout=subprocess.PIPE,
    ) as tests:
        assert tests.stdout is not None
        tests.stdout.readline()
        server = int(tests.stdout.readline())
        tests.kill()
    until(lambda: not Path(f"/proc/{server}").exists(), what="the end of the server")


def test_console_script_does_what_its_cold_start_does(forked: Popen, tmp_path: Path) -> None:
    ends = []
    for popen in (forked, COLD):
        command, pipe = [SCRIPT, "show", "nothing", "--dir", str(tmp_path)], subprocess.PIPE
        assert popen is not None
        with popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            ends.append((*process.communicate(timeout=60), process.returncode))
    assert ends[0] == ends[1]


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize(
    "end", sampled(["raise ValueError(torch.ones(1))", "pass", "sys.exit('no')"], 1)
)
def test_program_that_asks_for_it_is_forked_with_torch(
    end: str, forked: Popen, tmp_path: Path
) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "import os, sys, torch\n"
        "print(__name__, __file__, sys.argv, sys.path[0], sys.modules['__main__'].sys is sys)\n"
        "print(os.environ.get('WARM_START'))\n"
        f"{end}\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ends = []
    for more, is_forked in (({}, False), ({fork_server.WARM_START: "torch"}, True)):
        command = [sys.executable, str(file), "word"]
        pipe = subprocess.PIPE
        with forked(command, env=environment | more, stdout=pipe, stderr=pipe) as process:
            assert isinstance(process, fork_server.Popen)
            assert (process._status is not None) == is_forked
            ends.append((*process.communicate(timeout=60), process.returncode))
    cold, warm = ends
    assert cold == warm
