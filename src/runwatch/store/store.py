"""The Protocol of every engine.  Nothing specific to one engine crosses this line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from runwatch.buckets import Axis
from runwatch.record import Batch, JournalId, Position, RunId, Verdict
from runwatch.rows import Curve, EventRow, Latest, ProcessRow, SeriesRow, SpanRow
from runwatch.store.deletion import Deletion, Weight

OF_EACH: Final = 2_000
"""Views look at this many events per kind of what one process records about itself."""
AGENTS_SAY: Final = 25
"""An agent or a head reports on many processes: its limit is this many times as high."""

Statistic = Literal["mean", "minimum", "maximum"]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long each kind of data is kept, in days; None keeps it for ever."""

    points_days: float | None = 90
    rollup_days: float | None = 730
    spans_days: float | None = 365
    events_days: float | None = 730


@dataclass(frozen=True, slots=True, eq=False)
class PointColumns:
    """A stretch of raw points, column by column, in (series, time) order."""

    series: npt.NDArray[np.int64]
    time_ns: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    """`NO_STEP` where a point has none."""
    value: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.value)

    def by_series(self) -> Iterator[tuple[int, slice]]:
        """Each series, and where its rows are."""
        if not len(self):
            return
        starts = np.flatnonzero(np.diff(self.series, prepend=self.series[0] - 1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(self)], strict=True):
            yield int(self.series[start]), slice(start, end)

    def taken(self, rows: slice | npt.NDArray[np.int64]) -> PointColumns:
        return PointColumns(
            self.series[rows], self.time_ns[rows], self.step[rows], self.value[rows]
        )

    @classmethod
    def joined(cls, parts: Sequence[PointColumns]) -> PointColumns:
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.series for part in parts]),
            np.concatenate([part.time_ns for part in parts]),
            np.concatenate([part.step for part in parts]),
            np.concatenate([part.value for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class StoreHealth:
    engine: str
    schema_version: int
    hot_points: int
    """Rows that are not clustered yet."""
    blocks: int
    """Closed, clustered files."""
    bytes_on_disk: int
    problem: str = ""
    """Why the store cannot take data now (disk full …); empty when it can."""
    notes: Sequence[str] = field(default_factory=tuple)
    """Damage that was found at opening and set aside, in words."""
    records_dropped: int = 0
    """Records of deleted runs that arrived since the store was opened."""
    newest_block_ns: int | None = None
    """When the newest closed file was written; None if there is none."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records of a run to replay."""

    metric: Callable[[str], bool]
    """Points of these metrics …"""
    labels: Mapping[str, str] = field(default_factory=dict)
    """… whose series have these labels."""
    kinds: Sequence[str] = ()
    """Events of these kinds."""
    spans: bool = True
    since: Mapping[JournalId, int] | None = None
    """Only these journals, each from this time on; None: all of the run's, from the start."""
    rows: int = 100_000
    """About this many records at a time, at most."""


@dataclass(frozen=True, slots=True)
class Sought:
    """Events that may hold a text, and where they are among the others.

    A store looks at the next `most` events or so.  Of these it returns all events of each time at
    which one may hold the text, and those of the first and of the last time.  So whoever counts the
    events of a time counts all of them, and the last one tells how far the store has looked.
    """

    text: str
    """In a text of the body, whole."""
    any_case: bool
    """Letters match as with `re.IGNORECASE`."""
    kinds: Sequence[str]
    """Events of these kinds are looked at so; of other kinds, each one may hold the text."""
    or_fields: Sequence[str] = ()
    """Those whose body has one of these fields are returned, too."""
    most: int = 100_000


@dataclass(frozen=True, slots=True)
class Tally:
    """A summary of a journal's records: two equal ones were made of the same records."""

    rows: int = 0
    newest_ns: int = -(2**63)
    total_ns: int = 0
    """The sum of all their times."""


class Replay(AbstractContextManager["Replay"], Protocol):
    """Stretches of time in order, each with a batch of every journal that has records in it.

    The first stretch has a batch of each journal with all its definitions and nothing else.  A
    journal's records keep their order.  The replay shows what was stored when `replay` was called,
    however long reading takes.
    """

    @property
    def records(self) -> int: ...

    def __iter__(self) -> Iterator[list[Batch]]: ...

    def tally(self, until: Mapping[JournalId, int] | None = None) -> dict[JournalId, Tally]:
        """The tally of each journal, or of its records up to and including its time in `until`,
        which must then name every journal.  Ask before you iterate."""
        ...


class Store(Protocol):
    """One thread writes, one (the same or another) compacts and retains, any thread reads."""

    def write(self, batches: Sequence[Batch]) -> list[Verdict]:
        """Store the batches and their journals' cursors in one transaction, durably, or raise.

        A batch is taken when its `start` is the journal's cursor, ignored when it ends at or
        before the cursor (a repeat), and refused otherwise (a gap or an overlap).  The verdict's
        position says where to send from.  A journal that is new has cursor 0; its first batch must
        have `start == 0`.
        Raises `StoreFull` when there is no space; then nothing of the call was stored.
        A point whose series was never defined goes to the journal's series `unknown`; skipped
        records become an event `records_skipped`.
        """
        ...

    def cursor(self, journal: JournalId) -> Position: ...

    def processes(self, run: RunId | None = None) -> list[ProcessRow]:
        """Every process of the run (or of all runs); a process without a run has run ''."""
        ...

    def series(
        self,
        run: RunId | None = None,
        *,
        metric: str | None = None,
        journal: JournalId | None = None,
    ) -> list[SeriesRow]: ...

    def count_series(self, run: RunId) -> int:
        """From memory."""
        ...

    def unknown_series(self, journal: JournalId, local: Sequence[int]) -> int:
        """How many of these local ids the journal has not defined yet; from memory."""
        ...

    def knows_run(self, run: RunId) -> bool: ...

    def runs_of(self, journal: JournalId) -> frozenset[RunId]:
        """The runs that the journal has named so far."""
        ...

    def latest(self, series: Sequence[int]) -> list[Latest]:
        """The newest point by time of each series that has one; from memory."""
        ...

    def curves(
        self,
        series: Sequence[int],
        *,
        axis: Axis = "time",
        start: int | None = None,
        end: int | None = None,
        buckets: int = 1000,
    ) -> list[Curve]:
        """Each series reduced to at most `buckets` buckets over [start, end) of the axis.

        Missing bounds are taken from the data, over all the series asked for, so that curves
        asked for together share their buckets.  A series without points yields no curve.
        `first` and `last` are by time on either axis.  Points without a step are not on the step
        axis.  A time range longer than a day in buckets of a minute or more is widened to whole
        minutes, so that roll-ups give the exact answer.
        """
        ...

    def matrix(
        self,
        rows: Mapping[int, int],
        *,
        start: int,
        end: int,
        buckets: int,
        statistic: Statistic = "mean",
    ) -> npt.NDArray[np.float64]:
        """The statistic of the finite values in each row and time bucket; NaN if there are none.

        `rows` says in which row each series is; several may share one.  The buckets are those
        of `curves`.
        """
        ...

    def points(
        self,
        series: Sequence[int],
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        rows: int = 100_000,
    ) -> Iterator[PointColumns]:
        """Raw points in (series, time) order, at most `rows` at a time: bounded memory."""
        ...

    def events(
        self,
        run: RunId | None = None,
        *,
        kinds: Sequence[str] | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
        most_bytes: int | None = None,
        of_each: int | None = None,
        about: Sequence[JournalId] | None = None,
        sought: Sought | None = None,
    ) -> list[EventRow]:
        """Events by time; at most `limit`, with bodies of `most_bytes` together, but at least one.

        `of_each`: only this many newest events per journal and kind (`AGENTS_SAY` times as many
        for an agent), so that no journal can flood an answer.
        `about`: only events whose body names one of these as its `journal`.
        `sought`: only events at whose time one may hold a text, in the next stretch.
        """
        ...

    def spans(
        self,
        run: RunId,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        limit: int | None = None,
    ) -> list[SpanRow]:
        """Span edges in time order."""
        ...

    def replay(self, run: RunId, wanted: Wanted) -> Replay:
        """What the journals recorded for the run, as batches; use it in a `with` block."""
        ...

    def compact(self, *, force: bool = False) -> int:
        """Cluster what is ripe into closed blocks; returns the number of points moved."""
        ...

    def retain(self, retention: Retention, *, now_ns: int) -> dict[str, Any]:
        """Delete what is older than its retention, by the record's time and by when it was stored;
        returns counts by kind."""
        ...

    def weigh(self, run: RunId) -> Weight:
        """How much of the store deleting the run would free."""
        ...

    def delete(self, run: RunId, *, at_ns: int, purge_ns: int) -> Deletion:
        """Hide the run from now on and take no more records of it.  From `purge_ns` on its rows may
        be removed.  Stored durably.  Raises NotFound."""
        ...

    def restore(self, run: RunId) -> Deletion:
        """Undo the last deletion.  Raises NotFound, or UsageError if it is too late."""
        ...

    def deletions(self) -> list[Deletion]:
        """The deletions that were not undone."""
        ...

    def buried_journals(self, deletion: Deletion) -> list[JournalId]:
        """Journals that hold nothing but records of the deleted run."""
        ...

    def buried_processes(self, deletion: Deletion) -> list[ProcessRow]:
        """The processes that took part in the run when it was deleted."""
        ...

    def purge(self, deletion: Deletion) -> None:
        """Remove the rows of a deleted run for good.  A call that was interrupted is completed by
        the next one."""
        ...

    def health(self) -> StoreHealth: ...

    def close(self) -> None: ...
