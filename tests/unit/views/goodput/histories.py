"""Generated histories: what programs may record, sensible or not.

A history is a handful of attempts, each of one to four ranks; a rank is a list of moves that are
carried out in order.  Moves are small numbers, so that a failing history shrinks to a short one.
Time goes by in seconds.  The times of a journal's records rise strictly, by a millisecond here at
least; the times that entries speak of may be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from hypothesis import strategies as st

from runwatch.record import NO_STEP, Event
from runwatch.views.goodput.books import AT_ONCE
from runwatch.views.goodput.ledger import HELD_STEPS
from runwatch.views.goodput.steps.judging import AROUND
from runwatch.views.life import State
from tests.unit.views.goodput.story import SECOND, Notebook

SPANS = (
    "checkpoint_save",
    "data_loading",
    "evaluation",
    "compile",
    "accelerator_init",
    "elastic_reinitialization",
    "profiling",
    "upload",
    "rollout/useful",
)
STEMS = ("tpu_init", "training_prep", "data_loading", "elastic_reinit", "custom_badput_event")
OUTAGE, HANG = 40, 50
LEAD = AT_ONCE + AROUND + 100
"""So many steps, and the first of them are booked for good."""
TICK = 1_000
"""A second, in the unit of these notebooks."""

Move = tuple[str, int, int]
"""What to do, after how many seconds, and a small number that says which or how long."""


@dataclass(frozen=True)
class Rank:
    late: int
    moves: list[Move]
    state: State
    dies_after: int


@dataclass(frozen=True)
class Try:
    """An attempt: how long after the one before it comes, where it resumes, its ranks."""

    outage: int
    back: int
    ranks: list[Rank]


_OPS = (
    "step", "step", "step", "step", "many", "begin", "end", "hang", "back", "skip",
    "open", "close", "close", "elapsed", "span",
)  # fmt: skip
_moves = st.lists(
    st.tuples(st.sampled_from(_OPS), st.integers(0, 5), st.integers(0, 9)), max_size=14
)
_states = st.sampled_from(cast(list[State], ["killed", "failed", "completed", "lost", "running"]))
_ranks = st.builds(Rank, st.integers(0, 8), _moves, _states, st.integers(0, 9))
_tries = st.builds(
    Try, st.integers(0, OUTAGE), st.integers(0, 6), st.lists(_ranks, min_size=1, max_size=4)
)
Form = Literal["native", "entries"]


FORMS: st.SearchStrategy[Form] = st.sampled_from(["native", "entries"])


def histories(form: Form = "native", *, most_ranks: int = 4) -> st.SearchStrategy[list[Notebook]]:
    tries = _tries if most_ranks == 4 else _tries.map(lambda t: _first_ranks(t, most_ranks))
    written = st.lists(tries, min_size=1, max_size=3).map(lambda found: _written(found, form))
    return written.filter(_ranks_keep_together)


def long_histories(form: Form = "native", *, most_ranks: int) -> st.SearchStrategy[list[Notebook]]:
    """The same after many plain steps that all ranks do together, with a hang here and there."""
    tries = _tries.map(lambda found: _first_ranks(found, most_ranks))
    hangs = st.lists(st.integers(1, LEAD - 1), max_size=4)
    written = st.tuples(st.lists(tries, min_size=1, max_size=2), hangs)
    books = written.map(lambda found: _written(found[0], form, found[1]))
    return books.filter(lambda found: _ranks_keep_together(found, LEAD))


def _ranks_keep_together(books: list[Notebook], lead: int = 0) -> bool:
    """Ranks that are further apart than is held come too late: then it matters who is heard first,
    and there is no one account."""
    ranks: dict[int, int] = {}
    steps: dict[int, set[tuple[int, int]]] = {}
    for book in books:
        ranks[book.attempt] = ranks.get(book.attempt, 0) + 1
        own = {(lap, step) for lap, step in _steps(book) if lap or step >= lead}
        steps.setdefault(book.attempt, set()).update(own)
    return all(len(steps[number]) <= HELD_STEPS for number, count in ranks.items() if count > 1)


def _steps(book: Notebook) -> Iterator[tuple[int, int]]:
    """Lap and number."""
    lap, last = 0, NO_STEP
    for record in book.records:
        if isinstance(record, Event) or record.step == NO_STEP:
            continue
        lap += record.step < last
        last = record.step
        yield lap, last


def _first_ranks(found: Try, most: int) -> Try:
    return Try(found.outage, found.back, found.ranks[:most])


def _written(tries: list[Try], form: Form, hangs: Sequence[int] | None = None) -> list[Notebook]:
    """Every rank's notebook.  An attempt starts after the last sign of life of the one before.

    `hangs`: the first attempt leads with many steps, and hangs in these.
    """
    books: list[Notebook] = []
    now = first = 0
    for number, found in enumerate(tries, 1):
        hands = [
            _Hand(_notebook(rank, number, now + plan.late * TICK), first, form, len(found.ranks))
            for rank, plan in enumerate(found.ranks)
        ]
        for hand in hands:
            if hangs is not None and number == 1:
                hand.lead(hangs)
        for hand, plan in zip(hands, found.ranks, strict=True):
            hand.carry_out(plan, last=number == len(tries))
        books += [hand.book for hand in hands]
        now = max(hand.now for hand in hands) + found.outage * TICK
        first = max(0, max(hand.next for hand in hands) - found.back)
    return books


def _notebook(rank: int, attempt: int, start: int) -> Notebook:
    return Notebook(rank, attempt, start, unit_ns=SECOND // TICK)


class _Hand:
    """Writes one rank's notebook."""

    def __init__(self, book: Notebook, first: int, form: Form, ranks: int) -> None:
        self.book = book
        self.now = book.start_ns // book.unit_ns
        self.next = first
        self.form = form
        self._room = HELD_STEPS - 20 if ranks > 1 else 10 * HELD_STEPS
        """For steps in bulk."""
        self._step: int | None = None
        self._span = 0
        self._open: list[tuple[str, int]] = []
        if form == "entries":
            book.entry("job_start_time", self.now)

    def lead(self, hangs: Sequence[int]) -> None:
        for number in range(LEAD):
            getattr(self, f"_{self.form}_step")(HANG if number in hangs else 1, 0)

    def carry_out(self, plan: Rank, *, last: bool) -> None:
        acts: dict[str, Callable[[int, int], None]] = {
            name: getattr(self, f"_{self.form}_{name}") for name in set(_OPS)
        }
        for what, wait, which in plan.moves:
            acts[what](wait, which)
        if plan.state == "running" and last:
            return
        self._pass(plan.dies_after)
        if self.form == "entries" and plan.state == "completed":
            self.book.entry("job_end_time", self.now)
        self.book.exits(self.now, "lost" if plan.state == "running" else plan.state, "as said")

    def _pass(self, seconds: int) -> int:
        """When the next record is made."""
        self.now += seconds * TICK + (self.form == "native")
        return self.now

    def _a_moment_passes(self) -> None:
        self.now += 1

    # ── span edges ────────────────────────────────────────────────────────────────────────────

    def _native_step(self, wait: int, which: int) -> None:
        """A whole step, with its wait for data if `which` says so."""
        self._native_begin(wait, 0)
        self._native_end(wait, which)

    def _native_many(self, wait: int, which: int) -> None:
        for _ in range(self._bulk(which)):
            self._native_step(wait, 0)

    def _bulk(self, which: int) -> int:
        steps = min(4 * which, self._room)
        self._room -= steps
        return steps

    def _native_begin(self, wait: int, which: int) -> None:
        self._step, self.next = self.next, self.next + 1
        self._span = self.book.begin("step", self._pass(wait), self._step)

    def _native_end(self, wait: int, which: int) -> None:
        if self._step is None:
            return
        self.book.end("step", self._span, self._pass(wait), self._step)
        if which > 6:
            self.book.waited(self._step, (which - 5) * TICK, self._pass(0))
        self._step = None

    def _native_hang(self, wait: int, which: int) -> None:
        self._pass(wait + HANG)

    def _native_back(self, wait: int, which: int) -> None:
        self.next = max(0, self.next - which)

    def _native_skip(self, wait: int, which: int) -> None:
        self.next += which

    def _native_open(self, wait: int, which: int) -> None:
        name = SPANS[which % len(SPANS)]
        self._open.append((name, self.book.begin(name, self._pass(wait))))

    def _native_close(self, wait: int, which: int) -> None:
        if self._open:
            name, span = self._open.pop(which % len(self._open))
            self.book.end(name, span, self._pass(wait))

    def _native_elapsed(self, wait: int, which: int) -> None:
        self.book.elapsed(SPANS[which % len(SPANS)], which * TICK, self._pass(wait))

    def _native_span(self, wait: int, which: int) -> None:
        start = self._pass(which % 3)
        self.book.span(SPANS[which % len(SPANS)], start, self._pass(wait))

    # ── entries ───────────────────────────────────────────────────────────────────────────────

    def _entries_step(self, wait: int, which: int) -> None:
        self._step, self.next = self.next, self.next + 1
        self.book.entry("step_start_time", self._pass(wait), self._step)

    _entries_begin = _entries_step

    def _entries_many(self, wait: int, which: int) -> None:
        for _ in range(self._bulk(which)):
            self._entries_step(wait, 0)

    def _entries_end(self, wait: int, which: int) -> None:
        if which > 7:
            self.book.entry("job_end_time", self._pass(wait))

    _entries_hang, _entries_back, _entries_skip = _native_hang, _native_back, _native_skip

    def _entries_open(self, wait: int, which: int) -> None:
        stem = STEMS[which % len(STEMS)]
        kind = ("", "Eval", "upload")[which % 3] if stem == "custom_badput_event" else ""
        self._open.append((stem, which))
        self.book.entry(f"{stem}_start_time", self._pass(wait), kind=kind)

    def _entries_close(self, wait: int, which: int) -> None:
        stem = self._open.pop()[0] if self._open else STEMS[which % len(STEMS)]
        kind = ("", "Eval", "upload")[which % 3] if stem == "custom_badput_event" else ""
        self.book.entry(f"{stem}_end_time", self._pass(wait), kind=kind)

    def _entries_elapsed(self, wait: int, which: int) -> None:
        kind = "save" if which % 2 else "restore"
        self._pass(wait)
        self._a_moment_passes()  # an event among points: their order is known by the time alone
        self.book.checkpoint(kind, self.now - which * TICK, which * TICK)
        self._a_moment_passes()

    def _entries_span(self, wait: int, which: int) -> None:
        self._entries_open(wait, which)
        self._entries_close(which, which)
