"""Jobs as they physically happen: hosts that run loops, devices with work queues, clocks that are
off, processes that die.

Time is in whole nanoseconds of a true clock that nobody in the job can read.  A program is a
generator: it yields nanoseconds to sleep, or a gate to wait at.  Each process keeps two books:
`records`, what it wrote down by its own clock, and `host` with `Execution.parts`, what it did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from tests.truth.passing import SECOND, Ending, Gate, Killed, Moves, PeerLost, Task, World, ns

if TYPE_CHECKING:
    from tests.truth.cluster import Cluster

EPOCH_NS = 1_760_000_000 * SECOND
LOOK_NS = SECOND // 100

# What a host is doing where no class of time says it.
PREPARING, IN_STEP, BETWEEN, HUNG = "preparing", "in step", "between steps", "hung"
# What a device does with a step's work.
Part = Literal["compute", "slow", "hang"]
Form = Literal["native", "entries"]


# ── what is written down ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Clock:
    """A host's clock: how far ahead of the true time it is, and how much more each second."""

    offset_s: float = 0.0
    drift: float = 0.0

    def ahead_ns(self, true_ns: int) -> int:
        return ns(self.offset_s) + round(self.drift * true_ns)

    def reads(self, true_ns: int) -> int:
        return EPOCH_NS + true_ns + self.ahead_ns(true_ns)


@dataclass(frozen=True, slots=True)
class Edge:
    time_ns: int
    name: str
    span: int
    begins: bool
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Point:
    time_ns: int
    metric: str
    value: float
    step: int | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    time_ns: int
    kind: str
    body: Mapping[str, Any]


Record = Edge | Point | Note

_STEMS = {
    "accelerator_init": "tpu_init",
    "training_preparation": "training_prep",
    "data_loading": "data_loading",
    "elastic_reinitialization": "elastic_reinit",
}
"""How GoodputRecorder calls what has a class of its own."""


# ── steps, as all members of a job take them together ──────────────────────────────────────────


@dataclass(eq=False)
class Execution:
    """One time that a step was worked on; done when every member's device has done its part."""

    step: int
    members: int
    parts: dict[Process, list[tuple[int, int, Part]]] = field(default_factory=dict)
    arrived: dict[Process, int] = field(default_factory=dict)
    end_ns: int | None = None
    lost: bool = False
    begun: Gate = field(default_factory=Gate)
    """Opens when a device has done the first part of its plan."""
    done: Gate = field(default_factory=Gate)


@dataclass(eq=False)
class Epoch:
    """A stretch with the same members."""

    start_ns: int
    members: tuple[Process, ...]
    executions: list[Execution] = field(default_factory=list)
    end_ns: int | None = None


@dataclass(eq=False)
class Launch:
    """Processes that were started to do one go of the job, and those that joined them."""

    start_ns: int
    elastic: bool
    ranks: int
    processes: list[Process] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    gathered: Gate = field(default_factory=Gate)
    """Opens when all of its processes are there."""
    over: Gate = field(default_factory=Gate)
    died_ns: int | None = None
    """When the first process died that the others could not do without."""
    end_ns: int = 0
    new_go: bool = False
    """It begins anew what an earlier one had completed and said so."""
    pods: Sequence[str] = ()
    """By rank, if a cluster runs it."""


# ── processes ──────────────────────────────────────────────────────────────────────────────────


