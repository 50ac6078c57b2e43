"""Where the time of a trace went: events of lanes in, sums and unions out.

A lane is a thread of the host or a stream of a device.  Readers push its events in pieces.  Each
piece is folded as soon as all its events have ended, so that memory stays small.

The rules, for every moment of the window (first step to last step, or the whole capture): a
device's moment is *compute* while a kernel (or a copy within the device, or a memset) runs, else
*communication* while a collective runs, else *host* while an operator, a runtime call, data loading
or a copy between host and device is recorded, else *idle*.  Frames and annotations only contain
work, and waiting is not work.  A device's idle percentage is *host* plus *idle*.  Without device
events, operators on the processor are compute, except those that prepare input.  XLA's operations
are compute on whichever thread its executor runs them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from runwatch.traces import intervals
from runwatch.traces.intervals import Ints, Spans
from runwatch.traces.names import Work
from runwatch.traces.opening import BadTrace, Limits

HOST: Final = -1
"""Stands for the host where a device number is expected."""
_PIECE: Final = 1 << 18
"""How many events are collected before a piece is folded."""
_MANY_PARTS: Final = 64
_NEVER: Final = 1 << 62
_BUSY: Final = (Work.COMPUTE, Work.COMMUNICATION)


@dataclass
class Totals:
    """Indexed by name number: calls, total time, and self time."""

    count: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    total_ns: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    self_ns: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, names: Ints, lasted: Ints, own: Ints) -> None:
        size = max(int(names.max()) + 1, len(self.count))
        if size > len(self.count):
            self.count, self.total_ns, self.self_ns = (
                np.pad(column, (0, 2 * size - len(column)))
                for column in (self.count, self.total_ns, self.self_ns)
            )
        width = len(self.count)
        self.count += np.bincount(names, minlength=width)
        self.total_ns += np.bincount(names, lasted, width).astype(np.int64)
        self.self_ns += np.bincount(names, own, width).astype(np.int64)


class Heap:
    """Spans of many lanes.  They are merged whenever their number has doubled."""

    def __init__(self) -> None:
        self._parts: list[Spans] = []
        self.size = 0
        self._enough = _PIECE

    def add(self, spans: Spans) -> None:
        self._parts.append(spans)
        self.size += len(spans.start)
        if self.size > self._enough or len(self._parts) > _PIECE:
            self.spans()

    def within(self, begin: int, finish: int) -> Spans:
        """The merged spans of a window.  Only these are merged: all may be far more."""
        if len(self._parts) > _MANY_PARTS:
            self.spans()
        return intervals.together([intervals.clip(part, begin, finish) for part in self._parts])

    def spans(self) -> Spans:
        together = intervals.together(self._parts)
        self._parts = [together]
        self.size = len(together.start)
        self._enough = max(_PIECE, 2 * self.size)
        return together


@dataclass
class Account:
    """The sums over all lanes."""

    limits: Limits
    work: dict[tuple[int, Work], Heap] = field(default_factory=lambda: defaultdict(Heap))
    totals: dict[bool, Totals] = field(default_factory=lambda: {True: Totals(), False: Totals()})
    """True: the devices; False: the host."""
    kernels: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    events: int = 0
    begin_ns: int | None = None
    end_ns: int | None = None

    def fold(self, device: int, names: Ints, start: Ints, end: Ints, work: Ints) -> None:
        """Add events of one lane, in nesting order, none open at the ends.  `work` is by name
        number."""
        own = intervals.self_times(start, end)
        self.totals[device != HOST].add(names, end - start, own)
        self._stretch(int(start[0]), int(end.max()))
        kinds = work[names]
        for kind in np.unique(kinds).tolist():
            if kind != Work.NONE:
                chosen = kinds == kind
                self.work[device, Work(kind)].add(intervals.union(start[chosen], end[chosen]))
        if device != HOST:
            self.kernels[device] += int(np.isin(kinds, _BUSY).sum())

    def count(self, events: int) -> None:
        self.events += events
        if self.events > self.limits.events:
            raise BadTrace(f"more than {self.limits.events:,} events; capture a shorter window")

    def check_held(self, events: int) -> None:
        if events > self.limits.held_events:
            most = f"{self.limits.held_events:,}"
            raise BadTrace(f"more than {most} events in memory at once; capture a shorter window")

    def within(self, window: tuple[int, int], device: int, *kinds: Work) -> Spans:
        """The spans in which work of these kinds ran."""
        heaps = [self.work[device, kind] for kind in kinds if (device, kind) in self.work]
        return intervals.together([heap.within(*window) for heap in heaps])

    def slices(self, window: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """The window in consecutive parts, each with few spans."""
        spans = sum(heap.size for heap in self.work.values())
        count = max(1, min(spans // _PIECE, window[1] - window[0]))
        edges = [window[0] + (window[1] - window[0]) * part // count for part in range(count + 1)]
        return pairwise(edges)

    @property
    def devices(self) -> list[int]:
        """The devices that ran kernels."""
        return sorted(device for device, kernels in self.kernels.items() if kernels)

    def _stretch(self, begin: int, end: int) -> None:
        self.begin_ns = begin if self.begin_ns is None else min(begin, self.begin_ns)
        self.end_ns = end if self.end_ns is None else max(end, self.end_ns)


class Lane:
    """Collects one lane's events and folds them into the account."""

    def __init__(self, account: Account, device: int) -> None:
        self._account = account
        self._device = device
        self._pieces: list[tuple[Ints, Ints, Ints]] = []
        self._held = 0
        self._patience = _PIECE

    def push(self, names: Ints, start: Ints, end: Ints, work: Ints | None = None) -> None:
        """With `work`, events that have ended are folded at once."""
        self._pieces.append((names, start, end))
        self._held += len(names)
        self._account.check_held(self._held)
        if work is not None and self._held >= self._patience:
            self._fold_ended(work)

    def close(self, work: Ints) -> None:
        """Fold the rest.  If the events are out of order, that is all of them."""
        if not self._held:
            return
        names, start, end = self._gather()
        if (order := intervals.nesting_order(start, end)) is not None:
            names, start, end = names[order], start[order], end[order]
        for begin, finish in intervals.pieces(start, end, _PIECE):
            piece = slice(begin, finish)
            self._account.fold(self._device, names[piece], start[piece], end[piece], work)

    def _fold_ended(self, work: Ints) -> None:
        names, start, end = self._gather()
        is_ordered = intervals.nesting_order(start, end) is None
        done = intervals.quiet_point(start, end) if is_ordered else 0
        if done:
            self._account.fold(self._device, names[:done], start[:done], end[:done], work)
        self._pieces = [(names[done:], start[done:], end[done:])]
        self._held = len(names) - done
        # An open event holds back everything inside it: do not check that again each time.
        self._patience = max(_PIECE, 2 * self._held) if is_ordered else _NEVER

    def _gather(self) -> tuple[Ints, Ints, Ints]:
        names, start, end = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        self._pieces, self._held = [], 0
        return names, start, end


@dataclass(slots=True)
class Step:
    number: int
    start_ns: int
    end_ns: int
    of: str
    """The annotation's name: a program may count training and evaluation apart."""


@dataclass
class Reading:
    """The result of a reader; times are the trace's own."""

    kind: str
    account: Account
    names: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    """Peak bytes in use, by device ("cuda:0", "cpu")."""
    host: str = ""
    rank: int | None = None
    wall_offset_ns: int | None = None
    """Add it to a time to get wall time; None if the trace does not say."""
    problems: list[str] = field(default_factory=list)
    hidden: frozenset[str] = frozenset()
    """Names that are steps, not operations."""
