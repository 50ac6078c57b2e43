"""Turns records into steps and spans of a ledger.

Records have two forms, which one journal may mix: Runwatch's own (span edges, waits for data) and
the entries of `GoodputRecorder` (points `goodput.*`, whose value is the time that they mean;
`runwatch/entries.py` knows their fields).  A process that records its own starts has one attempt
for each start.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from runwatch.entries import (
    JOB_END,
    JOB_START,
    PREFIX,
    STEP_START,
    TYPE,
    begins,
    checkpoint,
    span_name,
)
from runwatch.record import (
    BEGIN,
    NO_STEP,
    Batch,
    Event,
    JournalId,
    Points,
    RunId,
    RunScope,
    Series,
    SpanName,
    Spans,
)
from runwatch.record.life import Config, Elapsed, GoodputEntry, RunStart
from runwatch.vectors import column
from runwatch.views.goodput.account import Life
from runwatch.views.goodput.arrivals import DEVICE_LAG
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.ledger import AttemptKey, Ledger
from runwatch.views.goodput.skew import by_our_clock, earlier_life, shifted
from runwatch.views.goodput.steps.strides import LEAST_STEPS, Strides, Waits, plain_runs
from runwatch.views.goodput.steps.track import Track
from runwatch.views.runs import ProcessState, who

STEP: Final = "step"
DATA_WAIT: Final = "data_wait_seconds"
BACKGROUND: Final = "/background"
"""The name of a span in a thread that takes no steps ends so: no step waits for it."""
USEFUL: Final = "/useful"
"""The name of a span that does the run's real work outside steps ends so."""
ENTRY_PREFIX: Final = PREFIX
_SANE_SECONDS: Final = 4e9

TOLD_KINDS: Final = (RunStart.KIND, Config.KIND, Elapsed.KIND, GoodputEntry.KIND)
"""The events that the account is made of."""

SAME_START_NS: Final = 10_000_000_000


def nanoseconds(seconds: float) -> int:
    """Exact to the microsecond: a float of today's epoch seconds holds no more."""
    return round(seconds * 1_000_000) * 1_000


# ── entries ────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Sitting:
    """One start of a program that records its own starts."""

    attempt: AttemptKey
    rank: int
    start_ns: int
    track: Track
    said: bool
    """Whether the program recorded this start; False: it just began to record."""
    end_ns: int | None = None


