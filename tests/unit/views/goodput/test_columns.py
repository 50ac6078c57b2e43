"""By the column or step by step: the account is the same, whatever was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest

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
from runwatch.vectors import Switch
from runwatch.views.goodput.account import Life
from runwatch.views.goodput.drawing import draw_up
from runwatch.views.goodput.facts import DATA_WAIT, Scribe
from runwatch.views.goodput.ledger import Ledger, Stale
from runwatch.views.goodput.saving import scribe_of_state, scribe_state
from runwatch.views.goodput.steps.meetings import Meetings
from runwatch.views.goodput.steps.strides import Strides
from runwatch.views.goodput.steps.track import Stride
from runwatch.views.goodput.timeline import MARK_EVERY, Timeline

RUN = RunId("run")
MS = 1_000_000
SECOND = 1_000_000_000
BEGUN = 1_700_000_000 * SECOND
NAMES = {1: "step", 2: "checkpoint_save", 3: "evaluation", 4: "my own", 5: "log/background"}
SERIES = {1: DATA_WAIT, 2: "step_seconds"}

Record = tuple[str, tuple[Any, ...]]

GPU: list[Record] = [
    ("events", (BEGUN, "config", {"part": "system", "values": {"gpus": ["NVIDIA H200"]}})),
    (
        "events",
        (BEGUN, "config", {"part": "software", "values": {"versions": {"torch": "2.11.0+cu130"}}}),
    ),
]


@contextmanager
def step_by_step() -> Iterator[None]:
    Switch.on = False
    try:
        yield
    finally:
        Switch.on = True


# ── histories ──────────────────────────────────────────────────────────────────────────────────


@dataclass
class Loop:
    """One process's loop, with all that may come in between."""

    random: Random
    rank: int
    records: list[Record] = field(default_factory=list)
    now: int = BEGUN
    spans: int = 0
    odd: float = 0.02

    def edge(self, name: int, edge: int, span: int, step: int = NO_STEP) -> None:
        self.records.append(("spans", (name, span, edge, self.now, step)))

    def wait(self, step: int, seconds: float, late_ns: int = 0) -> None:
        self.records.append(("points", (1, self.now + late_ns, step, seconds)))

    def run(self, first: int, steps: int, paces: list[int]) -> None:
        random, step = self.random, first
        waits = random.random() < 0.8
        enclosing = random.random() < 0.1
        if enclosing:
            self.spans += 1
            self.edge(4, BEGIN, self.spans)
        for at in range(steps):
            pace = paces[at % len(paces)] + random.randrange(5 * MS)
            step = self.before(step)
            self.now += random.choice((0, random.randrange(20 * MS)))
            self.step(step, pace, waits)
            step += 1
        if random.random() < 0.5:
            self.edge(1, BEGIN, self.spans + 1, step)
            self.now += random.randrange(3 * SECOND)

    def before(self, step: int) -> int:
        """Something else, now and then; the number of the next step."""
        random = self.random
        if random.random() >= self.odd:
            return step
        what = random.randrange(7)
        self.spans += 1
        if what < 3:
            self.edge(what + 2, BEGIN, self.spans)
            self.now += random.randrange(4 * SECOND)
            self.edge(what + 2, END, self.spans)
        elif what == 3:
            body = {"name": "checkpoint_save", "seconds": random.random()}
            self.records.append(("events", (self.now, "elapsed", body)))
        elif what == 4:
            return max(0, step - random.randrange(1, 12)) if random.random() < 0.3 else step + 2
        elif what == 5:
            self.now += random.randrange(60 * SECOND)
        else:
            self.edge(5, BEGIN, self.spans)
        return step

    def step(self, step: int, pace: int, waits: bool) -> None:
        random = self.random
        self.spans += 1
        odd = random.random() if random.random() < self.odd else 1.0
        said = NO_STEP if odd < 0.1 else step
        self.edge(1, BEGIN, self.spans, said)
        if odd < 0.3:
            self.edge(3, BEGIN, self.spans + 10**6)
            self.now += random.randrange(SECOND)
            self.edge(3, END, self.spans + 10**6)
        self.now += 0 if 0.3 <= odd < 0.4 else pace
        if not 0.4 <= odd < 0.5:
            self.edge(1, END, self.spans, said)
        self.records.append(("points", (2, self.now, step, pace / 1e9)))
        if waits and random.random() < 0.98:
            of = step - random.choice((0, 0, 1, 3, 5)) if 0.5 <= odd < 0.7 else step
            seconds = random.choice((-1.0, 30.0, 0.0)) if odd < 0.2 else random.random() / 50
            self.wait(of, seconds, random.randrange(2 * MS) if 0.7 <= odd < 0.9 else 0)


