"""Goodput beside how long the GPU was truly busy: the account of real loops on a real device.

    PYTHONPATH=src python3 benchmarks/truth_gpu.py [--only eager] [--agent] [--cpu]

Loops in eager PyTorch, in compiled PyTorch and in JAX read their loss every 1, 10 and 100 steps,
in the step or after it, with and without `run.log(loss=loss)`; two wait for data as long as the GPU
works.  PyTorch's profiler tells which kernels ran when, for JAX a thread notes when each step's
result was there; the account is drawn up from the run's journal.  About 4 minutes on one GPU; it
needs the standard library and the frameworks, and leaves out those that are not there.  `--cpu`
goes through the motions, in loops so short that their differences mean nothing.  The exit code is
1 if a loop failed, or differs by more than 2 points.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

import runwatch
from runwatch.compat.goodput.calculator.strict import JournalAccount

POINTS = 2.0
ROWS = int(os.environ.get("TRUTH_ROWS", "24576"))
"""Of a batch: a step takes about 42 ms on an H200.  With 6,144 rows it takes 10 ms, and the 0.4 ms
in which the GPU idles until the next one is handed over, at which the account has to guess, are
4 points."""
GROUPS = ("eager", "compiled", "jax")
NEEDS = {"eager": "torch", "compiled": "torch", "jax": "jax"}
AGENT_NEEDS = ("psutil", "grpc")
GROUP_SECONDS = 150.0
WARM_UP = 20
ON_DEVICE = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
ON_CPU = frozenset(("cpu_op",))
# Of the frameworks: a device that is out of memory, a kernel that cannot be compiled.
FAILURES = (RuntimeError, OSError, ValueError, ImportError, AttributeError, AssertionError)


class NoGpuError(RuntimeError):
    """This framework has none here."""


@dataclass(frozen=True)
class Loop:
    every: int
    """How often the loss is read."""
    inside: bool = True
    logged: bool = False
    starved: float = 0.0
    """The loader takes so many times what a step takes."""

    @property
    def name(self) -> str:
        where = "inside" if self.inside else "outside"
        logged = ", logged" if self.logged else ""
        return f"starved, {where}" if self.starved else f"{where}{logged}"


LOOPS = (
    *(Loop(e, i, g) for g in (False, True) for i in (True, False) for e in (1, 10, 100)),
    Loop(1, starved=1.0),
    Loop(10, starved=2.0),
)


@dataclass(frozen=True)
class Row:
    group: str
    loop: str
    every: int
    steps: int
    wall: float
    busy: float
    """Seconds, by the profile."""
    account: float
    """Productive seconds, as the account has it."""
    inferred: float
    spent: dict[str, float]

    @property
    def points(self) -> float:
        return 100 * (self.account - self.busy) / self.wall


# ── the programs ──────────────────────────────────────────────────────────────────────────────


class Machine(Protocol):
    """A framework, and a model in it that is mostly matrix products."""

    def step(self) -> Any:
        """Hand one step over; its loss."""

    def read(self, loss: Any) -> float:
        """Wait for it."""

    def busy(self, work: Callable[[], None]) -> float:
        """Seconds that the device was busy while `work` was done."""


class TorchMachine:
    def __init__(self, cpu: bool, compiled: bool) -> None:
        import torch

        self._torch: Any = torch
        self._cpu = cpu
        if not cpu and not torch.cuda.is_available():
            raise NoGpuError("PyTorch sees no GPU (--cpu goes through the motions)")
        if cpu:
            torch.set_num_threads(1)  # several wait for one another where other programs run
        width, rows, kind = (256, 256, torch.float32) if cpu else (8192, ROWS, torch.bfloat16)
        where: Any = {"device": "cpu" if cpu else "cuda", "dtype": kind}
        torch.manual_seed(0)
        layers: list[Any] = []
        for _ in range(3):
            layers += [torch.nn.Linear(width, width, **where), torch.nn.Tanh()]
        model = torch.nn.Sequential(*layers)
        self._update = torch.optim.SGD(model.parameters(), lr=1e-3)
        self._batch = torch.randn(rows, width, **where)

        def loss_of(batch: Any) -> Any:
            return (model(batch) ** 2).mean()

        self._loss_of = torch.compile(loss_of) if compiled else loss_of

    def step(self) -> Any:
        self._update.zero_grad()
        loss = self._loss_of(self._batch)
        loss.backward()
        self._update.step()
        return loss.detach()

    def read(self, loss: Any) -> float:
        return float(loss.item())

    def busy(self, work: Callable[[], None]) -> float:
        profiler = self._torch.profiler
        seen = profiler.ProfilerActivity.CPU if self._cpu else profiler.ProfilerActivity.CUDA
        with profiler.profile(activities=[seen]) as profile:
            work()
            if not self._cpu:
                self._torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profile.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
        kinds = ON_CPU if self._cpu else ON_DEVICE
        found = [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") in kinds]
        if not found:
            raise RuntimeError("the profile holds no work of the device")
        return union(found) / 1e6


class JaxMachine:
    def __init__(self, cpu: bool) -> None:
        import jax
        import jax.numpy as jnp

        platform = jax.default_backend()
        if not cpu and platform != "gpu":
            raise NoGpuError(f"JAX sees no GPU, only {platform}")
        width, rows, kind = (256, 256, jnp.float32) if cpu else (8192, ROWS, jnp.bfloat16)
        keys = jax.random.split(jax.random.key(0), 4)
        self._weights = [jax.random.normal(k, (width, width), kind) / width**0.5 for k in keys[1:]]
        self._batch = jax.random.normal(keys[0], (rows, width), kind)

        def loss_of(weights: list[Any], batch: Any) -> Any:
            for layer in weights:
                batch = jnp.tanh(batch @ layer)
            return (batch.astype(jnp.float32) ** 2).mean()

        def step(weights: list[Any], batch: Any) -> Any:
            loss, gradient = jax.value_and_grad(loss_of)(weights, batch)
            return [w - 1e-3 * g for w, g in zip(weights, gradient, strict=True)], loss

        self._step = jax.jit(step)
        self._handed: SimpleQueue[tuple[float, Any] | None] | None = None

    def step(self) -> Any:
        begun = time.perf_counter()
        self._weights, loss = self._step(self._weights, self._batch)
        if self._handed is not None:
            self._handed.put((begun, loss))
        return loss

    def read(self, loss: Any) -> float:
        return float(loss)

    def busy(self, work: Callable[[], None]) -> float:
        """Steps depend on one another: the device is at one from when it was handed over, or from
        when the one before was done, until its result is there."""
        handed = self._handed = SimpleQueue[tuple[float, Any] | None]()
        spent = [0.0]

        def watch() -> None:
            ready = 0.0
            while (item := handed.get()) is not None:
                begun, result = item
                result.block_until_ready()
                start, ready = max(begun, ready), time.perf_counter()
                spent[0] += ready - start

        watcher = Thread(target=watch, name="observer")
        watcher.start()
        try:
            work()
        finally:
            self._handed = None
            handed.put(None)
            watcher.join()
        return spent[0]


def union(stretches: Iterable[tuple[float, float]]) -> float:
    total, until = 0.0, float("-inf")
    for start, end in sorted(stretches):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def made(group: str, cpu: bool) -> Machine:
    return JaxMachine(cpu) if group == "jax" else TorchMachine(cpu, group == "compiled")


def usual_seconds(machine: Machine) -> float:
    """Of a step, once all is compiled and warm."""
    machine.read(machine.step())
    for _ in range(WARM_UP):
        loss = machine.step()
    machine.read(loss)
    begun = time.perf_counter()
    for _ in range(WARM_UP):
        loss = machine.step()
    machine.read(loss)
    return (time.perf_counter() - begun) / WARM_UP


def train(machine: Machine, loop: Loop, name: str, steps: int, load_seconds: float) -> float:
    """The loop, as people write it; how many seconds the run took."""
    run = runwatch.init(name)
    begun = time.perf_counter()
    for number, _ in run.steps(loader(steps, load_seconds)) if loop.starved else ():
        loss = machine.step()
        if number % loop.every == loop.every - 1:
            machine.read(loss)
    for number in () if loop.starved else range(steps):
        due = number % loop.every == loop.every - 1
        with run.step(number):
            loss = machine.step()
            if loop.logged:
                run.log(loss=loss)
            if due and loop.inside:
                machine.read(loss)
        if due and not loop.inside:
            machine.read(loss)
    machine.read(loss)
    took = time.perf_counter() - begun
    run.finish()
    return took


def loader(count: int, seconds: float) -> Iterator[int]:
    for number in range(count):
        time.sleep(seconds)
        yield number


def measured(machine: Machine, group: str, loop: Loop, steps: int, usual: float) -> Row:
    name = f"{group}-{LOOPS.index(loop)}"
    walls: list[float] = []
    load = loop.starved * usual
    busy = machine.busy(lambda: walls.append(train(machine, loop, name, steps, load)))
    journals = JournalAccount(Path(os.environ["RUNWATCH_DIR"]), name)
    try:
        goodput = journals.goodput(time.time_ns())
    finally:
        journals.close()
    if goodput is None:
        raise RuntimeError(f"there is no account of {name}")
    spent = {what: ns / 1e9 for what, ns in goodput.account().spent_ns.items() if ns}
    account = spent.get("productive", 0.0)
    inferred = goodput.inferred_ns / 1e9
    return Row(group, loop.name, loop.every, steps, walls[0], busy, account, inferred, spent)


def work(group: str, steps: int, cpu: bool) -> None:
    """All loops of one framework, in a process of its own: a line for each."""
    try:
        machine = made(group, cpu)
    except NoGpuError as error:
        print(json.dumps({"left_out": str(error)}), flush=True)
        return
    usual = usual_seconds(machine)
    print(json.dumps({"usual": usual}), flush=True)
    machine.busy(lambda: print(f"warm: {machine.read(machine.step())}"))  # the first is slow
    for loop in LOOPS:
        count = steps if not loop.starved else max(steps // 2, 1)
        try:
            answer: dict[str, Any] = asdict(measured(machine, group, loop, count, usual))
        except FAILURES as error:
            answer = {"failed": f"{loop.name}, every {loop.every}: {error!r}"}
        print(json.dumps(answer), flush=True)


# ── around them ───────────────────────────────────────────────────────────────────────────────


def environment(root: Path, cpu: bool) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    kept |= {"RUNWATCH_DIR": str(root), "RUNWATCH_AGENT": "off"}
    kept["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return kept | ({"JAX_PLATFORMS": "cpu"} if cpu else {})


@contextmanager
def agent(root: Path, wanted: bool) -> Iterator[None]:
    lacking = [name for name in AGENT_NEEDS if importlib.util.find_spec(name) is None]
    if wanted and lacking:
        print(f"no agent: {' and '.join(lacking)} not installed")
    if not wanted or lacking:
        yield
        return
    command = [sys.executable, "-m", "runwatch.agent", "--dir", str(root), "--idle", "0"]
    with (root / "agent.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment(root, False), stdout=log, stderr=log)
    try:
        yield
        if process.poll() is not None:
            words = (root / "agent.log").read_text(errors="replace")[-1000:]
            print(f"the agent ended with {process.returncode}: {words}")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(group: str, options: argparse.Namespace, root: Path) -> tuple[list[Row], list[str]]:
    """What the group's process said, as far as it came."""
    command = [sys.executable, __file__, "--work", group, "--steps", str(options.steps)]
    command += ["--cpu"] if options.cpu else []
    errors = root / f"{group}.log"
    with errors.open("wb") as log:
        try:
            done = subprocess.run(
                command,
                env=environment(root, options.cpu),
                stdout=subprocess.PIPE,
                stderr=log,
                timeout=GROUP_SECONDS,
                check=False,
            )
            out, code = done.stdout, done.returncode
        except subprocess.TimeoutExpired as error:
            out, code = error.stdout or b"", -1
    rows, failures = [], []
    for line in out.decode().splitlines():
        answer = json.loads(line) if line.startswith("{") else {}
        if "failed" in answer:
            failures.append(f"{group}, {answer['failed']}")
        elif "left_out" in answer:
            print(f"{group}: {answer['left_out']}", flush=True)
        elif "usual" in answer:
            print(f"{group}: a step takes {answer['usual'] * 1e3:.1f} ms", flush=True)
        elif answer:
            rows.append(Row(**answer))
    if code:
        why = f"took longer than {GROUP_SECONDS:.0f} s" if code == -1 else f"ended with {code}"
        failures.append(f"{group} {why}: {errors.read_text(errors='replace').strip()[-1500:]}")
    return rows, failures


