"""Which threads of a traced program are Runwatch's own: they wait, and that is no operation of it.

Profilers that record Python functions see our threads, too.  torch names a function with its path,
and says who called it.  XLA's profiler names neither the thread nor the path, and leaves out what
was called before the trace began: there our threads are known by the functions that only they
call, below nothing but what every thread begins with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from runwatch.traces.kineto import Args, Event

XLA_FUNCTIONS: Final = {
    "journal/segment_file.py": ("populate",),
    "journal/writer.py": ("_keep", "keep"),
    "sdk/profiling/recording.py": ("_attend", "_await_begin", "_await_end"),
    "sdk/control.py": ("_run", "_serve"),
    "sdk/values/pending.py": ("_run", "collect"),
    "capture/watchdog.py": ("_run", "_wait_until_due"),
    "compat/goodput/monitor/timetable.py": ("_work", "_next"),
}
"""File -> functions that our threads call, and others only within functions of their own."""
_OURS: Final = frozenset(
    f"${file.rpartition('/')[2]} {function}"
    for file, functions in XLA_FUNCTIONS.items()
    for function in functions
)
_LINE: Final = re.compile(r":\d+ ")
_BEGINNING: Final = re.compile(
    r"\$(?:threading\.py:\d+ |<unknown> |guard\.py:\d+ (?:call|attempt)$|clock\.py:\d+ wait)"
)
_TORCH_BEGINNING: Final = re.compile(r"(?:\S*/)?threading\.py\(\d+\): (?:_bootstrap\w*|run)$")
_TORCH_OURS: Final = re.compile(r"(?:\S*/)?runwatch/(?:\w+/)*\w+\.py\(\d+\): ")
_FUNCTION: Final = "python_function"


def is_own_line(events: Iterable[tuple[str, int, int]]) -> bool:
    """Whether a line of XLA's profiler is our thread: (name, start, end) in nesting order."""
    covered = -1
    for name, start, end in events:
        if start < covered:
            continue
        if _LINE.sub(" ", name, count=1) in _OURS:
            return True
        if not _BEGINNING.match(name):
            covered = end
    return False


class TorchThreads:
    """Takes torch's Python functions of our threads out of a stream of events.

    A caller comes before what it calls.  How a thread begins is the same for all, so those events
    are kept back until the thread's own first function shows whose it is.
    """

    def __init__(self) -> None:
        self._own: set[object] = set()
        self._begun: dict[object, tuple[Event, ...]] = {}
        """By Python id: the beginning of a thread, up to this event."""

    def others(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            if event.cat != _FUNCTION or event.args is None or event.args.python_id is None:
                yield event
            else:
                yield from self._sorted_out(event, event.args)

    def _sorted_out(self, event: Event, args: Args) -> Iterator[Event]:
        number, parent = args.python_id, args.python_parent
        if parent in self._own:
            self._own.add(number)
            return
        before = self._begun.pop(parent, None) if parent is not None else ()
        if before is None:
            yield event
        elif _TORCH_BEGINNING.match(event.name):
            self._begun[number] = (*before, event)
        elif before and _TORCH_OURS.match(event.name):
            self._own.add(number)
        else:
            yield from before
            yield event

    def rest(self) -> Iterator[Event]:
        """Threads of which nothing but their beginning was recorded."""
        for events in self._begun.values():
            yield from events
        self._begun.clear()
