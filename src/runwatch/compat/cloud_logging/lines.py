"""Log entries as lines of the current run's log: `runwatch logs`, and the page's tab."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from runwatch.record.console import Console
from runwatch.sdk.console.keeper import LineKeeper
from runwatch.sdk.console.unheard import Unheard
from runwatch.sdk.front import current_run
from runwatch.sdk.guard import guarded, tally, text_of
from runwatch.sdk.run import Run

MOST_WAITING: Final = 1_000

_waiting: deque[bytes] = deque(maxlen=MOST_WAITING)
"""Entries that came before there was a run."""


@guarded("record a log entry")
def say(severity: str, logger: str, payload: object) -> None:
    """One entry.  Before a run begins, it waits for one."""
    message = json.dumps(payload, default=text_of) if isinstance(payload, Mapping) else payload
    line = f"{severity}:{logger}:{text_of(message)}\n".encode("utf-8", "replace")
    run = current_run()
    if run is None:
        _waiting.append(line)
    else:
        _lines_of(run).take(line)


@guarded("record log entries")
def deliver(run: Run) -> None:
    """What waited; called when a run has begun."""
    if _waiting:
        _lines_of(run)


def told(what: str) -> None:
    """One line, the first time."""
    tally.count("cloud logging", f"{what}; log entries are recorded in the run, and not sent")


def attach(handler: logging.Handler, level: int) -> None:
    """To the root logger, as `setup_logging` does."""
    root = logging.getLogger()
    root.setLevel(level)
    root.addHandler(handler)


def _lines_of(run: Run) -> RunLines:
    lines = run._console
    if not isinstance(lines, RunLines):
        run._console = lines = RunLines(run, lines)
    while _waiting:
        lines.take(_waiting.popleft())
    return lines


class RunLines(Unheard):
    """Of one run; beside what else listens to its console."""

    def __init__(self, run: Run, before: Unheard) -> None:
        self._run = run
        self._before = before
        self._keeper = LineKeeper(self._record, run._clock)

    def take(self, line: bytes) -> None:
        self._keeper.feed("err", line)

    @guarded("keep log entries")
    def tick(self) -> None:
        self._before.tick()
        self._keeper.tick()

    @guarded("keep log entries")
    def flush(self) -> None:
        self._before.flush()
        self._keeper.flush()

    def forget(self) -> None:
        self._before.forget()
        self._keeper.forget()

    @guarded("keep log entries")
    def stop(self) -> None:
        self._before.stop()
        self._keeper.close()

    def _record(self, console: Console, at_ns: int) -> None:
        run = self._run
        writer: Any = run._open()
        if writer is not None and not writer.closed:
            writer.tell(console, run._step, run._scope, at_ns)
