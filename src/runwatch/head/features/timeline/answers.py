"""One answer for a run's whole timeline."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any, Final, NamedTuple

from runwatch.buckets import Grid, grid
from runwatch.errors import UsageError
from runwatch.head.features.timeline.types import (
    CheckpointColumns,
    PieceColumns,
    StepColumns,
    TimelineEvent,
    TimelineGoodput,
    TimelineIncident,
    TimelineInfo,
    TimelineProfile,
)
from runwatch.head.http.parameters import Given
from runwatch.head.http.shapes import (
    MOST_EVENT_BYTES,
    attempt_infos,
    disruption_infos,
    event_info,
)
from runwatch.head.http.types import number, plain
from runwatch.head.reading import Reading
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.head.state.accounts.notes import noted
from runwatch.head.state.board import RunBoard
from runwatch.record import JournalId, RunId
from runwatch.record.captures import ProfileDeleted, ProfileEvent
from runwatch.record.console import ExceptionTold
from runwatch.record.life import ClockJump, Fork, JournalLoss, LogText, RunEnd, RunStart, SdkWarning
from runwatch.record.losses import (
    LimitReached,
    PointsNotRecorded,
    RecordsSkipped,
    SeriesNotRecorded,
)
from runwatch.record.node import (
    AgentEnd,
    AgentStart,
    CollectorFailed,
    CollectorResumed,
    CollectorStuck,
    DeviceAdded,
    DeviceLost,
    DeviceUnreadable,
    GpuXid,
    ProcessExit,
    QueueUnknown,
)
from runwatch.record.pods import PodTold
from runwatch.record.stacks import Incident
from runwatch.rows import Curve, EventRow
from runwatch.store.store import OF_EACH
from runwatch.views import pod_words, profiles
from runwatch.views.goodput.account import Goodput
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.pixels import Drawn, drawn
from runwatch.views.incidents import incidents_of
from runwatch.views.runs import ProcessState, RunSummary
from runwatch.views.series import Question, attempt_of

STEP_SECONDS: Final = "step_seconds"
MOST_CHECKPOINTS: Final = 2000
MOST_COUNTED: Final = 5000
MOST_BUCKETS: Final = 1000
LONGEST_TEXT: Final = 500
LOSS_NONFINITE: Final = "loss_nonfinite"
"""The kind of an event that no process tells of: the timeline derives it."""
logger = logging.getLogger("runwatch.head")

_ENDS: Final = (RunStart.KIND, RunEnd.KIND, ProcessExit.KIND, ExceptionTold.KIND)
_OF_HOSTS: Final = (
    GpuXid.KIND, DeviceLost.KIND, DeviceAdded.KIND, DeviceUnreadable.KIND, CollectorStuck.KIND,
    CollectorResumed.KIND, CollectorFailed.KIND, AgentStart.KIND, AgentEnd.KIND,
)  # fmt: skip
_LOSSES: Final = (
    JournalLoss.KIND, RecordsSkipped.KIND, ClockJump.KIND, PointsNotRecorded.KIND,
    SeriesNotRecorded.KIND, LimitReached.KIND, QueueUnknown.KIND,
)  # fmt: skip
_CHATTER: Final = (Fork.KIND, SdkWarning.KIND, LogText.KIND)
"""Events of these kinds are left out first when there are too many."""


class Window(NamedTuple):
    start_ns: int
    end_ns: int

    def overlaps(self, start_ns: int, end_ns: int | None) -> bool:
        return start_ns < self.end_ns and (end_ns is None or end_ns >= self.start_ns)


class Timelines:
    def __init__(self, reading: Reading, accounts: Accounts, board: RunBoard) -> None:
        self._reading = reading
        self._accounts = accounts
        self._board = board

    def of(self, given: Given) -> TimelineInfo:
        reading, run = self._reading, self._reading.run(given["run"])
        states = reading.processes(run)
        summary = reading.summary(run, states)
        ready = self._accounts.wait(run)
        with self._accounts.of(run) if ready else nullcontext() as goodput:
            whole = _whole(summary, goodput, reading.clock.wall_ns())
            window = _window(given, whole)
            live = summary.state == "running" if goodput is None else goodput.live
            spent, checkpoints, disruptions = None, _no_checkpoints(), []
            if goodput is not None:
                self._note(run, goodput)
                spent = _goodput(goodput, window, given["pixels"])
                checkpoints = _checkpoints(goodput, window)
                disruptions = disruption_infos(goodput, *window)
        events = _Events(reading, run, states, window, given["events"])
        shown = _in_order([*events.shown, *_diverged(reading, summary, window)])
        return TimelineInfo(
            run=run,
            name=plain(summary.name),
            state=summary.state,
            live=live,
            time_ns=reading.clock.wall_ns(),
            run_start_ns=whole.start_ns,
            run_end_ns=whole.end_ns,
            start_ns=window.start_ns,
            end_ns=window.end_ns,
            pixels=given["pixels"],
            attempts=attempt_infos(states, run),
            goodput=spent,
            pending=not ready,
            progress=1.0 if ready else self._accounts.progress(run),
            steps=_steps(reading, run, window, given["pixels"]),
            checkpoints=checkpoints,
            disruptions=disruptions,
            events=[event_info(TimelineEvent, each, _short(each)) for each in shown],
            left_out=events.left_out,
            more=events.more,
            profiles=_profiles(reading, run, states, window),
            incidents=_incidents(reading, run, window),
        )

    def _note(self, run: RunId, goodput: Goodput) -> None:
        self._board.note(run, noted(goodput.account()))


def _whole(summary: RunSummary, goodput: Goodput | None, now_ns: int) -> Window:
    if goodput is not None:
        return Window(goodput.start_ns, goodput.end_ns)
    end_ns = now_ns if summary.state == "running" else summary.ended_ns or summary.last_ns
    return Window(summary.started_ns, max(summary.started_ns, end_ns))


def _window(given: Given, whole: Window) -> Window:
    start = whole.start_ns if given["start"] is None else given["start"]
    end = max(whole.end_ns, start + 1) if given["end"] is None else given["end"]
    if start >= end:
        raise UsageError(f"start={start} is not before end={end}; give a start before the end")
    return Window(start, end)


def _goodput(goodput: Goodput, window: Window, pixels: int) -> TimelineGoodput:
    account = goodput.account(*window)
    return TimelineGoodput(
        share=account.goodput,
        total_ns=account.total_ns,
        spent_ns={plain(name): ns for name, ns in account.spent_ns.items() if ns},
        inferred_ns=goodput.inferred_ns,
        intervals=_columns(drawn(goodput, *window, pixels)),
    )


def _columns(found: Drawn) -> PieceColumns:
    pieces = found.pieces
    classes = list(dict.fromkeys(chain.from_iterable(piece.spent_ns for piece in pieces)))
    place = {name: i for i, name in enumerate(classes)}
    return PieceColumns(
        exact=found.exact,
        classes=[plain(name) for name in classes],
        start_ns=[piece.start_ns for piece in pieces],
        end_ns=[piece.end_ns for piece in pieces],
        class_=[place[piece.name] for piece in pieces],
        spent_ns=[]
        if found.exact
        else [[piece.spent_ns.get(name, 0) for name in classes] for piece in pieces],
    )


def _no_checkpoints() -> CheckpointColumns:
    return CheckpointColumns(start_ns=[], end_ns=[], class_=[], left_out=0)


def _checkpoints(goodput: Goodput, window: Window) -> CheckpointColumns:
    kinds = (Spent.CHECKPOINT_SAVE, Spent.CHECKPOINT_RESTORE)
    found = sorted(chain.from_iterable(goodput.of_class(kind, *window) for kind in kinds))
    shown = thinned(found, MOST_CHECKPOINTS)
    return CheckpointColumns(
        start_ns=[start for start, _, _ in shown],
        end_ns=[end for _, end, _ in shown],
        class_=[Spent(spent).name.lower() for _, _, spent in shown],
        left_out=len(found) - len(shown),
    )


def thinned(entries: Sequence[Any], most: int) -> list[Any]:
    """At most so many entries, picked evenly."""
    if len(entries) <= most:
        return list(entries)
    return [entries[i * len(entries) // most] for i in range(most)]


# ── steps ──────────────────────────────────────────────────────────────────────────────────────


def _steps(reading: Reading, run: RunId, window: Window, pixels: int) -> StepColumns:
    attempts = reading.attempts(run)
    lowest: dict[int | None, tuple[int, int]] = {}
    for row in reading.series(run, Question((STEP_SECONDS,)), attempts):
        attempt = attempt_of(row, attempts)
        lowest[attempt] = min(lowest.get(attempt, (row.rank, row.series)), (row.rank, row.series))
    buckets = min(pixels, MOST_BUCKETS)
    cells = grid("time", *window, buckets)
    if cells is None:
        raise UsageError(f"[{window[0]}, {window[1]}) is no stretch of time that has a picture")
    curves: Sequence[Curve] = ()
    if lowest:
        ids = [series for _, series in lowest.values()]
        start, end = window
        curves = reading.store.curves(ids, axis="time", start=start, end=end, buckets=buckets)
    return step_columns(curves, cells)


def step_columns(curves: Iterable[Curve], cells: Grid) -> StepColumns:
    """All attempts on one axis.  Two attempts may share the bucket in which one ends."""
    found: dict[int, tuple[int, float, float | None]] = {}
    for curve in curves:
        for at, count, mean, most in zip(
            curve.position, curve.count, curve.mean, curve.maximum, strict=True
        ):
            bucket = (at - cells.start) // cells.width
            counted, total, longest = found.get(bucket, (0, 0.0, None))
            longest = most if longest is None or (most or 0.0) > longest else longest
            found[bucket] = counted + count, total + (mean or 0.0) * count, longest
    order = sorted(found)
    rows = [found[bucket] for bucket in order]
    return StepColumns(
        start_ns=cells.start,
        width_ns=cells.width,
        bucket=order,
        count=[count for count, _, _ in rows],
        mean_seconds=[total / count if count else None for count, total, _ in rows],
        maximum_seconds=[longest for _, _, longest in rows],
    )


# ── events ─────────────────────────────────────────────────────────────────────────────────────


class _Events:
    """The events of a run and of its hosts in a window."""

    def __init__(
        self,
        reading: Reading,
        run: RunId,
        states: Iterable[ProcessState],
        window: Window,
        most: int,
    ) -> None:
        self.more = False
        self._reading = reading
        self._window = window
        states = list(states)
        hosts, ranks = {s.host for s in states}, {s.journal: s.rank for s in states}
        grave = self._ask(run, (*_ENDS, *_OF_HOSTS, *_LOSSES)) + [
            _of_rank(event, ranks)
            for event in self._ask(RunId(""), (ProcessExit.KIND, *_OF_HOSTS))
            if _concerns(event, hosts, ranks)
        ]
        chatter = self._ask(run, _CHATTER)
        pods = [(e, PodTold.of(e.body)) for e in pod_words.once(self._ask(run, (PodTold.KIND,)))]
        programs = pod_words.programs(told for _, told in pods)
        for event, told in pods:
            (grave if pod_words.is_trouble(told, programs) else chatter).append(event)
        kept = thinned(_in_order(grave), most)
        kept += thinned(_in_order(chatter), most - len(kept)) if len(kept) < most else []
        self.shown: list[EventRow] = _in_order(kept)
        counts = Counter(event.kind for event in chain(grave, chatter))
        counts.subtract(event.kind for event in self.shown)
        self.left_out = {kind: count for kind, count in sorted(counts.items()) if count}

    def _ask(self, run: RunId, kinds: Sequence[str]) -> list[EventRow]:
        found = self._reading.store.events(
            run,
            kinds=list(kinds),
            start_ns=self._window.start_ns,
            end_ns=self._window.end_ns + 1,  # the window includes the run's own end
            limit=MOST_COUNTED + 1,
            most_bytes=MOST_EVENT_BYTES,
        )
        self.more = self.more or len(found) > MOST_COUNTED
        return found[:MOST_COUNTED]


def _concerns(event: EventRow, hosts: set[str], ranks: Mapping[JournalId, int]) -> bool:
    if event.kind == ProcessExit.KIND:
        return ProcessExit.of(event.body).journal in ranks
    return event.host in hosts


def _of_rank(event: EventRow, ranks: Mapping[JournalId, int]) -> EventRow:
    """The event with its rank.  An agent may not know a process's rank; its journal does."""
    if event.kind != ProcessExit.KIND:
        return event
    return replace(event, rank=ranks[JournalId(ProcessExit.of(event.body).journal)])


