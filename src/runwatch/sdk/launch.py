"""Starting the node's agent, from the keeper's thread and never waiting for it.

Every run asks for an agent; the agent itself sees to it that one runs per node and user, and
detaches, so what we start is a short-lived parent.  `posix_spawn` rather than `subprocess`: a
thread that is in the middle of an import when the program forks leaves the child a lock that
nobody will ever release.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from runwatch.sdk.guard import tally

_OPEN: Final = os.POSIX_SPAWN_OPEN
_APPEND: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_started: set[int] = set()


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    return environment.get("RUNWATCH_AGENT", "").strip().lower() not in ("off", "0", "no", "false")


def start_agent(
    root: Path,
    host: str,
    *,
    environment: Mapping[str, str] = os.environ,
    executable: str = sys.executable,
) -> None:
    safe = "".join(c if c.isalnum() or c in "-." else "-" for c in host)[:64] or "host"
    log = root / "agent" / f"{safe}.log"
    # -P: what lies in the directory that the program runs in is not for the agent to import.
    command = [executable, "-P", "-m", "runwatch.agent", "--detach", "--dir", str(root)]
    command += ["--asked", str(time.time_ns())]
    try:
        log.parent.mkdir(mode=0o700, exist_ok=True)
        pid = os.posix_spawn(
            executable,
            command,
            _environment(environment),
            file_actions=[
                (_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (_OPEN, 1, str(log), _APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                *((os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable()),
            ],
            setsid=True,
        )
    except OSError as error:
        tally.count("agent", f"no agent was started: {error}")
        return
    _started.add(pid)


def reap() -> None:
    """Collect what has ended, so that no zombie stays."""
    for pid in list(_started):
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # the program waits for all its children, ours among them
            _started.discard(pid)
            continue
        if ended:
            _started.discard(pid)
            if status:
                code = os.waitstatus_to_exitcode(status)
                tally.count("agent", f"the agent did not start (exit code {code})")


def forget() -> None:
    """In a forked child: they are not ours."""
    _started.clear()


def _inheritable() -> Iterator[int]:
    with suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if int(name) > 2 and os.get_inheritable(int(name)):
                    yield int(name)


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Ours, with an import path that finds this package from anywhere."""
    paths = [os.path.abspath(p) for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    package = Path(__file__).resolve().parents[2]
    if package.name not in ("site-packages", "dist-packages") and str(package) not in paths:
        paths.append(str(package))
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)} if paths else {**environment}
