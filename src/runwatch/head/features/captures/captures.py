"""Captures on demand: asks every node of a run for traces from the same moment on.

The nodes are asked twice.  First what they can capture and how soon, which also tells how long a
word takes to all of them; then for the capture, to begin when the slowest can have begun.  Where
several are captured, they begin before the time asked for and end with it: a profiler that takes
its time to start on a busy node records all the same when the common time begins.  From there on
nothing depends on this head: what came of it is read from records (`views/captures`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from runwatch.errors import NotFound, RunwatchError, UsageError
from runwatch.head.outbox import Outbox, Sent
from runwatch.head.own_journal import OwnJournal
from runwatch.head.reading import Reading
from runwatch.profile_event import PROFILE
from runwatch.record import RunId
from runwatch.record.captures import CaptureAsked
from runwatch.rows import EventRow
from runwatch.store.store import OF_EACH
from runwatch.views import profiles as profile_view
from runwatch.views.captures import (
    CAPTURE,
    PATIENCE_NS,
    RESULT,
    STEPS_NS,
    Asked,
    Capture,
    capture_of,
)
from runwatch.views.profiles import Part, check_session
from runwatch.views.runs import of_last_attempt

KIND: Final = "profile"
DEFAULT_MS: Final = 2_000
MAX_MS: Final = 600_000
MAX_STEPS: Final = 10_000
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


@dataclass(frozen=True, slots=True)
class Wanted:
    hosts: Sequence[str] | None = None
    ranks: Sequence[int] | None = None
    pids: Sequence[int] = ()
    ports: Sequence[int] = ()
    duration_ms: int | None = None
    steps: int | None = None
    at_step: int | None = None
    session: str | None = None

    def checked(self) -> Wanted:
        """Raises UsageError."""
        if self.duration_ms is not None and self.steps is not None:
            raise UsageError("either a duration or a number of steps, not both")
        _within("duration_ms", self.duration_ms, MAX_MS)
        _within("steps", self.steps, MAX_STEPS)
        if self.at_step is not None and self.steps is None:
            raise UsageError("at_step goes with steps: so many from that one on")
        for port in self.ports:
            _within("port", port, 65_535)
        if self.session is not None:
            check_session(self.session)
        return self


def _within(name: str, value: int | None, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        raise UsageError(f"{name} {value}: 1 to {most}")


@dataclass(frozen=True, slots=True)
class Preflight:
    """What could be captured now."""

    processes: tuple[Mapping[str, Any], ...]
    """host, node, rank, pid, way or why not, and in how many ms it could begin."""
    hosts: Mapping[str, str]
    """Hosts that were asked, and why one says nothing; empty: it does."""
    seconds: float
    """How long a word takes to the slowest node and back."""

    @property
    def ready(self) -> list[Mapping[str, Any]]:
        return [process for process in self.processes if process.get("way")]

    @property
    def lead_seconds(self) -> float:
        """Until the common time can begin."""
        slowest = max((int(p.get("ready_ms") or 0) for p in self.ready), default=0)
        return LEAD_SECONDS + max(self.seconds, AGENT_SECONDS) + slowest / 1e3 + self.early_seconds

    @property
    def early_seconds(self) -> float:
        """How much earlier each begins, for all to record when the common time does."""
        if len(self.ready) < 2:
            return 0.0
        most = max(Counter(str(process.get("node")) for process in self.ready).values())
        return min(MAX_EARLY_SECONDS, EARLY_SECONDS * most)

    def why(self) -> str:
        """Why nothing can be captured."""
        words = [f"{_name(p)}: {p.get('why')}" for p in self.processes]
        words += [f"{host}: {why}" for host, why in self.hosts.items() if why]
        rest = f" (and {len(words) - MAX_REASONS} more)" if len(words) > MAX_REASONS else ""
        return "; ".join(words[:MAX_REASONS]) + rest


def _name(process: Mapping[str, Any]) -> str:
    return f"rank {process.get('rank')} on {process.get('host')}"


class Captures:
    """Any thread may call."""

    def __init__(
        self,
        reading: Reading,
        outbox: Outbox | None = None,
        journal: OwnJournal | None = None,
        hosts: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`hosts`: those that have an agent which can be asked."""
        self.reading = reading
        self._clock = reading.clock
        self._outbox = outbox
        self._journal = journal
        self._hosts = hosts
        self._lock = threading.Lock()
        self._beginning: dict[str, str] = {}

    # ── asking ────────────────────────────────────────────────────────────────────────────────

    def preflight(self, run: RunId | None, wanted: Wanted) -> Preflight:
        body = {**_whose(run, wanted.checked()), "preflight": True}
        begun_ns = self._clock.mono_ns()
        hosts = self._wanted_hosts(run, wanted)
        outbox = self._way_down()
        sent = outbox.send(KIND, body, hosts, PREFLIGHT_SECONDS, run)
        outbox.wait(sent, PREFLIGHT_SECONDS)
        return _preflight(sent, (self._clock.mono_ns() - begun_ns) / 1e9)

    def start(self, run: RunId | None, wanted: Wanted) -> Capture:
        """Returns when all nodes have been asked.  Raises CaptureActive or UsageError."""
        wanted.checked()
        session = wanted.session or _timestamp(self._clock.wall_ns())
        with self._alone(run, session):
            ready = self.preflight(run, wanted)
            if not ready.ready:
                raise UsageError(f"nothing can be captured: {ready.why()}")
            return self._send(run, wanted, session, ready)

    @contextmanager
    def _alone(self, run: RunId | None, session: str) -> Iterator[None]:
        key = run or NO_RUN
        with self._lock:
            if key in self._beginning:
                raise CaptureActive(_busy(self._beginning[key]))
            self._beginning[key] = session
        try:
            self._check_free(run, session)
            yield
        finally:
            with self._lock:
                del self._beginning[key]

    def _check_free(self, run: RunId | None, session: str) -> None:
        now_ns = self._clock.wall_ns()
        since = now_ns - STEPS_NS - PATIENCE_NS
        for row in self._asked(run, since):
            capture = self._capture(row)
            if not capture.is_over:
                raise CaptureActive(_busy(capture.asked.session))
        if session in self._sessions(run):
            raise UsageError(f"session {session!r} exists already; choose another name, or none")

    def _send(self, run: RunId | None, wanted: Wanted, session: str, ready: Preflight) -> Capture:
        start_ns = self._clock.wall_ns() + int(ready.lead_seconds * 1e9)
        duration_ms = wanted.duration_ms
        if duration_ms is None and wanted.steps is None:
            duration_ms = DEFAULT_MS
        early_ms = 0 if duration_ms is None else _early_ms(duration_ms, ready.early_seconds)
        ahead: dict[str, int] = {}
        common = {
            **_whose(run, wanted), "session": session,
            "duration_ms": None if duration_ms is None else duration_ms + early_ms,
            "steps": wanted.steps, "at_step": wanted.at_step,
        }  # fmt: skip

        def body_of(host: str, ahead_ns: int) -> Mapping[str, Any]:
            ahead[host] = ahead_ns
            return {**common, "start_ns": start_ns - early_ms * 1_000_000 + ahead_ns}

        hosts = list(ready.hosts)
        seconds = ready.lead_seconds + LEAD_SECONDS
        sent = self._way_down().send(KIND, body_of, hosts, seconds, run)
        told = {
            "session": session, "command": sent.id, "start_ns": start_ns,
            "duration_ms": duration_ms, "steps": wanted.steps, "at_step": wanted.at_step,
            "hosts": list(sent.hosts), "unreachable": dict(sent.unreachable), "ahead_ns": ahead,
            "processes": [_kept(process) for process in ready.processes],
        }  # fmt: skip
        assert self._journal is not None
        (row,) = self._journal.record([CaptureAsked.of(told)], run)
        return self._capture(row)

    def _way_down(self) -> Outbox:
        if self._outbox is None or self._journal is None:
            raise UsageError("nobody can be asked here: this head has no way to the nodes")
        return self._outbox

    def _wanted_hosts(self, run: RunId | None, wanted: Wanted) -> list[str]:
        if run is None:
            found = list(wanted.hosts) if wanted.hosts else sorted(self._hosts())
            if not found:
                raise UsageError("no node's agent can be asked (`runwatch agent` starts one)")
            return found
        states = [s for s in of_last_attempt(self.reading.processes(run)) if s.state == "running"]
        if not states:
            raise UsageError("no process of the run lives now: there is nothing to capture")
        ranks = None if wanted.ranks is None else set(wanted.ranks)
        hosts = None if wanted.hosts is None else set(wanted.hosts)
        if ranks and (strange := ranks - {s.rank for s in states}):
            raise UsageError(f"rank {min(strange)} does not live; {_span(s.rank for s in states)}")
        if hosts and (unknown := hosts - {s.host for s in states}):
            living = ", ".join(sorted({s.host for s in states})[:20])
            raise UsageError(f"no process of the run lives on {min(unknown)}; it runs on {living}")
        chosen = dict.fromkeys(
            s.host
            for s in states
            if (not ranks or s.rank in ranks) and (not hosts or s.host in hosts)
        )
        if not chosen:
            raise UsageError("none of those ranks lives on those hosts")
        return list(dict.fromkeys(map(self._way_down().node_of, chosen)))

    # ── how far it has come ───────────────────────────────────────────────────────────────────

    def find(self, run: RunId | None, session: str) -> Capture:
        check_session(session)
        for row in reversed(self._asked(run)):
            if row.body.get("session") == session:
                return self._capture(row)
        raise NotFound(f"no capture {session!r} was asked for here")

    def _asked(self, run: RunId | None, since_ns: int | None = None) -> list[EventRow]:
        rows = self.reading.store.events(run, kinds=[CAPTURE], start_ns=since_ns, of_each=OF_EACH)
        return [row for row in rows if row.run == (run or NO_RUN)]

    def _capture(self, row: EventRow) -> Capture:
        asked = Asked.of(row.run, row.body)
        store = self.reading.store
        results = store.events(
            None, kinds=[RESULT], start_ns=row.time_ns - STEPS_NS, of_each=OF_EACH
        )
        mine = [each.body for each in results if each.body.get("command") == asked.command]
        run = RunId(row.run) if row.run else None
        return capture_of(asked, self._parts(run, asked), mine, self._clock.wall_ns())

    def _parts(self, run: RunId | None, asked: Asked) -> list[Part]:
        told = self._told(run)
        parts = [part for session in told for part in session.parts]
        return [part for part in parts if part.command == asked.command]

    def _told(self, run: RunId | None) -> list[profile_view.Session]:
        kinds = [PROFILE, profile_view.DELETED]
        rows = self.reading.store.events(run, kinds=kinds, of_each=OF_EACH)
        states = self.reading.processes(run) if run is not None else []
        # Whoever is merely not heard of may be recording still: a head that was away hears nobody.
        ended = profile_view.gone_of(state for state in states if state.state != "lost")
        return list(profile_view.fold(rows, ended).values())

    def _sessions(self, run: RunId | None) -> set[str]:
        return set() if run is None else {session.id for session in self._told(run)}


