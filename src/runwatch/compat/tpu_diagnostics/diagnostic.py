"""`diagnose`, with the original's configuration objects.

    stacks = StackTraceConfig(collect_stack_trace=True)
    with diagnose(DiagnosticConfig(DebugConfig(stacks))):
        train()

`stack_trace_to_cloud` means a file of this process's own; otherwise stacks go to standard error.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from runwatch.capture.watchdog import Watch
from runwatch.compat.tpu_diagnostics.configuration.debug_configuration import DebugConfig
from runwatch.compat.tpu_diagnostics.configuration.diagnostic_configuration import DiagnosticConfig
from runwatch.sdk import diagnosing
from runwatch.sdk.guard import attempt

__all__ = [
    "ask_main_thread",
    "diagnose",
    "is_collecting",
    "is_handled",
    "not_a_crash",
    "start",
    "stop",
]

FORKED_SECONDS: Final = 1.0
_started: Final[list[Watch]] = []
_asking: Final = threading.RLock()


def not_a_crash(interval_seconds: object) -> str:
    """The original's line before a periodic dump, which logs are searched for."""
    return (
        "INFO: Not a crash. cloud-tpu-diagnostics emits a stack trace snapshot every"
        f" {interval_seconds} seconds.\n"
    )


@contextmanager
def diagnose(config: DiagnosticConfig | None = None) -> Iterator[None]:
    """Collect stacks while the block runs, as `config` says; without a config, do nothing."""
    watch = _watch(_stack_trace_config(getattr(config, "debug_config", None)))
    try:
        yield
    finally:
        diagnosing.end(watch)


def start(config: DebugConfig | None) -> None:
    """For programs that have no block to put around: as on entering one."""
    watch = _watch(_stack_trace_config(config))
    if watch is not None:
        _started.append(watch)


def stop(config: DebugConfig | None) -> None:
    """As on leaving the block that `start` entered last with such a config."""
    if _started and _stack_trace_config(config) is not None:
        # Not while a thread sends the signal.  In a forked child that thread does not exist, and
        # never releases the lock: hence the timeout.
        held = _asking.acquire(timeout=FORKED_SECONDS)
        try:
            diagnosing.end(_started.pop())
        finally:
            if held:
                _asking.release()


def is_collecting() -> bool:
    """Whether `start` was called, and `stop` was not."""
    return bool(_started)


def is_handled() -> bool:
    """Whether the program itself takes SIGUSR1."""
    return callable(signal.getsignal(signal.SIGUSR1))


def ask_main_thread() -> bool:
    """Have it write its stack, by SIGUSR1, after the line.

    False where nobody handles the signal: it would kill the program.
    """
    with _asking:
        if _started:
            attempt("say that it is not a crash", None, _started[-1].announce)
        elif not is_handled():
            return False
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        return True


def _stack_trace_config(config: object) -> object:
    """Anything with the attribute will do: programs may hold another package's configuration."""
    stacks: object = getattr(config, "stack_trace_config", None)
    return stacks if getattr(stacks, "collect_stack_trace", False) else None


def _watch(config: object) -> Watch | None:
    if config is None:
        return None
    return attempt(
        "collect stacks",
        None,
        lambda: diagnosing.begin(
            getattr(config, "stack_trace_interval_seconds", None),
            to_file=getattr(config, "stack_trace_to_cloud", False),
            line=not_a_crash,
        ),
    )
