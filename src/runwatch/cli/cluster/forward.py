"""Holds a port of 127.0.0.1 open to a Service, by `kubectl port-forward`, for as long as a command
runs.

The forward is a process group of its own: Ctrl-C is for the command, which may still ask.  It ends
with us, whatever ends us: by `finally`, by our handler of SIGTERM and SIGHUP, and, where the system
can promise it (Linux), with the death of its parent.
"""

from __future__ import annotations

import ctypes
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from runwatch.cli.cluster.kubectl import Kubectl, NoCluster, refused
from runwatch.cli.cluster.release import COMPONENT, Release

READY_SECONDS: Final = 30.0
POD_SECONDS: Final = 5.0
"""So long a head that just starts may take to run; kubectl itself would be silent for a minute."""
_NO_POD: Final = ("pod is not running", "timed out waiting for the condition")
END_SECONDS: Final = 3.0
_SET_PDEATHSIG: Final = 1
_READY: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ->")


class Forward:
    """`with forwarded(kubectl, release) as forward: ask(forward.port)`."""

    def __init__(self, process: subprocess.Popen[str], port: int, lines: Lines) -> None:
        self._process = process
        self._lines = lines
        self.port = port

    @property
    def last_words(self) -> str:
        return self._lines.last

    def wait(self) -> None:
        """Until it ends by itself, as when the head's pod goes."""
        self._process.wait()

    @property
    def is_up(self) -> bool:
        return self._process.poll() is None


@contextmanager
def forwarded(kubectl: Kubectl, release: Release, port: int = 0) -> Iterator[Forward]:
    """`port`: of 127.0.0.1; 0: a free one."""
    words = (
        "port-forward", "--namespace", release.namespace, "--address", "127.0.0.1",
        f"--pod-running-timeout={POD_SECONDS:g}s",
        f"service/{release.service}", f"{port or ''}:{release.port}",
    )  # fmt: skip
    with _signals_raise():
        process = subprocess.Popen(
            kubectl.command(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
            preexec_fn=dying_with_parent(),
        )
        with process:
            lines = Lines(process)
            try:
                yield Forward(process, _ready(lines, words, release), lines)
            finally:
                _end(process)
                lines.join(END_SECONDS)


def dying_with_parent() -> Callable[[], object] | None:
    """For `preexec_fn`: the kernel ends the process if we are killed.  None where none can."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class Lines(threading.Thread):
    """Reads what it prints, which is a line for each connection: a full pipe would stop it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__(name="kubectl port-forward", daemon=True)
        assert process.stdout is not None
        self._pipe = process.stdout
        self.first: queue.SimpleQueue[str] = queue.SimpleQueue()
        """Until it is ready; "" is the end."""
        self._is_ready = False
        self.last = ""
        self.start()

    def run(self) -> None:
        for line in self._pipe:
            if not line.startswith("Handling connection"):
                self.last = line.strip() or self.last
            if not self._is_ready:
                self._is_ready = bool(_READY.search(line))
                self.first.put(line)
        if not self._is_ready:
            self.first.put("")


def _ready(lines: Lines, words: tuple[str, ...], release: Release) -> int:
    """The port, once it says so."""
    deadline = time.monotonic() + READY_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        try:
            line = lines.first.get(timeout=left)
        except queue.Empty:
            break
        if found := _READY.search(line):
            return int(found[1])
        if not line:
            if any(mark in lines.last for mark in _NO_POD):
                raise NoCluster(_no_pod(release, lines.last))
            raise refused(lines.last, words)
    raise NoCluster(
        f"kubectl {' '.join(words)} was not ready within {READY_SECONDS:g} s; does the head run? "
        "(`runwatch status --cluster`)"
    )


def _no_pod(release: Release, said: str) -> str:
    return (
        f"the head {release.namespace}/{release.service} does not run ({said}): `kubectl describe "
        f"pods -n {release.namespace} -l {COMPONENT}` says why"
    )


def _end(process: subprocess.Popen[str]) -> None:
    """Asks it to end, and after a while does not ask any more."""
    for number, seconds in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


@contextmanager
def _signals_raise() -> Iterator[None]:
    """A `kill` or a closed terminal ends us by an exception, so that the forward ends, too."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, leave) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
