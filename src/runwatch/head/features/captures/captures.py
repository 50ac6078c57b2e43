"""Captures on demand: asks every node of a run for profiles from the same moment on.

The nodes are asked twice.  First what they can capture and how soon (a preflight), which also tells
how long a word takes to all of them; then for the capture, to begin when the slowest can have
begun.  Where there are several targets, they begin before the time asked for and end with it: a
profiler that takes its time to start on a busy node records all the same when the common time
begins.  The request is recorded before a node is asked for it: a head that was ended meanwhile
knows that it may have been carried out.  From there on nothing depends on this head:
`views/captures` reads from records how it is.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import msgspec

from runwatch.errors import NotFound, RunwatchError, UsageError
from runwatch.head.features.captures.ports import PORT, OwnPorts
from runwatch.head.outbox import Outbox, Sent
from runwatch.head.own_journal import OwnJournal
from runwatch.head.reading import Reading
from runwatch.record import RunId
from runwatch.record.capture_limits import DEFAULT_MS, MAX_MS, MAX_PORT, MAX_STEPS
from runwatch.record.captures import (
    CaptureRequested,
    ProfileDeleted,
    ProfileEvent,
    Target,
    checked_name,
)
from runwatch.record.commands import (
    CaptureResult,
    CommandResult,
    PreflightResult,
    ProfileCommand,
    TargetPreflight,
)
from runwatch.record.otlp import ML_RUN, is_foreign
from runwatch.rows import EventRow
from runwatch.store.store import OF_EACH
from runwatch.views.captures import PATIENCE_NS, STEPS_NS, Capture, capture_of
from runwatch.views.profiles import Part, Profile, fold, gone_of
from runwatch.views.runs import ProcessState, of_last_attempt

PREFLIGHT_SECONDS: Final = 15.0
"""A port that takes a connection and says nothing is waited for."""
LEAD_SECONDS: Final = 1.0
"""Between the moment at which all have been asked, and the start."""
AGENT_SECONDS: Final = 0.5
"""An agent that shares our directory looks for commands every quarter of a second."""
EARLY_SECONDS: Final = 0.06
"""For each process of a node: they all start their profilers at the same moment."""
MAX_EARLY_SECONDS: Final = 1.0
NO_RUN: Final = ""
MAX_REASONS: Final = 8


class CaptureActive(RunwatchError):
    """One goes on already."""


class CaptureRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody asks for."""

    hosts: list[str] | None = None
    """Only of these hosts; programs of no run: of all that have an agent."""
    ranks: list[int] | None = None
    duration_ms: int | None = None
    """Without it and `steps`, DEFAULT_MS."""
    steps: int | None = None
    at_step: int | None = None
    """Begin with this step; without it, with the next."""
    session: str | None = None
    """The profile's name; without one it is named by the time."""
    pids: list[int] = []
    """Only these processes."""
    ports: list[int] = []
    """Profiler ports to try, beside PROFILER_PORTS."""
    once: bool = False
    """If this session was asked for before, that capture is the answer, and nobody is asked."""

    def check(self) -> None:
        """Raises UsageError."""
        if self.duration_ms is not None and self.steps is not None:
            raise UsageError("either a duration or a number of steps, not both")
        _within("duration_ms", self.duration_ms, MAX_MS)
        _within("steps", self.steps, MAX_STEPS)
        if self.at_step is not None and self.steps is None:
            raise UsageError("at_step goes with steps: so many from that one on")
        for port in self.ports:
            _within("port", port, MAX_PORT)
        if self.session is not None:
            checked_name(self.session)
        elif self.once:
            raise UsageError("once goes with session: that one, and not a second time")

    @property
    def window_ms(self) -> int | None:
        """How long to record; None: so many steps."""
        return DEFAULT_MS if self.duration_ms is None and self.steps is None else self.duration_ms

    def command(self, run: RunId | None) -> ProfileCommand:
        """Which targets an agent is asked about."""
        return ProfileCommand(
            run=run or NO_RUN,
            plain=run is None,
            ranks=None if self.ranks is None else tuple(self.ranks),
            pids=tuple(self.pids),
            ports=tuple(self.ports),
        )