def table(rows: Iterable[Row]) -> None:
    form = "{:9} {:18} {:>5} {:>7} {:>7} {:>9} {:>7} {:>10}  {}"
    heads = ("program", "loss read", "every", "wall s", "busy %", "account %", "points")
    print(form.format(*heads, "inferred s", ""))
    for row in rows:
        busy, account = 100 * row.busy / row.wall, 100 * row.account / row.wall
        most = ", ".join(
            f"{what} {seconds:.2f} s"
            for what, seconds in sorted(row.spent.items(), key=lambda item: -item[1])[:3]
        )
        numbers = (f"{row.wall:.2f}", f"{busy:.2f}", f"{account:.2f}", f"{row.points:+.2f}")
        off = f"OFF: {most}" if abs(row.points) > POINTS else ""
        print(form.format(row.group, row.loop, row.every, *numbers, f"{row.inferred:.2f}", off))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=GROUPS, action="append", help="these programs")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--agent", action="store_true", help="with the node's agent beside them")
    parser.add_argument("--cpu", action="store_true", help="go through the motions without a GPU")
    parser.add_argument("--work", choices=GROUPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.steps, options.cpu)
        return 0
    rows: list[Row] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="runwatch-truth-") as place:
        root = Path(place)
        with agent(root, options.agent):
            for group in options.only or GROUPS:
                if importlib.util.find_spec(NEEDS[group]) is None:
                    print(f"{group}: {NEEDS[group]} is not installed", flush=True)
                    continue
                found, failed = answers(group, options, root)
                rows += found
                failures += failed
    table(rows)
    for failure in failures:
        print(f"FAILED: {failure}")
    off = sum(abs(row.points) > POINTS for row in rows)
    print(f"{len(rows)} loops, {off} of them off by more than {POINTS:g} points")
    return 1 if failures or not rows or (off and not options.cpu) else 0


if __name__ == "__main__":
    sys.exit(main())
