"""The agent's own journal.

A journal repeats its definitions in every segment, so it has room for a few thousand.  An agent
that runs for long sees more: each run on the node brings its own series.  When a journal is full,
the book continues in a new one, which has room for the series still in use.  A host may use more
series at once than a journal can define.  Another journal would not help there: the series without
room are not recorded.  The book warns once, and counts their points.
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
"""A series that was written within this time counts as in use."""
CROWDED: Final = 0.75
"""No new journal follows a full one if a larger part of its series is in use."""
NO_ROOM: Final = 0
logger = logging.getLogger("runwatch.agent")


class Book:
    """Any thread may write.  The number of a run stays the same in the next journal."""

    def __init__(self, open_journal: Callable[[], JournalWriter]) -> None:
        self._open_journal = open_journal
        self._lock = threading.Lock()
        self._runs: list[RunScope] = []
        self._numbers: dict[tuple[RunId, int], int] = {}
        self.not_recorded = 0
        """How many points were lost because their series had no room."""
        self._reported = 0
        self._dropped_before = 0
        self._begin()

    @property
    def journal(self) -> JournalId:
        """The journal that is written now."""
        return self._writer.origin.journal

    @property
    def dropped_records(self) -> int:
        """How many records, of all journals so far, were dropped before a head had them."""
        return self._dropped_before + self._writer.dropped_records

    def acknowledged(self, reached: Mapping[JournalId, Position]) -> None:
        """`reached`: how far the head has stored each journal."""
        writer = self._writer
        writer.acknowledged = reached.get(writer.origin.journal, START)

    def _begin(self) -> None:
        self._writer = self._open_journal()
        self._series: dict[Key, int] = {}
        self._written_ns: dict[Key, int] = {}
        self._scopes: dict[int, int] = {0: 0}
        self._look_again_ns: int | None = None
        """Set while series have no room: when to check again whether a new journal would help."""

    def run(self, scope: RunScope) -> int:
        """The number by which samples and events name a process's part in a run."""
        with self._lock:
            key = (scope.run, scope.rank)
            if key not in self._numbers:
                self._runs.append(scope)
                self._numbers[key] = len(self._runs)
            return self._numbers[key]

    def points(self, samples: Iterable[Sample], mono_ns: int) -> None:
        """Record samples that were taken at one moment."""
        taken = list(samples)
        if not taken:
            return
        with self._lock:
            series = self._series_of(taken, mono_ns)
            values = [sample.value for sample in taken]
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
            except SegmentError:  # no room: events are few, and none may be lost
                self._go_on(max(self._written_ns.values(), default=0))
                number = self._scope_of(scope)
            self._writer.event(kind, body, scope=number)

    def close(self) -> None:
        with self._lock:
            self._report()
            self._writer.close()

    # ── series ────────────────────────────────────────────────────────────────────────────────

    def _series_of(self, samples: Sequence[Sample], mono_ns: int) -> list[int]:
        """The number of each sample's series, all in one journal; `NO_ROOM` where it has none."""
        keys = [(s.metric, s.scope, s.device, tuple(s.labels.items())) for s in samples]
        try:
            numbers = [self._define(key, sample) for key, sample in zip(keys, samples, strict=True)]
        except SegmentError:
            numbers = self._without_room(keys, samples, mono_ns)
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
        self, keys: Sequence[Key], samples: Sequence[Sample], mono_ns: int
    ) -> list[int]:
        """The journal is full: begin a new one, or leave out the series without room."""
        if self._look_again_ns is None or mono_ns >= self._look_again_ns:
            if not self._is_crowded(keys, mono_ns):
                self._go_on(mono_ns)
                return self._series_of(samples, mono_ns)
            self._look_again_ns = mono_ns + LIVE_NS
            self._report()
        numbers = [self._series.get(key, NO_ROOM) for key in keys]
        self._warn_once(samples[numbers.index(NO_ROOM)])
        self.not_recorded += numbers.count(NO_ROOM)
        return numbers

    def _is_crowded(self, keys: Sequence[Key], mono_ns: int) -> bool:
        """Whether the series in use would soon fill a new journal, too."""
        return len(self._live(mono_ns).union(keys)) > CROWDED * len(self._series)

    def _live(self, mono_ns: int) -> set[Key]:
        return {key for key, at_ns in self._written_ns.items() if at_ns > mono_ns - LIVE_NS}

    def _go_on(self, mono_ns: int) -> None:
        """Continue in a new journal."""
        full, scopes = self._writer, {key[1] for key in self._live(mono_ns)}
        self._begin()
        self._dropped_before += full.dropped_records
        full.close()
        for number in scopes:  # define these first: their events must have room
            self._scope_of(number)

    # ── what has no room ──────────────────────────────────────────────────────────────────────

    def _warn_once(self, sample: Sample) -> None:
        if self.not_recorded:
            return
        count = len(self._series)
        self._writer.tell(SeriesNotRecorded(sample.metric, sample.device, count))
        logger.warning(
            "this host has more series than a journal can define: %d are recorded; %s%s and others "
            "are not (events points_not_recorded count the lost points)",
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