class Process:
    """A host thread that runs a program, and its device."""

    def __init__(
        self, job: Job, launch: Launch, rank: int, program: Program, key: str, form: Form
    ) -> None:
        self.job = job
        self.world = job.world
        self.launch = launch
        self.rank = rank
        self.key = key
        self.form = form
        self.clock = job.clock_of(rank, launch)
        self.journal = f"journal {len(job.processes)}"
        self.start_ns = self.world.now
        self.end_ns: int | None = None
        self.records: list[Record] = []
        self.exit: dict[str, Any] = {}
        self.unseen = False
        """Its whole host goes with it, so that nobody tells of its end."""
        self.exit_ns = 0
        self.host: list[tuple[int, str]] = [(self.start_ns, PREPARING)]
        self.epoch: Epoch | None = None
        self.flight = 64
        self.rng = Random(f"{job.seed} {self.journal}")
        self._base = PREPARING
        self._states: list[str] = []
        self._spans = 0
        self._serial = 0
        self._queue: deque[Execution] = deque()
        self._plans: deque[list[tuple[Part, float]]] = deque()
        self._last: Execution | None = None
        self._arrival = Gate()
        self._parts: list[tuple[int, int, Part]] = []
        self._doing: tuple[int, Part] | None = None
        self._note("run_start", {"pod_uid": launch.pods[rank]} if launch.pods else {})
        if job.on_gpu:
            self._note("config", {"part": "system", "values": {"gpus": ["NVIDIA H200"]}})
            versions = {"torch": "2.11.0+cu130"}
            self._note("config", {"part": "software", "values": {"versions": versions}})
        if form == "entries":
            self._entry("job_start_time")
        self._device = Task(self.world, self._work())
        self._program = Task(self.world, program(self), self._ended)

    @property
    def alive(self) -> bool:
        return self.end_ns is None

    # ── what programs call ────────────────────────────────────────────────────────────────────

    def sleep(self, seconds: float) -> Moves:
        if seconds > 0:
            yield ns(seconds)

    @contextmanager
    def doing(self, state: str) -> Iterator[None]:
        """It does this, and tells nobody."""
        self._states.append(state)
        self._changed()
        try:
            yield
        finally:
            self._states.pop()
            self._changed()

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        close = self.begin(name)
        with self.doing({"compile": "program_startup"}.get(name, _class_of(name))):
            try:
                yield
            finally:
                close()

    def begin(self, name: str) -> Callable[[], None]:
        """Write that a span begins; calling what comes back writes that it ended."""
        self._spans += 1
        span = self._spans
        if self.form == "entries":
            stem = _STEMS.get(name, "custom_badput_event")
            kind = "" if name in _STEMS else name
            self._entry(f"{stem}_start_time", kind=kind)
            return lambda: self._entry(f"{stem}_end_time", kind=kind)
        self._write(Edge(self._clock_ns(), name, span, True))
        return lambda: self._write(Edge(self._clock_ns(), name, span, False))

    @contextmanager
    def step(self, number: int, waited_s: float = 0.0) -> Iterator[None]:
        """A step as `run.steps` tells of it; `waited_s` for the data of it."""
        self._spans += 1
        span = self._spans
        if self.form == "entries":
            self._entry("step_start_time", number)
        else:
            self._write(Edge(self._clock_ns(), "step", span, True, number))
        self._base = BETWEEN
        with self.doing(IN_STEP):
            try:
                yield
            finally:
                if self.form == "native":
                    self._write(Edge(self._clock_ns(), "step", span, False, number))
                    if waited_s:
                        self._write(Point(self._clock_ns(), "data_wait_seconds", waited_s, number))

    def load(self, seconds: float, *, span: bool = False) -> Moves:
        """Wait for the next batch."""
        if seconds > 0 or span:
            with self.span("data_loading") if span else self.doing("data_loading"):
                yield from self.sleep(seconds)

    def dispatch(self, number: int, parts: list[tuple[Part, float]]) -> Moves:
        """Hand a step's work to the device; waits while too much of it is in flight."""
        while len(self._queue) >= self.flight:
            yield self._queue[0].done
        assert self.epoch is not None
        if self._serial == len(self.epoch.executions):
            self.epoch.executions.append(Execution(number, len(self.epoch.members)))
        execution = self.epoch.executions[self._serial]
        assert execution.step == number
        self._serial += 1
        self._queue.append(execution)
        self._plans.append(parts)
        self._last = execution
        arrival, self._arrival = self._arrival, Gate()
        self.world.open(arrival)

    def read(self) -> Moves:
        """Read a value of the step that was dispatched last."""
        if self._last is not None and not self._last.done.is_open:
            yield self._last.done

    def log(self, metric: str, value: float, step: int) -> None:
        self._write(Point(self._clock_ns(), metric, value, step))

    def log_later(self, step: int, early: bool = False) -> None:
        """Log a value that the device has yet to compute: a thread of the process looks for it
        every so often, and writes down how long it took, unless it was kept from looking.
        `early`: a value that is there after the first part."""
        if self._last is not None:
            gate = self._last.begun if early else self._last.done
            Task(self.world, self._await_value(gate, self.world.now, step))

    def _await_value(self, there: Gate, logged_ns: int, step: int) -> Moves:
        clock_ns = self.clock.reads(logged_ns)
        if not there.is_open:
            yield there
        late_ns = self.world.now - logged_ns
        yield -late_ns % LOOK_NS + ns(self.rng.uniform(0.0, 0.002))
        if self.rng.random() < 0.02:
            yield ns(0.03)  # others had the processor
            return
        lag = (self.world.now - logged_ns) / SECOND
        self._write(Point(clock_ns, "device_lag_seconds", lag, step))

    def tell_elapsed(self, name: str, seconds: float, ago_s: float = 0.0) -> None:
        body = {"name": name, "seconds": seconds, "ago_seconds": ago_s}
        self._note("elapsed", body)

    def tell_checkpoint(self, seconds: float) -> None:
        """What Orbax writes when a save that blocked is done."""
        start = self._clock_ns() / SECOND - seconds
        entry = {
            "event_type": "save",
            "checkpoint_manager_blocking_start_time": start,
            "checkpoint_manager_blocking_duration_secs": seconds,
        }
        self._note("goodput_entry", {"logger": "log", "entry": entry})

    def finish(self) -> None:
        """The program says that it is done."""
        self._note("run_end", {"status": "completed", "explicit": True})
        self.job.said_done = True

    # ── how it ends ───────────────────────────────────────────────────────────────────────────

    def kill(self, signal: str = "SIGKILL") -> None:
        if self.alive:
            self._dies({"signal": signal})
            self.job.died(self)

    def _ended(self, ending: Ending | None) -> None:
        if isinstance(ending, Killed):
            self._dies({"signal": str(ending)})
        elif ending is not None:
            exception = {"type": "RuntimeError", "message": str(ending)}
            self._note("run_end", {"status": "failed", "explicit": False, "exception": exception})
            self._dies({"code": 1})
        else:
            if self.form == "entries":
                self._entry("job_end_time")
            self._note("run_end", {"status": "completed", "explicit": False})
            self._dies({"code": 0})
        self.job.died(self, ending)

    def _dies(self, how: dict[str, Any]) -> None:
        self.end_ns = self.world.now
        self.exit = {"journal": self.journal, **how}
        self.exit_ns = self.clock.reads(self.world.now + ns(self.rng.uniform(0.0, 0.01)))
        self._close_part()
        self._program.cancel()
        self._device.cancel()

    def peer_lost(self) -> None:
        """The collective fails: what is queued is dropped, the program hears of it."""
        if self.alive:
            self._drop()
            self._program.throw(PeerLost())

    def join(self, epoch: Epoch) -> None:
        self._drop()
        self.epoch = epoch
        self._serial = 0

    # ── the device ────────────────────────────────────────────────────────────────────────────

    def _work(self) -> Moves:
        while True:
            if not self._queue:
                yield self._arrival
                continue
            execution = self._queue[0]
            self._parts = execution.parts.setdefault(self, [])
            for part, seconds in self._plans[0]:
                self._doing = self.world.now, part
                yield ns(seconds)
                self._close_part()
                self.world.open(execution.begun)
            execution.arrived[self] = self.world.now
            if len(execution.arrived) == execution.members:
                execution.end_ns = self.world.now
                self.world.open(execution.done)
            else:
                yield execution.done
            self._queue.popleft()
            self._plans.popleft()

    def _close_part(self) -> None:
        if self._doing is not None:
            since_ns, part = self._doing
            self._parts.append((since_ns, self.world.now, part))
            self._doing = None

    def _drop(self) -> None:
        self._close_part()
        self._device.cancel()
        self._queue.clear()
        self._plans.clear()
        self._last = None
        self._arrival = Gate()
        self._device = Task(self.world, self._work())

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _changed(self) -> None:
        if self.alive:
            self.host.append((self.world.now, self._states[-1] if self._states else self._base))

    def _clock_ns(self) -> int:
        return self.clock.reads(self.world.now)

    def _write(self, record: Record) -> None:
        if self.alive:
            self.records.append(record)

    def _note(self, kind: str, body: Mapping[str, Any]) -> None:
        self._write(Note(self._clock_ns(), kind, body))

    def _entry(self, what: str, step: int | None = None, kind: str = "") -> None:
        time_ns = self._clock_ns()
        self._write(Point(time_ns, f"goodput.{what}", time_ns / SECOND, step, kind))


