"""The way to a PyTorch program that was started with KINETO_USE_DAEMON=1 and nothing else.

It is given an order when it asks, writes its trace to a file, and never says that it has; the file
is packed and put where profiles go.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from runwatch.agent.errands.commands import Context
from runwatch.agent.errands.kineto import ASKS_EVERY_SECONDS, Client, KinetoDaemon, Order
from runwatch.agent.errands.profile_ways import (
    LABEL,
    POLL_SECONDS,
    WRITE_SECONDS,
    Look,
    Outcome,
    Subject,
    Wish,
    Writing,
)
from runwatch.agent.listening import same_namespace
from runwatch.capture import process
from runwatch.capture.tracing.trace_checks import kineto_problems
from runwatch.capture.tracing.traces import KINETO
from runwatch.files import Folder
from runwatch.identity import acting_as, can_be, owner_of
from runwatch.journal.liveness import PROC, start_ticks

LATE_NS: Final = 200_000_000
BEGUN_NS: Final = 300_000_000
"""Who has not begun by then, will not."""
_COMPRESSION: Final = 1
_BEGINNING: Final = 64 << 10
_END: Final = 256 << 10
_BASE: Final = re.compile(rb'"baseTimeNanoseconds":\s*(\d+)')
_FIRST: Final = re.compile(rb'"Iteration Start: PyTorch Profiler"[^}]*?"ts":\s*([\d.]+)')
_LAST: Final = re.compile(rb'"Record Window End"[^}]*?"ts":\s*([\d.]+)')


@dataclass(frozen=True, slots=True)
class _Trace:
    """A file that a program wrote, or says that it did; what lies there is of its choice."""

    client: Client
    path: Path
    """As the program names it."""

    def open(self) -> BinaryIO:
        with self._folder() as folder:
            return os.fdopen(folder.open(self.path.name, owners=(self.client.user,)), "rb")

    def remove(self) -> None:
        with self._folder() as folder:
            folder.remove(self.path.name)

    def _folder(self) -> Folder:
        user = owner_of(self.client.user)
        if same_namespace(self.client.pid, "mnt"):
            return Folder.at(self.path.parent, user)
        # A link in its container would lead us out of it.
        with (
            process.as_its_user(self.client.pid),
            Folder.at(PROC / str(self.client.pid) / "root", user) as root,
        ):
            return root.below(*self.path.parent.parts[1:])


class KinetoWay(Writing):
    name = "kineto"

    def __init__(self, context: Context, daemon: KinetoDaemon) -> None:
        super().__init__(context)
        self._daemon = daemon

    def look(self, subject: Subject) -> Look:
        if self._daemon.problem:
            return Look(self._daemon.problem)
        client = self._daemon.client(subject.tree)
        if client is None:
            return Look("it does not ask for PyTorch profiles (start it with KINETO_USE_DAEMON=1)")
        if os.getuid() != 0 and not can_be(client.user):
            return Look(f"it runs as another user ({client.user}): its trace could not be read")
        if not client.free:
            return Look("another session is active in its PyTorch profiler", final=True)
        ready = self._daemon.ready_seconds(client)
        return Look(ready_seconds=ready, frameworks=("torch",))

    def capture(self, subject: Subject, wish: Wish, look: Look) -> Outcome:
        outcome = Outcome(self.name, framework="torch")
        client = self._daemon.client(subject.tree)
        if client is None:
            return outcome.failed("it asks no more")
        with _room_for(client, wish) as log_file:
            order = Order(log_file, wish.start_ns, wish.window_ms, wish.steps, wish.at_step)
            if not self._daemon.order(client.pid, order):
                return outcome.failed("another session is about to begin")
            try:
                return self._ordered(subject, wish, outcome, client, order)
            finally:
                self._daemon.withdraw(client.pid, order)

    def _ordered(
        self, subject: Subject, wish: Wish, outcome: Outcome, client: Client, order: Order
    ) -> Outcome:
        patience = 2 * ASKS_EVERY_SECONDS + 2
        if not order.taken.wait(patience):
            return outcome.failed(f"it has not asked for {patience:.0f} s")
        outcome.start_ns, outcome.end_ns = order.start_ns, order.end_ns
        with self.recorded(subject, wish, outcome):
            plain = self._written(subject, wish, client, order)
            if isinstance(plain, str):
                return outcome.failed(plain)
            self._daemon.has_ended(client.pid)
            return self.kept(subject, wish, outcome, lambda to: [_packed(plain, to, wish, outcome)])

    def _written(self, subject: Subject, wish: Wish, client: Client, order: Order) -> _Trace | str:
        clock = self.context.clock
        file = _Trace(client, Path(order.written_file))
        wait_ns = max(0, order.start_ns - clock.wall_ns())
        deadline_ns = clock.mono_ns() + wait_ns + int((wish.seconds + WRITE_SECONDS) * 1e9)
        ticks = start_ticks(client.pid)
        pause = threading.Event()
        begun_ns = clock.mono_ns() + wait_ns + BEGUN_NS
        while clock.mono_ns() < deadline_ns:
            dropped = wish.steps is None and self._is_idle(client, begun_ns)
            if _is_whole(file):
                return file
            if dropped:
                return "its PyTorch profiler dropped the order: it was too busy to begin in time"
            if ticks is None or start_ticks(client.pid) != ticks:
                return "the process ended meanwhile"
            clock.wait(POLL_SECONDS, pause.wait)
        if wish.steps is not None:
            return "it wrote no trace (it counts the steps of torch.optim's optimizers)"
        return f"it wrote no trace to {order.written_file}"

    def _is_idle(self, client: Client, since_ns: int) -> bool:
        """It has asked for another order since then."""
        now = self._daemon.client([client.pid])
        return now is not None and now.free and now.seen_ns > since_ns


@contextmanager
def _room_for(client: Client, wish: Wish) -> Iterator[str]:
    """A file that the program can write, and we can read, also if it is in a container."""
    if not same_namespace(client.pid, "mnt"):
        name = f"/tmp/runwatch-{wish.command or wish.session}.json"
        yield name
        with suppress(OSError):
            _Trace(client, Path(name).with_stem(f"{Path(name).stem}_{client.own_pid}")).remove()
        return
    with acting_as(owner_of(client.user)):
        folder = tempfile.mkdtemp(prefix="runwatch-kineto-")
    try:
        yield f"{folder}/{LABEL}.json"
    finally:
        with acting_as(owner_of(client.user)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_whole(file: _Trace) -> bool:
    """Its last entry is its own name."""
    try:
        with file.open() as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - 4096))
            end = stream.read()
    except OSError:
        return False
    return b'"traceName"' in end and end.rstrip().endswith(b"}")


def _packed(plain: _Trace, folder: Path, wish: Wish, outcome: Outcome) -> Path:
    target = folder / f"{LABEL}{KINETO}"
    with (
        plain.open() as source,
        target.open("wb") as raw,
        gzip.GzipFile(LABEL, "wb", _COMPRESSION, raw) as packed,
    ):
        shutil.copyfileobj(source, packed, 1 << 20)
    outcome.problems += kineto_problems(target, "")
    outcome.start_ns, outcome.end_ns = _window(plain) or (outcome.start_ns, outcome.end_ns)
    late_ns = outcome.start_ns - wish.start_ns
    if wish.steps is None and wish.start_ns and late_ns > LATE_NS:
        outcome.problems.append(f"it began {late_ns / 1e9:.1f} s late")
    return target


def _window(plain: _Trace) -> tuple[int, int] | None:
    """From when to when it recorded, by its own word."""
    with plain.open() as stream:
        base = _BASE.search(stream.read(_BEGINNING))
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - _END))
        tail = stream.read()
    first, last = _FIRST.search(tail), _LAST.search(tail)
    if base is None or first is None or last is None:
        return None
    start, end = (int(base[1]) + round(float(found[1]) * 1e3) for found in (first, last))
    return start, end