class Diary:
    """One process's entries, in order.

    Two starts in quick succession with nothing recorded between them are one start, written down
    twice.  Entries before the first start belong to it.  `native` is the track of a process that
    recorded steps or spans before its first entry: then the process's life decides its attempt.
    """

    def __init__(
        self, ledger: Ledger, key: str, attempt: int, rank: int, native: Track | None = None
    ) -> None:
        self._ledger = ledger
        self._key = key
        self._attempt = attempt
        self._rank = rank
        self.native = native
        self.sittings: list[_Sitting] = []
        self.imported = False
        if native is not None:
            self.sittings.append(_Sitting((attempt, 0), rank, native.start_ns, native, True))

    def entry(self, what: str, kind: str, step: int, time_ns: int) -> None:
        """`what` is the entry's time field, `kind` the type of a custom or elastic event."""
        if what == JOB_START:
            if not self._is_known_start(time_ns):
                self._sit(time_ns, said=True)
            return
        sitting = self.sittings[-1] if self.sittings else self._sit(time_ns)
        track = sitting.track
        if what == STEP_START:
            sitting.end_ns = None
            track.begin(time_ns, step)
        elif what == JOB_END:
            track.end(time_ns)
            track.now_ns = sitting.end_ns = max(time_ns, track.now_ns)
        elif begins(what):
            sitting.end_ns = None
            name = span_name(what, kind)
            track.open(time_ns, self._ledger.names.of_span(name), name)
        else:
            track.close(time_ns, span_name(what, kind))

    def steps(self, times: array[int], numbers: array[int]) -> None:
        """Many steps that began one after the other, with nothing between them."""
        sitting = self.sittings[-1] if self.sittings else self._sit(times[0])
        sitting.end_ns = None
        sitting.track.begins(times, numbers)

    def track(self, time_ns: int) -> Track:
        return (self.sittings[-1] if self.sittings else self._sit(time_ns)).track

    def checkpoint(self, entry: Mapping[str, Any]) -> None:
        """A save or a restore as Orbax records it: its start, and how long it blocked."""
        known = checkpoint(entry)
        if known is None:
            return
        start_ns, took_ns = nanoseconds(known.start_seconds), nanoseconds(known.took_seconds)
        spent = Spent.CHECKPOINT_SAVE if known.is_save else Spent.CHECKPOINT_RESTORE
        if not self.sittings:
            self._sit(start_ns)
        self.sittings[-1].track.elapsed(start_ns + took_ns, took_ns, spent)

    def _is_known_start(self, time_ns: int) -> bool:
        if self.native is not None:
            return True
        if not self.sittings:
            return False
        last = self.sittings[-1]
        if not last.said and last.track.handed is None and last.track.step is None:
            last.said = True
            return True
        return last.track.is_blank and time_ns - last.start_ns < SAME_START_NS

    def _sit(self, start_ns: int, *, said: bool = False) -> _Sitting:
        at = self._attempt, len(self.sittings) + 1
        if self.sittings:
            self._ledger.end([self.sittings[-1].track.key])
        track = self._ledger.track(
            f"{self._key}#{at[1]}", attempt=at, rank=self._rank, start_ns=start_ns
        )
        sitting = _Sitting(at, self._rank, start_ns, track, said)
        self.sittings.append(sitting)
        return sitting

    def lives(self, process: ProcessState | None = None) -> list[Life]:
        """When the program said that it ran.  If it did not say how it ended, its process's state
        does."""
        return [
            self._life(sitting, process if sitting is self.sittings[-1] else None)
            for sitting in self.sittings
        ]

    def _life(self, sitting: _Sitting, process: ProcessState | None) -> Life:
        plain = (sitting.attempt, sitting.rank, sitting.start_ns)
        key = sitting.track.key
        if sitting.end_ns is not None:  # a program that is told to stop also records its end
            return Life(*plain, sitting.end_ns, key=key, done=None)
        if self.imported and sitting is self.sittings[-1]:
            return Life(*plain, sitting.track.now_ns, False, "the log ends here", False, key)
        if process is None or process.ended_ns is None:
            return Life(*plain, key=key)
        ended_ns = max(process.ended_ns, sitting.track.now_ns)
        ok = process.state == "completed"
        exact = process.state != "lost"
        return Life(
            *plain, ended_ns, ok, cause(process), exact, key, process.lived_ns, process.done
        )


# ── journals ───────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Journal:
    track: Track
    attempt: int
    rank: int
    ahead_ns: int = 0
    """How far its host's clock is ahead."""
    scopes: set[int] = field(default_factory=set)
    names: dict[int, int] = field(default_factory=dict)
    """Class of each span name of this run; `_STEP` for steps."""
    waits: set[int] = field(default_factory=set)
    """The series that hold waits for data."""
    lags: set[int] = field(default_factory=set)
    """The series that hold how long values took to arrive."""
    entries: dict[int, tuple[str, str]] = field(default_factory=dict)
    """The series that hold entries: their time field and type."""
    diary: Diary | None = None
    imported: bool = False


_Fact = tuple[int, int, tuple[Any, ...]]
"""(When it was recorded, its form, its content)."""

_STEP: Final = -1
_EDGE, _WAIT, _ENTRY, _TOLD = range(4)


