"""Starts the node's agent, and starts it again when there is none.

Every run asks for an agent; the agent itself makes sure that only one runs per node and user.  It
must not be a child of the program: `os.wait` would return it.  So a shell starts it in the
background and ends at once, and we collect the shell before `init` returns.  Where there is no
shell, the agent detaches itself, and is collected later.

We use `posix_spawn` and not `subprocess`: if another thread is in the middle of an import when the
program forks, the child would inherit an import lock that nobody ever releases.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.journal import agents
from runwatch.sdk.guard import tally
from runwatch.sdk.launched import ADDRESS, RANK_OF_WRAPPER
from runwatch.sdk.switches import is_off

LOOK_SECONDS: Final = 10.0
LATER_SECONDS: Final = 30.0
"""How long a process that is not the first of its node leaves this to the first one."""
LONGEST_PAUSE_SECONDS: Final = 600.0
SHELL: Final = "/bin/sh"
_SHELL_SECONDS: Final = 0.5
_OPEN: Final = os.POSIX_SPAWN_OPEN
_BOOT: Final = str(Path(__file__).resolve().parent / "boot")
_OF_COMMAND: Final = (ADDRESS, RANK_OF_WRAPPER, "RUNWATCH_AUTO", "RUNWATCH_ATTEMPT")
_started: set[int] = set()
_asked: dict[Path, tuple[float, int]] = {}
"""When we last started an agent for this directory, by the monotonic and by the wall clock."""


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    return not is_off("RUNWATCH_AGENT", environment)


class Caretaker:
    """Checks now and then whether there is an agent, and starts one.  Waits longer after each start
    that did not help."""

    def __init__(self, root: Path, host: str, *, first: bool, clock: Clock = system_clock) -> None:
        self._root, self._host, self._clock = root, host, clock
        self._since_ns = time.time_ns()
        self._pause = LOOK_SECONDS
        self._next_ns = 0 if first else clock.mono_ns() + int(LATER_SECONDS * 1e9)

    def look(self) -> None:
        reap()
        now = self._clock.mono_ns()
        if now < self._next_ns:
            return
        if has_agent(self._root, self._host):
            self._pause = LOOK_SECONDS
        elif agents.ended_ns(self._root, self._host) <= self._since_ns:
            start_agent(self._root, self._host)
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self._next_ns = now + int(self._pause * 1e9)


def has_agent(root: Path, host: str) -> bool:
    """Whether a process holds the agent's lock; True if we cannot tell."""
    return agents.is_held(root, agents.lock_name(host)) is not False


def start_agent(
    root: Path,
    host: str,
    *,
    environment: Mapping[str, str] = os.environ,
    executable: str = sys.executable,
    shell: str = SHELL,
) -> None:
    safe = "".join(c if c.isalnum() or c in "-." else "-" for c in host)[:64] or "host"
    # -P: the agent must not import from the program's working directory.
    command = [executable, "-P", "-m", "runwatch.agent", "--dir", str(root)]
    asked_ns = time.time_ns()
    command += ["--asked", str(asked_ns)]
    try:
        if not os.access(executable, os.X_OK):
            raise FileNotFoundError(f"cannot run {executable}")
        log = agents.open_log(root, f"{safe}.log")
        try:
            if os.access(shell, os.X_OK):
                pid = _spawn([shell, "-c", '"$@" &', "sh", *command], log, environment)
            else:
                pid = _spawn([*command, "--detach"], log, environment)
                shell = ""
        finally:
            os.close(log)
    except OSError as error:
        tally.count("agent", f"cannot start the agent: {error}")
        return
    _started.add(pid)
    _asked[root] = time.monotonic(), asked_ns
    if shell:
        _collect(pid)


def _spawn(command: list[str], log: int, environment: Mapping[str, str]) -> int:
    return os.posix_spawn(
        command[0],
        command,
        _environment(environment),
        file_actions=[
            (_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable()),
        ],
        setsid=True,
        setsigmask=(),  # ours may be blocked, and the agent is told by signals to end
    )


def _collect(pid: int) -> None:
    """Wait for the shell, which only starts the agent: a millisecond or two."""
    deadline = time.monotonic() + _SHELL_SECONDS
    while pid in _started and time.monotonic() < deadline:
        reap()
        if pid in _started:
            time.sleep(0.0002)


def reap() -> None:
    """Collect children that have ended, so that no zombie stays."""
    for pid in list(_started):
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # the program waits for all children, ours included
            _started.discard(pid)
            continue
        if ended:
            _started.discard(pid)
            if status:
                code = os.waitstatus_to_exitcode(status)
                tally.count("agent", f"the agent did not start (exit code {code})")


def forget() -> None:
    """In a forked child: the parent's children are not ours."""
    _started.clear()
    _asked.clear()


def is_on_its_way(root: Path, host: str) -> bool:
    """Whether we have started an agent that has not taken the lock yet."""
    asked_seconds, asked_ns = _asked.get(root, (-LOOK_SECONDS, 0))
    return time.monotonic() < asked_seconds + LOOK_SECONDS and not agents.came_since(
        root, host, asked_ns
    )


def _inheritable() -> Iterator[int]:
    with suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if int(name) > 2 and os.get_inheritable(int(name)):
                    yield int(name)


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Our environment, with an import path that finds this package from anywhere.

    An agent is no part of the command that `runwatch exec` runs, though a process of it may start
    one: nothing of it is hooked or relayed.
    """
    environment = {key: value for key, value in environment.items() if key not in _OF_COMMAND}
    paths = [os.path.abspath(p) for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    paths = [path for path in paths if path != _BOOT]
    package = Path(__file__).resolve().parents[2]
    if package.name not in ("site-packages", "dist-packages") and str(package) not in paths:
        paths.append(str(package))
    if paths:
        return {**environment, "PYTHONPATH": os.pathsep.join(paths)}
    return {key: value for key, value in environment.items() if key != "PYTHONPATH"}