def _in_order(events: Iterable[EventRow]) -> list[EventRow]:
    return sorted(events, key=lambda event: (event.time_ns, event.journal))


def _short(event: EventRow) -> dict[str, Any]:
    body = event.body
    if event.kind == ExceptionTold.KIND:  # the traceback is in the log, which not everybody may see
        told = ExceptionTold.of(body)
        body = {"type": told.type, "message": told.message, "thread": told.thread}
    found = {str(name): value for name, value in body.items() if _is_plain(value)}
    return {
        plain(name): plain(value[:LONGEST_TEXT] if isinstance(value, str) else value)
        for name, value in found.items()
    }


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _diverged(reading: Reading, summary: RunSummary, window: Window) -> list[EventRow]:
    """Losses that became NaN or infinite for good, as events: nobody records them as such."""
    found = reading.diverged(summary)
    return [
        EventRow(
            JournalId(""),
            summary.run,
            "",
            each.ranks[0],
            each.since_ns,
            each.step,
            LOSS_NONFINITE,
            {"metric": each.metric, "value": number(each.value), "text": each.text},
        )
        for attempt in sorted(found)
        for each in found[attempt]
        if window.start_ns <= each.since_ns <= window.end_ns
    ]


# ── profiles and incidents ─────────────────────────────────────────────────────────────────────