class Scribe:
    """Feeds the batches of one run's journals into a ledger, each journal's in order.

    Processes are announced first, each with its attempt (`views.runs.attempts`).  Batches of
    journals that were not announced are ignored: they belong to other runs.
    """

    def __init__(self, run: RunId, ledger: Ledger) -> None:
        self.run = run
        self.ledger = ledger
        self._journals: dict[JournalId, _Journal] = {}

    def enter(
        self,
        journal: JournalId,
        attempt: int,
        rank: int,
        start_ns: int,
        *,
        host: str = "",
        ahead_ns: int = 0,
    ) -> None:
        """Announces a process; a known one stays as it is.  Raises `Stale` if it comes too late.

        `ahead_ns` is how far the clock of its host is ahead.
        """
        if journal not in self._journals:
            self.ledger.announce(attempt, journal)
            track = self.ledger.track(
                journal, attempt=(attempt, 0), rank=rank, start_ns=start_ns - ahead_ns, host=host
            )
            self._journals[journal] = _Journal(track, attempt, rank, ahead_ns)

    def batch(self, batch: Batch) -> None:
        journal = self._journals.get(batch.origin.journal)
        if journal is None:
            return
        self._define(journal, batch)
        if not journal.scopes:
            return
        if journal.ahead_ns:
            batch = by_our_clock(batch, journal.ahead_ns)
        if journal.lags and journal.diary is None:
            self.ledger.arrived((journal.attempt, 0), journal.track.key, batch.points, journal.lags)
        events = [e for e in batch.events if e.scope in journal.scopes]
        events = [e for e in events if e.kind in TOLD_KINDS]
        kinds = {event.kind for event in events}
        if journal.entries or GoodputEntry.KIND in kinds or (events and journal.diary is not None):
            self._in_order(journal, batch, events)
        else:
            self._edges(journal, batch, sorted(events, key=_when))

    def lives(self, states: Iterable[ProcessState]) -> list[Life]:
        """The lives of the run's processes, for `draw_up`."""
        lives = []
        for state in states:
            journal = self._journals.get(state.journal)
            if journal is not None and journal.ahead_ns:
                state = earlier_life(state, journal.ahead_ns)
            if state.ended_ns is not None:
                self.ledger.end([state.journal])
            diary = None if journal is None else journal.diary
            if diary is not None and diary.native is None:
                lives += diary.lives(state)
            elif state.run == self.run:
                lives.append(life_of(state))
        return lives

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _define(self, journal: _Journal, batch: Batch) -> None:
        for definition in batch.definitions:
            if isinstance(definition, RunScope):
                if definition.run == self.run:
                    journal.scopes.add(definition.id)
            elif definition.scope not in journal.scopes:
                continue
            elif isinstance(definition, SpanName):
                name = definition.name
                if not name.endswith(BACKGROUND):
                    journal.names[definition.id] = _STEP if name == STEP else self._class_of(name)
            elif isinstance(definition, Series):
                self._define_series(journal, definition)

    def _class_of(self, name: str) -> int:
        return Spent.PRODUCTIVE if name.endswith(USEFUL) else self.ledger.names.of_span(name)

    def _define_series(self, journal: _Journal, series: Series) -> None:
        if series.metric == DATA_WAIT:
            journal.waits.add(series.id)
        elif series.metric == DEVICE_LAG:
            journal.lags.add(series.id)
        elif series.metric.startswith(ENTRY_PREFIX):
            what = series.metric.removeprefix(ENTRY_PREFIX)
            journal.entries[series.id] = what, series.labels.get(TYPE, "")

    def _diary(self, journal: _Journal) -> Diary:
        """The journal's diary, made with its first entry."""
        if journal.diary is None:
            track = journal.track
            native = None if track.is_blank else track
            if native is None:
                self.ledger.forget((journal.attempt, 0), track.key)
            journal.diary = Diary(self.ledger, track.key, journal.attempt, journal.rank, native)
            journal.diary.imported = journal.imported
        return journal.diary

    def _waits(self, journal: _Journal, points: Points) -> Iterator[tuple[int, int, int]]:
        """(When it was recorded, the step, how many nanoseconds the step waited for its data)."""
        waits = journal.waits
        if not waits:
            return
        columns = zip(points.series, points.time_ns, points.step, points.value, strict=True)
        for series, time_ns, step, value in columns:
            if series in waits and abs(value) < _SANE_SECONDS:
                yield time_ns, step, round(value * 1e9)

    def _edges(self, journal: _Journal, batch: Batch, events: list[Event]) -> None:
        """Takes edges and waits, with the events between them, which are in order of time."""
        track, spans = journal.track, batch.spans
        waits = Waits(batch.points, journal.waits)
        done = 0
        for event in events:
            until = _first_behind(spans, done, event.time_ns)
            self._some_edges(journal, spans, range(done, until), waits)
            waits.tell(track, event.time_ns + 1)
            self._tell(journal, event)
            done = until
        self._some_edges(journal, spans, range(done, len(spans)), waits)
        waits.tell_all(track)

    def _some_edges(self, journal: _Journal, spans: Spans, some: range, waits: Waits) -> None:
        track, done = journal.track, some.start
        steps = [name for name, spent in journal.names.items() if spent == _STEP]
        for run in plain_runs(spans, some, steps):
            self._one_by_one(journal, spans, range(done, run.start), waits)
            done = run.start
            while done < run.stop and not track.is_between:
                self._one_by_one(journal, spans, range(done, done + 2), waits)
                done += 2
            if run.stop - done >= 2 * LEAST_STEPS:
                waits.tell(track, spans.time_ns[done] + 1)
                done += self._at_once(track, spans, range(done, run.stop), waits)
        self._one_by_one(journal, spans, range(done, some.stop), waits)

    def _at_once(self, track: Track, spans: Spans, run: range, waits: Waits) -> int:
        """Takes these edges of plain steps at once.  Returns how many were taken: all or none."""
        times = column(spans.time_ns)[run.start : run.stop]
        begins, ends, first = times[0::2], times[1::2], spans.step[run.start]
        if begins[0] < track.now_ns:
            return 0
        waited = waits.of(first, track.since_ns, begins, ends)
        if waited is None:
            return 0
        lap, since_ns = track.lap_of(first), track.since_ns
        track.strides(Strides(lap, first, since_ns, begins, ends, waited))
        return len(run)

    def _one_by_one(self, journal: _Journal, spans: Spans, some: range, waits: Waits) -> None:
        track, names = journal.track, journal.names
        part = slice(some.start, some.stop)
        columns = (spans.name, spans.span, spans.edge, spans.time_ns, spans.step)
        for name, span, edge, time_ns, step in zip(*(c[part] for c in columns), strict=True):
            if waits.next_ns <= time_ns:
                # At the same time, a wait of the last step comes before the begin of the next step.
                waits.tell(track, time_ns + (edge == BEGIN))
            spent = names.get(name)
            if spent is not None:
                self._edge(track, spent, span, edge, time_ns, step)

    def _edge(
        self, track: Track, spent: int, span: int, edge: int, time_ns: int, step: int
    ) -> None:
        if spent == _STEP:
            if edge == BEGIN:
                track.begin(time_ns, track.next_step if step == NO_STEP else step)
            else:
                track.end(time_ns, None if step == NO_STEP else step)
        elif edge == BEGIN:
            track.open(time_ns, spent, span)
        else:
            track.close(time_ns, span)

    def _in_order(self, journal: _Journal, batch: Batch, events: list[Event]) -> None:
        """Takes edges, entries, waits and events in the order in which they were recorded."""
        if not events and not journal.waits and not len(batch.spans):
            self._entries(journal, batch.points)
            return
        facts = self._said(journal, batch)
        asides: list[_Fact] = [
            (wait[0], _WAIT, wait) for wait in self._waits(journal, batch.points)
        ]
        asides += [(event.time_ns, _TOLD, (event,)) for event in events]
        for fact in _woven(facts, sorted(asides, key=_moment)):
            self._take(journal, *fact)

    def _said(self, journal: _Journal, batch: Batch) -> list[_Fact]:
        """Edges and entries.  Each kind keeps its own order, which equal times would not show."""
        spans, points, marks = batch.spans, batch.points, journal.entries
        edges: list[_Fact] = [
            (time_ns, _EDGE, (journal.names[name], span, edge, time_ns, step))
            for name, span, edge, time_ns, step in zip(
                spans.name, spans.span, spans.edge, spans.time_ns, spans.step, strict=True
            )
            if name in journal.names
        ]
        if not marks:
            return edges
        edges += [
            (time_ns, _ENTRY, (*marks[series], step, value))
            for series, time_ns, step, value in zip(
                points.series, points.time_ns, points.step, points.value, strict=True
            )
            if series in marks
        ]
        return sorted(edges, key=_moment)

    def _take(self, journal: _Journal, time_ns: int, form: int, fact: tuple[Any, ...]) -> None:
        if form == _EDGE:
            self._edge(self._track(journal, time_ns), *fact)
        elif form == _ENTRY:
            what, kind, step, value = fact
            self._diary(journal).entry(what, kind, step, nanoseconds(value) - journal.ahead_ns)
        elif form == _WAIT:
            self._track(journal, time_ns).waited(fact[1], fact[2])
        else:
            self._tell(journal, fact[0])

    def _entries(self, journal: _Journal, points: Points) -> None:
        marks = journal.entries
        if not any(series in marks for series in points.series):
            return
        diary = self._diary(journal)
        kinds = {marks.get(series, ("",))[0] for series in set(points.series)}
        if kinds == {STEP_START}:
            times = array("q", map(nanoseconds, points.value))
            diary.steps(shifted(times, journal.ahead_ns), points.step)
            return
        for series, step, value in zip(points.series, points.step, points.value, strict=True):
            known = marks.get(series)
            if known is not None:
                diary.entry(*known, step, nanoseconds(value) - journal.ahead_ns)

    def _track(self, journal: _Journal, time_ns: int) -> Track:
        return journal.track if journal.diary is None else journal.diary.track(time_ns)

    def _tell(self, journal: _Journal, event: Event) -> None:
        if event.kind == RunStart.KIND:
            if RunStart.of(event.body).imported:
                journal.imported = True
                if journal.diary is not None:
                    journal.diary.imported = True
        elif event.kind == Config.KIND:
            config = Config.of(event.body)
            if config.part == "system":
                journal.track.has_gpu = bool(config.values.get("gpus"))
            elif config.part == "software":
                self.ledger.dispatches(journal.track, _is_synchronous(config.values))
        elif event.kind == GoodputEntry.KIND:
            entry = GoodputEntry.of(event.body).entry
            if entry is not None:
                self._diary(journal).checkpoint(entry)
        else:
            self._elapsed(journal, event)

    def _elapsed(self, journal: _Journal, event: Event) -> None:
        stretch = Elapsed.stretch(event.body)
        if stretch is None:
            return
        name, seconds, ago = stretch
        if not name.endswith(BACKGROUND):
            track = self._track(journal, event.time_ns)
            end_ns = event.time_ns - round(ago * 1e9)
            track.elapsed(end_ns, round(seconds * 1e9), self._class_of(name))