Program = Callable[[Process], Moves]

_KNOWN = (
    "accelerator_init",
    "training_preparation",
    "data_loading",
    "checkpoint_save",
    "checkpoint_restore",
    "evaluation",
    "elastic_slice_down",
    "elastic_scale_up",
    "elastic_reinitialization",
)


def _class_of(name: str) -> str:
    return name if name in _KNOWN else f"custom:{name}"


# ── jobs ───────────────────────────────────────────────────────────────────────────────────────


class Job:
    """Everything that runs under one name, from the first start to the last end.

    With seed 0 all takes as long as its program says; else jobs differ in how fast their devices
    are (`pace`) and in how long they take to start (`onset`).
    """

    def __init__(
        self, seed: int, clocks: Callable[[int, int], Clock] | None = None, on_gpu: bool = False
    ) -> None:
        self.seed = seed
        self.on_gpu = on_gpu
        """Its processes say that they hand work to a GPU; while it has none, it idles."""
        rng = Random(seed)
        self.pace = rng.uniform(0.8, 1.25) if seed else 1.0
        self.onset = rng.uniform(0.8, 1.6) if seed else 1.0
        self.world = World()
        self.processes: list[Process] = []
        self.launches: list[Launch] = []
        self.said_done = False
        self.grace_s = 0.5
        """How long a launcher takes to end the others when one has died."""
        self.cluster: Cluster | None = None
        self._clocks = clocks
        self._kept: list[Execution] = []

    def operate(self, moves: Moves) -> None:
        """Somebody outside who starts and stops things."""
        Task(self.world, moves)

    def clock_of(self, rank: int, launch: Launch) -> Clock:
        """Each rank has a host of its own."""
        number = self.launches.index(launch)
        return Clock() if self._clocks is None else self._clocks(rank, number)

    def launch(
        self,
        ranks: int,
        program: Program,
        *,
        keys: Callable[[int], str] | None = None,
        form: Form = "native",
        elastic: bool = False,
        from_step: int = 0,
        stagger_s: float = 0.0,
        delays_s: Sequence[float] = (),
        pods: Sequence[str] = (),
    ) -> Launch:
        """Start processes together, or each so much later; `from_step` is where their program takes
        the work up."""
        new_go, self.said_done = self.said_done, False
        launch = Launch(self.world.now, elastic, ranks, new_go=new_go, pods=pods)
        self.launches.append(launch)
        if new_go:
            self._kept.clear()
        else:
            self.rewind(from_step)
        shared = f"launch {len(self.launches)}"
        for rank in range(ranks):
            key = shared if keys is None else keys(rank)
            start = partial(self._start, launch, rank, program, key, form, ranks)
            self.world.after(delays_s[rank] if delays_s else rank * stagger_s, start)
        return launch

    def _start(
        self, launch: Launch, rank: int, program: Program, key: str, form: Form, ranks: int
    ) -> None:
        self.start(launch, rank, program, key=key, form=form)
        if len(launch.processes) == ranks:
            self._open(launch, tuple(launch.processes), launch.start_ns)
            self.world.open(launch.gathered)

    def start(
        self, launch: Launch, rank: int, program: Program, *, key: str = "", form: Form = "native"
    ) -> Process:
        process = Process(self, launch, rank, program, key, form)
        launch.processes.append(process)
        self.processes.append(process)
        return process

    def rewind(self, step: int) -> None:
        """The state of the job is that before `step`: what was done from there on is lost."""
        self._gather()
        for execution in self._kept:
            if execution.step >= step:
                execution.lost = True
        self._kept = [execution for execution in self._kept if not execution.lost]

    def _gather(self) -> None:
        """Whatever was done since the last look."""
        known = set(map(id, self._kept))
        last = [launch for launch in self.launches if launch.epochs][-1:]
        self._kept += [
            execution
            for launch in last
            for epoch in launch.epochs
            for execution in epoch.executions
            if execution.end_ns is not None and not execution.lost and id(execution) not in known
        ]

    def regroup(self, launch: Launch, members: tuple[Process, ...]) -> None:
        """From now on these take the steps together."""
        self._close(launch)
        self._open(launch, members, self.world.now)

    def _open(self, launch: Launch, members: tuple[Process, ...], start_ns: int) -> None:
        epoch = Epoch(start_ns, members)
        launch.epochs.append(epoch)
        for member in members:
            member.join(epoch)

    def _close(self, launch: Launch) -> None:
        if launch.epochs and launch.epochs[-1].end_ns is None:
            launch.epochs[-1].end_ns = self.world.now

    def lose(self, launch: Launch, ranks: tuple[int, ...], notice_s: float = 0.2) -> None:
        """These die; the collective of the others fails a little later."""
        for process in launch.processes:
            if process.rank in ranks:
                process.kill()
        self.world.after(notice_s, partial(self._noticed, launch))

    def _noticed(self, launch: Launch) -> None:
        self._close(launch)
        for process in launch.processes:
            process.peer_lost()

    def died(self, process: Process, ending: Ending | None = None) -> None:
        launch = process.launch
        badly = ending is not None or process.exit.get("signal") is not None
        if badly and not launch.elastic and launch.died_ns is None:
            launch.died_ns = self.world.now
            self._close(launch)
            self.world.after(self.grace_s, partial(self._end_all, launch))
        if all(not other.alive for other in launch.processes):
            launch.end_ns = self.world.now
            self._close(launch)
            self.world.open(launch.over)

    def _end_all(self, launch: Launch) -> None:
        for process in launch.processes:
            process.kill("SIGTERM")
