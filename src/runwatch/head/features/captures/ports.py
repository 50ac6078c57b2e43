"""The head's own way to a program's profiler port, where no agent could ask the program.

Programs that only send OTLP, or use google-cloud-mldiagnostics, may run where no agent is.  The
head asks at the address that the program's requests came from, at the port that such programs serve
(`on_demand_xprof=True`).  The trace comes as the answer, and the head keeps it like any other.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runwatch.capture.tracing.profile_files import place, profile_folder, publish, stems
from runwatch.clock import Clock
from runwatch.errors import RunwatchError
from runwatch.journal.liveness import this_host
from runwatch.record import RunId
from runwatch.record.capture_limits import PROFILER_PORTS, WRITE_SECONDS
from runwatch.record.captures import DONE, FAILED, STARTED, ProfileEvent
from runwatch.record.commands import TargetPreflight
from runwatch.record.message import Message
from runwatch.views.runs import ProcessState

if TYPE_CHECKING:  # it needs protobuf, which who asks for no profile does not
    from runwatch.capture.tracing.profiler_service import CannotProfile, ProfileAnswer

PORT: Final = PROFILER_PORTS[-1]
"""Where google-cloud-mldiagnostics serves its profiler."""
LABEL: Final = "trace"
logger = logging.getLogger("runwatch.head")

Record = Callable[[Sequence[Message], RunId | None], object]


class OwnPorts:
    """Any thread may call."""

    def __init__(self, folder: Path, record: Record, clock: Clock) -> None:
        """`folder`: where profiles go."""
        self._folder = folder
        self._record = record
        self._clock = clock

    def preflight(self, process: ProcessState, ports: Sequence[int]) -> TargetPreflight:
        from runwatch.capture.tracing.profiler_service import CannotProfile, check

        begun_ns, whys = self._clock.mono_ns(), []
        target = TargetPreflight(
            host=process.host, rank=process.rank, pid=process.pid, run=process.run
        )
        host = "127.0.0.1" if process.host == this_host() else process.host
        for port in ports or (PORT,):
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            try:
                check(address)
            except CannotProfile as error:
                whys.append(str(error))
                continue
            took_ms = (self._clock.mono_ns() - begun_ns) // 1_000_000
            return replace(target, way="port", address=address, ready_ms=took_ms)
        return replace(target, why="; ".join(whys)[:500] + "; and no agent of it is connected")

    def begin(
        self,
        run: RunId,
        targets: Sequence[TargetPreflight],
        asked: ProfileEvent,
        duration_ms: int,
    ) -> None:
        """Records in a thread of its own.  `asked`: what all of them have in common."""
        if targets:
            threading.Thread(
                target=self._capture,
                args=(run, targets, asked, duration_ms),
                name="runwatch-own-ports",
                daemon=True,
            ).start()

    def _capture(
        self,
        run: RunId,
        targets: Sequence[TargetPreflight],
        asked: ProfileEvent,
        duration_ms: int,
    ) -> None:
        from runwatch.capture.tracing.profiler_service import PortTarget, profile_all

        events = [
            replace(asked, host=t.host, rank=t.rank, pid=t.pid, state=STARTED) for t in targets
        ]
        self._tell(run, events)
        answers = profile_all(
            [PortTarget(t.address, f"{t.host}.rank{t.rank}") for t in targets],
            duration_ms,
            asked.session,
            start_ns=asked.start_ns,
            seconds=WRITE_SECONDS,
        )
        end_ns = asked.start_ns + duration_ms * 1_000_000
        for event, answer in zip(events, answers, strict=True):
            self._tell(run, [self._kept(replace(event, end_ns=end_ns), answer)])

    def _kept(self, event: ProfileEvent, answer: ProfileAnswer | CannotProfile) -> ProfileEvent:
        if isinstance(answer, Exception):
            return replace(event, state=FAILED, why=str(answer))
        if not answer.xspace:
            return replace(event, state=FAILED, why="it answered, but its trace is empty")
        try:
            return self._published(event, answer.xspace)
        except (OSError, RunwatchError, ImportError, ValueError) as error:
            return replace(event, state=FAILED, why=f"its trace cannot be kept: {error}")

    def _published(self, event: ProfileEvent, xspace: bytes) -> ProfileEvent:
        from runwatch.capture.tracing.trace_checks import xplane_problems, xplane_window
        from runwatch.capture.tracing.traces import XPLANE

        self._folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".capture-", dir=self._folder))
        try:
            file = staging / f"{LABEL}{XPLANE}"
            file.write_bytes(xspace)
            problems, window = xplane_problems(file, ""), xplane_window(file)
            if window:
                event = replace(event, start_ns=window[0], end_ns=window[1])
            to = place(profile_folder(str(self._folder), event.run, event.session), ours=True)
            names = stems(event.host, event.rank or 0, first=not event.rank)
            published = publish([file], LABEL, to, names, staging)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return replace(
            event,
            state=DONE,
            files=published.files,
            directory=published.directory,
            bytes=published.bytes,
            problems=tuple(problems),
        )

    def _tell(self, run: RunId, events: Sequence[ProfileEvent]) -> None:
        try:
            self._record(events, run)
        except RunwatchError as error:
            logger.warning("a capture of %s could not be recorded: %s", run, error)
