"""A progress line on stderr for what takes longer than a second, only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

SHOW_AFTER_SECONDS: Final = 1.0


@contextmanager
def progress(what: str, unit: str = "batches") -> Iterator[Callable[[int], None]]:
    """`with progress("reading") as step: … step(3)`: shows the count after a second."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(pulse_style="cyan"),
        TextColumn("{task.completed:,.0f} " + unit),
        TimeElapsedColumn(),
    )
    shown = Progress(*columns, console=Console(file=sys.stderr), transient=True)
    task = shown.add_task(what, total=None)
    began = time.monotonic()

    def step(count: int) -> None:
        shown.advance(task, count)
        late = time.monotonic() - began > SHOW_AFTER_SECONDS
        if late and sys.stderr.isatty() and not shown.live.is_started:
            shown.start()

    try:
        yield step
    finally:
        if shown.live.is_started:
            shown.stop()
