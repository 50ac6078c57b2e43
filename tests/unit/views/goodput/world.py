"""A simulated cluster run whose every nanosecond is known.

`simulate(seed)` decides what happens (who is slow, what blocks, which fault comes when) and writes
two things from its decisions: what the processes would record, and the truth: what the run's time
was spent on.  The truth is never computed from the records, nor by the code that is tested.

Faults come as a Poisson process at the published rate of 3.79 per 1,000 node-days, with time
scaled so that a history of some dozen steps has several; restarts take 200 to 900 seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from tests.unit.views.goodput.rank import Form, Rank, Span
from tests.unit.views.goodput.story import SECOND, Notebook

FAULTS_PER_NODE_SECOND = 3.79 / (1_000 * 86_400)
KNOWN_AFTER = 4
"""So many steps tell how long a step takes."""
EPOCH = 1_760_000_000 * SECOND
Fault = Literal[
    "crash", "hang", "preemption", "crash while starting", "crash while saving",
    "crash between steps",
]  # fmt: skip
FAULTS: tuple[Fault, ...] = (
    "crash", "crash", "hang", "preemption", "crash while saving", "crash between steps",
)  # fmt: skip


@dataclass(slots=True)
class Piece:
    """A stretch of the truth."""

    start: int
    end: int
    spent: str
    step: int | None = None
    """The step whose work was done in it."""


@dataclass(slots=True)
class World:
    """What was recorded, and what was so."""

    books: list[Notebook]
    truth: list[Piece]
    faults: list[Fault] = field(default_factory=list)
    complete: list[int] = field(default_factory=list)
    """The attempts that did the last step there was to do."""
    paced: bool = False
    """Whether an attempt did enough steps to tell how long one takes."""
    scale: float = 1.0
    """How much faster than the published rate faults came."""

    @property
    def intervals(self) -> list[tuple[int, int, str]]:
        found: list[tuple[int, int, str]] = []
        for piece in self.truth:
            if found and found[-1][2] == piece.spent:
                found[-1] = found[-1][0], piece.end, piece.spent
            else:
                found.append((piece.start, piece.end, piece.spent))
        return found

    @property
    def spent_ns(self) -> dict[str, int]:
        sums: dict[str, int] = {}
        for piece in self.truth:
            sums[piece.spent] = sums.get(piece.spent, 0) + piece.end - piece.start
        return sums


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is like."""

    ranks: int
    steps: int
    step_ns: int
    jitter: float
    save_every: int
    evaluate_every: int
    hangs: bool
    form: Form

    @classmethod
    def drawn(cls, dice: Random, form: Form, hangs_and_jitter: bool, most_ranks: int) -> Plan:
        hangs = hangs_and_jitter or dice.random() < 0.6
        counts = [n for n in (1, 1, 2, 2, 3, 4, 5, 8, 16, 64) if n <= most_ranks]
        return cls(
            ranks=1 if form == "entries" else dice.choice(counts),
            steps=dice.randrange(5, 70),
            step_ns=_nanoseconds(dice, 0.3, 20),
            # With jitter a hang's length is only known to within a step.
            jitter=0.4 if hangs_and_jitter else 0.0 if hangs else dice.choice((0.0, 0.1, 0.4)),
            save_every=dice.randrange(3, 12),
            evaluate_every=dice.randrange(8, 30),
            hangs=hangs,
            form=form,
        )


def _nanoseconds(dice: Random, low: float, high: float) -> int:
    """A whole number of microseconds: entries of the original's kind hold no more."""
    return round(dice.uniform(low, high) * 1e6) * 1_000


def simulate(
    seed: int, form: Form = "native", *, hangs_and_jitter: bool = False, most_ranks: int = 8
) -> World:
    dice = Random(seed)
    plan = Plan.drawn(dice, form, hangs_and_jitter, most_ranks)
    return Simulator(dice, plan).run()


