"""How tests tell a story: what each process recorded, in its order, and how each ended.

A `Notebook` is one process.  It can be cut into batches anywhere, as a journal can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from runwatch.record import (
    BEGIN,
    END,
    NO_STEP,
    Batch,
    Definition,
    Event,
    JournalId,
    Origin,
    Position,
    RunId,
    RunScope,
    Series,
    SpanName,
)
from runwatch.views.goodput.account import Goodput, Range
from runwatch.views.goodput.drawing import draw_up
from runwatch.views.goodput.facts import Scribe
from runwatch.views.goodput.ledger import Ledger
from runwatch.views.life import State
from runwatch.views.runs import ProcessState

SECOND = 1_000_000_000
RUN = RunId("run")
SCOPE = 1


@dataclass(frozen=True)
class Edge:
    name: str
    span: int
    edge: int
    time_ns: int
    step: int


@dataclass(frozen=True)
class Point:
    metric: str
    kind: str
    time_ns: int
    step: int
    value: float


Record = Edge | Point | Event
What = tuple[str, ...] | None
"""The definition that a record uses."""


class Notebook:
    """One process; times are in seconds unless `unit_ns` says otherwise."""

    def __init__(
        self,
        rank: int = 0,
        attempt: int = 1,
        start: int = 0,
        *,
        unit_ns: int = SECOND,
        name: str = "",
    ) -> None:
        self.rank = rank
        self.attempt = attempt
        self.unit_ns = unit_ns
        self.start_ns = start * unit_ns
        self.journal = JournalId(name or f"attempt {attempt} rank {rank}")
        self.records: list[Record] = []
        self.ended_ns: int | None = None
        self.lived_ns: int | None = None
        self.said_done: bool | None = True
        self.state: State = "running"
        self.reason = ""
        self._spans = 0
        self._indexed: list[Record] = []
        self._numbers: dict[What, int] = {}
        self._first_uses: dict[What, int] = {}

    def __repr__(self) -> str:
        head = f"{self.journal} from {self.start_ns}, {self.state} at {self.ended_ns}:"
        return "\n  ".join([head, *map(str, self.records)])

    # ── what a program does ───────────────────────────────────────────────────────────────────

    def step(self, number: int, begin: int, end: int | None = None, wait: int = 0) -> Self:
        """`wait`: how long its data was waited for before it began, as `run.steps` says it."""
        span = self.begin("step", begin, number)
        if end is not None:
            self.end("step", span, end, number)
            if wait:
                self.waited(number, wait, end)
        return self

    def steps(self, first: int, *edges: int) -> Self:
        """Steps back to back: each lasts from one of the edges to the next."""
        for number, (begin, end) in enumerate(zip(edges, edges[1:], strict=False), first):
            self.step(number, begin, end)
        return self

    def span(self, name: str, begin: int, end: int | None = None) -> Self:
        span = self.begin(name, begin)
        if end is not None:
            self.end(name, span, end)
        return self

    def begin(self, name: str, at: int, step: int = NO_STEP) -> int:
        self._spans += 1
        self.records.append(Edge(name, self._spans, BEGIN, at * self.unit_ns, step))
        return self._spans

    def end(self, name: str, span: int, at: int, step: int = NO_STEP) -> Self:
        self.records.append(Edge(name, span, END, at * self.unit_ns, step))
        return self

    def waited(self, step: int, wait: int, at: int) -> Self:
        seconds = wait * self.unit_ns / SECOND
        self.records.append(Point("data_wait_seconds", "", at * self.unit_ns, step, seconds))
        return self

    def elapsed(self, name: str, took: int, at: int) -> Self:
        body = {"name": name, "seconds": took * self.unit_ns / SECOND}
        return self.event("elapsed", body, at)

    def event(self, kind: str, body: Mapping[str, Any], at: int) -> Self:
        self.records.append(Event(at * self.unit_ns, kind, body, NO_STEP, SCOPE))
        return self

    # ── what a program that uses GoodputRecorder does ─────────────────────────────────────────

    def entry(self, field: str, at: int, step: int = NO_STEP, kind: str = "") -> Self:
        value = at * self.unit_ns / SECOND
        point = Point(f"goodput.{field}", kind, at * self.unit_ns, step, value)
        self.records.append(point)
        return self

    def entries(self, stem: str, start: int, end: int | None = None, kind: str = "") -> Self:
        """The start and the end of something; `stem` as in `tpu_init`."""
        self.entry(f"{stem}_start_time", start, kind=kind)
        return self if end is None else self.entry(f"{stem}_end_time", end, kind=kind)

    def begins(self, first: int, *times: int) -> Self:
        """Beginnings of steps, as many as there are times; nobody says when a step ends."""
        for number, at in enumerate(times, first):
            self.entry("step_start_time", at, number)
        return self

    def checkpoint(self, event_type: str, start: int, took: int) -> Self:
        """What Orbax writes when it is done."""
        stem = "checkpoint_manager_blocking" if event_type == "save" else "checkpoint_manager"
        entry = {
            "event_type": event_type,
            f"{stem}_start_time": start * self.unit_ns / SECOND,
            f"{stem}_duration_secs": took * self.unit_ns / SECOND,
        }
        return self.event("goodput_entry", {"logger": "log", "entry": entry}, start + took)

    # ── how it ends ───────────────────────────────────────────────────────────────────────────

    def exits(self, at: int, state: State = "completed", reason: str = "") -> Self:
        self.ended_ns, self.state, self.reason = at * self.unit_ns, state, reason
        return self

    def killed(self, at: int, reason: str = "killed by SIGKILL") -> Self:
        return self.exits(at, "killed", reason)

    def process(self, now_ns: int | None = None) -> ProcessState:
        """How it stands; before it ended, if `now_ns` is earlier."""
        over = self.ended_ns is not None and (now_ns is None or self.ended_ns <= now_ns)
        return ProcessState(
            journal=self.journal,
            run=RUN,
            name="run",
            group="",
            host="host-a",
            pid=1,
            rank=self.rank,
            world_size=1,
            attempt=self.attempt,
            state=self.state if over else "running",
            reason=self.reason if over else "",
            started_ns=self.start_ns,
            ended_ns=self.ended_ns if over else None,
            last_ns=self.last_ns,
            done=self.said_done if over and self.state == "completed" else False,
            lived_ns=self.lived_ns if over else None,
        )

    @property
    def last_ns(self) -> int:
        return max((record.time_ns for record in self.records), default=self.start_ns)

    # ── as a journal ──────────────────────────────────────────────────────────────────────────

    def batch(self, first: int = 0, last: int | None = None, *, repeat: bool = False) -> Batch:
        """Records `first` to `last`; definitions where they are first needed, or all again."""
        last = len(self.records) if last is None else last
        numbers, first_uses = self._definitions()
        known = set() if repeat else {what for what, at in first_uses.items() if at < first}
        origin = Origin(self.journal, "host-a", 1, self.start_ns)
        batch = Batch(origin, Position(first), Position(last))
        if not first or repeat:
            batch.definitions.append(RunScope(SCOPE, RUN, "run", self.rank))
        for record in self.records[first:last]:
            what = _definition(record)
            number = numbers.get(what, 0)
            if what is not None and what not in known:
                known.add(what)
                batch.definitions.append(_defined(what, number))
            _write(batch, record, number)
        return batch

    def _definitions(self) -> tuple[dict[What, int], dict[What, int]]:
        """The number of each definition, and the index of the first record that uses it."""
        if self._indexed != self.records:
            self._indexed = list(self.records)
            self._first_uses = {}
            for at, record in enumerate(self.records):
                self._first_uses.setdefault(_definition(record), at)
            self._numbers = {what: number for number, what in enumerate(self._first_uses, 1)}
        return self._numbers, self._first_uses


def _definition(record: Record) -> What:
    if isinstance(record, Edge):
        return ("span", record.name)
    return ("series", record.metric, record.kind) if isinstance(record, Point) else None


def _defined(what: tuple[str, ...], number: int) -> Definition:
    if what[0] == "span":
        return SpanName(number, what[1], SCOPE)
    return Series(number, what[1], SCOPE, labels={"type": what[2]} if what[2] else {})


def _write(batch: Batch, record: Record, number: int) -> None:
    if isinstance(record, Edge):
        batch.spans.append(number, record.span, record.edge, record.time_ns, record.step)
    elif isinstance(record, Point):
        batch.points.append(number, record.time_ns, record.step, record.value)
    else:
        batch.events.append(record)


# ── the account of it ──────────────────────────────────────────────────────────────────────────


def scribe_for(notebooks: Iterable[Notebook], *, lenient: bool = False) -> Scribe:
    """One that knows of all these processes and has heard nothing yet."""
    scribe = Scribe(RUN, Ledger(lenient=lenient))
    for book in notebooks:
        scribe.enter(book.journal, book.attempt, book.rank, book.start_ns)
    return scribe


def goodput_of(scribe: Scribe, notebooks: Iterable[Notebook], now_ns: int) -> Goodput | None:
    lives = scribe.lives(book.process(now_ns) for book in notebooks)
    return draw_up(scribe.ledger, lives, now_ns)


def last_ns(notebooks: Sequence[Notebook]) -> int:
    return max(max(book.last_ns, book.ended_ns or 0) for book in notebooks)


def told(*notebooks: Notebook, now: int | None = None) -> Goodput:
    """The account of a story; `now` in seconds, else when it was last heard of anybody."""
    scribe = scribe_for(notebooks)
    for book in notebooks:
        scribe.batch(book.batch())
    scribe.ledger.settle()
    now_ns = last_ns(notebooks) if now is None else now * notebooks[0].unit_ns
    goodput = goodput_of(scribe, notebooks, now_ns)
    assert goodput is not None
    return goodput


Row = tuple[float, float, str]


def rows(goodput: Goodput, since: int | None = None, until: int | None = None) -> list[Row]:
    """The intervals in seconds; that they are an exact partition is checked on the way."""
    window = [None if edge is None else edge * SECOND for edge in (since, until)]
    found = list(goodput.intervals(*window))
    assert all(a[1] == b[0] for a, b in zip(found, found[1:], strict=False))
    return [(start / SECOND, end / SECOND, name) for start, end, name in found]


def spent(goodput: Goodput, exclude: Iterable[Range] = ()) -> dict[str, float]:
    """Seconds in each class that has any."""
    ranges = [(a * SECOND, b * SECOND) for a, b in exclude]
    account = goodput.account(exclude=ranges)
    assert sum(account.spent_ns.values()) == account.total_ns
    return {name: ns / SECOND for name, ns in account.spent_ns.items() if ns}
