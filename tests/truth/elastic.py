"""A program that goes on when members of its job are lost, and takes new ones in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

from tests.truth.loops import Loop
from tests.truth.machine import Clock, Job, Launch, Process
from tests.truth.passing import Gate, Moves, PeerLost, ns


@dataclass
class Elastic:
    """One loss of some ranks and, if `grow_at` is given, their replacement at that step."""

    seed: int
    loop: Loop
    ranks: int = 4
    victims: tuple[int, ...] = (3,)
    lose_at: int = 100
    grow_at: int | None = 200
    back_to: int | None = None
    """Where the survivors take the work up; None: at the step that was cut short."""
    again_to: int | None = None
    """The same when the new ones have come; None: they go on."""
    numbers: tuple[int, ...] | None = None
    """What the new ones are numbered; None: as those that they replace."""
    told: bool = True
    """Whether the waits have spans."""
    down_s: float = 8.0
    up_s: float = 4.0
    come_s: float = 20.0
    """How long after the loss the new processes are started."""
    keys: Callable[[int], str] = lambda rank: "one"
    new_keys: Callable[[int], str] = lambda rank: "one"
    clocks: Callable[[int, int], Clock] | None = None
    job: Job = field(init=False)
    _launch: Launch = field(init=False)
    _gate: Gate = field(default_factory=Gate)
    _present: list[Process] = field(default_factory=list)
    _hit: bool = False

    def run(self) -> Job:
        self.job = Job(self.seed, self.clocks)
        self._launch = self.job.launch(self.ranks, self._member, elastic=True, keys=self.keys)
        return self.job

    def _member(self, process: Process) -> Moves:
        yield from self._arrive(process, 4.0)
        yield from self._train(process, 0, compiles=True)

    def _joiner(self, process: Process) -> Moves:
        yield from self._arrive(process, 3.0)
        assert self.grow_at is not None
        yield from self._meet(process, None)
        yield from self._train(process, self._grown_at(), compiles=False)

    def _arrive(self, process: Process, seconds: float) -> Moves:
        process.flight = self.loop.flight
        with process.span("accelerator_init"):
            yield from process.sleep(seconds * process.job.onset)
        yield from process.sleep(2.0)

    def _train(self, process: Process, first: int, *, compiles: bool) -> Moves:
        number, grown = first, not compiles
        while number < self.loop.steps:
            if number == self.grow_at and not grown:
                grown = True
                yield from self._grow(process)
                number = self._grown_at()
            if number == self.lose_at and process.rank == 0 and not self._hit:
                self._hit = True
                process.world.after(0.4, self._strike)
            try:
                yield from self.loop.one(process, number, compiles=compiles)
                number += 1
            except PeerLost:
                back = number if self.back_to is None else self.back_to
                yield from self._shrink(process, back)
                number = back
            compiles = False
        yield from process.read()

    def _strike(self) -> None:
        self.job.lose(self._launch, self.victims)
        if self.grow_at is not None:
            for rank, number in zip(self.victims, self.numbers or self.victims, strict=True):
                start = partial(self._replace, number, self.new_keys(rank))
                self.job.world.after(self.come_s + 0.01 * rank, start)

    def _replace(self, number: int, key: str) -> None:
        self.job.start(self._launch, number, self._joiner, key=key)

    def _shrink(self, process: Process, back: int) -> Moves:
        with process.span("elastic_slice_down") if self.told else nullcontext():
            yield from process.sleep(self.down_s)
            yield from self._meet(process, back)

    def _grow(self, process: Process) -> Moves:
        yield from process.read()
        with process.span("elastic_scale_up") if self.told else nullcontext():
            yield from process.sleep(self.up_s)
            yield from self._meet(process, self.again_to)

    def _grown_at(self) -> int:
        assert self.grow_at is not None
        return self.grow_at if self.again_to is None else self.again_to

    def _meet(self, process: Process, back: int | None) -> Moves:
        """Wait until all that live are there; `back`: they take the work up at that step."""
        self._present.append(process)
        if back is not None:
            self.job.rewind(back)
        gate = self._gate
        alive = [other for other in self._launch.processes if other.alive]
        if len(self._present) < len(alive):
            yield gate
            return
        self._gate, self._present = Gate(), []
        self.job.regroup(self._launch, tuple(sorted(alive, key=lambda p: p.rank)))
        self.job.world.open(gate)
        yield ns(0.0)