def _profiles(
    reading: Reading, run: RunId, states: Iterable[ProcessState], window: Window
) -> list[TimelineProfile]:
    events = reading.store.events(run, kinds=[ProfileEvent.KIND], of_each=OF_EACH)
    if not events:
        return []
    events += reading.store.events(RunId(""), kinds=[ProfileDeleted.KIND], of_each=OF_EACH)
    folded = profiles.fold(events, profiles.gone_of(states)).values()
    return [
        TimelineProfile(
            session=profile.name,
            state=profile.state,
            why=plain(profile.why),
            origin=plain(profile.origin),
            hosts=[plain(host) for host in profile.hosts],
            ranks=list(profile.ranks),
            start_ns=profile.start_ns,
            end_ns=profile.end_ns,
            first_step=profile.first_step,
            last_step=profile.last_step,
        )
        for profile in folded
        if profile.run == run and window.overlaps(profile.start_ns, profile.end_ns)
    ]


def _incidents(reading: Reading, run: RunId, window: Window) -> list[TimelineIncident]:
    events = reading.store.events(run, kinds=[Incident.KIND], of_each=OF_EACH)
    return [
        TimelineIncident(
            id=plain(incident.id),
            kind=incident.kind,
            state=incident.state,
            since_ns=incident.since_ns,
            detected_ns=incident.detected_ns,
            closed_ns=incident.closed_ns,
            text=plain(incident.text),
            confidence=plain(incident.confidence),
            ranks=list(incident.ranks),
            severity=incident.severity,
        )
        for _, incident in reversed(incidents_of(events))
        if window.overlaps(incident.since_ns, incident.closed_ns)
    ]
