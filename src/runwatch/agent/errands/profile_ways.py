"""Ways to a profile of a process on this node, in the order in which they are tried.

The SDK of a process records when it is asked at the control socket, and tells of it in its own
journal.  A program that serves a profiler port is asked there (`port_way.py`).  A PyTorch program
that was started with KINETO_USE_DAEMON=1 gets a request when it asks for one (`kineto_way.py`).  On
the last two ways the agent writes the files and tells of them.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from runwatch.agent.errands.commands import Context
from runwatch.agent.errands.control import NoAnswer, ask_for
from runwatch.capture import process
from runwatch.capture.tracing.profile_files import (
    Published,
    as_host,
    place,
    profile_folder,
    publish,
    stems,
)
from runwatch.errors import RunwatchError
from runwatch.files import Folder
from runwatch.identity import owner_of
from runwatch.journal.liveness import start_ticks
from runwatch.record.capture_limits import WRITE_SECONDS
from runwatch.record.captures import DONE, FAILED, STARTED, ProfileEvent
from runwatch.record.control import ProfilePreflight, ProfileReply, ProfileStart, ProfileStatus

STAGING: Final = "captures"
LABEL: Final = "trace"
ASK_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.2
SILENT_SECONDS: Final = 60.0
"""A process that answered and does so no more has ended its run, or is busy with its trace."""


@dataclass(frozen=True, slots=True)
class LocalTarget:
    """A process of this node that a request is about."""

    pid: int
    """0: somebody's who listens on `ports`."""
    rank: int
    run: str
    """The folder that its profiles go to."""
    host: str
    """Its own name for where it runs."""
    scope: int = 0
    journal: Path | None = None
    """None: a program that does not use the SDK."""
    start_ticks: int | None = None
    tree: tuple[int, ...] = ()
    """Itself and the processes that it started."""
    ports: tuple[int, ...] = ()
    """Also tried, beside the usual ones."""
    first: bool = False
    """Its files have the host's plain name."""

    @property
    def is_plain(self) -> bool:
        return self.journal is None

    def has_ended(self) -> bool:
        return self.pid > 0 and start_ticks(self.pid) != self.start_ticks

    def stems(self) -> Iterator[str]:
        if not self.is_plain:
            return stems(self.host, self.rank, first=self.first)
        who = f"pid{self.pid}" if self.pid else f"port{self.ports[0]}"
        return _numbered(f"{as_host(self.host)}.{who}")


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f"{stem}.{number}"
        number += 1


@dataclass(frozen=True, slots=True)
class WayPreflight:
    """Whether a way leads to a target."""

    why: str = ""
    """Why not; empty: it does."""
    final: bool = False
    """No other way would."""
    ready_seconds: float = 0.0
    """How far ahead a capture must be asked for."""
    frameworks: tuple[str, ...] = ()
    address: str = ""
    warning: str = ""


@dataclass(slots=True)
class Recording:
    """The recording of one target, and what it has left by now."""

    way: str
    state: str = FAILED
    why: str = ""
    framework: str = ""
    files: Sequence[str] = ()
    directory: str = ""
    bytes: int = 0
    start_ns: int = 0
    end_ns: int = 0
    problems: list[str] = field(default_factory=list)

    def failed(self, why: str) -> Recording:
        self.state = FAILED
        self.why = "; ".join([why, *self.problems])
        return self

    def done(self, published: Published) -> Recording:
        self.state, self.why = DONE, "; ".join(self.problems)
        self.directory, self.files, self.bytes = (
            published.directory, published.files, published.bytes
        )  # fmt: skip
        return self

    def take_over(self, event: ProfileEvent) -> Recording:
        """What the process itself says of it."""
        self.state, self.why = event.state, event.why
        self.files, self.directory, self.bytes = event.files, event.directory, event.bytes
        self.framework = event.framework or self.framework
        self.start_ns, self.end_ns = event.start_ns, event.end_ns
        return self


class Way(Protocol):
    name: str

    def preflight(self, target: LocalTarget) -> WayPreflight: ...
    def record(
        self, target: LocalTarget, request: ProfileStart, preflight: WayPreflight
    ) -> Recording: ...


# ── the SDK ───────────────────────────────────────────────────────────────────────────────────