def _within(name: str, value: int | None, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        raise UsageError(f"{name} {value}: 1 to {most}")


@dataclass(frozen=True, slots=True)
class Preflight:
    """What could be captured now."""

    targets: tuple[TargetPreflight, ...]
    hosts: Mapping[str, str]
    """Hosts that were asked, and why one says nothing; empty: it does."""
    seconds: float
    """How long a word takes to the slowest node and back."""

    @property
    def ready(self) -> list[TargetPreflight]:
        return [target for target in self.targets if target.way]

    @property
    def lead_seconds(self) -> float:
        """Until the common time can begin."""
        slowest = max((target.ready_ms for target in self.ready), default=0)
        return LEAD_SECONDS + max(self.seconds, AGENT_SECONDS) + slowest / 1e3 + self.early_seconds

    @property
    def early_seconds(self) -> float:
        """How much earlier each begins, for all to record when the common time does."""
        if len(self.ready) < 2:
            return 0.0
        most = max(Counter(target.node for target in self.ready).values())
        return min(MAX_EARLY_SECONDS, EARLY_SECONDS * most)

    def why(self) -> str:
        """Why nothing can be captured."""
        words = [f"rank {each.rank} on {each.host}: {each.why}" for each in self.targets]
        words += [f"{host}: {why}" for host, why in self.hosts.items() if why]
        rest = f" (and {len(words) - MAX_REASONS} more)" if len(words) > MAX_REASONS else ""
        return "; ".join(words[:MAX_REASONS]) + rest


@dataclass(frozen=True, slots=True)
class _Asked:
    """Whom a request is for."""

    hosts: list[str]
    """Those whose agents are asked."""
    general: ProfileCommand
    plain: Mapping[str, int] = field(default_factory=dict)
    """Hosts where the run is a program that does not know us; its pid, or 0."""
    direct: Sequence[ProcessState] = ()
    """Such programs where no agent is: the head asks them itself."""

    def command(self, host: str) -> ProfileCommand:
        pid = self.plain.get(host)
        if pid is None:
            return self.general
        command = replace(self.general, plain=True, ranks=None)
        if pid and not command.pids:
            return replace(command, pids=(pid,))
        return command if command.pids or command.ports else replace(command, ports=(PORT,))


class Captures:
    """Any thread may call."""

    def __init__(
        self,
        reading: Reading,
        outbox: Outbox | None = None,
        journal: OwnJournal | None = None,
        hosts: Callable[[], Iterable[str]] = tuple,
        ports: OwnPorts | None = None,
    ) -> None:
        """`hosts`: those that have an agent which can be asked.  `ports`: the way to programs that
        do not know us, where none has."""
        self._ports = ports
        self.reading = reading
        self._clock = reading.clock
        self._outbox = outbox
        self._journal = journal
        self._hosts = hosts
        self._lock = threading.Lock()
        self._beginning: dict[str, str] = {}

    # ── asking ────────────────────────────────────────────────────────────────────────────────

    def preflight(self, run: RunId | None, request: CaptureRequest) -> Preflight:
        request.check()
        begun_ns = self._clock.mono_ns()
        asked, outbox = self._asked(run, request), self._way_down()

        def command_of(host: str, ahead_ns: int) -> ProfileCommand:
            return replace(asked.command(host), preflight=True)

        sent = outbox.send(command_of, PreflightResult, asked.hosts, PREFLIGHT_SECONDS, run)
        outbox.wait(sent, PREFLIGHT_SECONDS)
        found = _preflight(sent, (self._clock.mono_ns() - begun_ns) / 1e9)
        if self._ports is None or not asked.direct:
            return found
        direct = [self._ports.preflight(each, request.ports) for each in asked.direct]
        return replace(found, targets=(*found.targets, *direct))

    def start(self, run: RunId | None, request: CaptureRequest) -> Capture:
        """Returns when all nodes have been asked.  Raises CaptureActive or UsageError."""
        request.check()
        name = request.session or _timestamp(self._clock.wall_ns())
        with self._alone(run, name):
            before = self._asked_before(run, name) if request.once else None
            if before is not None:
                return before
            self._check_free(run, name)
            preflight = self.preflight(run, request)
            if not preflight.ready:
                raise UsageError(f"nothing can be captured: {preflight.why()}")
            return self._send(run, request, name, preflight)

    @contextmanager
    def _alone(self, run: RunId | None, name: str) -> Iterator[None]:
        key = run or NO_RUN
        with self._lock:
            if key in self._beginning:
                raise CaptureActive(_busy(self._beginning[key]))
            self._beginning[key] = name
        try:
            yield
        finally:
            with self._lock:
                del self._beginning[key]

    def _check_free(self, run: RunId | None, name: str) -> None:
        since_ns = self._clock.wall_ns() - STEPS_NS - PATIENCE_NS
        for row in self._requests(run, since_ns):
            capture = self._capture(row)
            if not capture.is_over:
                raise CaptureActive(_busy(capture.request.session))
        if run is not None and any(profile.name == name for profile in self._profiles(run)):
            raise UsageError(f"session {name!r} exists already; choose another name, or none")

    def _send(
        self, run: RunId | None, request: CaptureRequest, name: str, preflight: Preflight
    ) -> Capture:
        start_ns = self._clock.wall_ns() + int(preflight.lead_seconds * 1e9)
        window_ms, early_ms = request.window_ms, 0
        if window_ms is not None:
            early_ms = min(round(preflight.early_seconds * 1e3), MAX_MS - window_ms)
        asked = self._asked(run, request)
        ahead: dict[str, int] = {}

        def command_of(host: str, ahead_ns: int) -> ProfileCommand:
            ahead[host] = ahead_ns
            return replace(
                asked.command(host),
                session=name,
                start_ns=start_ns - early_ms * 1_000_000 + ahead_ns,
                duration_ms=None if window_ms is None else window_ms + early_ms,
                steps=request.steps,
                at_step=request.at_step,
            )

        hosts, seconds = list(preflight.hosts), preflight.lead_seconds + LEAD_SECONDS
        captures: list[Capture] = []

        def record(sent: Sent[CaptureResult]) -> None:
            requested = CaptureRequested(
                session=name,
                command=sent.id,
                start_ns=start_ns,
                duration_ms=window_ms,
                steps=request.steps,
                at_step=request.at_step,
                hosts=sent.hosts,
                unreachable=sent.unreachable,
                ahead_ns=ahead,
                processes=tuple(map(_target, preflight.targets)),
            )
            captures.append(self._record(run, requested))

        sent = self._way_down().send(command_of, CaptureResult, hosts, seconds, run, first=record)
        direct = [target for target in preflight.ready if not target.node]
        if self._ports is not None and run is not None:
            told = ProfileEvent(
                name, framework="xla", start_ns=start_ns, origin="demand", command=sent.id,
                run=run, way="port",
            )  # fmt: skip
            self._ports.begin(run, direct, told, window_ms or DEFAULT_MS)
        return captures[0]

    def _record(self, run: RunId | None, requested: CaptureRequested) -> Capture:
        assert self._journal is not None
        (row,) = self._journal.record([requested], run)
        return self._capture(row)

    def _way_down(self) -> Outbox:
        if self._outbox is None or self._journal is None:
            raise UsageError("nobody can be asked here: this head has no way to the nodes")
        return self._outbox

    def _asked(self, run: RunId | None, request: CaptureRequest) -> _Asked:
        command = request.command(run)
        if run is None:
            hosts = list(request.hosts) if request.hosts else sorted(self._hosts())
            if not hosts:
                raise UsageError("no node's agent can be asked (`runwatch agent` starts one)")
            return _Asked(hosts, command)
        states = [
            state
            for state in of_last_attempt(self.reading.processes(run))
            if state.state == "running"
        ]
        if not states:
            raise UsageError("no process of the run lives now: there is nothing to capture")
        chosen = _chosen(states, request)
        node_of, agents = self._way_down().node_of, frozenset(self._hosts())
        nodes = {state.journal: node_of(state.host) for state in chosen}
        # Only there do we know where it is: others say the names of their hosts themselves.
        made = [state for state in chosen if state.journal.startswith(ML_RUN)]
        direct = [state for state in made if nodes[state.journal] not in agents]
        without = {state.journal for state in direct}
        others = [state for state in chosen if state.journal not in without]
        plain = {nodes[s.journal]: s.pid for s in others if is_foreign(s.journal)}
        return _Asked(
            list(dict.fromkeys(nodes[state.journal] for state in others)), command, plain, direct
        )

    # ── how far it is ─────────────────────────────────────────────────────────────────────────

    def find(self, run: RunId | None, name: str) -> Capture:
        checked_name(name)
        found = self._asked_before(run, name)
        if found is None:
            raise NotFound(f"no capture {name!r} was asked for here")
        return found

    def _asked_before(self, run: RunId | None, name: str) -> Capture | None:
        for row in reversed(self._requests(run)):
            if CaptureRequested.of(row.body).session == name:
                return self._capture(row)
        return None

    def _requests(self, run: RunId | None, since_ns: int | None = None) -> list[EventRow]:
        rows = self.reading.store.events(
            run, kinds=[CaptureRequested.KIND], start_ns=since_ns, of_each=OF_EACH
        )
        return [row for row in rows if row.run == (run or NO_RUN)]

    def _capture(self, row: EventRow) -> Capture:
        requested = CaptureRequested.of(row.body)
        run = RunId(row.run) if row.run else None
        parts = self._parts(run, requested.command)
        results = self._results(requested.command, row.time_ns - STEPS_NS)
        return capture_of(row.run, requested, parts, results, self._clock.wall_ns())

    def _results(self, command: str, since_ns: int) -> list[CaptureResult]:
        rows = self.reading.store.events(
            None, kinds=[CommandResult.KIND], start_ns=since_ns, of_each=OF_EACH
        )
        results = (CaptureResult.of(row.body) for row in rows)
        return [result for result in results if result.command == command]

    def _parts(self, run: RunId | None, command: str) -> list[Part]:
        parts = (part for profile in self._profiles(run) for part in profile.parts)
        return [part for part in parts if part.command == command]

    def _profiles(self, run: RunId | None) -> list[Profile]:
        kinds = [ProfileEvent.KIND, ProfileDeleted.KIND]
        rows = self.reading.store.events(run, kinds=kinds, of_each=OF_EACH)
        states = self.reading.processes(run) if run is not None else []
        # Whoever is merely not heard of may be recording still: a head that was away hears nobody.
        ended = gone_of(state for state in states if state.state != "lost")
        return list(fold(rows, ended).values())


def _chosen(states: Sequence[ProcessState], request: CaptureRequest) -> list[ProcessState]:
    """The processes that a request is about.  Raises UsageError."""
    ranks = None if request.ranks is None else set(request.ranks)
    hosts = None if request.hosts is None else set(request.hosts)
    if ranks and (strange := ranks - {state.rank for state in states}):
        living = _span(state.rank for state in states)
        raise UsageError(f"rank {min(strange)} does not live; {living}")
    if hosts and (unknown := hosts - {state.host for state in states}):
        known = ", ".join(sorted({state.host for state in states})[:20])
        raise UsageError(f"no process of the run lives on {min(unknown)}; it runs on {known}")
    chosen = [
        state
        for state in states
        if (not ranks or state.rank in ranks) and (not hosts or state.host in hosts)
    ]
    if not chosen:
        raise UsageError("none of those ranks lives on those hosts")
    return chosen


def _preflight(sent: Sent[PreflightResult], seconds: float) -> Preflight:
    hosts = dict.fromkeys(sent.hosts, "its agent does not answer") | dict(sent.unreachable)
    targets: list[TargetPreflight] = []
    for node, result in sent.results.items():
        hosts[node] = result.why
        targets += [
            replace(target, host=target.host or node, node=node) for target in result.processes
        ]
    # What the agents themselves took is part of `ready_ms`.
    looked_ms = max((result.took_ms or 0 for result in sent.results.values()), default=0)
    return Preflight(tuple(targets), hosts, max(0.0, seconds - looked_ms / 1e3))


def _target(preflight: TargetPreflight) -> Target:
    """What stays of a preflight."""
    return Target(preflight.host, preflight.node, preflight.rank, preflight.pid, way=preflight.way)


def _busy(name: str) -> str:
    return f"a capture goes on already: session {name!r}; wait until it is over"


def _span(ranks: Iterable[int]) -> str:
    known = sorted(set(ranks))
    return f"ranks {known[0]} to {known[-1]} do" if len(known) > 1 else f"rank {known[0]} does"


def _timestamp(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9).strftime("%Y_%m_%d_%H_%M_%S_%f")[:-3]
