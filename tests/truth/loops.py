"""The training loops that the families are variations of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.truth.machine import Clock, Form, Job, Part, Process, Program
from tests.truth.passing import Moves

Parts = list[tuple[Part, float]]
Seconds = float | Callable[[Process, int], float]
Work = float | Callable[[Process, int], float | Parts]
Hook = Callable[[Process, int], Moves]


def nothing(process: Process, step: int) -> Moves:
    yield from ()


@dataclass(frozen=True)
class Loop:
    """A program: what comes before its steps, the steps, and what it does among them."""

    steps: int = 300
    first: int = 0
    work: Work = 1.0
    """Seconds that the device takes for a step."""
    init: float = 4.0
    gathers: bool = False
    """That begins once all ranks are there."""
    prepare: float = 3.0
    restore: float = 0.0
    compile: float = 20.0
    compile_told: bool = False
    dispatch: float | None = None
    """None: the host waits for each step.  Else what handing it over takes, and it goes on."""
    between: float = 0.0005
    """What a loop does otherwise."""
    flight: int = 64
    read_in: int = 0
    """Inside every so manieth step a value of it is read."""
    read_out: int = 0
    """The same after the step has ended."""
    log: bool = False
    log_later: bool = False
    """Values are logged that the device has yet to compute."""
    log_early: float = 0.0
    """The same, of the first part of a step; to hand the rest over takes so long."""
    data: Seconds = 0.0
    data_span: bool = False
    save_every: int = 0
    save: float = 5.0
    background_s: float = 0.0
    """What a save goes on with in another thread."""
    before: Hook = nothing
    inside: Hook = nothing
    after: Hook = nothing
    done: Hook = nothing
    finish: bool = False

    def __call__(self, process: Process) -> Moves:
        process.flight = self.flight
        with process.span("accelerator_init"):
            if self.gathers:
                yield process.launch.gathered
            yield from process.sleep(self.init * process.job.onset)
        yield from process.sleep(self.prepare * process.job.onset)
        if self.restore:
            with process.span("checkpoint_restore"):
                yield from process.sleep(self.restore)
        yield from self.train(process, self.first, self.first + self.steps)
        yield from process.read()
        yield from self.done(process, self.first + self.steps)
        if self.finish:
            process.finish()

    def train(self, process: Process, first: int, last: int, *, compiles: bool = True) -> Moves:
        for number in range(first, last):
            yield from self.one(process, number, compiles=compiles and number == first)

    def one(self, process: Process, number: int, *, compiles: bool = False) -> Moves:
        waited = self.data if isinstance(self.data, float) else self.data(process, number)
        yield from process.load(waited, span=self.data_span)
        yield from self.before(process, number)
        with process.step(number, 0.0 if self.data_span else waited):
            if compiles:
                yield from self._compile(process)
            yield from self.inside(process, number)
            yield from process.sleep(0.001 if self.dispatch is None else self.dispatch)
            yield from process.dispatch(number, self._parts(process, number))
            if self.dispatch is None or _every(self.read_in, number):
                yield from process.read()
            if self.log:
                process.log("loss", 1.0 / (number + 1), number)
            if self.log_later:
                process.log_later(number)
            if self.log_early:
                process.log_later(number, early=True)
                yield from process.sleep(self.log_early)
        yield from process.sleep(self.between)
        if _every(self.read_out, number):
            yield from process.read()
        if _every(self.save_every, number):
            yield from self._save(process)
        yield from self.after(process, number)

    def _compile(self, process: Process) -> Moves:
        with process.span("compile") if self.compile_told else process.doing("program_startup"):
            yield from process.sleep(self.compile * process.job.onset)

    def _parts(self, process: Process, number: int) -> Parts:
        work = self.work(process, number) if callable(self.work) else self.work
        parts: Parts = [("compute", work)] if isinstance(work, float) else work
        pace = process.job.pace
        return [(part, s * pace if part == "compute" else s) for part, s in parts]

    def _save(self, process: Process) -> Moves:
        """A save waits for the step's values first."""
        if process.form == "entries":
            yield from process.read()
            with process.doing("checkpoint_save"):
                yield from process.sleep(self.save)
            process.tell_checkpoint(self.save)
            return
        with process.span("checkpoint_save"):
            yield from process.read()
            yield from process.sleep(self.save)
        if self.background_s:
            end = process.begin("checkpoint_save/background")
            process.world.after(self.background_s, end)


def _every(period: int, number: int) -> bool:
    return bool(period) and number % period == period - 1


# ── jobs of one launch, or of several one after the other ──────────────────────────────────────


def alone(
    seed: int,
    program: Program,
    *,
    ranks: int = 1,
    form: Form = "native",
    clocks: Callable[[int, int], Clock] | None = None,
    stagger_s: float = 0.0,
    on_gpu: bool = False,
) -> Job:
    job = Job(seed, clocks, on_gpu)
    job.launch(ranks, program, form=form, stagger_s=stagger_s)
    return job


@dataclass(frozen=True)
class Go:
    """One of several launches: where it takes the work up, and how long after the one before."""

    program: Program
    from_step: int = 0
    pause_s: float = 30.0
    ranks: int = 1


def again(
    seed: int,
    *goes: Go,
    form: Form = "native",
    clocks: Callable[[int, int], Clock] | None = None,
    keys: Callable[[int], str] | None = None,
) -> Job:
    job = Job(seed, clocks)

    def operator() -> Moves:
        for number, go in enumerate(goes):
            if number:
                yield round(go.pause_s * 1e9)
            launch = job.launch(go.ranks, go.program, form=form, from_step=go.from_step, keys=keys)
            yield launch.over

    job.operate(operator())
    return job
