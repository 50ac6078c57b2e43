"""The way to a PyTorch program that was started with KINETO_USE_DAEMON=1 and nothing else.

It gets a request when it asks, writes its trace to a file, and never says that it has; the file is
packed and put where profiles go.
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
from runwatch.agent.errands.kineto import ASKS_EVERY_SECONDS, Client, KinetoDaemon, KinetoRequest
from runwatch.agent.errands.profile_ways import (
    LABEL,
    POLL_SECONDS,
    LocalTarget,
    Recording,
    WayPreflight,
    Writing,
)
from runwatch.agent.listening import same_namespace
from runwatch.capture import process
from runwatch.capture.tracing.trace_checks import kineto_problems
from runwatch.capture.tracing.traces import KINETO
from runwatch.files import Folder
from runwatch.identity import acting_as, can_be, owner_of
from runwatch.journal.liveness import PROC, start_ticks
from runwatch.record.capture_limits import WRITE_SECONDS
from runwatch.record.control import ProfileStart

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

    def preflight(self, target: LocalTarget) -> WayPreflight:
        if self._daemon.problem:
            return WayPreflight(self._daemon.problem)
        client = self._daemon.client(target.tree)
        if client is None:
            return WayPreflight(
                "it does not ask for PyTorch profiles (start it with KINETO_USE_DAEMON=1)"
            )
        if os.getuid() != 0 and not can_be(client.user):
            return WayPreflight(
                f"it runs as another user ({client.user}): its trace could not be read"
            )
        if not client.free:
            return WayPreflight("another recording goes on in its PyTorch profiler", final=True)
        ready = self._daemon.ready_seconds(client)
        return WayPreflight(ready_seconds=ready, frameworks=("torch",))

    def record(
        self, target: LocalTarget, request: ProfileStart, preflight: WayPreflight
    ) -> Recording:
        recording = Recording(self.name, framework="torch")
        client = self._daemon.client(target.tree)
        if client is None:
            return recording.failed("it asks no more")
        with _room_for(client, request) as log_file:
            kineto_request = KinetoRequest(
                log_file, request.start_ns, request.window_ms, request.steps, request.at_step
            )
            if not self._daemon.offer(client.pid, kineto_request):
                return recording.failed("another recording is about to begin")
            try:
                return self._offered(target, request, recording, client, kineto_request)
            finally:
                self._daemon.withdraw(client.pid, kineto_request)

    def _offered(
        self,
        target: LocalTarget,
        request: ProfileStart,
        recording: Recording,
        client: Client,
        kineto_request: KinetoRequest,
    ) -> Recording:
        patience = 2 * ASKS_EVERY_SECONDS + 2
        if not kineto_request.taken.wait(patience):
            return recording.failed(f"it has not asked for {patience:.0f} s")
        recording.start_ns, recording.end_ns = kineto_request.start_ns, kineto_request.end_ns
        with self.recorded(target, request, recording):
            plain = self._written(target, request, client, kineto_request)
            if isinstance(plain, str):
                return recording.failed(plain)
            self._daemon.has_ended(client.pid)
            return self.published(
                target, request, recording, lambda to: [_packed(plain, to, request, recording)]
            )

    def _written(
        self,
        target: LocalTarget,
        request: ProfileStart,
        client: Client,
        kineto_request: KinetoRequest,
    ) -> _Trace | str:
        clock = self.context.clock
        file = _Trace(client, Path(kineto_request.written_file))
        wait_ns = max(0, kineto_request.start_ns - clock.wall_ns())
        deadline_ns = clock.mono_ns() + wait_ns + int((request.seconds + WRITE_SECONDS) * 1e9)
        ticks = start_ticks(client.pid)
        pause = threading.Event()
        begun_ns = clock.mono_ns() + wait_ns + BEGUN_NS
        while clock.mono_ns() < deadline_ns:
            dropped = request.steps is None and self._is_idle(client, begun_ns)
            if _is_whole(file):
                return file
            if dropped:
                return "its PyTorch profiler dropped the request: it was too busy to begin in time"
            if ticks is None or start_ticks(client.pid) != ticks:
                return "the process ended meanwhile"
            clock.wait(POLL_SECONDS, pause.wait)
        if request.steps is not None:
            return "it wrote no trace (it counts the steps of torch.optim's optimizers)"
        return f"it wrote no trace to {kineto_request.written_file}"

    def _is_idle(self, client: Client, since_ns: int) -> bool:
        """It has asked for another request since then."""
        now = self._daemon.client([client.pid])
        return now is not None and now.free and now.seen_ns > since_ns


@contextmanager
def _room_for(client: Client, request: ProfileStart) -> Iterator[str]:
    """A file that the program can write, and we can read, also if it is in a container."""
    if not same_namespace(client.pid, "mnt"):
        name = f"/tmp/runwatch-{request.command or request.session}.json"
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


def _packed(plain: _Trace, folder: Path, request: ProfileStart, recording: Recording) -> Path:
    packed_file = folder / f"{LABEL}{KINETO}"
    with (
        plain.open() as source,
        packed_file.open("wb") as raw,
        gzip.GzipFile(LABEL, "wb", _COMPRESSION, raw) as packed,
    ):
        shutil.copyfileobj(source, packed, 1 << 20)
    recording.problems += kineto_problems(packed_file, "")
    recording.start_ns, recording.end_ns = _window(plain) or (recording.start_ns, recording.end_ns)
    late_ns = recording.start_ns - request.start_ns
    if request.steps is None and request.start_ns and late_ns > LATE_NS:
        recording.problems.append(f"it began {late_ns / 1e9:.1f} s late")
    return packed_file


def _window(plain: _Trace) -> tuple[int, int] | None:
    """From when to when it recorded, by its own word."""
    with plain.open() as stream:
        base = _BASE.search(stream.read(_BEGINNING))
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - _END))
        tail = stream.read()
    first, last = _FIRST.search(tail), _LAST.search(tail)
    if base is None or first is None or last is None:
        return None
    start, end = (int(base[1]) + round(float(mark[1]) * 1e3) for mark in (first, last))
    return start, end
