"""Every command in the README is run, in its order, as a new user would."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.agent.lock import end_agents
from runwatch.testing import until

ROOT = Path(__file__).parents[2]
SERVERS = ("runwatch ui", "runwatch head")
SLEEP = f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).with_name("patient_sleep.py")}"\n'
STOCK_SYSTEM = """
pip() {  # installs where Debian's and Ubuntu's does (PEP 668)
  python3 -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)' && return
  echo "externally-managed-environment: pip $*" >&2
  return 1
}
uv() { "$@"; }
git() { mkdir "${!#}"; }
set -e
"""
NOT_HERE = {
    "make test": "this is it",
    ". .venv/bin/activate": "the environment the tests run in is active already",
}


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    root = tmp_path_factory.mktemp("readme")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    sleep = root / "bin" / "sleep"
    sleep.parent.mkdir()
    sleep.write_text(SLEEP)
    sleep.chmod(0o755)
    path = f"{sleep.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    yield inherited | {"RUNWATCH_DIR": str(root / "runwatch"), "PATH": path, "HOME": str(root)}
    end_agents(root / "runwatch")


def install_blocks() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [block for block in blocks if "pip install" in block]


def serve(command: str, environment: dict[str, str]) -> str:
    """Start it, read its first line, press Ctrl-C."""
    with subprocess.Popen(
        command.split(), cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        first = server.stdout.readline()
        server.send_signal(signal.SIGINT)
        assert server.wait(100) in (0, 130)
        return first


def is_simple(command: str) -> bool:
    """Whether a shell would do no more than start Runwatch."""
    return re.fullmatch(r"runwatch [\w ./-]+", command) is not None


def ends_known(root: Path) -> int:
    """Of how many programs the agent has written down how they ended."""
    return len(list(root.glob("journals/*/ended.json")))


def test_the_readme_has_commands() -> None:
    assert {"make demo", "make test", "runwatch runs"} <= set(commands())


def test_install_lines_work_where_pip_refuses_the_system_python(tmp_path: Path) -> None:
    """Real shell, environments and activation; no pip, which would need an index."""
    system = tmp_path / "system"
    system.mkdir()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (system / "python3").symlink_to(Path(sys.base_prefix) / "bin" / version)
    program = tmp_path / "my-program" / ".venv"
    subprocess.run([system / "python3", "-m", "venv", "--without-pip", program], check=True)
    clone, *others = install_blocks()
    assert len(others) == 3
    script = STOCK_SYSTEM + clone + "".join(f"deactivate\n{block}" for block in others)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": f"{system}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.xdist_group("readme")
def test_every_command_works(environment: dict[str, str]) -> None:
    made = ROOT / "first-run.csv"
    made.unlink(missing_ok=True)
    root = Path(environment["RUNWATCH_DIR"])
    said: dict[str, str] = {}
    try:
        for command in commands():
            if command in NOT_HERE:
                continue
            if command.startswith(SERVERS):
                said[command] = serve(command, environment)
                continue
            done = subprocess.run(
                command.split() if is_simple(command) else ["bash", "-c", command],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            said[command] = done.stdout
            # A person takes a while to type what comes next.
            trained = sum("train.py" in each for each in said)
            trained += sum("runwatch exec" in each for each in said)  # the command, and its Python
            until(lambda wanted=trained: ends_known(root) == wanted, 30, f"the end of {command}")
        assert made.read_text().startswith("run,attempt,host,process,device,metric,step,time,value")
    finally:
        made.unlink(missing_ok=True)
    assert "killed by SIGKILL" in said["make demo"]
    assert "demo-spirals" in said["make demo"]
    assert "goodput: where the time went" in said["make demo"]
    assert "step 999" in said["runwatch show any-program"]
    assert "epoch 4: loss" in said["runwatch logs any-program"]
    assert "lost steps" in said["runwatch goodput first-run"]
    assert "attempt 2" in said["runwatch show first-run"]
    assert "killed by SIGKILL" in said["runwatch show first-run"]
    assert "http://127.0.0.1:" in said["runwatch ui --port 0"]
    assert "http://127.0.0.1:" in said["runwatch head --http-port 0 --grpc-port 0"]
    assert "agent.head" in said["runwatch config"]
