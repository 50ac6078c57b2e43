"""Ways to a trace of a process on this node, in the order in which they are tried.

Its SDK records when asked at the control socket, and tells of it in its own journal.  A program
that serves a profiler port (`jax.profiler.start_server`) is asked there.  A PyTorch program that
was started with KINETO_USE_DAEMON=1 gets an order when it asks for one (`kineto_way.py`).  What
came of the last two is written and told by the agent.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from runwatch import profile_event
from runwatch.agent.errands.commands import Context
from runwatch.agent.errands.control import NoAnswer, ask
from runwatch.agent.listening import Port, owners_of, ports_of
from runwatch.capture import process
from runwatch.capture.tracing.profiler_service import (
    Asked,
    CannotProfile,
    ProfileAnswer,
    check,
    profile_all,
)
from runwatch.capture.tracing.session_files import (
    Published,
    as_host,
    place,
    publish,
    session_folder,
    stems,
)
from runwatch.capture.tracing.trace_checks import xplane_problems, xplane_window
from runwatch.capture.tracing.traces import KINETO, XPLANE
from runwatch.errors import RunwatchError
from runwatch.files import Folder
from runwatch.identity import owner_of
from runwatch.journal.liveness import PROC, start_ticks
from runwatch.profile_event import DONE, FAILED, PROFILE, ProfileEvent

USUAL_PORTS: Final = (9012, 9999)
STAGING: Final = "captures"
LABEL: Final = "trace"
ASK_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.2
WRITE_SECONDS: Final = 180.0
"""For ending a trace and writing it."""
SILENT_SECONDS: Final = 60.0
"""A process that answered and does so no more has ended its run, or is busy with its trace."""
STEPS_SECONDS: Final = 600.0
UNCOUNTED_MS: Final = 2_000
"""Captured where steps are asked for and cannot be counted."""
_LIBRARIES: Final = {
    "jax": b"/jaxlib/", "torch": b"/libtorch_cpu.", "torch_xla": b"/_XLAC.",
    "tensorflow": b"/libtensorflow",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be captured; times are of this host's clock."""

    session: str
    command: str = ""
    start_ns: int = 0
    duration_ms: int | None = None
    steps: int | None = None
    at_step: int | None = None
    path: str = ""
    """Where profiles go; empty: where they go anyway."""

    @property
    def window_ms(self) -> int:
        return self.duration_ms or UNCOUNTED_MS

    @property
    def seconds(self) -> float:
        """Until its end, from its start."""
        return STEPS_SECONDS if self.duration_ms is None else self.duration_ms / 1e3


@dataclass(frozen=True, slots=True)
class Subject:
    """A program that is to be captured."""

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
class Look:
    """Whether a way leads to a program."""

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
class Outcome:
    way: str
    state: str = "failed"
    why: str = ""
    framework: str = ""
    files: Sequence[str] = ()
    directory: str = ""
    bytes: int = 0
    start_ns: int = 0
    end_ns: int = 0
    problems: list[str] = field(default_factory=list)

    def failed(self, why: str) -> Outcome:
        self.state = "failed"
        self.why = "; ".join([why, *self.problems])
        return self

    def done(self, published: Published) -> Outcome:
        self.state, self.why = "done", "; ".join(self.problems)
        self.directory, self.files, self.bytes = (
            published.directory, published.files, published.bytes
        )  # fmt: skip
        return self


class Way(Protocol):
    name: str

    def look(self, subject: Subject) -> Look: ...
    def capture(self, subject: Subject, wish: Wish, look: Look) -> Outcome: ...


# ── the SDK ───────────────────────────────────────────────────────────────────────────────────


