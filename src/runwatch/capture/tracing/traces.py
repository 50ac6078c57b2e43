"""Recording what the frameworks of this process do: one protocol, one back end per framework.

`start` makes a back end record into a folder, `stop` makes it write its files there.  Either may
be called from any thread; `stop` is slow (a second per second of dense trace) and belongs in one
that nobody waits for.  Errors rise to whoever called: `TROUBLE` is what a framework may throw.

A framework records one trace at a time.  Where the program begins its own, ours gives way: it is
ended first, in the program's thread, and `stop` writes what it has by then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol

from runwatch.capture.tracing.trace_checks import GPU_BUSY, kineto_problems, xplane_problems

TROUBLE: Final = (
    OSError, RuntimeError, ValueError, TypeError, AttributeError, LookupError, ImportError,
    AssertionError, MemoryError, EOFError,
)  # fmt: skip
XPLANE: Final = ".xplane.pb"
KINETO: Final = ".kineto.json.gz"
GaveWay = Callable[[str], None]
"""Called when a trace has been ended for the program's own, with the program's tracer."""


def giving_way(end: Callable[[], bool], to: str, gave_way: GaveWay) -> Callable[[], None]:
    """Returns what ends a trace in the program's thread, before the program begins its own.

    No failure of ours reaches the program.  A forked child has the recording of its parent, and
    leaves it alone.
    """
    owner = os.getpid()

    def give_way() -> None:
        if os.getpid() != owner:
            return
        try:
            ended = end()
        except TROUBLE:
            ended = True
        if ended:
            gave_way(to)

    return give_way


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What costs time or room in the program that is traced is off, unless it is JAX's default."""

    python: bool = True
    """JAX, torch_xla, TensorFlow: the Python functions called."""
    stacks: bool = False
    """torch: the Python functions called."""
    shapes: bool = False
    """torch: the shapes of each operation's inputs."""
    memory: bool = False
    """torch: allocations."""


class Backend(Protocol):
    name: str

    def available(self) -> str:
        """Empty, or why it cannot record in this process now."""
        ...

    def prepare(self, options: TraceOptions) -> None:
        """What is slow the first time, so that `start` is quick."""
        ...

    def start(self, folder: Path, label: str, options: TraceOptions, gave_way: GaveWay) -> None: ...

    def step(self, number: int) -> AbstractContextManager[Any]:
        """Marks a step in the trace; for the thread that takes the steps."""
        ...

    def stop(self) -> list[Path]:
        """The files `<label>.…` now in the folder."""
        ...

    def device(self) -> str:
        """The accelerator whose events must be in the trace ("gpu", "tpu"), or empty."""
        ...


# By name: the module that must have been imported, and the back end's own.
BACKENDS: Final[Mapping[str, tuple[str, str]]] = {
    "jax": ("jax", "jax_trace"),
    "torch": ("torch", "torch_trace"),
    "torch_xla": ("torch_xla", "xla_trace"),
    "tensorflow": ("tensorflow", "tensorflow_trace"),
}


def frameworks(modules: Mapping[str, ModuleType] = sys.modules) -> tuple[str, ...]:
    """Those imported in this process that a trace would be of."""
    loaded = [name for name, (module, _) in BACKENDS.items() if _is_loaded(module, modules)]
    drivers = [name for name in loaded if not _is_passenger(name, modules)]
    return tuple(drivers or loaded)


def _is_passenger(name: str, modules: Mapping[str, ModuleType]) -> bool:
    """Imported beside another framework: taken alone, or when asked for.

    TensorFlow is often there only to load data.  A JAX that has not been used yet would wake up
    for its trace, and take three quarters of the GPU's memory.
    """
    if name == "jax":
        awake = getattr(modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
        return awake is not None and not awake()
    return name == "tensorflow"


def _is_loaded(name: str, modules: Mapping[str, ModuleType]) -> bool:
    module = modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)


def choose(
    names: Sequence[str] = (), modules: Mapping[str, ModuleType] = sys.modules
) -> tuple[list[Backend], list[str]]:
    """The back ends for this process, and why one that was asked for is not among them."""
    wanted = tuple(names) or frameworks(modules)
    chosen: list[Backend] = []
    problems = []
    for name in wanted:
        try:
            chosen.append(_ready(name, modules))
        except TROUBLE as error:
            problems.append(f"{name}: {error}")
    if not wanted:
        known = ", ".join(BACKENDS)
        problems.append(f"nothing to trace: this process has imported none of {known}")
    return chosen, problems


def _ready(name: str, modules: Mapping[str, ModuleType]) -> Backend:
    if name not in BACKENDS:
        raise ValueError(f"not a framework that can be traced; those are {', '.join(BACKENDS)}")
    module, home = BACKENDS[name]
    if not _is_loaded(module, modules):
        raise ValueError("this process has not imported it")
    backend: Backend = import_module(f"runwatch.capture.tracing.{home}").make()
    if why := backend.available():
        raise RuntimeError(why)
    return backend


def labels(backends: Iterable[Backend], stem: str) -> list[str]:
    """One per back end: two that write xplane files need two names."""
    names: list[str] = []
    plain_taken = False
    for backend in backends:
        writes_xplane = backend.name != "torch"
        names.append(f"{stem}.{backend.name}" if writes_xplane and plain_taken else stem)
        plain_taken = plain_taken or writes_xplane
    return names


def problems_of(backend: Backend, files: Sequence[Path], others: Sequence[str] = ()) -> list[str]:
    """What is wrong with a trace that was written: empty, or without the device it should show."""
    if not files:
        return [f"{backend.name}: no trace was written"]
    device = backend.device()
    problems: list[str] = []
    for file in files:
        check = kineto_problems if file.name.endswith(KINETO) else xplane_problems
        problems += [f"{backend.name}: {problem}" for problem in check(file, device)]
    if others and any(GPU_BUSY in problem for problem in problems):
        who = " and ".join(others)
        problems.append(
            f"{backend.name}: a process has one subscriber to the GPU's events, and {who} was it"
        )
    return problems


def gather_xplanes(folder: Path, label: str) -> list[Path]:
    """Bring the xplane that a framework left somewhere below `folder` to the top of it."""
    target = folder / f"{label}{XPLANE}"
    planes = sorted(path for path in folder.rglob(f"*{XPLANE}") if path.parent != folder)
    if not planes:
        return []
    newest = max(planes, key=lambda path: path.stat().st_mtime_ns)
    newest.replace(target)
    return [target]
