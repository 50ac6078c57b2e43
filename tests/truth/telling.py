"""From a history to the account of it: glue, and the only file here that knows the account."""

from __future__ import annotations

from random import Random

from runwatch.record import (
    BEGIN,
    END,
    NO_STEP,
    Batch,
    Event,
    JournalId,
    Origin,
    Position,
    RunId,
    RunScope,
    Series,
    SpanName,
)
from runwatch.record.pods import PodTold
from runwatch.rows import EventRow, ProcessRow
from runwatch.views.goodput.account import Goodput
from runwatch.views.goodput.drawing import draw_up
from runwatch.views.goodput.facts import Scribe
from runwatch.views.goodput.ledger import Ledger, Stale
from runwatch.views.goodput.waiting import machines_of
from runwatch.views.life import LIFE_KINDS
from runwatch.views.pods import Pods
from runwatch.views.runs import ProcessState, process_states
from tests.truth.judging import History, Told
from tests.truth.machine import Edge, Note, Point, Record

RUN = RunId("run")
SCOPE = 1


def account_of(history: History, rng: Random) -> Goodput:
    states = states_of(history)
    scribe = _told(history, states, rng, {})
    if ahead := scribe.ledger.ahead_ns():
        scribe = _told(history, states, rng, ahead)
    machines = machines_of(states, _pods(history, rng))
    goodput = draw_up(scribe.ledger, scribe.lives(states), _now_ns(history), machines)
    assert goodput is not None
    return goodput


def _pods(history: History, rng: Random) -> Pods:
    """In any order; some of it twice, as by an operator that was started again."""
    rows = [
        EventRow(
            JournalId("operator"), RUN, "", 0, said.time_ns, None, PodTold.KIND,
            {"uid": said.uid, "what": said.what, "container": "main", "restarts": said.restarts},
        )
        for said in history.said
    ]  # fmt: skip
    twice = rows + [row for row in rows if rng.random() < 0.3]
    rng.shuffle(twice)
    return Pods(twice)


def _told(
    history: History, states: list[ProcessState], rng: Random, ahead: dict[int, dict[str, int]]
) -> Scribe:
    """In any order; if that will not do, in order of time, as whoever keeps records does it."""
    try:
        return _told_once(history, states, rng, ahead, in_order=False)
    except Stale:
        return _told_once(history, states, rng, ahead, in_order=True)


def _told_once(
    history: History,
    states: list[ProcessState],
    rng: Random,
    ahead: dict[int, dict[str, int]],
    *,
    in_order: bool,
) -> Scribe:
    scribe = Scribe(RUN, Ledger(lenient=in_order))
    for state in sorted(states, key=lambda state: state.started_ns):
        known = state.ahead_ns + ahead.get(state.attempt, {}).get(state.host, 0)
        plain = (state.journal, state.attempt, state.rank, state.started_ns)
        scribe.enter(*plain, host=state.host, ahead_ns=known)
    queues = [batches(told, rng) for told in history.told]
    while queues:
        queue = (
            min(queues, key=lambda queue: _first_ns(queue[0])) if in_order else rng.choice(queues)
        )
        scribe.batch(queue.pop(0))
        queues = [queue for queue in queues if queue]
    scribe.ledger.settle()
    return scribe


def _first_ns(batch: Batch) -> int:
    times = [*batch.points.time_ns[:1], *batch.spans.time_ns[:1]]
    return min([*times, *(event.time_ns for event in batch.events[:1])], default=0)


def states_of(history: History) -> list[ProcessState]:
    rows = [_process(told) for told in history.told]
    events = [event for told in history.told for event in _life(told)]
    return process_states(rows, events, _now_ns(history))


def _now_ns(history: History) -> int:
    """Later than all of it, by whichever clock."""
    return max(max(t.exit_ns, _last_ns(t)) + abs(t.ahead_ns) for t in history.told)


def _last_ns(told: Told) -> int:
    return max(record.time_ns for record in told.records)


def _process(told: Told) -> ProcessRow:
    return ProcessRow(
        journal=JournalId(told.journal),
        run=RUN,
        run_name="run",
        host=f"host-{told.rank}",
        pid=1,
        rank=told.rank,
        world_size=told.world_size,
        attempt_key=told.key,
        group="",
        start_ns=told.start_ns,
        boot="boot",
        process_start_ticks=(told.start_ns - told.ahead_ns) // 10_000_000,
        role="process",
        last_ns=_last_ns(told),
    )


def _life(told: Told) -> list[EventRow]:
    """What the process said of its life, and what its agent saw."""
    host = f"host-{told.rank}"
    journal, agent = JournalId(told.journal), JournalId(f"agent of {host}")
    said = [
        EventRow(journal, RUN, host, told.rank, note.time_ns, None, note.kind, note.body)
        for note in told.records
        if isinstance(note, Note) and note.kind in LIFE_KINDS
    ]
    if told.exit is None:
        return said
    seen = EventRow(agent, RunId(""), host, 0, told.exit_ns, None, "process_exit", told.exit)
    return [*said, seen]


def batches(told: Told, rng: Random) -> list[Batch]:
    """Its journal, cut anywhere."""
    count = len(told.records)
    cuts = sorted({0, count, *(rng.randint(0, count) for _ in range(rng.randint(0, 6)))})
    numbers: dict[tuple[str, str], int] = {}
    origin = Origin(JournalId(told.journal), f"host-{told.rank}", 1, told.start_ns)
    found = []
    for first, last in zip(cuts, cuts[1:], strict=False):
        batch = Batch(origin, Position(first), Position(last))
        if not first:
            scope = RunScope(SCOPE, RUN, "run", told.rank, told.world_size, told.key)
            batch.definitions.append(scope)
        for record in told.records[first:last]:
            _write(batch, record, numbers)
        found.append(batch)
    return found


def _write(batch: Batch, record: Record, numbers: dict[tuple[str, str], int]) -> None:
    if isinstance(record, Note):
        batch.events.append(Event(record.time_ns, record.kind, record.body, NO_STEP, SCOPE))
        return
    step = NO_STEP if record.step is None else record.step
    what = (record.name, "/") if isinstance(record, Edge) else (record.metric, record.kind)
    if what not in numbers:
        numbers[what] = len(numbers) + 1
        batch.definitions.append(_definition(record, numbers[what]))
    number = numbers[what]
    if isinstance(record, Edge):
        edge = BEGIN if record.begins else END
        batch.spans.append(number, record.span, edge, record.time_ns, step)
    else:
        batch.points.append(number, record.time_ns, step, record.value)


def _definition(record: Edge | Point, number: int) -> Series | SpanName:
    if isinstance(record, Edge):
        return SpanName(number, record.name, SCOPE)
    labels = {"type": record.kind} if record.kind else {}
    return Series(number, record.metric, SCOPE, labels=labels)