def history(random: Random) -> tuple[list[list[Batch]], list[Life], int]:
    """The batches of each process, what is known of their lives, and until when."""
    ranks = random.choice((1, 1, 2, 3, 5))
    steps = random.choice((40, 200, 700, 3_000 // ranks))
    paces = [random.randrange(50, 400) * MS for _ in range(random.choice((1, 1, 3)))]
    if random.random() < 0.2:
        paces = [MS // 10] * 9 + [SECOND]  # the device is waited for now and then
    odd = random.choice((0.0, 0.003, 0.05))
    parts = random.choice((0, 8))
    told, lives, end = [], [], 0
    on_gpu = random.random() < 0.3
    for rank in range(ranks):
        loop = Loop(random, rank, odd=odd)
        loop.records += GPU if on_gpu else []
        loop.now += random.randrange(SECOND) + (10 * SECOND if random.random() < 0.1 else 0)
        start = loop.now
        loop.run(random.choice((0, 0, 0, 7)), int(steps * random.choice((1, 1, 0.6))), paces)
        if random.random() < 0.3:
            loop.run(random.randrange(steps), steps // 3, paces)
        key = JournalId(f"rank {rank}")
        told.append(batches(key, rank, start, loop.records, random, parts))
        ended = loop.now if random.random() < 0.7 else None
        lives.append(Life((1, 0), rank, start, ended, random.random() < 0.7, "", True, key))
        end = max(end, loop.now)
    return told, lives, end + 5 * SECOND


def batches(
    key: JournalId, rank: int, start: int, records: list[Record], random: Random, parts: int = 0
) -> list[Batch]:
    """Cut anywhere, or into equal parts."""
    definitions = [RunScope(1, RUN, "run", rank)]
    named = [SpanName(number, name, 1) for number, name in NAMES.items()]
    measured = [Series(number, metric, 1) for number, metric in SERIES.items()]
    count = len(records)
    cuts = sorted({0, count, *(random.randrange(count) for _ in range(random.choice((0, 3, 12))))})
    if parts:
        cuts = [count * part // parts for part in range(parts + 1)]
    found = []
    for first, last in zip(cuts, cuts[1:], strict=False):
        batch = Batch(Origin(key, f"host {rank}", 1, start), Position(first), Position(last))
        batch.definitions += [] if first else [*definitions, *named, *measured]
        for kind, row in records[first:last]:
            if kind == "events":
                time_ns, event, body = row
                batch.events.append(Event(time_ns, event, body, NO_STEP, 1))
            else:
                getattr(batch, kind).append(*row)
        found.append(batch)
    return found


def woven(told: list[list[Batch]], random: Random) -> list[list[Batch]]:
    """As they arrive, each process's in order: some at a time."""
    queues = [list(each) for each in told]
    found = []
    together = random.random() < 0.7
    while queues := [queue for queue in queues if queue]:
        next_ones = queues if together else [random.choice(queues)]
        found.append([queue.pop(0) for queue in next_ones])
    return found


# ── accounts ───────────────────────────────────────────────────────────────────────────────────


def account(
    arriving: list[list[Batch]], lives: list[Life], end: int, lenient: bool, saved_at: int = -1
) -> Any:
    """All there is to it; or where the fold gave up."""
    scribe = Scribe(RUN, Ledger(lenient=lenient))
    for life in lives:
        scribe.enter(JournalId(life.key), 1, life.rank, life.start_ns, host=f"host {life.rank}")
    for at, some in enumerate(arriving):
        try:
            for batch in some:
                scribe.batch(batch)
            scribe.ledger.settle()
        except Stale as stale:
            return at, str(stale)
        if at == saved_at:
            ledger = Ledger.load(scribe.ledger.save())
            scribe = scribe_of_state(RUN, ledger, scribe_state(scribe))
    scribe.ledger.end(life.key for life in lives if life.end_ns is not None)
    goodput = draw_up(scribe.ledger, lives, end)
    assert goodput is not None
    marks = [goodput.start_ns + i * (goodput.end_ns - goodput.start_ns) // 7 for i in range(8)]
    return (
        [list(s.timeline.intervals(s.start_ns, s.end_ns)) for s in goodput._stretches],
        list(goodput.each(marks)),
        (goodput.steps, goodput.max_productive_step, goodput.ideal_step_ns, goodput.inferred_ns),
        (goodput.attempts, goodput.disruptions, goodput.ranks, goodput._redone),
        scribe.ledger.ahead_ns(),
        tracks(scribe.ledger),
    )


def tracks(ledger: Ledger) -> list[Any]:
    return [track.state() for found in ledger.attempts.values() for track in found.tracks.values()]


@pytest.mark.parametrize("seed", range(80))
def test_the_account_is_that_of_the_steps(seed: int) -> None:
    random = Random(seed)
    told, lives, end = history(random)
    arriving, lenient = woven(told, random), random.random() < 0.5
    with step_by_step():
        wanted = account(arriving, lives, end, lenient)
    assert account(arriving, lives, end, lenient) == wanted
    saved_at = random.randrange(len(arriving))
    assert account(arriving, lives, end, lenient, saved_at) == wanted


def test_plain_steps_are_taken_by_the_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing here is tested."""
    taken: list[int] = []
    join_all = Meetings.join_all

    def noted(self: Meetings, generation: int, strides: Strides, rank: int) -> None:
        taken.append(len(strides))
        join_all(self, generation, strides, rank)

    monkeypatch.setattr(Meetings, "join_all", noted)
    random, told, lives, end = Random(0), [], [], 0
    for rank in range(3):
        loop = Loop(random, rank, odd=0.0)
        loop.run(0, 500, [100 * MS])
        told.append(batches(JournalId(f"{rank}"), rank, BEGUN, loop.records, random, 5))
        lives.append(Life((1, 0), rank, BEGUN, key=f"{rank}"))
        end = max(end, loop.now)
    account([list(some) for some in zip(*told, strict=True)], lives, end, lenient=False)
    assert sum(taken) > 0.9 * 3 * 500


# ── the parts ──────────────────────────────────────────────────────────────────────────────────


def strides(random: Random, first: int, count: int) -> Strides:
    edges = np.cumsum([random.randrange(1, 9) for _ in range(2 * count)], dtype=np.int64)
    begins, ends = edges[0::2] + 10 * first, edges[1::2] + 10 * first
    waits = begins - np.array([random.choice((0, 0, 1)) for _ in range(count)], np.int64)
    return Strides(0, first, 10 * first, begins, ends, waits)


@pytest.mark.parametrize("seed", range(40))
def test_meetings_are_the_same_by_row_and_by_object(seed: int) -> None:
    random = Random(seed)
    rows, objects = Meetings(), Meetings()
    for _ in range(30):
        what, rank = random.randrange(6), random.randrange(4)
        generation, first = random.choice((0, 0, 0, 1)), random.randrange(60)
        if what < 3:
            some = strides(random, first, random.randrange(1, 40))
            rows.join_all(generation, some, rank)
            for stride in some.each():
                objects.join(generation, stride, rank)
        elif what == 3:
            inside = [(first * 10 + 2, first * 10 + 3, 7)] if random.random() < 0.5 else []
            stride = Stride(0, first, first * 10, first * 10 + 1, first * 10 + 5, [], inside)
            rows.join(generation, stride, rank)
            objects.join(generation, stride, rank)
        elif what == 4 and len(objects):
            at = random.choice(sorted(objects))
            del rows[at], objects[at]
        else:
            until, most = (generation, first), random.choice((3, 1 << 62))
            assert spread(rows, until, most) == spread(objects, until, most)
        assert not objects.rows
        assert dict(rows) == dict(objects) == dict(rows.copy())
        assert len(rows) == len(objects)
        assert dict(Meetings.of_state(rows.state())) == dict(objects)


def spread(meetings: Meetings, until: tuple[int, int], most: int) -> Any:
    cells: list[Any] = []
    awaited: dict[int, tuple[int, int]] = {}
    for found, awaiting in meetings.taken(until, most):
        if isinstance(found, tuple):
            wait = found.gap[0][0] if found.gap else found.begin_ns
            cells.append((*found[:3], wait, found.end_ns, found.ranks, found.inside))
        else:
            columns = zip(found.begins, found.waits, found.ends, found.ranks, strict=True)
            cells += [(found.lap, found.first + i, *row, []) for i, row in enumerate(columns)]
        for rank, steps, ns in awaiting:
            before = awaited.get(rank, (0, 0))
            awaited[rank] = before[0] + steps, before[1] + ns
    return cells, awaited


@pytest.mark.parametrize("seed", range(20))
def test_a_timeline_is_the_same_in_one_go(seed: int) -> None:
    random = Random(seed)
    slowly, quickly = Timeline(0), Timeline(0)
    now = 0
    for _ in range(5):
        ends, classes = [], []
        for _ in range(random.choice((1, 5, 3 * MARK_EVERY))):
            now += random.randrange(1, 100)
            ends.append(now)
            classes.append(random.randrange(4))
        for end, spent in zip(ends, classes, strict=True):
            slowly.append(end, spent)
        quickly.extend(np.array(ends, np.int64), np.array(classes, np.int64))
        assert quickly.state() == slowly.state()
