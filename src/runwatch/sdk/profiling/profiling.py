"""Profiles of a run's process: from the program (`run.profile`) and on demand.

A `Profiler` sees to it that one recording goes on at a time; a `ProgramProfile` is what the program
holds; how a recording goes from its start to its files is in `recording.py`.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from runwatch.capture.tracing.traces import TraceOptions, choose, frameworks
from runwatch.errors import UsageError
from runwatch.record import NO_STEP
from runwatch.record.capture_limits import MAX_AHEAD_SECONDS
from runwatch.record.captures import ProfileEvent, checked_name
from runwatch.record.control import (
    ProfilePreflight,
    ProfileReply,
    ProfileStart,
    ProfileStatus,
    asked_of_process,
)
from runwatch.sdk.guard import attempt, guarded, tally, text_of
from runwatch.sdk.profiling.recording import PROFILES, STAGING, Keep, Recording, Request
from runwatch.sdk.step import Spanning

if TYPE_CHECKING:
    from runwatch.sdk.profiling.port import ProfilePort
    from runwatch.sdk.run import Run

RECORDED_SECONDS: Final = 10.0
"""How long a start waits for the recording before it to stop."""
FINISH_SECONDS: Final = 60.0
"""How long the end of a run waits for its profiles to be in their place."""


class Profiler:
    """The recordings of one run in this process: one goes on at a time, others may be written."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._current: Recording | None = None
        self._unfinished: list[Recording] = []
        self._numbers = count()
        self._port: ProfilePort | None = None

    # ── from the program ──────────────────────────────────────────────────────────────────────

    def start(self, request: Request) -> Recording | None:
        """Record from now on, in this thread; None if that cannot be: a warning says why."""
        root = self._root()
        if root is None:
            return None
        self._let_the_last_end()
        recording = self._claim(request, root)
        if isinstance(recording, str):
            tally.count("profile again", f"profile {request.name} is not taken: {recording}")
            return None
        try:
            recording.begin()
        except BaseException as error:  # a signal handler's, a framework's own
            recording.interrupted(raised(error))
            raise
        finally:
            recording.thread.start()
        return recording

    def refuse(self, name: str, why: str) -> None:
        """Tell of a profile that cannot be taken."""
        if (root := self._root()) is not None:
            Recording(self._run, Request(name, ""), root, next(self._numbers)).fail(why)

    def _let_the_last_end(self) -> None:
        """A recording that was told to end goes on for a moment; its files take longer."""
        last = self._current
        if last is not None and last.ending:
            last.recorded.wait(RECORDED_SECONDS)

    def _claim(self, request: Request, root: Path, keep: Keep | None = None) -> Recording | str:
        """The one recording there may be, or why there cannot be another."""
        with self._lock:
            now = self._current
            if now is not None and not now.recorded.is_set():
                return f"{now.request.name} is being recorded"
            recording = Recording(self._run, request, root, next(self._numbers), keep)
            self._current = recording
            self._unfinished = [each for each in self._unfinished if not each.over.is_set()]
            self._unfinished.append(recording)
            return recording

    def _root(self) -> Path | None:
        run = self._run
        writer = None if run._finished or run._is_child else run._open()
        if writer is None:
            tally.count("no profile", "no profile is taken: this process records nothing")
            return None
        return writer.directory.parents[1]

    def path(self, wanted: object = None) -> str:
        """Where profiles go: as wanted, else the run's own path, else the Runwatch directory."""
        chosen = wanted or self._run._profile_path
        if chosen:
            return text_of(chosen)
        root = self._root()
        return "" if root is None else str(root / PROFILES)

    # ── on demand ─────────────────────────────────────────────────────────────────────────────

    def answer(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The control socket's answer to `profile`; the recording itself goes on beside it."""
        try:
            asked = asked_of_process(body)
            if isinstance(asked, ProfileStatus):
                return self._status(asked).body()
            return self._reply(asked).body()
        except UsageError as error:
            return ProfileReply(why=str(error), frameworks=tuple(frameworks())).body()

    def _reply(self, asked: ProfileStart | ProfilePreflight) -> ProfileReply:
        """Raises UsageError for a request that makes no sense."""
        loaded = tuple(frameworks())
        why = self._why_not()
        if why or isinstance(asked, ProfilePreflight):
            return ProfileReply(accepted=not why, why=why, frameworks=loaded)
        recording = self.record(self.request_of(asked))
        if isinstance(recording, str):
            return ProfileReply(why=recording, frameworks=loaded)
        return ProfileReply(accepted=True, frameworks=loaded, session=asked.session)

    def _status(self, asked: ProfileStatus) -> ProfileEvent:
        """How far the newest recording of that name is."""
        named = [each for each in self._unfinished if each.request.name == asked.status]
        if not named:
            return ProfileEvent(state="unknown", why="it is not known")
        return named[-1].status()

    def _why_not(self) -> str:
        run, now = self._run, self._current
        if run._finished or run._writer is None:
            return "the run has ended"
        if why := run._why_no_profile():
            return why
        if now is not None and not now.recorded.is_set():
            return f"another profile is being recorded: {now.request.name}"
        if self._root() is None:
            return "this process records nothing"
        chosen, problems = choose()
        return "" if chosen else "; ".join(problems)

    def request_of(self, asked: ProfileStart) -> Request:
        """Raises UsageError for what cannot be."""
        now = self._run._clock.wall_ns()
        asked.check(now)
        return Request(
            name=checked_name(asked.session),
            path=self.path(asked.path),
            origin="demand",
            command=asked.command,
            steps=asked.steps,
            # A program that takes no steps must not be traced for ever.
            seconds=asked.seconds,
            start_ns=asked.start_ns or now,
            at_step=asked.at_step,
            expires_ns=asked.expires_ns or now + int(MAX_AHEAD_SECONDS * 1e9),
            frameworks=asked.frameworks,
            options=options_of(asked.options),
        )

    def record(self, request: Request, keep: Keep | None = None) -> Recording | str:
        """A recording that begins and ends in a thread of its own; or why there is none."""
        if why := self._why_not():
            return why
        root = self._root()
        recording = (
            "this process records nothing" if root is None else self._claim(request, root, keep)
        )
        if isinstance(recording, Recording):
            recording.thread.start()
        return recording

    def serve(self, address: str) -> None:
        """Open a port for those who ask as XProf does.  Raises OSError or ImportError."""
        from runwatch.sdk.profiling.port import ProfilePort

        if self._port is not None:
            raise OSError(f"{self._port.address} is being served already")
        port = ProfilePort(self._run, self, address)
        port.start()
        self._port = port

    def close_port(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            port.stop()

    # ── the end of the run ────────────────────────────────────────────────────────────────────

    @guarded("finish the profiles")
    def finish(self, seconds: float = FINISH_SECONDS) -> None:
        """End what is recorded and wait, within bounds, for what is being written."""
        self.close_port()
        clock = self._run._clock
        deadline = clock.mono_ns() + int(seconds * 1e9)
        for recording in self._unfinished:
            if not recording.over.is_set() and not recording.ending:
                recording.end()
            left = (deadline - clock.mono_ns()) / 1e9
            if not recording.over.wait(max(0.0, left)):
                where = recording.root / STAGING
                recording.fail(f"the run ended before its files were in place; see {where}")
            elif recording.thread.is_alive():
                recording.thread.join(1.0)


class ProgramProfile(Spanning):
    """Around a block (`with`), around each call of a function (`@`), or by `start` and `stop`."""

    def __init__(self, profiler: Profiler, request: Request, name: object = None) -> None:
        self._profiler = profiler
        self._request = request
        self._name = name
        self._recording: Recording | None = None

    def again(self) -> ProgramProfile:
        return ProgramProfile(self._profiler, self._request, self._name)

    @property
    def session(self) -> str:
        """The profile's name, once it was started."""
        return "" if self._recording is None else self._recording.request.name

    @property
    def state(self) -> str:
        """idle, recording, writing, done or failed."""
        return "idle" if self._recording is None else self._recording.state

    @property
    def why(self) -> str:
        """What is missing or wrong, if anything is."""
        return "" if self._recording is None else self._recording.why

    @property
    def directory(self) -> str:
        """Where the files are, once they are there."""
        return "" if self._recording is None else self._recording.directory

    @property
    def files(self) -> tuple[str, ...]:
        return () if self._recording is None else self._recording.files

    @property
    def active(self) -> bool:
        recording = self._recording
        return recording is not None and not recording.ending and not recording.over.is_set()

    def start(self) -> Self:
        """Record from now on.  Without effect, and warned about, while another recording is on."""
        if self.active:
            tally.count("profile again", f"profile {self.session} is being recorded already")
        else:
            self._start()
        return self

    @guarded("start a profile")
    def _start(self) -> None:
        self._recording = None
        profiler = self._profiler
        try:
            name = profile_name(profiler._run, self._name)
        except UsageError as error:
            profiler.refuse(text_of(self._name), str(error))
            return
        path = profiler.path(self._request.path)
        self._recording = profiler.start(replace(self._request, path=path, name=name))

    @guarded("stop a profile")
    def stop(self, failure: str = "") -> None:
        """End the recording; its files are written beside the program (`wait` waits for them)."""
        recording = self._recording
        if recording is None:
            tally.count("profile idle", "no profile is being taken: there is nothing to stop")
        elif not recording.ending:
            recording.end(failure)

    def wait(self, seconds: float | None = None) -> bool:
        """Until the files are in their place, or it is known why not; False if that took longer."""
        return self._recording is None or self._recording.over.wait(seconds)

    def __enter__(self) -> None:
        self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._recording is not None:
            self.stop(raised(error))


def raised(error: BaseException | None) -> str:
    if error is None:
        return ""
    return f"the profiled code raised {type(error).__name__}: {text_of(error)}"[:1000]


def profile(
    run: Run,
    steps: object = None,
    seconds: object = None,
    session: object = None,
    *,
    path: object = None,
    frameworks: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> ProgramProfile:
    """`Run.profile`."""
    request = Request(
        name="",
        path="" if path is None else text_of(path),
        steps=attempt("read steps", None, lambda: _positive_steps(steps)),
        seconds=attempt("read seconds", None, lambda: _positive_seconds(seconds)),
        frameworks=tuple(frameworks),
        options=attempt("read options", TraceOptions(), lambda: options_of(options or {})),
    )
    return ProgramProfile(run._profiles, request, session)


def options_of(options: Mapping[str, Any]) -> TraceOptions:
    known = TraceOptions.__dataclass_fields__
    if strange := [text_of(name) for name in options if name not in known]:
        raise UsageError(f"option {', '.join(strange)}: the options are {', '.join(known)}")
    return TraceOptions(**{name: bool(value) for name, value in options.items()})


def profile_name(run: Run, wanted: object = None) -> str:
    """As wanted; else one that the ranks of an attempt share, if they are at the same step."""
    if wanted is not None:
        return checked_name(wanted)
    attempt_key, step = run._identity.attempt_key, run._step
    if run.world_size > 1 and attempt_key and step != NO_STEP:
        mark = hashlib.sha256(attempt_key.encode(errors="replace")).hexdigest()[:8]
        return f"step{step}-{mark}"
    return timestamp(run._clock.wall_ns())


def timestamp(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9).strftime("%Y%m%d_%H%M%S_%f")


def _positive_steps(steps: object) -> int | None:
    if steps is None:
        return None
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise UsageError(f"steps {text_of(steps)}: a profile takes 1 step or more")
    return steps


def _positive_seconds(seconds: object) -> float | None:
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or not 0 < seconds < 1e6:
        raise UsageError(f"seconds {text_of(seconds)}: a profile takes a positive number of them")
    return float(seconds)
