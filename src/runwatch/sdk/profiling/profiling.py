"""Profiles of a run's process: from the program (`run.profile`) and on demand.

A `Profiler` sees to it that one capture records at a time; a `Capture` is what the program holds;
how one goes from its start to its files is in `recording.py`.
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

from runwatch.capture.tracing.session_files import checked_name
from runwatch.capture.tracing.traces import TraceOptions, choose, frameworks
from runwatch.errors import UsageError
from runwatch.record import NO_STEP
from runwatch.sdk.guard import attempt, guarded, tally, text_of
from runwatch.sdk.profiling.recording import PROFILES, STAGING, Keep, Plan, Recording
from runwatch.sdk.step import Spanning

if TYPE_CHECKING:
    from runwatch.sdk.profiling.port import ProfilePort
    from runwatch.sdk.run import Run

RECORDED_SECONDS: Final = 10.0
"""How long a start waits for the capture before it to have stopped recording."""
FINISH_SECONDS: Final = 60.0
"""How long the end of a run waits for its profiles to be in their place."""
MAX_SECONDS: Final = 600.0
EXPIRES_SECONDS: Final = 600.0


class Profiler:
    """The captures of one run in this process: one records at a time, others may be written."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._current: Recording | None = None
        self._unfinished: list[Recording] = []
        self._numbers = count()
        self._port: ProfilePort | None = None

    # ── from the program ──────────────────────────────────────────────────────────────────────

    def start(self, plan: Plan) -> Recording | None:
        """Record from now on, in this thread; None if that cannot be, which is told and counted."""
        root = self._root()
        if root is None:
            return None
        self._let_the_last_end()
        recording = self._claim(plan, root)
        if isinstance(recording, str):
            tally.count("profile again", f"profile {plan.session} is not taken: {recording}")
            return None
        try:
            recording.begin()
        except BaseException as error:  # a signal handler's, a framework's own
            recording.interrupted(raised(error))
            raise
        finally:
            recording.thread.start()
        return recording

    def refuse(self, session: str, why: str) -> None:
        """Tell of a capture that cannot be."""
        if (root := self._root()) is not None:
            Recording(self._run, Plan(session, ""), root, next(self._numbers)).give_up(why)

    def _let_the_last_end(self) -> None:
        """A capture that was told to end still records for a moment; its files take longer."""
        last = self._current
        if last is not None and last.ending:
            last.recorded.wait(RECORDED_SECONDS)

    def _claim(self, plan: Plan, root: Path, keep: Keep | None = None) -> Recording | str:
        """The one recording there may be, or why there cannot be another."""
        with self._lock:
            now = self._current
            if now is not None and not now.recorded.is_set():
                return f"{now.plan.session} is being captured"
            recording = Recording(self._run, plan, root, next(self._numbers), keep)
            self._current = recording
            self._unfinished = [r for r in self._unfinished if not r.over.is_set()]
            self._unfinished.append(recording)
            return recording

    def _root(self) -> Path | None:
        run = self._run
        writer = None if run._finished or run._is_child else run._open()
        if writer is None:
            tally.count("no profile", "no profile is taken: this process records nothing")
            return None
        return writer.directory.parents[1]

    def path(self, given: object = None) -> str:
        """Where profiles go: as given, else the run's own path, else the Runwatch directory."""
        chosen = given or self._run._profile_path
        if chosen:
            return text_of(chosen)
        root = self._root()
        return "" if root is None else str(root / PROFILES)

    # ── on demand ─────────────────────────────────────────────────────────────────────────────

    def answer(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the control socket says to `profile`; the capture itself goes on beside it."""
        if (session := body.get("status")) is not None:
            return self._status(text_of(session))
        known = list(frameworks())
        why = self._why_not()
        if why or body.get("preflight"):
            return {"accepted": not why, "why": why, "frameworks": known}
        try:
            plan = self.plan_of(body)
        except UsageError as error:
            return {"accepted": False, "why": str(error), "frameworks": known}
        return {**self.capture_window(plan), "frameworks": known}

    def _status(self, session: str) -> Mapping[str, Any]:
        """How far the newest capture of that name has come."""
        found = [r for r in self._unfinished if r.plan.session == session]
        return found[-1].status() if found else {"state": "unknown", "why": "it is not known"}

    def _why_not(self) -> str:
        run, now = self._run, self._current
        if run._finished or run._writer is None:
            return "the run has ended"
        if why := run._why_no_profile():
            return why
        if now is not None and not now.recorded.is_set():
            return f"another session is active: {now.plan.session}"
        if self._root() is None:
            return "this process records nothing"
        chosen, problems = choose()
        return "" if chosen else "; ".join(problems)

    def plan_of(self, body: Mapping[str, Any]) -> Plan:
        """Raises UsageError for what cannot be."""
        steps, duration = _whole(body, "steps"), _whole(body, "duration_ms")
        if steps is None and duration is None:
            raise UsageError("a capture needs duration_ms or steps")
        if duration is not None and duration > MAX_SECONDS * 1e3:
            raise UsageError(f"duration_ms {duration}: at most {MAX_SECONDS * 1e3:.0f}")
        now = self._run._clock.wall_ns()
        expires = now + int(EXPIRES_SECONDS * 1e9)
        start_ns = _whole(body, "start_ns") or now
        if start_ns > expires:
            raise UsageError(f"start_ns {start_ns}: that is more than {EXPIRES_SECONDS:.0f} s away")
        given = body.get("frameworks") or ()
        return Plan(
            session=checked_name(body.get("session")),
            path=self.path(body.get("path")),
            origin="demand",
            command=text_of(body.get("command") or ""),
            steps=steps,
            # A program that takes no steps must not be traced for ever.
            seconds=MAX_SECONDS if duration is None else duration / 1e3,
            start_ns=start_ns,
            at_step=_whole(body, "at_step"),
            expires_ns=_whole(body, "expires_ns") or expires,
            frameworks=tuple(text_of(name) for name in given),
            options=options_of(body.get("options") or {}),
        )

    def capture_window(self, plan: Plan) -> Mapping[str, Any]:
        """Capture in a thread: from `plan.start_ns` or a step on, to the planned end."""
        begun = self.record(plan)
        if isinstance(begun, str):
            return {"accepted": False, "why": begun}
        return {"accepted": True, "why": "", "session": plan.session}

    def record(self, plan: Plan, keep: Keep | None = None) -> Recording | str:
        """The capture, which begins and ends in a thread of its own; or why there is none."""
        if why := self._why_not():
            return why
        root = self._root()
        recording = (
            "this process records nothing" if root is None else self._claim(plan, root, keep)
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
                recording.give_up(f"the run ended before its files were in place; see {where}")
            elif recording.thread.is_alive():
                recording.thread.join(1.0)


class Capture(Spanning):
    """Around a block (`with`), around each call of a function (`@`), or by `start` and `stop`."""

    def __init__(self, profiler: Profiler, plan: Plan, given_session: object = None) -> None:
        self._profiler = profiler
        self._plan = plan
        self._given = given_session
        self._recording: Recording | None = None

    def again(self) -> Capture:
        return Capture(self._profiler, self._plan, self._given)

    @property
    def session(self) -> str:
        """The session's name, once it was started."""
        return "" if self._recording is None else self._recording.plan.session

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
        """Record from now on.  Without effect, and warned about, while another session is on."""
        if self.active:
            tally.count("profile again", f"session {self.session} is being captured already")
        else:
            self._start()
        return self

    @guarded("start a profile")
    def _start(self) -> None:
        self._recording = None
        profiler = self._profiler
        try:
            name = session_name(profiler._run, self._given)
        except UsageError as error:
            profiler.refuse(text_of(self._given), str(error))
            return
        path = profiler.path(self._plan.path)
        self._recording = profiler.start(replace(self._plan, path=path, session=name))

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


def capture(
    run: Run,
    steps: object = None,
    seconds: object = None,
    session: object = None,
    *,
    path: object = None,
    frameworks: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Capture:
    """`Run.profile`."""
    plan = Plan(
        session="",
        path="" if path is None else text_of(path),
        steps=attempt("read steps", None, lambda: _positive_steps(steps)),
        seconds=attempt("read seconds", None, lambda: _positive_seconds(seconds)),
        frameworks=tuple(frameworks),
        options=attempt("read options", TraceOptions(), lambda: options_of(options or {})),
    )
    return Capture(run._profiles, plan, session)


def options_of(given: Mapping[str, Any]) -> TraceOptions:
    known = TraceOptions.__dataclass_fields__
    if strange := [text_of(name) for name in given if name not in known]:
        raise UsageError(f"option {', '.join(strange)}: the options are {', '.join(known)}")
    return TraceOptions(**{name: bool(value) for name, value in given.items()})


def session_name(run: Run, given: object = None) -> str:
    """As given; else one that the ranks of an attempt share, if they are at the same step."""
    if given is not None:
        return checked_name(given)
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


def _whole(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise UsageError(f"{name} {text_of(value)[:100]!r}: not a whole number")
    if value == 0 and name in ("steps", "duration_ms"):
        raise UsageError(f"{name} 0: nothing would be captured")
    return value
