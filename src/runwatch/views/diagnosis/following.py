"""A run's progress, read from what its processes recorded.

`Follower` takes batches as they are stored.  It reads Runwatch's own spans and the entries of
`GoodputRecorder`; of a process that records neither, the step numbers of its points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from runwatch.entries import JOB_START, PREFIX, STEP_START, begins, ends, span_name
from runwatch.record import (
    BEGIN,
    END,
    NO_STEP,
    Batch,
    Event,
    JournalId,
    RunId,
    RunScope,
    Series,
    SpanName,
)
from runwatch.record.life import Elapsed, LogText
from runwatch.views.diagnosis.progress import STEP, Ended, Progress
from runwatch.views.pace import Limits
from runwatch.views.runs import ProcessState

ENTRY_PREFIX: Final = PREFIX
MOST_BEGUN: Final = 8
LAST_POINTS: Final = 64
MOST_EDGES: Final = 256
"""Of one batch; of more, steps are left out."""


@dataclass(slots=True)
class _Journal:
    rank: int
    offset_ns: int = 0
    scopes: set[int] = field(default_factory=set)
    other_scopes: bool = False
    spans: dict[int, str] = field(default_factory=dict)
    entries: dict[int, str] = field(default_factory=dict)
    begun: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    """By span: when a step began, and its number."""
    step: int = NO_STEP
    """The highest step number among its points, or the step that began last."""
    step_ns: int = 0
    tells_steps: bool = False
    """It records steps as spans: then the step numbers of its points do not matter."""


class Follower:
    """Feeds one run's batches into its progress, each journal's in order.

    A journal counts once its process is announced.  `offset_ns` is added to the times of its host
    to make them times of this head.
    """

    def __init__(self, run: RunId, limits: Limits | None = None) -> None:
        self.run = run
        self.progress = Progress(limits)
        self._journals: dict[JournalId, _Journal] = {}

    def enter(self, state: ProcessState, offset_ns: int = 0) -> None:
        """Announce a process, or say how it is now."""
        journal = self._journals.get(state.journal)
        if journal is None:
            journal = self._journals[state.journal] = _Journal(state.rank)
            self.progress.saw_start(state.rank, state.started_ns + offset_ns, state.attempt)
        journal.offset_ns = offset_ns
        if state.ended_ns is not None and state.state != "lost":
            self.progress.saw_end(state.rank, ended_of(state, offset_ns))

    def heartbeat(self, journal: JournalId, time_ns: int) -> None:
        """Its agent saw the process alive."""
        known = self._journals.get(journal)
        if known is not None:
            self.progress.saw(known.rank, time_ns + known.offset_ns, heartbeat=True)

    def batch(self, batch: Batch) -> None:
        journal = self._journals.get(batch.origin.journal)
        if journal is None:
            return
        self._define(journal, batch)
        if not journal.scopes:
            return
        self._edges(journal, batch)
        for event in batch.events:
            if event.scope in journal.scopes:
                self._event(journal, event)
        self._points(journal, batch)

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _define(self, journal: _Journal, batch: Batch) -> None:
        for definition in batch.definitions:
            if isinstance(definition, RunScope):
                if definition.run == self.run:
                    journal.scopes.add(definition.id)
                else:
                    journal.other_scopes = True
            elif definition.scope not in journal.scopes:
                continue
            elif isinstance(definition, SpanName):
                journal.spans[definition.id] = definition.name
            elif isinstance(definition, Series) and definition.metric.startswith(ENTRY_PREFIX):
                journal.entries[definition.id] = definition.metric.removeprefix(ENTRY_PREFIX)

    def _edges(self, journal: _Journal, batch: Batch) -> None:
        spans = batch.spans
        columns = zip(spans.name, spans.span, spans.edge, spans.time_ns, spans.step, strict=True)
        left_out = len(spans) - MOST_EDGES
        for place, (name_id, span, edge, time_ns, step) in enumerate(columns):
            name = journal.spans.get(name_id)
            if place < left_out and name == STEP:
                self._left_out(journal)
            elif name is not None:
                number = None if step == NO_STEP else step
                self._edge(journal, name, span, edge, time_ns, number)

    def _left_out(self, journal: _Journal) -> None:
        """So many steps come at once only after an outage: the last ones tell as much as all."""
        journal.begun.clear()
        self.progress.saw_gap(journal.rank)

    def _edge(
        self, journal: _Journal, name: str, span: int, edge: int, time_ns: int, step: int | None
    ) -> None:
        time_ns += journal.offset_ns
        if name != STEP:
            self.progress.saw_span(journal.rank, name, edge, time_ns, span)
            return
        journal.tells_steps = True
        if edge == BEGIN:
            journal.begun[span] = time_ns, step
            if len(journal.begun) > MOST_BEGUN:  # its end never came
                del journal.begun[next(iter(journal.begun))]
            self.progress.saw_step_begin(journal.rank, time_ns)
        elif (begun := journal.begun.pop(span, None)) is not None:
            number = begun[1] if begun[1] is not None else step
            self.progress.saw_step(journal.rank, number, begun[0], time_ns)

    def _event(self, journal: _Journal, event: Event) -> None:
        if event.kind == Elapsed.KIND:
            self._elapsed(journal, event.time_ns, event.body)
        elif event.kind == LogText.KIND:
            self.progress.saw_word(journal.rank, event.time_ns + journal.offset_ns)
        else:
            self.progress.saw(journal.rank, event.time_ns + journal.offset_ns)

    def _elapsed(self, journal: _Journal, time_ns: int, body: Mapping[str, Any]) -> None:
        stretch = Elapsed.stretch(body)
        if stretch is None:
            return
        name, seconds, ago = stretch
        end_ns = time_ns + journal.offset_ns - round(ago * 1e9)
        self.progress.saw_elapsed(journal.rank, name, end_ns, round(seconds * 1e9))

    def _points(self, journal: _Journal, batch: Batch) -> None:
        points = batch.points
        if not len(points):
            return
        self.progress.saw_word(journal.rank, points.time_ns[-1] + journal.offset_ns)
        if journal.entries:
            self._entries(journal, batch)
        elif not journal.tells_steps and not journal.other_scopes:
            # Cheap on purpose: every point of every run passes here, and steps only grow.
            newest = max(points.step[-LAST_POINTS:])
            if newest > journal.step:
                self._came_to(journal, newest, points.time_ns[-1] + journal.offset_ns)

    def _came_to(self, journal: _Journal, step: int, time_ns: int) -> None:
        """A later step number than before: the step before it is done."""
        if journal.step != NO_STEP:
            self.progress.saw_step(journal.rank, journal.step, journal.step_ns, time_ns)
        journal.step, journal.step_ns = step, time_ns
        self.progress.saw_step_begin(journal.rank, time_ns)

    def _entries(self, journal: _Journal, batch: Batch) -> None:
        points = batch.points
        for series, time_ns, step in zip(points.series, points.time_ns, points.step, strict=True):
            what = journal.entries.get(series)
            if what is None:
                continue
            time_ns += journal.offset_ns
            if what == STEP_START:
                self._came_to(journal, step, time_ns)
            elif what != JOB_START and begins(what):
                self.progress.saw_span(journal.rank, span_name(what), BEGIN, time_ns)
            elif ends(what):
                self.progress.saw_span(journal.rank, span_name(what), END, time_ns)


def ended_of(state: ProcessState, offset_ns: int = 0) -> Ended:
    return Ended(
        time_ns=(state.ended_ns or state.last_ns) + offset_ns,
        ok=state.state == "completed",
        signal=state.signal or "",
        code=state.exit_code,
        reason=state.reason,
    )