class SdkWay:
    name = "sdk"

    def __init__(self, context: Context) -> None:
        self._context = context

    def look(self, subject: Subject) -> Look:
        if subject.journal is None:
            return Look("it does not use Runwatch")
        try:
            answer = ask(subject.journal, "profile", {"preflight": True}, ASK_SECONDS)
        except NoAnswer as error:
            return Look(f"control socket: {error}")
        known = tuple(map(str, answer.get("frameworks") or ()))
        if answer.get("accepted"):
            return Look(frameworks=known)
        return Look(str(answer.get("why")), final=bool(known), frameworks=known)

    def capture(self, subject: Subject, wish: Wish, look: Look) -> Outcome:
        assert subject.journal is not None
        outcome = Outcome(self.name, framework="+".join(look.frameworks))
        try:
            answer = ask(subject.journal, "profile", _body(wish), ASK_SECONDS)
        except NoAnswer as error:
            return outcome.failed(str(error))
        if not answer.get("accepted"):
            return outcome.failed(str(answer.get("why")))
        return self._followed(subject, wish, outcome)

    def _followed(self, subject: Subject, wish: Wish, outcome: Outcome) -> Outcome:
        clock = self._context.clock
        left_ns = max(0, wish.start_ns - clock.wall_ns())
        deadline_ns = clock.mono_ns() + left_ns + int((wish.seconds + WRITE_SECONDS) * 1e9)
        pause = threading.Event()
        heard_ns = clock.mono_ns()
        while clock.mono_ns() < deadline_ns:
            clock.wait(POLL_SECONDS, pause.wait)
            try:
                said = _status(subject.journal, wish.session)
            except NoAnswer as error:
                if subject.has_ended():
                    return outcome.failed("the process ended meanwhile")
                if clock.mono_ns() - heard_ns > SILENT_SECONDS * 1e9:
                    return outcome.failed(f"what came of it, it tells itself: {error}")
                continue
            heard_ns = clock.mono_ns()
            told = profile_event.read(said)
            if told is not None and told.state in (DONE, FAILED):
                return _told(outcome, told)
        return outcome.failed("it did not end in time")


def _body(wish: Wish) -> dict[str, Any]:
    given = {
        "session": wish.session, "command": wish.command, "start_ns": wish.start_ns,
        "duration_ms": wish.duration_ms, "steps": wish.steps, "at_step": wish.at_step,
        "path": wish.path,
    }  # fmt: skip
    return {name: value for name, value in given.items() if value not in (None, "")}


def _status(journal: Path | None, session: str) -> Mapping[str, Any]:
    assert journal is not None
    return ask(journal, "profile", {"status": session}, ASK_SECONDS)


def _told(outcome: Outcome, told: ProfileEvent) -> Outcome:
    outcome.state, outcome.why = told.state, told.why
    outcome.files, outcome.directory = told.files, told.directory
    outcome.framework = told.framework or outcome.framework
    outcome.bytes, outcome.start_ns, outcome.end_ns = told.bytes, told.start_ns, told.end_ns
    return outcome


# ── what the agent writes itself ──────────────────────────────────────────────────────────────


class Writing:
    """Common to the ways on which the trace comes to the agent."""

    name = ""

    def __init__(self, context: Context) -> None:
        self.context = context

    def tell(self, state: str, subject: Subject, wish: Wish, outcome: Outcome) -> None:
        told = ProfileEvent(
            session=wish.session,
            state=state,
            why=outcome.why,
            frameworks=outcome.framework.split("+") if outcome.framework else (),
            files=outcome.files,
            directory=outcome.directory,
            bytes=outcome.bytes,
            start_ns=outcome.start_ns,
            end_ns=outcome.end_ns,
            origin="demand",
            command=wish.command,
            problems=outcome.problems,
            rank=subject.rank,
            host=subject.host,
            pid=subject.pid,
            run=subject.run,
            way=self.name,
        )
        self.context.event(PROFILE, told.body(), scope=subject.scope)

    @contextmanager
    def recorded(self, subject: Subject, wish: Wish, outcome: Outcome) -> Iterator[None]:
        """Told when it begins and, whatever happens, when it ends."""
        self.tell("started", subject, wish, outcome)
        outcome.why = "it was not completed"
        try:
            yield
        finally:
            self.tell(outcome.state, subject, wish, outcome)

    def publish(self, files: Sequence[Path], subject: Subject, wish: Wish) -> Published:
        """Raises OSError, RunwatchError, ImportError or ValueError."""
        path = wish.path or str(self.context.root / "profiles")
        folder = session_folder(path, subject.run, wish.session)
        names = subject.stems()
        users = process.users(subject.pid) if subject.pid else ()
        to = place(folder, owner_of(users[0]) if users else None, ours=not wish.path)
        return publish(files, LABEL, to, names, self.context.root / STAGING)

    @contextmanager
    def staging(self, subject: Subject, wish: Wish) -> Iterator[Path]:
        name = f"{wish.command or wish.session}-{subject.pid}-"
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
                root.own(STAGING, make=True) as captures,
            ):
                safe = root.uid in root.ours() | {0} and captures.uid in captures.ours()
        except OSError:
            safe = False
        return self.context.root / STAGING if safe else None

    def kept(
        self, subject: Subject, wish: Wish, outcome: Outcome, make: Callable[[Path], list[Path]]
    ) -> Outcome:
        """`make` puts files into a folder; they go where they belong."""
        try:
            with self.staging(subject, wish) as folder:
                return outcome.done(self.publish(make(folder), subject, wish))
        except (OSError, RunwatchError, ImportError, ValueError) as error:
            return outcome.failed(f"its trace cannot be kept: {error}")


