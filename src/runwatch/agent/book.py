"""The agent's own journal.

A journal repeats its definitions in every segment, so there is room for some thousands of them
only.  An agent that is always there sees more: each run that comes to the node brings series of
its own.  When there is no room left the book goes on in a new journal, where those that are still
written have room again.  On a host with more series at a time than a journal can define another
journal would not help: then those that have no room are not recorded, which is said once, and
counted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from runwatch.agent.collectors.base import Sample
from runwatch.errors import SegmentError
from runwatch.journal.writer import JournalWriter
from runwatch.record import START, JournalId, Position, RunId, RunScope
from runwatch.record.losses import PointsNotRecorded, SeriesNotRecorded
from runwatch.record.message import Message

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, int, str, Labels]

LIVE_NS: Final = 60 * 10**9
"""A series that was written within this time will be written again."""
CROWDED: Final = 0.75
"""With a larger part of its series live, a full journal is not followed by another."""
NO_ROOM: Final = 0
logger = logging.getLogger("runwatch.agent")


class Book:
    """Threads may write at any time.  Runs have numbers that outlive a journal."""

    def __init__(self, open_journal: Callable[[], JournalWriter]) -> None:
        self._open_journal = open_journal
        self._lock = threading.Lock()
        self._runs: list[RunScope] = []
        self._numbers: dict[tuple[RunId, int], int] = {}
        self.not_recorded = 0
        """Points of series that had no room."""
        self._reported = 0
        self._dropped_before = 0
        self._begin()

    @property
    def journal(self) -> JournalId:
        """The one that is written now."""
        return self._writer.origin.journal

    @property
    def dropped_records(self) -> int:
        """Records, of all journals so far, that had to go before a head had them."""
        return self._dropped_before + self._writer.dropped_records

    def acknowledged(self, reached: Mapping[JournalId, Position]) -> None:
        """How far a head has stored journals."""
        writer = self._writer
        writer.acknowledged = reached.get(writer.origin.journal, START)

    def _begin(self) -> None:
        self._writer = self._open_journal()
        self._series: dict[Key, int] = {}
        self._written_ns: dict[Key, int] = {}
        self._scopes: dict[int, int] = {0: 0}
        self._look_again_ns: int | None = None
        """While there is no room: when it is worth a look whether there would be in another."""

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
            series = self._series_of(found, mono_ns)
            values = [sample.value for sample in found]
            if NO_ROOM in series:
                values = [v for v, id in zip(values, series, strict=True) if id != NO_ROOM]
                series = [id for id in series if id != NO_ROOM]
            self._writer.points(series, values, mono_ns=mono_ns)

    def tell(self, message: Message, scope: int = 0) -> None:
        self.event(message.KIND, message.body(), scope)

    def event(self, kind: str, body: Mapping[str, Any], scope: int = 0) -> None:
        with self._lock:
            try:
                number = self._scope_of(scope)
            except SegmentError:  # there are few, and none may be lost
                self._go_on(max(self._written_ns.values(), default=0))
                number = self._scope_of(scope)
            self._writer.event(kind, body, scope=number)

    def close(self) -> None:
        with self._lock:
            self._report()
            self._writer.close()

    # ── series ────────────────────────────────────────────────────────────────────────────────

    def _series_of(self, found: Sequence[Sample], mono_ns: int) -> list[int]:
        """Of one moment, and all of one journal; `NO_ROOM` for those that have none."""
        keys = [(s.metric, s.scope, s.device, tuple(s.labels.items())) for s in found]
        try:
            numbers = [self._define(key, sample) for key, sample in zip(keys, found, strict=True)]
        except SegmentError:
            numbers = self._without_room(keys, found, mono_ns)
        written = [key for key in keys if key in self._series] if NO_ROOM in numbers else keys
        self._written_ns.update(dict.fromkeys(written, mono_ns))
        return numbers

    def _define(self, key: Key, sample: Sample) -> int:
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

    def _without_room(
        self, keys: Sequence[Key], found: Sequence[Sample], mono_ns: int
    ) -> list[int]:
        """Not all of these have room here."""
        if self._look_again_ns is None or mono_ns >= self._look_again_ns:
            if not self._is_crowded(keys, mono_ns):
                self._go_on(mono_ns)
                return self._series_of(found, mono_ns)
            self._look_again_ns = mono_ns + LIVE_NS
            self._report()
        numbers = [self._series.get(key, NO_ROOM) for key in keys]
        self._say_once(found[numbers.index(NO_ROOM)])
        self.not_recorded += numbers.count(NO_ROOM)
        return numbers

    def _is_crowded(self, keys: Sequence[Key], mono_ns: int) -> bool:
        """Whether those that are written now would fill another journal, too."""
        return len(self._live(mono_ns).union(keys)) > CROWDED * len(self._series)

    def _live(self, mono_ns: int) -> set[Key]:
        return {key for key, at_ns in self._written_ns.items() if at_ns > mono_ns - LIVE_NS}

    def _go_on(self, mono_ns: int) -> None:
        """In a new journal."""
        full, scopes = self._writer, {key[1] for key in self._live(mono_ns)}
        self._begin()
        self._dropped_before += full.dropped_records
        full.close()
        for number in scopes:  # their events must have room, whatever else comes
            self._scope_of(number)

    # ── what has no room ──────────────────────────────────────────────────────────────────────

    def _say_once(self, sample: Sample) -> None:
        if self.not_recorded:
            return
        count = len(self._series)
        self._writer.tell(SeriesNotRecorded(sample.metric, sample.device, count))
        logger.warning(
            "this host has more series than a journal can define: %d are recorded; %s%s and others "
            "are not (events points_not_recorded say how many points)",
            count,
            sample.metric,
            f" of {sample.device}" if sample.device else "",
        )

    def _report(self) -> None:
        news = self.not_recorded - self._reported
        if news:
            self._writer.tell(PointsNotRecorded(news, self.not_recorded))
            self._reported = self.not_recorded

    def _scope_of(self, number: int) -> int:
        known = self._scopes.get(number)
        if known is None:
            known = self._scopes[number] = self._writer.scope(self._runs[number - 1])
        return known
