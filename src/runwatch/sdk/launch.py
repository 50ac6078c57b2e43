"""Starting the node's agent, from the keeper's thread and never waiting for it.

Every run asks for an agent; the agent itself sees to it that one runs per node and user, and
detaches, so what we start is a short-lived parent.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from runwatch.sdk.guard import tally

_started: list[subprocess.Popen[bytes]] = []


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    return environment.get("RUNWATCH_AGENT", "").strip().lower() not in ("off", "0", "no", "false")


def start_agent(root: Path, host: str, environment: Mapping[str, str] = os.environ) -> None:
    if not sys.executable:
        tally.count("agent", "no agent was started: sys.executable is not known")
        return
    try:
        folder = root / "agent"
        folder.mkdir(mode=0o700, exist_ok=True)
        safe = "".join(c if c.isalnum() or c in "-." else "-" for c in host)[:64] or "host"
        with (folder / f"{safe}.log").open("ab") as log:
            command = [sys.executable, "-m", "runwatch.agent", "--detach", "--dir", str(root)]
            _started.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=_environment(environment),
                    start_new_session=True,
                    close_fds=True,
                )
            )
    except OSError as error:
        tally.count("agent", f"no agent was started: {error}")


def reap() -> None:
    """Collect what has ended, so that no zombie stays."""
    for process in _started.copy():
        if process.poll() is None:
            continue
        _started.remove(process)
        if process.returncode:
            tally.count("agent", f"the agent did not start (exit code {process.returncode})")


def forget() -> None:
    """In a forked child: they are not ours."""
    for process in _started:
        process.returncode = 0
    _started.clear()


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Ours, with an import path that still holds in another directory."""
    paths = [os.path.abspath(p) for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    package = Path(__file__).resolve().parents[2]
    if package.name not in ("site-packages", "dist-packages") and str(package) not in paths:
        paths.append(str(package))
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)} if paths else {**environment}