def _when(event: Event) -> int:
    return event.time_ns


def _first_behind(spans: Spans, at: int, time_ns: int) -> int:
    """The first edge from `at` on that an event at `time_ns` comes before; as in `_woven`."""
    while at < len(spans):
        edge_ns = spans.time_ns[at]
        if time_ns < edge_ns or (time_ns == edge_ns and spans.edge[at] == BEGIN):
            break
        at += 1
    return at


def _is_synchronous(software: Any) -> bool | None:
    """Whether a step's work is done when the call returns, judged by the program's libraries.

    A PyTorch built for accelerators may run without one.  JAX hands work over even to a CPU.
    """
    versions = software.get("versions") if isinstance(software, Mapping) else None
    if not isinstance(versions, Mapping):
        return None
    if "jax" in versions:
        return False
    torch = versions.get("torch")
    if torch is None:
        return None if "tensorflow" in versions else True
    return True if str(torch).endswith("+cpu") else False if "+" in str(torch) else None


def _moment(fact: _Fact) -> int:
    return fact[0]


def _begins(fact: _Fact) -> bool:
    _, form, what = fact
    return bool(what[2] == BEGIN if form == _EDGE else what[0].endswith("_start_time"))


def _woven(facts: Iterable[_Fact], asides: Iterable[_Fact]) -> Iterator[_Fact]:
    """All facts by time.  At equal times a wait or event, which is about the past, comes before a
    begin."""
    waiting = iter(asides)
    aside = next(waiting, None)
    for fact in facts:
        while aside is not None and (aside[0] < fact[0] or (aside[0] == fact[0] and _begins(fact))):
            yield aside
            aside = next(waiting, None)
        yield fact
    if aside is not None:
        yield aside
        yield from waiting


def life_of(state: ProcessState) -> Life:
    return Life(
        attempt=(state.attempt, 0),
        rank=state.rank,
        start_ns=state.started_ns,
        end_ns=state.ended_ns,
        ok=state.state in ("completed", "running"),
        cause=cause(state),
        exact=state.state != "lost",
        key=state.journal,
        lived_ns=state.lived_ns,
        done=state.done,
        heard_ns=state.last_ns,
    )


def cause(state: ProcessState) -> str:
    if state.state in ("completed", "running"):
        return ""
    how = state.reason if state.state == "killed" else f"{state.state}: {state.reason}"
    return f"{who(state)} {how} on {state.host}"