class SdkWay:
    name = "sdk"

    def __init__(self, context: Context) -> None:
        self._context = context

    def preflight(self, target: LocalTarget) -> WayPreflight:
        if target.journal is None:
            return WayPreflight("it does not use Runwatch")
        try:
            reply = ask_for(target.journal, ProfilePreflight(), ProfileReply, ASK_SECONDS)
        except NoAnswer as error:
            return WayPreflight(f"control socket: {error}")
        if reply.accepted:
            return WayPreflight(frameworks=reply.frameworks)
        final = bool(reply.frameworks)
        return WayPreflight(reply.why, final=final, frameworks=reply.frameworks)

    def record(
        self, target: LocalTarget, request: ProfileStart, preflight: WayPreflight
    ) -> Recording:
        assert target.journal is not None
        recording = Recording(self.name, framework="+".join(preflight.frameworks))
        try:
            reply = ask_for(target.journal, request, ProfileReply, ASK_SECONDS)
        except NoAnswer as error:
            return recording.failed(str(error))
        if not reply.accepted:
            return recording.failed(reply.why)
        return self._followed(target, target.journal, request, recording)

    def _followed(
        self, target: LocalTarget, journal: Path, request: ProfileStart, recording: Recording
    ) -> Recording:
        """Until the process says that it has ended."""
        clock = self._context.clock
        left_ns = max(0, request.start_ns - clock.wall_ns())
        deadline_ns = clock.mono_ns() + left_ns + int((request.seconds + WRITE_SECONDS) * 1e9)
        pause = threading.Event()
        heard_ns = clock.mono_ns()
        while clock.mono_ns() < deadline_ns:
            clock.wait(POLL_SECONDS, pause.wait)
            try:
                status = ask_for(journal, ProfileStatus(request.session), ProfileEvent, ASK_SECONDS)
            except NoAnswer as error:
                if target.has_ended():
                    return recording.failed("the process ended meanwhile")
                if clock.mono_ns() - heard_ns > SILENT_SECONDS * 1e9:
                    return recording.failed(f"it no longer says how far it is: {error}")
                continue
            heard_ns = clock.mono_ns()
            if status.state in (DONE, FAILED):
                return recording.take_over(status)
        return recording.failed("it did not end in time")


# ── what the agent writes itself ──────────────────────────────────────────────────────────────


class Writing:
    """What the ways have in common on which the trace comes to the agent."""

    name = ""

    def __init__(self, context: Context) -> None:
        self.context = context

    def tell(
        self, state: str, target: LocalTarget, request: ProfileStart, recording: Recording
    ) -> None:
        event = ProfileEvent(
            session=request.session,
            state=state,
            why=recording.why,
            framework=recording.framework,
            files=tuple(recording.files),
            directory=recording.directory,
            bytes=recording.bytes,
            start_ns=recording.start_ns,
            end_ns=recording.end_ns,
            origin="demand",
            command=request.command,
            problems=tuple(recording.problems),
            rank=target.rank,
            host=target.host,
            pid=target.pid,
            run=target.run,
            way=self.name,
        )
        self.context.tell(event, target.scope)

    @contextmanager
    def recorded(
        self, target: LocalTarget, request: ProfileStart, recording: Recording
    ) -> Iterator[None]:
        """Told when it begins and, whatever happens, when it ends."""
        self.tell(STARTED, target, request, recording)
        recording.why = "it was not completed"
        try:
            yield
        finally:
            self.tell(recording.state, target, request, recording)

    def publish(
        self, files: Sequence[Path], target: LocalTarget, request: ProfileStart
    ) -> Published:
        """Raises OSError, RunwatchError, ImportError or ValueError."""
        path = request.path or str(self.context.root / "profiles")
        folder = profile_folder(path, target.run, request.session)
        names = target.stems()
        users = process.users(target.pid) if target.pid else ()
        to = place(folder, owner_of(users[0]) if users else None, ours=not request.path)
        return publish(files, LABEL, to, names, self.context.root / STAGING)

    @contextmanager
    def staging(self, target: LocalTarget, request: ProfileStart) -> Iterator[Path]:
        name = f"{request.command or request.session}-{target.pid}-"
        folder = Path(tempfile.mkdtemp(prefix=name, dir=self._staging_place()))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _staging_place(self) -> Path | None:
        """On the same disk, if nobody else can put something in its place; None: the system's."""
        try:
            with (
                Folder.at(self.context.root) as root,
                root.own(STAGING, make=True) as staging,
            ):
                safe = root.uid in root.ours() | {0} and staging.uid in staging.ours()
        except OSError:
            safe = False
        return self.context.root / STAGING if safe else None

    def published(
        self,
        target: LocalTarget,
        request: ProfileStart,
        recording: Recording,
        make: Callable[[Path], list[Path]],
    ) -> Recording:
        """`make` puts files into a folder; they go where they belong."""
        try:
            with self.staging(target, request) as folder:
                return recording.done(self.publish(make(folder), target, request))
        except (OSError, RunwatchError, ImportError, ValueError) as error:
            return recording.failed(f"its trace cannot be kept: {error}")