class Simulator:
    def __init__(self, dice: Random, plan: Plan) -> None:
        self.dice = dice
        self.plan = plan
        self.world = World([], [])
        self.attempt = 0
        self.now = EPOCH
        """Up to when the truth is known: where the run's last step ended."""
        self.next_step = 0
        self.saved = 0
        """The step to go on with after a crash."""
        self.steady = 0
        """Steps done since the program started."""
        self.paced = self.stalled = False
        """Whether a start before did enough steps to know the pace; whether this one has hung."""
        self.paused = 0
        """The longest stall after which the run went on."""
        wanted = dice.uniform(1.0, 4.0)
        planned = plan.steps * plan.step_ns / SECOND
        self.world.scale = wanted / (FAULTS_PER_NODE_SECOND * plan.ranks * planned)
        self.fault_at = self._until_fault()
        self.tick = 0 if plan.form == "entries" else 1
        """Between the records of a process; the times that entries speak of may be the same."""
        self.ranks: list[Rank] = []

    def run(self) -> World:
        self._go()
        if self.dice.random() < 0.1:
            self._begin_again()
            self._go()
        return self.world

    def _go(self) -> None:
        while self.next_step < self.plan.steps:
            if self.attempt and self._dies_while_starting():
                continue
            self._start()
            if self._train():
                self._leave("completed")
                self.world.complete.append(self.attempt)

    def _begin_again(self) -> None:
        """The whole of it once more: nothing of the first is lost, the time between is nobody's."""
        self._true(self.now + _nanoseconds(self.dice, 1, 900), "excluded")
        self.next_step = self.saved = 0
        for piece in self.world.truth:
            piece.step = None

    # ── faults ────────────────────────────────────────────────────────────────────────────────

    def _until_fault(self) -> float:
        """Seconds of training until the next one."""
        rate = FAULTS_PER_NODE_SECOND * self.plan.ranks * self.world.scale
        return self.dice.expovariate(rate)

    def _fault_due(self) -> Fault | None:
        self.fault_at -= self.plan.step_ns / SECOND
        if self.fault_at > 0 or self.attempt >= 8:
            return None
        self.fault_at = self._until_fault()
        fault = self.dice.choice(FAULTS)
        if fault == "hang" and not (self.plan.hangs and self._pace_is_known()):
            return "crash"
        if fault == "preemption" and self.next_step + 1 >= self.plan.steps:
            return "crash"  # nothing would come after it
        if fault == "crash between steps" and (not self.steady or self.plan.form == "entries"):
            return "crash"  # a save that is cut short would not be told by its entry
        return fault

    def _pace_is_known(self) -> bool:
        return self.paced or self.steady > KNOWN_AFTER

    def _dies_while_starting(self) -> bool:
        """A start that comes to nothing."""
        if self.dice.random() > 0.2 or self.attempt >= 8:
            return False
        self.world.faults.append("crash while starting")
        if self.plan.form == "native" and self.dice.random() < 0.5:
            self._begin_attempt()
            self._gap(self._preparations(), "training_preparation", dies=True)
        else:
            self._begin_attempt(together=True)
            self._die_together()
        return True

    def _die_together(self) -> None:
        """All ranks do the same at the same time, until one dies."""
        name, length = "accelerator_init", _nanoseconds(self.dice, 3, 60)
        death = self.now + _nanoseconds(self.dice, 1, 90)
        spans = [rank.span(name, length, until=death) for rank in self.ranks]
        _, start, end = spans[0]
        self._true(start, "training_preparation")
        self._true(min(end, death), name)
        self._true(death, "training_preparation")
        self._die(death)

    # ── an attempt ────────────────────────────────────────────────────────────────────────────

    def _begin_attempt(self, *, together: bool = False) -> None:
        self.attempt += 1
        self.steady, self.stalled = 0, False
        late = 0 if together else SECOND
        starts = [self.now] + [
            self.now + self.dice.randrange(late + 1) for _ in range(1, self.plan.ranks)
        ]
        self.ranks = [
            Rank(rank, self.attempt, start, self.tick, self.plan.form)
            for rank, start in enumerate(starts)
        ]
        self.world.books += [rank.book for rank in self.ranks]

    def _start(self) -> None:
        """From the processes' start to where the last of them begins its first step."""
        self._begin_attempt()
        self._gap(self._preparations(), "training_preparation")

    def _preparations(self) -> list[tuple[str, float, float]]:
        phases: list[tuple[str, float, float]] = [
            ("accelerator_init", 3, 60), ("", 0.1, 2), ("training_preparation", 1, 30),
        ]  # fmt: skip
        if self.next_step:
            phases.insert(2, ("checkpoint_restore", 5, 60))
        if self.dice.random() < 0.5:
            phases.append(("data_loading", 1, 20))
        return phases

    def _train(self) -> bool:
        """Steps until the last one is done, or a fault ends the attempt: False."""
        while self.next_step < self.plan.steps:
            fault = self._fault_due()
            if fault is not None:
                self.world.faults.append(fault)
            if self.steady and self._between_steps(fault):
                return False
            if fault is not None:
                self._fail(fault)
                return False
            self._step()
        return True

    def _leave(self, state: Literal["completed", "killed"], *, done: bool = True) -> None:
        """The last save, and everyone ends; `done`: for good."""
        saves = [rank.span("checkpoint_save", _nanoseconds(self.dice, 1, 9)) for rank in self.ranks]
        last = max(range(len(saves)), key=lambda at: saves[at][2])
        self._true_spans([saves[last]], self.ranks[last].now, "unattributed")
        idle = 0 if self.plan.form == "entries" else _nanoseconds(self.dice, 0.001, 2)
        ends = [self.now + idle + self.dice.randrange(1, 1_000) * self.tick for _ in self.ranks]
        for rank, end in zip(self.ranks, ends, strict=True):
            rank.exits(end, state, done=done)
        # One that leaves well leaves when its last process does; one that is killed with its first.
        self._true(max(ends) if state == "completed" else min(ends), self._idle)

    @property
    def _idle(self) -> str:
        """After a step, what is unclaimed is not attributed; recorders of beginnings do not know
        that the step is over."""
        return "productive" if self.plan.form == "entries" else "unattributed"

    # ── between steps ─────────────────────────────────────────────────────────────────────────

    def _between_steps(self, fault: Fault | None) -> bool:
        """True if the run dies here."""
        phases: list[tuple[str, float, float]] = []
        if self.next_step % self.plan.evaluate_every == 0 or fault == "crash between steps":
            phases.append(("evaluation", 5, 60))
        if self.next_step % self.plan.save_every == 0:
            phases.append(("checkpoint_save", 0.5, 20))
        if self.dice.random() < 0.1:
            phases.append(("data_loading", 0.5, 9))
        if self.dice.random() < 0.05:
            phases.append(("push to hub", 0.5, 9))
        if self.dice.random() < 0.2 and self.plan.form == "native":
            phases.append(("", 0.001, 1))
        if self.dice.random() < 0.2 and self.plan.form == "native" and fault is None:
            phases.append(("wait", 0.001, 3))  # it is said when the step is done
        self._gap(phases, self._idle, dies=fault == "crash between steps")
        if fault == "crash between steps":
            return True
        if self.next_step % self.plan.save_every == 0:
            self.saved = self.next_step
        return False

    def _gap(
        self, phases: Sequence[tuple[str, float, float]], idle: str, *, dies: bool = False
    ) -> None:
        """Every rank does these things, each at its own speed, and begins the step.  The last to
        begin is who the others wait for, so the time was spent on what that one did."""
        found = [self._do(rank, phases) for rank in self.ranks]
        for rank in self.ranks:
            rank.begin(self.next_step)
        order = sorted(self.ranks, key=lambda rank: (-rank.begun, rank.number))
        last, others = order[0], order[1:]
        spans = found[last.number]
        if dies:
            self._die_before(last, max([self.now, *(rank.begun for rank in others)]), spans, idle)
        else:
            self._true_spans(spans, last.begun, idle)

    def _do(self, rank: Rank, phases: Sequence[tuple[str, float, float]]) -> list[Span]:
        spans = []
        for name, low, high in phases:
            length = _nanoseconds(self.dice, low, high)
            if name == "wait":
                spans.append(rank.wait(length))
            elif name:
                spans.append(rank.span(name, length))
            else:
                rank.rest(length)
        return spans

    def _die_before(self, last: Rank, after: int, spans: Sequence[Span], idle: str) -> None:
        """All but the last have begun the step, which that one never does."""
        after = min(after + 1_000, last.begun - 1)
        death = after + self.dice.randrange(last.begun - after)
        last.book.records = [record for record in last.book.records if record.time_ns <= death]
        self._true_spans([(n, min(a, death), min(b, death)) for n, a, b in spans], death, idle)
        self._take_back(self.saved)
        self._die(death)

    # ── a step ────────────────────────────────────────────────────────────────────────────────

    def _step(self) -> None:
        """Collective: nobody is done before the last rank has begun and computed."""
        own = self._own_time()
        stall = 0
        if self._may_stall() and self.dice.random() < 0.05:
            stall = self._hang_time()
            self.stalled = True
            self.paused = max(self.paused, own + stall)
        claims: list[tuple[str, int]] = []
        if not self.steady:
            claims.append(("compile", _nanoseconds(self.dice, 5, 300)))
        if self.dice.random() < 0.05:
            claims.append(("checkpoint_save", _nanoseconds(self.dice, 0.5, 9)))
        if self.dice.random() < 0.05:
            claims.append(("data_loading", _nanoseconds(self.dice, 0.5, 9)))
        slowest = self.dice.choice(self.ranks)
        since = self.now
        spans = self._inside(slowest, own, claims)
        for name, start, end in spans:
            self._true(start, "productive")
            self._true(end, "program_startup" if name == "compile" else name)
        self._true(self.now + own - self._worked(since, spans), "productive")
        self._true(self.now + stall, "stall")
        for rank in self.ranks:
            if rank is not slowest and claims:
                rank.stretch_if_room(claims[-1], self.now, self.dice)
            early = 0 if rank is slowest else self.dice.randrange(1, 1_000) * self.tick
            rank.end(self.now - early)
        for rank in self.ranks:
            rank.maybe_background(self.dice)
        self.next_step += 1
        self.steady += 1
        self.paced = self.world.paced = self.paced or self.steady > KNOWN_AFTER

    def _may_stall(self) -> bool:
        """Once in an attempt, so that hanging is not what usually happens."""
        return self.plan.hangs and self.steady > KNOWN_AFTER and not self.stalled

    def _own_time(self) -> int:
        jitter = self.plan.jitter
        return round(self.plan.step_ns * self.dice.uniform(1 - jitter, 1 + jitter) / 1_000) * 1_000

    def _hang_time(self) -> int:
        """Beyond five times the usual, ten seconds, and half again what went well before (up to ten
        minutes): nobody would wait for it."""
        longest = self.plan.step_ns * (1 + self.plan.jitter) / SECOND
        least = max(6 * longest, 12, longest + min(1.5 * self.paused / SECOND, 600))
        return _nanoseconds(self.dice, least, least + 1_800)

    def _inside(self, rank: Rank, own: int, claims: Sequence[tuple[str, int]]) -> list[Span]:
        """The slowest rank's stretches within the step, with its own work between them."""
        spans = []
        at = self.now
        for name, length in claims:
            at += self.dice.randrange(own // 4) // 1_000 * 1_000 + 1_000
            spans.append(rank.stretch(name, at, at + length, self.dice))
            at += length
        return spans

    @staticmethod
    def _worked(since: int, spans: Sequence[Span]) -> int:
        """How much of the step's own work was done by the end of the last stretch."""
        until = spans[-1][2] if spans else since
        return until - since - sum(end - start for _, start, end in spans)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────

    def _fail(self, fault: Fault) -> None:
        """The step has begun on every rank, and will not be done."""
        own = self._own_time()
        if fault == "preemption":
            self._preempted()
            return
        if fault == "hang":
            death = self._hang(own)
        else:
            # In a first step before it is longer than usual: it would be taken for compilation.
            within = own if self.steady else self.plan.step_ns * (1 - self.plan.jitter)
            death = self.now + self.dice.randrange(1, int(within) // 1_000) * 1_000
            self._others_go_on(death)
            if fault == "crash while saving":
                self._save_cut_short(death)
            self._true(death, "wasted_progress")
        self._take_back(self.saved)
        self._die(death)

    @property
    def _last_to_begin(self) -> Rank:
        return max(self.ranks, key=lambda rank: (rank.begun, -rank.number))

    def _hang(self, own: int) -> int:
        """It computes (and compiles before, in a first step), and nothing comes of it."""
        compiles = [] if self.steady else [("compile", _nanoseconds(self.dice, 5, 300))]
        since = self.now
        spans = self._inside(self._last_to_begin, own, compiles)
        for _, start, end in spans:
            self._true(start, "wasted_progress")
            self._true(end, "program_startup")
        self._true(self.now + own - self._worked(since, spans), "wasted_progress")
        self._true(self.now + self._hang_time(), "stall")
        return self.now

    def _others_go_on(self, death: int) -> None:
        """What ranks do that began the step before the last one did is not what it waits for."""
        for rank in self.ranks:
            if rank is not self._last_to_begin and death - self.now > 3_000:
                start = self.now + (death - self.now) // 3
                rank.stretch("data_loading", start, start + (death - self.now) // 3, self.dice)

    def _save_cut_short(self, death: int) -> None:
        """The last rank to begin the step was writing when it died."""
        last = self._last_to_begin
        start = self.now + (death - self.now) // 2_000 * 1_000
        if last.open("checkpoint_save", start):
            self._true(start, "wasted_progress")
            self._true(death, "checkpoint_save")

    def _preempted(self) -> None:
        """A warning comes: the step is completed, saved, and the run goes on with the next."""
        self._step()
        self.saved = self.next_step
        self._leave(self.dice.choice(("completed", "killed")), done=False)
        self._recover()

    def _die(self, death: int) -> None:
        """One rank dies, the others are killed after it."""
        victim = self.dice.choice(self.ranks)
        for rank in self.ranks:
            late = 0 if rank is victim else _nanoseconds(self.dice, 0.1, 60)
            rank.exits(death + late, "killed")
        self._recover()

    def _recover(self) -> None:
        self._true(self.now + _nanoseconds(self.dice, 200, 900), "infrastructure_recovery")

    def _take_back(self, step: int) -> None:
        """Everything from this step on will be done again."""
        for piece in self.world.truth:
            if piece.spent == "productive" and piece.step is not None and piece.step >= step:
                piece.spent = "wasted_progress"
        self.next_step = step

    # ── the truth ─────────────────────────────────────────────────────────────────────────────

    def _true(self, until: int, spent: str) -> None:
        if until > self.now:
            self.world.truth.append(Piece(self.now, until, _class(spent), self.next_step))
            self.now = until

    def _true_spans(self, spans: Sequence[Span], until: int, idle: str) -> None:
        for name, start, end in spans:
            self._true(start, idle)
            self._true(end, name)
        self._true(until, idle)


def _class(spent: str) -> str:
    return "custom:push to hub" if spent == "push to hub" else spent
