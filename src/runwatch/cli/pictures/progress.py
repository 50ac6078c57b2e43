"""A progress line on stderr for what takes longer than a second, only on a terminal.

The library that draws it is imported when there is something to draw.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress

SHOW_AFTER_SECONDS: Final = 1.0
_taken = False
"""Whether something already draws on this terminal."""


@contextmanager
def progress(
    what: str,
    unit: str = "",
    *,
    total: int | None = None,
    after_seconds: float = SHOW_AFTER_SECONDS,
) -> Iterator[Callable[[int], None]]:
    """`with progress("reading", "files") as step: … step(3)`: shown once a second has gone by.

    Without a `unit` it counts nothing and only says that something goes on.  With a `total` the
    bar says how much of it is done.
    """
    if _taken or not sys.stderr.isatty():
        yield lambda count: None
        return
    line = _Line(what, unit, total)
    timer = threading.Timer(after_seconds, line.show)
    timer.daemon = True
    with no_progress():
        timer.start()
        try:
            yield line.step
        finally:
            timer.cancel()
            timer.join()
            line.end()


@contextmanager
def no_progress() -> Iterator[None]:
    """While this lasts, no progress line is drawn: the caller draws on the terminal itself."""
    global _taken
    before, _taken = _taken, True
    try:
        yield
    finally:
        _taken = before


class _Line:
    def __init__(self, what: str, unit: str, total: int | None = None) -> None:
        self._what, self._unit, self._total = what, unit, total or None
        self._count = 0
        self._began = time.monotonic()
        self._shown: Progress | None = None

    def step(self, count: int) -> None:
        self._count += count
        if self._shown is not None:
            self._shown.update(self._shown.task_ids[0], completed=self._count)

    def show(self) -> None:
        """Called by the timer, in its own thread."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        count = ["{task.completed:,.0f} " + self._unit] if self._unit else []
        count += ["{task.percentage:>3.0f} %"] if self._total else []
        drawn = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(pulse_style="cyan"),
            *(TextColumn(text) for text in count),
            TimeElapsedColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        drawn.add_task(self._what, total=self._total, completed=self._count)
        # It counts from when we began, not from now.
        drawn.tasks[0].start_time = drawn.get_time() - (time.monotonic() - self._began)
        drawn.start()
        self._shown = drawn

    def end(self) -> None:
        if self._shown is not None:
            self._shown.stop()