def _early_ms(duration_ms: int, seconds: float) -> int:
    return min(round(seconds * 1e3), MAX_MS - duration_ms)


def _whose(run: RunId | None, wanted: Wanted) -> dict[str, Any]:
    ranks = None if wanted.ranks is None else list(wanted.ranks)
    return {
        "run": run or NO_RUN, "plain": run is None, "ranks": ranks,
        "pids": list(wanted.pids), "ports": list(wanted.ports),
    }  # fmt: skip


def _preflight(sent: Sent, seconds: float) -> Preflight:
    hosts = dict.fromkeys(sent.hosts, "its agent does not answer") | dict(sent.unreachable)
    processes: list[Mapping[str, Any]] = []
    looked = max((int(body.get("took_ms") or 0) for body in sent.results.values()), default=0)
    for node, body in sent.results.items():
        hosts[node] = str(body.get("why") or "")
        found = body.get("processes") or ()
        processes += [{"host": node, **process, "node": node} for process in found]
    return Preflight(tuple(processes), hosts, max(0.0, seconds - looked / 1e3))


def _kept(process: Mapping[str, Any]) -> dict[str, Any]:
    return {name: process.get(name) for name in ("host", "node", "rank", "pid", "way")}


def _busy(session: str) -> str:
    return f"a capture goes on already: session {session!r}; wait until it is over"


def _span(ranks: Iterable[int]) -> str:
    known = sorted(set(ranks))
    return f"ranks {known[0]} to {known[-1]} do" if len(known) > 1 else f"rank {known[0]} does"


def _timestamp(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9).strftime("%Y_%m_%d_%H_%M_%S_%f")[:-3]