# ── a profiler port ───────────────────────────────────────────────────────────────────────────


class PortWay(Writing):
    name = "port"

    def look(self, subject: Subject) -> Look:
        tried: list[str] = []
        for address in self._addresses(subject):
            try:
                check(address)
            except CannotProfile as error:
                tried.append(str(error))
                continue
            known = tuple(dict.fromkeys(name for pid in subject.tree for name in _frameworks(pid)))
            return Look(address=address, warning=_shared(address), frameworks=known)
        return Look("; ".join(tried) or "it serves no profiler port (jax.profiler.start_server)")

    def _addresses(self, subject: Subject) -> list[str]:
        """Its own ports, the likely ones first; a port that was named but is nobody's, too."""
        likely = (*subject.ports, *USUAL_PORTS)
        found = [port for pid in subject.tree for port in _may_be_profiler(pid, likely)]
        found.sort(key=lambda port: (port.number not in likely, port.number))
        own = list(dict.fromkeys(port.address for port in found))
        given = [] if subject.pid else [f"127.0.0.1:{number}" for number in subject.ports]
        return own + given

    def capture(self, subject: Subject, wish: Wish, look: Look) -> Outcome:
        clock = self.context.clock
        outcome = Outcome(self.name, framework="+".join(look.frameworks) or "xla")
        if look.warning:
            outcome.problems.append(look.warning)
        if wish.duration_ms is None:
            seconds = UNCOUNTED_MS / 1e3
            outcome.problems.append(f"a profiler port counts no steps: {seconds:g} s were captured")
        outcome.start_ns = max(wish.start_ns, clock.wall_ns())
        outcome.end_ns = outcome.start_ns + wish.window_ms * 1_000_000
        name = next(subject.stems())
        with self.recorded(subject, wish, outcome):
            (answer,) = profile_all(
                [Asked(look.address, name)], wish.window_ms, wish.session,
                start_ns=wish.start_ns, seconds=WRITE_SECONDS,
            )  # fmt: skip
            if isinstance(answer, CannotProfile):
                return outcome.failed(str(answer))
            if not answer.xspace and not answer.tools:
                return outcome.failed(f"{look.address} answered, but its trace is empty")
            return self.kept(subject, wish, outcome, lambda to: _unpack(answer, to, outcome))


def _unpack(answer: ProfileAnswer, folder: Path, outcome: Outcome) -> list[Path]:
    files = []
    if answer.xspace:
        file = folder / f"{LABEL}{XPLANE}"
        file.write_bytes(answer.xspace)
        outcome.problems += xplane_problems(file, "")
        # When it really began: it may have been asked late, and takes a while itself.
        if window := xplane_window(file):
            outcome.start_ns, outcome.end_ns = window
        files.append(file)
    for name, data in answer.tools:
        ending = KINETO if name.endswith(KINETO) else f".{as_host(name)}"
        (folder / f"{LABEL}{ending}").write_bytes(data)
        files.append(folder / f"{LABEL}{ending}")
    return files


def _may_be_profiler(pid: int, likely: Sequence[int]) -> list[Port]:
    """A strange port is not knocked at: a rendezvous of PyTorch or NCCL may take it badly.

    JAX and TensorFlow listen on every interface, and their other ports speak gRPC as well.
    """
    ports = ports_of(pid)
    known = [port for port in ports if port.number in likely]
    frameworks = [] if len(known) == len(ports) else _frameworks(pid)
    if not frameworks or "torch" in frameworks:
        return known
    return known + [port for port in ports if port.anywhere and port not in known]


def _frameworks(pid: int) -> list[str]:
    """By the libraries that it has loaded."""
    try:
        with process.as_its_user(pid):
            maps = (PROC / str(pid) / "maps").read_bytes()
    except OSError:
        return []
    return [name for name, library in _LIBRARIES.items() if library in maps]


def _shared(address: str) -> str:
    port = int(address.rpartition(":")[2])
    owners = owners_of(port)
    if len(owners) < 2:
        return ""
    who = ", ".join(map(str, owners))
    return f"processes {who} share port {port}: which of them answers is chance"
