"""Notices how the program ends, without getting in its way.

An uncaught exception, in any thread, passes our hook and goes on to the hook that was there before.
At exit we run after every handler that the program registered after `init`.  Signals belong to the
user: we install no handler; the agent learns from the kernel what a signal did.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

from runwatch.record.life import RunEnd
from runwatch.sdk.console.own_frames import is_shown, leave_out
from runwatch.sdk.guard import text_of
from runwatch.sdk.values import masking
from runwatch.sdk.values.plain import MAX_TEXT, text


class EndWatch:
    def __init__(
        self,
        on_exception: Callable[[BaseException], None],
        on_exit: Callable[[BaseException | None], None],
        on_thread: Callable[[BaseException, str], None],
    ) -> None:
        """`on_thread`: an exception ended another thread than the main one, of this name."""
        self._on_exception = on_exception
        self._on_exit = on_exit
        self._on_thread = on_thread
        self._active = False
        self._hook = self._excepthook  # one object, so that `stop` can recognise it
        self._previous: Callable[..., Any] = sys.__excepthook__
        self._thread_hook = self._threads_excepthook
        self._threads_previous: Callable[..., Any] = threading.__excepthook__
        self._earlier_error = getattr(sys, "last_value", None)
        self._finalizer: Any = None

    def start(self) -> None:
        self._active = True
        self._previous = sys.excepthook
        sys.excepthook = self._hook
        self._threads_previous = threading.excepthook
        threading.excepthook = self._thread_hook
        atexit.register(self._at_exit)
        self._finalizer = when_worker_ends(self._at_worker_exit)

    def stop(self) -> None:
        """Leaves no trace, unless a later hook of the user's calls ours: then ours does nothing."""
        self._active = False
        atexit.unregister(self._at_exit)
        if sys.excepthook is self._hook:
            sys.excepthook = self._previous
        if threading.excepthook is self._thread_hook:
            threading.excepthook = self._threads_previous
        if self._finalizer is not None:
            self._finalizer.cancel()
            self._finalizer = None

    def _excepthook(
        self,
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType | None,
    ) -> None:
        if self._active and not _interactive():
            self._on_exception(error)
            leave_out(error)
            traceback = error.__traceback__
        if self._previous is not sys.__excepthook__ or not is_shown():
            self._previous(kind, error, traceback)

    def _threads_excepthook(self, args: threading.ExceptHookArgs) -> None:
        if self._active and args.exc_value is not None:
            name = args.thread.name if args.thread is not None else ""
            self._on_thread(args.exc_value, name)
            leave_out(args.exc_value)
            error = args.exc_value
            args = threading.ExceptHookArgs(
                (args.exc_type, error, error.__traceback__, args.thread)
            )
        self._threads_previous(args)

    def _at_exit(self) -> None:
        # The interpreter leaves an uncaught error here even if our hook was replaced.
        error = getattr(sys, "last_value", None)
        if error is self._earlier_error or _interactive():
            error = None
        self._on_exit(error)

    def _at_worker_exit(self) -> None:
        self._on_exit(sys.exc_info()[1])


def _interactive() -> bool:
    """At a prompt an error ends a statement, not the program."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def when_worker_ends(function: Callable[[], None]) -> Any:
    """In a multiprocessing worker, which skips atexit: call `function` at its end."""
    process: Any = sys.modules.get("multiprocessing.process")
    util: Any = sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None:
        return None
    return util.Finalize(None, function, exitpriority=-100)


def describe(error: BaseException) -> tuple[str, str]:
    """The status and error text of a run that ended with this error."""
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return "completed", ""
        return "failed", f"SystemExit: {masking.text(text_of(error.code)[:MAX_TEXT])[:2000]}"
    message = masking.text(text_of(error)[:MAX_TEXT])[:2000]
    line = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return ("killed" if isinstance(error, KeyboardInterrupt) else "failed"), line


def cleaned(end: RunEnd) -> RunEnd:
    """Fit for a record: the user may have given any reason, and only a completed run is done."""
    exception = end.exception_text
    return replace(
        end,
        done=end.done if end.is_completed else None,
        reason=text(text_of(end.reason))[:2000] if end.reason else None,
        exception=text(exception) if exception else None,
    )
