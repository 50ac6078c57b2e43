"""The agent's own journal.

A journal repeats its definitions in every segment, so there is room for some thousands of them
only.  An agent that is always there sees more: each run that comes to the node brings series of
its own.  When there is no room left the book goes on in a new journal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runwatch.agent.collectors.base import Sample
from runwatch.errors import SegmentError
from runwatch.journal.writer import JournalWriter
from runwatch.record import RunId, RunScope

Labels = tuple[tuple[str, str], ...]


class Book:
    """Threads may write at any time.  Runs have numbers that outlive a journal."""

    def __init__(self, open_journal: Callable[[], JournalWriter]) -> None:
        self._open_journal = open_journal
        self._lock = threading.Lock()
        self._runs: list[RunScope] = []
        self._numbers: dict[tuple[RunId, int], int] = {}
        self._begin()

    def _begin(self) -> None:
        self._writer = self._open_journal()
        self._series: dict[tuple[str, int, str, Labels], int] = {}
        self._scopes: dict[int, int] = {0: 0}

    def run(self, scope: RunScope) -> int:
        """Our number for a process's part in a run: what samples and events name."""
        with self._lock:
            key = (scope.run, scope.rank)
            if key not in self._numbers:
                self._runs.append(scope)
                self._numbers[key] = len(self._runs)
            return self._numbers[key]

    def points(self, samples: Iterable[Sample], mono_ns: int) -> None:
        """Numbers of one moment."""
        found = list(samples)
        if not found:
            return
        with self._lock:
            series = self._retrying(lambda: [self._series_of(sample) for sample in found])
            self._writer.points(series, [sample.value for sample in found], mono_ns=mono_ns)

    def event(self, kind: str, body: Mapping[str, Any], scope: int = 0) -> None:
        with self._lock:
            (number,) = self._retrying(lambda: [self._scope_of(scope)])
            self._writer.event(kind, body, scope=number)

    def close(self) -> None:
        with self._lock:
            self._writer.close()

    def _retrying(self, define: Callable[[], list[int]]) -> list[int]:
        try:
            return define()
        except SegmentError:
            full = self._writer
            self._begin()
            full.close()
            return define()

    def _series_of(self, sample: Sample) -> int:
        key = (sample.metric, sample.scope, sample.device, tuple(sample.labels.items()))
        known = self._series.get(key)
        if known is None:
            known = self._series[key] = self._writer.series(
                sample.metric,
                scope=self._scope_of(sample.scope),
                unit=sample.unit,
                device=sample.device,
                labels=sample.labels,
            )
        return known

    def _scope_of(self, number: int) -> int:
        known = self._scopes.get(number)
        if known is None:
            known = self._scopes[number] = self._writer.scope(self._runs[number - 1])
        return known
