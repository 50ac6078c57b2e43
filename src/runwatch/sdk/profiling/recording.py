"""One recording of this process, from its start to its files in their place.

`begin` records in the thread that calls it; everything else (ending the recording, writing,
checking, moving or uploading) happens in a thread of its own, so that the program goes on at once.
The event `profile` that ends the recording says what failed.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runwatch.capture.tracing.profile_files import Published, place, profile_folder, publish, stems
from runwatch.capture.tracing.traces import (
    TROUBLE,
    Backend,
    TraceOptions,
    choose,
    labels,
    problems_of,
)
from runwatch.errors import RunwatchError
from runwatch.journal.liveness import this_host
from runwatch.record import NO_STEP
from runwatch.record.captures import DONE, FAILED, STARTED, ProfileEvent
from runwatch.sdk.guard import guarded, tally

if TYPE_CHECKING:
    from runwatch.sdk.run import Run

STAGING: Final = "captures"
PROFILES: Final = "profiles"
LABEL: Final = "trace"
FORGOTTEN_NS: Final = 24 * 3600 * 10**9
LATE_NS: Final = 100_000_000
Keep = Callable[[Sequence[Path]], None]
_ANY: Final = (*TROUBLE, RunwatchError)


@dataclass(frozen=True, slots=True)
class Request:
    """What this process is to record, and until when: whichever of the ends comes first."""

    name: str
    """The profile's."""
    path: str
    origin: str = "program"
    """program, or demand: someone asked from outside."""
    command: str = ""
    steps: int | None = None
    seconds: float | None = None
    start_ns: int = 0
    """The wall-clock time at which all processes begin; 0: at once."""
    at_step: int | None = None
    expires_ns: int = 0
    """A step that has not come by then is not waited for any longer."""
    frameworks: tuple[str, ...] = ()
    options: TraceOptions = field(default_factory=TraceOptions)


