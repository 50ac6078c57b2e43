"""Reads the stored records of chosen runs, each once, across restarts of the head.

The writer says which journals have got records (`stored`), and the earliest time among them; that
is read from then on, in order of time, so a record that comes late is not missed.  How far each
journal was sent is kept in a file (`cursor.py`), with the store's own cursor of the journal at that
moment.  A head that starts compares the two: where the store has more, it reads again from a little
before the last record that was sent.  So after a kill the same records may come again; each has an
id that says so.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from runwatch.buckets import HIGHEST
from runwatch.clock import Clock, system_clock
from runwatch.head.forward.cursor import CursorFile, whole
from runwatch.record import (
    NO_STEP,
    Batch,
    Event,
    JournalId,
    Origin,
    Position,
    RunId,
    RunScope,
    Series,
)
from runwatch.rows import ProcessRow
from runwatch.store.store import Store, Wanted

DAY_NS: Final = 86_400 * 10**9
OLDEST_DAYS: Final = 30
"""What is older is forgotten: services refuse it, too."""
MARGIN_NS: Final = 10 * 10**9
"""Two threads of a program may record a little out of order."""
SAVE_SECONDS: Final = 1.0
STRETCH_ROWS: Final = 5_000


class Told(NamedTuple):
    """A stored record, with who told it: an event, or a point of a series."""

    scope: RunScope
    origin: Origin
    time_ns: int
    step: int | None
    event: Event | None
    series: Series | None
    value: float
    id: str
    """The same for the same record, whoever reads it and when."""


@dataclass(slots=True)
class _Mark:
    """How far a journal was sent for one run."""

    at_ns: int
    """The newest record that was sent."""
    position: Position = Position(0)
    """All that the store had up to here was sent."""


@dataclass(slots=True)
class _Pass:
    """A run whose journals have something new; where to go on reading in each."""

    since_ns: dict[JournalId, int] = field(default_factory=dict)
    given: dict[JournalId, set[str]] = field(default_factory=dict)
    """What was sent of exactly that time."""
    taken: int = 0
    """How many records were taken and are not sent yet."""
    ends: dict[JournalId, Position] | None = None
    """When these are sent, this much of each journal is; None: there is more to take."""

    def look_back(self, journal: JournalId, since_ns: int) -> None:
        if since_ns < self.since_ns.get(journal, HIGHEST):
            self.since_ns[journal] = since_ns
            self.given.pop(journal, None)
        self.ends = None


class Trail:
    """`take` and `sent` are for one thread; `stored` is for the writer's.

    `backfill_seconds`: so much of the time before the first start is read, too.
    """

    def __init__(
        self,
        store: Store,
        file: CursorFile,
        wanted: Wanted,
        is_chosen: Callable[[ProcessRow], bool],
        *,
        backfill_seconds: float = 0.0,
        clock: Clock = system_clock,
    ) -> None:
        self._store = store
        self._file = file
        self._wanted = replace(wanted, rows=STRETCH_ROWS, spans=False)
        self._kinds = frozenset(wanted.kinds)
        self._is_chosen = is_chosen
        self._clock = clock
        self._passes: dict[RunId, _Pass] = {}
        self._chosen: dict[RunId, bool] = {}
        self._saved_ns: int | None = None
        self._changed = True
        """Since the file was written last."""
        self.counts: dict[str, int] = {}
        """Kept with the cursor, for whoever counts something."""
        kept = file.read()
        now_ns = clock.wall_ns()
        first_ns = now_ns - int(backfill_seconds * 1e9)
        self._floor_ns = max(whole(kept.get("floor_ns"), first_ns), now_ns - OLDEST_DAYS * DAY_NS)
        self._marks = _marks_of(kept)
        self.counts.update(_counts_of(kept))
        # From here on: what the writer's thread sees, too.
        self._lock = threading.Lock()
        self._lows: dict[JournalId, int] = {}
        self._without: set[JournalId] = set()
        """Journals that have no series we want."""
        self._begin(_lates_of(kept))

    # ── in the writer's thread ────────────────────────────────────────────────────────────────

    def stored(self, batches: Sequence[Batch]) -> None:
        with self._lock:
            for batch in batches:
                journal = batch.origin.journal
                if any(isinstance(d, Series) and self._wants(d) for d in batch.definitions):
                    self._without.discard(journal)
                times = [event.time_ns for event in batch.events if event.kind in self._kinds]
                if len(batch.points) and journal not in self._without:
                    times.append(int(np.frombuffer(batch.points.time_ns, np.int64).min()))
                if times:
                    self._lows[journal] = min(*times, self._lows.get(journal, HIGHEST))

    def _wants(self, series: Series) -> bool:
        return self._wanted.metric(series.metric)

    # ── in the forwarder's thread ─────────────────────────────────────────────────────────────

    def take(self, most: int) -> list[Told]:
        """The next records, of one run and in order of time; empty if there are none.

        Who does not call `sent` with them gets them again.
        """
        self._notice()
        for run in list(self._passes):
            if told := self._read(run, most):
                return told
            self._settle(run)
        self.save()
        return []

    def sent(self, told: Sequence[Told]) -> None:
        """These are where they should be (or never will be): go on after them."""
        self._changed = True
        for each in told:
            run, journal = each.scope.run, each.origin.journal
            going = self._passes.setdefault(run, _Pass())
            if going.since_ns.get(journal) != each.time_ns:
                going.since_ns[journal] = each.time_ns
                going.given[journal] = set()
            going.given.setdefault(journal, set()).add(each.id)
            going.taken -= 1
            marks = self._marks.setdefault(run, {})
            mark = marks.setdefault(journal, _Mark(each.time_ns))
            mark.at_ns = max(mark.at_ns, each.time_ns)
        for run in {each.scope.run for each in told}:
            self._settle(run)
        self.save()

    def waiting(self) -> int:
        """How many records wait; asks the store."""
        self._notice()
        count = 0
        for run, going in self._passes.items():
            with self._store.replay(run, replace(self._wanted, since=going.since_ns)) as replay:
                count += replay.records - sum(map(len, going.given.values()))
        return max(count, 0)

    def save(self, *, now: bool = False) -> None:
        mono_ns = self._clock.mono_ns()
        due = self._saved_ns is None or mono_ns - self._saved_ns >= SAVE_SECONDS * 1e9
        if not (now or (due and self._changed)):
            return
        with self._lock:
            lows = dict(self._lows)
        self._saved_ns, self._changed = mono_ns, False
        self._file.write(
            {
                "floor_ns": self._floor_ns,
                "counts": self.counts,
                "marks": {
                    run: {journal: [mark.at_ns, mark.position] for journal, mark in marks.items()}
                    for run, marks in self._marks.items()
                },
                "late": self._late(lows),
            }
        )

    def _late(self, lows: Mapping[JournalId, int]) -> dict[str, int]:
        """Journals of which something is to be sent that is older than what was sent already."""
        late: dict[str, int] = {}
        for run, marks in self._marks.items():
            going = self._passes.get(run, _Pass())
            for journal, mark in marks.items():
                since_ns = min(going.since_ns.get(journal, HIGHEST), lows.get(journal, HIGHEST))
                if since_ns < mark.at_ns - MARGIN_NS:
                    late[journal] = min(since_ns, late.get(journal, HIGHEST))
        return late

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _begin(self, late: Mapping[str, int]) -> None:
        """What the store has got since the cursor was written last."""
        known: set[RunId] = set()
        for row in self._store.processes():
            if not row.run or row.last_ns < self._floor_ns:
                continue
            known.add(row.run)
            mark = self._marks.get(row.run, {}).get(row.journal)
            if mark is not None and mark.position >= self._store.cursor(row.journal):
                continue
            since_ns = self._floor_ns if mark is None else mark.at_ns - MARGIN_NS
            self._look_at(row.run, row.journal, min(since_ns, late.get(row.journal, since_ns)))
        for run in self._marks.keys() - known:
            del self._marks[run]

    def _notice(self) -> None:
        """Hear what the writer has said since the last time."""
        with self._lock:
            lows, self._lows = self._lows, {}
        self._changed = self._changed or bool(lows)
        for journal, low_ns in lows.items():
            self._learn(journal)
            for run in self._store.runs_of(journal):
                self._look_at(run, journal, low_ns)

    def _learn(self, journal: JournalId) -> None:
        # With the lock held: else a series that is stored right now could be missed.
        with self._lock:
            rows = self._store.series(None, journal=journal)
            if not any(self._wanted.metric(row.metric) for row in rows):
                self._without.add(journal)

    def _look_at(self, run: RunId, journal: JournalId, since_ns: int) -> None:
        if run and self._is_run_chosen(run):
            going = self._passes.setdefault(run, _Pass())
            going.look_back(journal, max(since_ns, self._floor_ns))

    def _is_run_chosen(self, run: RunId) -> bool:
        known = self._chosen.get(run)
        if known is None:
            rows = self._store.processes(run)
            known = any(self._is_chosen(row) for row in rows)
            if rows:
                self._chosen[run] = known
        return known

    def _read(self, run: RunId, most: int) -> list[Told]:
        going = self._passes[run]
        ends = {journal: self._store.cursor(journal) for journal in going.since_ns}
        found: list[Told] = []
        going.ends = None
        # The replay is not held open while something is sent: it keeps old files from deletion.
        with self._store.replay(run, replace(self._wanted, since=going.since_ns)) as replay:
            for told in _all_told(replay):
                if told.id not in going.given.get(told.origin.journal, ()):
                    found.append(told)
                if len(found) >= most:
                    break
            else:
                going.ends = ends
        going.taken = len(found)
        return found

    def _settle(self, run: RunId) -> None:
        going = self._passes.get(run)
        if going is None or going.ends is None or going.taken:
            return
        self._changed = True
        marks = self._marks.setdefault(run, {})
        for journal, position in going.ends.items():
            marks.setdefault(journal, _Mark(self._floor_ns)).position = position
        del self._passes[run]


def _all_told(replay: Iterator[list[Batch]] | Any) -> Iterator[Told]:
    scopes: dict[JournalId, dict[int, RunScope]] = {}
    series: dict[JournalId, dict[int, Series]] = {}
    for stretch in replay:
        held: list[Told] = []
        for batch in stretch:
            journal = batch.origin.journal
            mine, named = scopes.setdefault(journal, {}), series.setdefault(journal, {})
            mine |= {d.id: d for d in batch.definitions if isinstance(d, RunScope)}
            named |= {d.id: d for d in batch.definitions if isinstance(d, Series)}
            held += _told(batch, mine, named)
        yield from sorted(held, key=lambda told: told.time_ns)


def _told(
    batch: Batch, scopes: Mapping[int, RunScope], series: Mapping[int, Series]
) -> Iterator[Told]:
    points = batch.points
    for id, time_ns, step, value in zip(
        points.series, points.time_ns, points.step, points.value, strict=True
    ):
        named = series[id]
        if named.scope not in scopes:
            continue  # the run was deleted meanwhile
        what = [named.metric, named.device, dict(named.labels), repr(value)]
        yield Told(
            scopes[named.scope],
            batch.origin,
            time_ns,
            _step(step),
            None,
            named,
            value,
            _id(batch, time_ns, step, what),
        )
    for event in batch.events:
        if event.scope not in scopes:
            continue
        what = [event.kind, dict(event.body)]
        yield Told(
            scopes[event.scope],
            batch.origin,
            event.time_ns,
            _step(event.step),
            event,
            None,
            0.0,
            _id(batch, event.time_ns, event.step, what),
        )


def _step(step: int) -> int | None:
    return None if step == NO_STEP else step


def _id(batch: Batch, time_ns: int, step: int, what: list[Any]) -> str:
    text = json.dumps([batch.origin.journal, time_ns, step, what], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


# ── the file ──────────────────────────────────────────────────────────────────────────────────


def _marks_of(kept: Mapping[str, Any]) -> dict[RunId, dict[JournalId, _Mark]]:
    """A mark that is none is left out: its journal is sent again."""
    return {
        RunId(run): {
            JournalId(journal): _Mark(mark[0], Position(mark[1]))
            for journal, mark in _object(marks).items()
            if isinstance(mark, list) and [type(each) for each in mark] == [int, int]
        }
        for run, marks in _object(kept.get("marks")).items()
    }


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _lates_of(kept: Mapping[str, Any]) -> dict[str, int]:
    return {journal: whole(at_ns, 0) for journal, at_ns in _object(kept.get("late")).items()}


def _counts_of(kept: Mapping[str, Any]) -> dict[str, int]:
    return {name: whole(count, 0) for name, count in _object(kept.get("counts")).items()}
