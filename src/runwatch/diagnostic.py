"""`diagnose`: stacks of all threads when a program hangs or dies of a fault.

    stacks = StackTraceConfig(collect_stack_trace=True)
    with runwatch.diagnose(DiagnosticConfig(DebugConfig(stacks))):
        train()

Inside the block a fault (SEGV, FPE, ABRT, BUS, ILL) leaves the stacks of all threads, and so does
every interval that passes, also while the main thread is stuck in native code.  SIGUSR1 leaves
that of the thread that gets it, the main one.  They go to standard error, or with
`stack_trace_to_cloud` to a file of this process's own in /tmp/debugging ($RUNWATCH_STACKS_DIR).
If a run is going on, its agent stores them; those of a fault that went to standard error, if a
file is behind it.

Nothing here raises into the block, ends the program or keeps it from leaving.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from runwatch.capture import watchdog
from runwatch.capture.dump_file import About, Console, DumpFile, Target, console_fd, heading
from runwatch.clock import system_clock
from runwatch.configuration.debug_configuration import DebugConfig
from runwatch.configuration.diagnostic_configuration import DiagnosticConfig
from runwatch.configuration.stack_trace_configuration import (
    STACK_TRACE_DIR_DEFAULT,
    STACK_TRACE_INTERVAL_SECONDS_DEFAULT,
)
from runwatch.journal.liveness import this_host
from runwatch.record import NO_STEP
from runwatch.sdk.front import current_run
from runwatch.sdk.guard import attempt, guarded, tally, text_of
from runwatch.sdk.identity import identify

__all__ = ["ask_main_thread", "diagnose", "is_collecting", "start", "stop"]

FORKED_SECONDS: Final = 1.0
logger = logging.getLogger("runwatch")
_started: Final[list[watchdog.Watch]] = []
_asking: Final = threading.RLock()


@contextmanager
def diagnose(config: DiagnosticConfig | None = None) -> Iterator[None]:
    """Collect stacks while the block runs, as `config` says; without one, nothing."""
    watch = _watch(_stack_trace_config(getattr(config, "debug_config", None)))
    try:
        yield
    finally:
        _stop(watch)


def start(config: DebugConfig | None) -> None:
    """For programs that have no block to put around: as on entering one."""
    watch = _watch(_stack_trace_config(config))
    if watch is not None:
        _started.append(watch)


def stop(config: DebugConfig | None) -> None:
    """As on leaving the block that `start` entered last with such a config."""
    if _started and _stack_trace_config(config) is not None:
        # Not while somebody asks.  In a forked child that one is not there to let go of it.
        held = _asking.acquire(timeout=FORKED_SECONDS)
        try:
            _stop(_started.pop())
        finally:
            if held:
                _asking.release()


def is_collecting() -> bool:
    """Whether `start` was called, and `stop` was not."""
    return bool(_started)


def ask_main_thread() -> bool:
    """Have it leave its stack, by SIGUSR1; False when nobody collects: it would kill."""
    with _asking:
        if not _started:
            return False
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        return True


@guarded("stop collecting stacks")
def _stop(watch: watchdog.Watch | None) -> None:
    if watch is not None:
        watch.stop()


def _stack_trace_config(config: object) -> object:
    """Anything with the attribute will do: programs may hold another package's configuration."""
    found: object = getattr(config, "stack_trace_config", None)
    return found if getattr(found, "collect_stack_trace", False) else None


def _watch(config: object) -> watchdog.Watch | None:
    if config is None:
        return None
    return attempt("collect stacks", None, lambda: _begin(config))


def _begin(config: Any) -> watchdog.Watch | None:
    target = _target(bool(getattr(config, "stack_trace_to_cloud", False)))
    if target is None:
        return None
    interval = _interval(getattr(config, "stack_trace_interval_seconds", None))
    watch = watchdog.Watch(target, interval, _about, problem=_say)
    watch.start()
    return watch


def _interval(value: object) -> float:
    if isinstance(value, (int, float)) and math.isfinite(value) and value > 0:
        return float(value)
    default = STACK_TRACE_INTERVAL_SECONDS_DEFAULT
    _say(
        "stack trace interval",
        f"stack_trace_interval_seconds is {text_of(value)}, no number of seconds: using {default}",
    )
    return default


def _target(to_file: bool) -> Target | None:
    if not to_file:
        fd = console_fd(sys.stderr)
        if fd is not None:
            return Console(fd, heading("opened", _about().pairs(), system_clock.wall_ns()))
    file = _file()
    if file is not None and not to_file:
        _say("no console", f"sys.stderr has no file behind it: stacks go to {file.path}")
    return file


def _file() -> DumpFile | None:
    """In the usual place, else beside the journal, else nowhere; said once."""
    about = _about()
    wanted = Path(os.environ.get("RUNWATCH_STACKS_DIR") or STACK_TRACE_DIR_DEFAULT)
    problems = []
    for directory in (wanted, about.journal):
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


@guarded("say so")
def _say(what: str, message: str) -> None:
    """Once.  A log that fails for want of a console is no reason to go without stacks."""
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
