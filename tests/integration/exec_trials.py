"""Commands run with and without `runwatch exec`, and what both gave."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from runwatch.record.console import Console
from runwatch.testing import Story, read_stories
from tests.integration.sdk_programs import program_environment

EXEC: Final = [sys.executable, "-m", "runwatch.cli", "exec"]
SECONDS: Final = 60.0


class Outcome(NamedTuple):
    out: bytes
    err: bytes
    code: int


QUIET: Final = {"RUNWATCH_QUIET": "1"}
NOTHING: Final[Mapping[str, str]] = {}


def environment(directory: Path, more: Mapping[str, str] = NOTHING) -> dict[str, str]:
    made = program_environment(directory)
    made.pop("PYTHONUNBUFFERED", None)
    return {**made, **more}


def run(
    command: Sequence[str],
    directory: Path,
    *,
    given: bytes = b"",
    more: Mapping[str, str] = NOTHING,
) -> Outcome:
    done = subprocess.run(
        command,
        input=given,
        capture_output=True,
        env=environment(directory, more),
        timeout=SECONDS,
    )
    return Outcome(done.stdout, done.stderr, done.returncode)


def under(command: Sequence[str], *options: str) -> list[str]:
    return [*EXEC, *options, "--", *command]


def both(
    command: Sequence[str],
    directory: Path,
    *options: str,
    given: bytes = b"",
    more: Mapping[str, str] = NOTHING,
) -> tuple[Outcome, Outcome]:
    """Without us, and with us."""
    without = run(command, directory, given=given, more=more)
    return without, run(under(command, *options), directory, given=given, more=more)


def launcher(directory: Path) -> Story:
    """What the one wrapper recorded."""
    (story,) = (each for each in read_stories(directory) if each.origin.role == "launcher")
    return story


def lines(story: Story, run: str = "", rank: int | None = None) -> list[tuple[str, str]]:
    """(Stream, line) of what the command wrote, in a run and by a rank, if these are given."""
    scopes = {scope.id: scope for scope in story.scopes}
    found: list[tuple[str, str]] = []
    for event in story.events:
        scope = scopes.get(event.scope)
        if event.kind != Console.KIND or scope is None:
            continue
        if (run and scope.run != run) or (rank is not None and scope.rank != rank):
            continue
        console = Console.of(event.body)
        found += [(console.stream, line) for line in console.lines]
    return found


# ── on a terminal ──────────────────────────────────────────────────────────────────────────────

Act = str | Callable[[int], None]


def on_terminal(
    command: Sequence[str],
    directory: Path,
    script: Sequence[tuple[str, Act]] = (),
    more: Mapping[str, str] = QUIET,
) -> tuple[bytes, int]:
    """What a terminal of 30 × 90 shows, and the wait status.  For each pair of the script, wait for
    the words and then type, or do, the other."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            # A shell's background jobs ignore the first two, and `nohup` the third.
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            resize(0, 30, 90)
            os.execvpe(command[0], list(command), environment(directory, {"TERM": "xterm", **more}))
        finally:
            os._exit(126)
    try:
        shown = _talk(terminal, list(script))
        return shown, os.waitpid(pid, 0)[1]
    finally:
        with suppress(OSError):
            os.close(terminal)


def _talk(terminal: int, script: list[tuple[str, Act]]) -> bytes:
    shown, seen = b"", 0
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                piece = os.read(terminal, 1 << 16)
            except OSError:  # nobody has it open any more
                piece = b""
            if not piece:
                assert not script, (script, shown)
                return shown
            shown += piece
        if script and (at := shown.find(script[0][0].encode(), seen)) >= 0:
            words, act = script.pop(0)
            seen = at + len(words)
            if callable(act):
                act(terminal)
            else:
                os.write(terminal, act.encode())
    raise AssertionError(f"not within {SECONDS} s: {script} {shown!r}")


def hang_up(terminal: int) -> None:
    """Takes the terminal away from those who have it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, terminal)
    os.close(nothing)


def resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