class Recording:
    def __init__(
        self, run: Run, request: Request, root: Path, number: int, keep: Keep | None = None
    ) -> None:
        self.run, self.request, self.root = run, request, root
        self._keep = keep
        """Takes the files instead of the profile's folder."""
        self.state = "waiting"
        """waiting, recording, writing, done or failed."""
        self.why = ""
        self.directory = ""
        self.files: tuple[str, ...] = ()
        self.recorded = threading.Event()
        """The back ends have stopped: another recording may begin."""
        self.over = threading.Event()
        self._ended = threading.Event()
        self._begun = threading.Event()
        self._beginning = threading.Lock()
        self._failure = ""
        self._backends: list[Backend] = []
        self._chosen = self._prepared = False
        self._problems: list[str] = []
        self._marks = ExitStack()
        self._marked = NO_STEP
        self._steps_done = 0
        self._first_step = self._last_step = NO_STEP
        self._start_ns = self._end_ns = 0
        self._bytes = 0
        self._telling = threading.Lock()
        journal = run._writer.origin.journal if run._writer is not None else "none"
        self._folder = root / STAGING / f"{journal}-{number}"
        self.thread = threading.Thread(target=self._attend, name="runwatch-profiler", daemon=True)

    @property
    def frameworks(self) -> list[str]:
        return [backend.name for backend in self._backends]

    # ── beginning ─────────────────────────────────────────────────────────────────────────────

    def choose(self) -> str:
        """Empty, or why nothing can be recorded."""
        if not self._chosen:
            self._chosen = True
            self._backends, self._problems = choose(self.request.frameworks)
        return "" if self._backends else "; ".join(self._problems)

    def begin(self) -> bool:
        """Record from now on.  False if nothing can be recorded: an event says why."""
        if why := self.choose() or self._make_room():
            self.fail(why)
            return False
        self._prepare()  # all before the first starts, whose trace would be full of it
        names = labels(self._backends, LABEL)
        started = [
            backend
            for backend, name in zip(self._backends, names, strict=True)
            if self._try(backend, partial(self._start, backend, name))
        ]
        self._backends = started
        if not started:
            self.fail("; ".join(self._problems))
            return False
        self._start_ns = self._end_ns = self.run._clock.wall_ns()
        self.state = "recording"
        self._tell(STARTED)
        self.run._at_step = self.at_step
        return True

    def _make_room(self) -> str:
        """Empty, or why there is none."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return f"no room for a trace: {error}"
        return ""

    def _prepare(self) -> None:
        if not self._prepared:
            self._prepared = True
            for backend in self._backends:
                self._try(backend, partial(backend.prepare, self.request.options))

    def _start(self, backend: Backend, name: str) -> None:
        gave_way = partial(self._give_way, backend)
        backend.start(self._folder, name, self.request.options, gave_way)

    def _give_way(self, backend: Backend, to: str) -> None:
        self._problems.append(f"{backend.name}: it ended when the program's own {to} began")
        self.end()

    def _try(self, backend: Backend, function: Callable[[], None]) -> bool:
        try:
            function()
        except TROUBLE as error:
            self._problems.append(f"{backend.name}: {_words(error)}")
            return False
        return True

    # ── at the steps of the program ───────────────────────────────────────────────────────────

    @guarded("mark a step in the trace")
    def at_step(self, number: int, begins: bool) -> None:
        if begins and number == self._marked:
            return
        self._marks.close()
        self._marked = number if begins else NO_STEP
        if begins:
            if self._first_step == NO_STEP:
                self._first_step = number
            self._last_step = number
            for backend in self._backends:
                self._marks.enter_context(backend.step(number))
        elif self._first_step != NO_STEP:  # else it had begun before the recording
            self._steps_done += 1
            if self.request.steps is not None and self._steps_done >= self.request.steps:
                self.end()

    @guarded("begin a recording at a step")
    def await_step(self, number: int, begins: bool) -> None:
        wanted = self.request.at_step
        if not begins or wanted is None or number < wanted:
            return
        self.run._at_step = None
        if number > wanted:
            self._problems.append(f"step {wanted} was over: the recording began with step {number}")
        with self._beginning:
            if self.state == "waiting" and self.begin():
                self.at_step(number, True)
        self._begun.set()

    # ── the end ───────────────────────────────────────────────────────────────────────────────

    def end(self, failure: str = "") -> None:
        """Ask for the end; it is not waited for."""
        self._failure = self._failure or failure
        self._end_ns = self.run._clock.wall_ns()
        self._leave_steps()
        self._ended.set()
        self._begun.set()

    def interrupted(self, why: str) -> None:
        """While it began: whatever records by now is stopped like any other."""
        self.state = "recording"
        self.end(why)

    def _leave_steps(self) -> None:
        if self.run._at_step in (self.at_step, self.await_step):
            self.run._at_step = None

    @property
    def ending(self) -> bool:
        return self._ended.is_set()

    @guarded("take a profile")
    def _attend(self) -> None:
        try:
            if self._await_begin() and self._await_end():
                self._finish()
                self._sweep()
        finally:
            self._leave_steps()
            shutil.rmtree(self._folder, ignore_errors=True)
            self.fail("it was not completed; the program's log says why")
            self.recorded.set()
            self.over.set()

    def _await_begin(self) -> bool:
        request = self.request
        if self.state != "waiting":
            return self.state == "recording"
        if why := self.choose() or self._make_room():
            self.fail(why)
            return False
        self._prepare()
        if request.at_step is not None:
            return self._await_step()
        if self._ended.wait(self._seconds_until(request.start_ns)):
            self.fail(self._failure or "the run ended before the recording began")
            return False
        late_ns = self.run._clock.wall_ns() - request.start_ns
        if request.start_ns and late_ns > LATE_NS:
            self._problems.append(f"it began {late_ns / 1e9:.1f} s late")
        return self.begin()

    def _await_step(self) -> bool:
        self.run._at_step = self.await_step
        self._begun.wait(self._seconds_until(self.request.expires_ns))
        with self._beginning:
            if self.state == "waiting":
                self.fail(self._failure or f"step {self.request.at_step} did not come in time")
        return self.state == "recording"

    def _await_end(self) -> bool:
        if not self._ended.wait(self._seconds_left()):
            self.end()
        return True

    def _seconds_left(self) -> float | None:
        """Until the end that was planned; a common end where a common start was."""
        request = self.request
        if request.seconds is None:
            return None
        begin = self._start_ns
        if request.start_ns and begin - request.start_ns < request.seconds * 0.5e9:
            begin = request.start_ns
        return self._seconds_until(begin + int(request.seconds * 1e9))

    def _seconds_until(self, wall_ns: int) -> float:
        return max(0.0, (wall_ns - self.run._clock.wall_ns()) / 1e9)

    def _finish(self) -> None:
        self.state = "writing"
        files: dict[str, list[Path]] = {}
        for backend in self._backends:
            self._try(backend, partial(_stop, backend, files))
        self.recorded.set()
        for backend in self._backends:
            if backend.name in files:
                self._check(backend, files[backend.name])
        written = [file for group in files.values() for file in group]
        if not written:
            self.fail("; ".join(self._problems) or "no trace was written")
            return
        if self._publish(written) and not self._failure:
            self._close(DONE, "; ".join(self._problems))
        else:
            self.fail("; ".join(filter(None, (self._failure, *self._problems))))

    def _check(self, backend: Backend, files: list[Path]) -> None:
        others = [name for name in self.frameworks if name != backend.name]
        try:
            self._problems += problems_of(backend, files, others)
        except TROUBLE as error:
            self._problems.append(f"{backend.name}: its trace cannot be read: {_words(error)}")

    def _publish(self, files: list[Path]) -> bool:
        """Into the place asked for; where that is impossible, into the Runwatch directory."""
        if self._keep is not None:
            self._keep(files)
            return True
        wanted, own = self.request.path, str(self.root / PROFILES)
        why = self._move(files, wanted)
        if not why:
            return True
        self._problems.insert(0, f"cannot write to {wanted}: {why}")
        left = [file for file in files if file.exists()]
        if wanted != own and left:
            second = self._move(left, own)
            where = f"not kept in {own} either: {second}" if second else f"kept in {own}"
            self._problems.insert(1, where)
        return False

    def _move(self, files: list[Path], path: str) -> str:
        run = self.run
        try:
            directory = profile_folder(path, run.id, self.request.name)
            names = stems(this_host(), run.rank, first=run.local_rank == 0)
            moved = publish(files, LABEL, place(directory), names, self.root / STAGING)
        except _ANY as error:
            return _words(error)
        self._take(moved)
        return ""

    def _sweep(self) -> None:
        """Remove what processes left that were killed in the middle of a recording."""
        oldest_ns = self.run._clock.wall_ns() - FORGOTTEN_NS
        for folder in (self.root / STAGING).iterdir():
            with suppress(FileNotFoundError):  # another rank's, which has just ended
                if folder.stat().st_mtime_ns < oldest_ns:
                    shutil.rmtree(folder, ignore_errors=True)

    def _take(self, moved: Published) -> None:
        self.directory, self.files, self._bytes = moved.directory, moved.files, moved.bytes

    # ── telling ───────────────────────────────────────────────────────────────────────────────

    def fail(self, why: str) -> None:
        """Once it is over, without effect."""
        with self._telling:
            if self.state in (DONE, FAILED):
                return
        tally.count("profile", f"profile {self.request.name}: {why}")
        self._close(FAILED, why)

    def _close(self, state: str, why: str) -> None:
        with self._telling:
            if self.state in (DONE, FAILED):
                return
            self.state, self.why = state, why
        self._tell(state)

    def _tell(self, state: str) -> None:
        run = self.run
        writer = run._writer
        if writer is None or writer.closed:
            return
        writer.tell(self._event(state), scope=run._scope)

    def status(self) -> ProfileEvent:
        """For whoever asks meanwhile."""
        with self._telling:
            return self._event(self.state)

    def _event(self, state: str) -> ProfileEvent:
        request = self.request
        first, last = self._steps_seen()
        return ProfileEvent(
            session=request.name,
            state=state,
            why=self.why,
            framework="+".join(self.frameworks),
            files=self.files,
            directory=self.directory,
            bytes=self._bytes,
            start_ns=self._start_ns,
            end_ns=self._end_ns,
            first_step=first,
            last_step=last,
            origin=request.origin,
            command=request.command,
            problems=tuple(self._problems),
            rank=self.run.rank,
            host=this_host(),
            pid=os.getpid(),
            run=self.run.id,
            way="sdk",
        )

    def _steps_seen(self) -> tuple[int | None, int | None]:
        if self._first_step != NO_STEP:
            return self._first_step, self._last_step
        now = self.run._step
        return (None, None) if now == NO_STEP else (now, now)


def _stop(backend: Backend, files: dict[str, list[Path]]) -> None:
    files[backend.name] = backend.stop()


def _words(error: BaseException) -> str:
    text = str(error).strip() or "without a reason"
    return f"{type(error).__name__}: {text}"[:1000]
