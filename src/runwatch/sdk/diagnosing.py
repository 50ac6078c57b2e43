"""`diagnose`: collects the stacks of all threads when a program hangs or dies of a fault.

    with runwatch.diagnose(interval_seconds=600):
        train()

Inside the block, a fault (SEGV, FPE, ABRT, BUS, ILL) writes the stacks of all threads, and so does
every interval that passes, even while the main thread is stuck in native code.  SIGUSR1 writes the
stack of the thread that gets it, the main one.  The stacks go to standard error or, with `to_file`,
to a file of this process in /tmp/debugging ($RUNWATCH_STACKS_DIR).  If a run is going on, its agent
stores them; of a fault's stacks on standard error, only if standard error is a file.

Nothing here raises into the block, ends the program or delays its end.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from runwatch.capture import watchdog
from runwatch.capture.dump_file import About, Console, DumpFile, Target, console_fd, heading
from runwatch.clock import system_clock
from runwatch.journal.liveness import this_host
from runwatch.record import NO_STEP
from runwatch.sdk.front import current_run
from runwatch.sdk.guard import attempt, guarded, tally, text_of
from runwatch.sdk.identity import identify

__all__ = ["diagnose"]

INTERVAL_SECONDS: Final = 600
DIRECTORY: Final = "/tmp/debugging/"
logger = logging.getLogger("runwatch")


@contextmanager
def diagnose(
    *, interval_seconds: float = INTERVAL_SECONDS, to_file: bool = False
) -> Iterator[None]:
    """Collect stacks of all threads while the block runs: on a fault, and at every interval."""
    watch = begin(interval_seconds, to_file=to_file)
    try:
        yield
    finally:
        end(watch)


def begin(
    interval_seconds: object, *, to_file: object, line: Callable[[object], str] | None = None
) -> watchdog.Watch | None:
    """Collect stacks until `end`; None, and one warning, if that is not possible.

    `line(interval)`: what is said before each periodic dump, in a drop-in's words.
    """
    return attempt("collect stacks", None, lambda: _begin(interval_seconds, bool(to_file), line))


@guarded("stop collecting stacks")
def end(watch: watchdog.Watch | None) -> None:
    if watch is not None:
        watch.stop()


def _begin(
    interval_seconds: object, to_file: bool, line: Callable[[object], str] | None
) -> watchdog.Watch | None:
    target = _target(to_file)
    if target is None:
        return None
    seconds = _interval(interval_seconds)
    said = line(interval_seconds if seconds == interval_seconds else seconds) if line else ""
    watch = watchdog.Watch(target, seconds, _about, line=said, problem=_say)
    watch.start()
    return watch


def _interval(value: object) -> float:
    if isinstance(value, (int, float)) and math.isfinite(value) and value > 0:
        return float(value)
    _say(
        "stack interval",
        f"interval {text_of(value)} is not a number of seconds above 0: using {INTERVAL_SECONDS}",
    )
    return INTERVAL_SECONDS


def _target(to_file: bool) -> Target | None:
    if not to_file:
        fd = console_fd(sys.stderr)
        if fd is not None:
            return Console(fd, heading("opened", _about().pairs(), system_clock.wall_ns()))
    file = _file()
    if file is not None and not to_file:
        _say("no console", f"sys.stderr has no file descriptor: stacks go to {file.path}")
    return file


def _file() -> DumpFile | None:
    """In the usual directory, else beside the journal, else None.  A move is reported once."""
    about = _about()
    configured = Path(os.environ.get("RUNWATCH_STACKS_DIR") or DIRECTORY)
    problems = []
    for directory in (configured, about.journal):
        if directory is None:
            continue
        try:
            file = _file_in(directory, about)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            problems.append(f"{directory}: {error}")
            continue
        if problems:
            _say("stacks moved", f"{problems[0]}; stacks go to {file.path}")
        logger.info("stacks of all threads will be written to %s", file.path)
        return file
    _say("no stacks", f"no stacks will be collected: {'; '.join(problems)}")
    return None


def _file_in(directory: Path, about: About) -> DumpFile:
    now = system_clock.wall_ns()
    return watchdog.file_in(directory, lambda: DumpFile.create(directory, about, now))


@guarded("report it")
def _say(what: str, message: str) -> None:
    """Warn once.  A log that fails because there is no console must not cost us the stacks."""
    tally.count(what, message)


def _about() -> About:
    nothing = About("host", 0, os.getpid())
    return attempt("describe the process", nothing, _describe)


def _describe() -> About:
    host, pid = this_host(), os.getpid()
    run = current_run()
    if run is None:
        return About(host, identify("run").rank, pid)
    writer, step = run._writer, run._step
    return About(
        host,
        run.rank,
        pid,
        run.id,
        None if step == NO_STEP else step,
        None if writer is None else writer.directory,
    )
