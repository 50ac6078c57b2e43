"""Runs as google-cloud-mldiagnostics describes them to a control plane of one's own.

A PATCH of the collection says that a process has begun: its run gets an attempt.  A state is a
record of the process like any other, and what a run's state is, views say.  The description itself
is kept whole, as an event of the run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from runwatch.errors import NotFound, UsageError
from runwatch.head.context import Context
from runwatch.head.features.otlp.book import SCOPE, Book, Peer
from runwatch.head.features.otlp.receiver import Receiver, Refused, refusal
from runwatch.peers import process_at
from runwatch.record import NO_STEP, Event, RunId, Verdict
from runwatch.record.captures import DONE, FAILED, STARTED, ProfileEvent, checked_name
from runwatch.record.life import Config, RunEnd, RunStart
from runwatch.record.message import Message
from runwatch.record.names import slug
from runwatch.record.otlp import MlRun
from runwatch.views.times import rfc3339

COLLECTION: Final = "machineLearningRuns"
MOST_LISTED: Final = 1_000
_LONGEST: Final = 200
_SNAKE: Final = re.compile(r"_([a-z0-9])")
_INNER: Final = ("workload", "artifacts", "configs")
"""Objects whose own keys are names of fields, not of the user."""
_CONFIGS: Final = {
    "userConfigs": "user",
    "softwareConfigs": "software",
    "hardwareConfigs": "system",
}
_ENDS: Final[Mapping[str, str]] = {
    "STATE_SUCCEEDED": "completed",
    "STATE_FAILED": "failed",
    "COMPLETED": "completed",
    "FAILED": "failed",
}
_GOES_ON: Final = ("STATE_RUNNING", "ACTIVE")
_STATES: Final[Mapping[str, str]] = {
    "running": "STATE_RUNNING",
    "completed": "STATE_SUCCEEDED",
    "failed": "STATE_FAILED",
    "killed": "STATE_FAILED",
}
_PHASES: Final = {"ACTIVE": STARTED, "SUCCEEDED": DONE, "FAILED": FAILED}
_NOT_YET: Final = "0001-01-01"

Resource = dict[str, Any]


class Told(NamedTuple):
    """What is answered once the store has it."""

    resource: Resource
    stored: Future[Verdict]


class MlRuns:
    """Called in the thread that owns the books, but for `found` and `listed`."""

    def __init__(self, context: Context, receiver: Receiver) -> None:
        self._reading = context.reading
        self._board = context.board
        self._receiver = receiver
        self._clock = context.reading.clock

    # ── reading ───────────────────────────────────────────────────────────────────────────────

    def found(self, run: str) -> Resource:
        return self._shown(self._reading.run(run))

    def listed(self) -> list[Resource]:
        rows = self._reading.store.events(
            None, kinds=[MlRun.KIND], limit=MOST_LISTED, newest_first=True
        )
        found = []
        for run in dict.fromkeys(row.run for row in rows):
            with suppress(NotFound):  # it was deleted meanwhile
                found.append(self._shown(run))
        return found

    def _shown(self, run: RunId, state: str = "") -> Resource:
        summary = self._board.card(run).summary
        kept = self._kept(run)
        workload = dict(kept.get("workload") or {})
        workload["state"] = state or _STATES.get(summary.state, "STATE_UNSPECIFIED")
        if summary.reason:
            workload["stateMessage"] = summary.reason
        return kept | {
            "name": f"{COLLECTION}/{run}",
            "displayName": kept.get("displayName") or summary.name,
            "workload": workload,
            "createTime": rfc3339(summary.started_ns),
            "updateTime": rfc3339(summary.last_ns),
        }

    def _kept(self, run: RunId) -> Resource:
        rows = self._reading.store.events(run, kinds=[MlRun.KIND], limit=1, newest_first=True)
        return dict(MlRun.of(rows[0].body).resource) if rows else {}

    # ── changing ──────────────────────────────────────────────────────────────────────────────

    def patched(
        self,
        id: str,
        given: Resource,
        mask: Sequence[str],
        allow_missing: bool,
        peer: Peer,
        projects: tuple[str, ...],
    ) -> Told:
        """`id`: empty if a process says that it has begun.  Raises UsageError, NotFound."""
        given = _in_camels(given)
        begins = not id
        id = id or _text(given.get("logicalId")) or _last(_text(given.get("name")))
        if not id:
            raise UsageError("the body names no run: give it a logicalId, or a name")
        run = slug(id)
        is_known = self._is_known(run, projects)
        book = self._receiver.books.made(run) if is_known and not begins else None
        if book is None and not allow_missing:
            raise NotFound(_no_run(id) + "; with allow_missing=true it is made")
        kept = self._kept(run) if is_known else {}
        resource = _merged(kept, given, mask)
        state = _text((resource.get("workload") or {}).pop("state", ""))
        state = state or _text(resource.pop("runPhase", ""))
        if state and state not in _ENDS and state not in _GOES_ON:
            known = ", ".join((*_GOES_ON, *_ENDS))
            raise UsageError(f"state {state[:80]!r}: one of {known}")
        resource = {name: value for name, value in resource.items() if name != "name"}
        if book is None:
            book = self._made(run, resource, peer, projects)
        messages = self._messages(kept, resource, state, book)
        return Told(
            _answer(run, resource, state, self._clock.wall_ns()),
            self._record(book, messages, peer, projects),
        )

    def _is_known(self, run: RunId, projects: tuple[str, ...]) -> bool:
        """A run of another project is not there, for whoever has a token of a project."""
        if not self._reading.store.processes(run):
            return False
        return not projects or self._reading.project(run) in projects

    def _made(self, run: RunId, resource: Resource, peer: Peer, projects: tuple[str, ...]) -> Book:
        workload = resource.get("workload") or {}
        name = _text(resource.get("displayName")) or _text(workload.get("displayName")) or run
        group = _text(resource.get("runSet")) or self._receiver.group(run, projects)
        pid = process_at(peer.address, peer.port) if peer.is_direct and peer.port else None
        pid = pid if pid and _is_python(pid) else None
        return self._receiver.books.make(run, name, group, peer, pid)

    def _messages(
        self, kept: Resource, resource: Resource, state: str, book: Book
    ) -> list[Message]:
        messages: list[Message] = []
        if resource != kept:
            messages.append(MlRun(resource))
        for name, part in _CONFIGS.items():
            values = (resource.get("configs") or {}).get(name)
            if isinstance(values, dict) and values != (kept.get("configs") or {}).get(name):
                messages.append(Config(part, values))
        if state in _ENDS:
            status = _ENDS[state]
            reason = "the program said that it failed" if status == "failed" else None
            # It says so in an exit handler, which knows no exit code.
            messages.append(RunEnd(status, explicit=status == "failed", reason=reason))
        elif state and not book.is_new and self._has_ended(book):
            messages.append(book.start if book.start.run else RunStart(book.scope.run))
        return messages

    def _has_ended(self, book: Book) -> bool:
        rows = self._reading.store.events(
            book.scope.run, kinds=[RunStart.KIND, RunEnd.KIND], newest_first=True, limit=1
        )
        return bool(rows) and rows[0].kind == RunEnd.KIND

    def _record(
        self, book: Book, messages: Sequence[Message], peer: Peer, projects: tuple[str, ...]
    ) -> Future[Verdict]:
        now_ns = self._clock.wall_ns()
        page = book.page(now_ns)
        for message in messages:
            if why := page.event(Event(now_ns, message.KIND, message.body(), NO_STEP, SCOPE)):
                raise UsageError(f"the body: {why}")
        future = self._receiver.submit(book, page, peer, projects, 0)
        if why := refusal(future):
            raise Refused(why)
        return future

    # ── profiler sessions ─────────────────────────────────────────────────────────────────────

    def session_told(
        self, id: str, session: str, given: Resource, peer: Peer, projects: tuple[str, ...]
    ) -> Told:
        run = slug(id)
        book = self._receiver.books.made(run) if self._is_known(run, projects) else None
        if book is None:
            raise NotFound(_no_run(id))
        event = _profile(checked_name(session), _in_camels(given), self._clock.wall_ns())
        before = self._told_sessions(run).get(session)
        if before is not None and not event.directory:
            event = replace(event, directory=before.directory)
        future = self._record(book, [event], peer, projects)
        return Told(_session(run, event), future)

    def sessions(self, id: str) -> list[Resource]:
        run = self._reading.run(id)
        return [_session(run, event) for event in self._told_sessions(run).values()]

    def _told_sessions(self, run: RunId) -> dict[str, ProfileEvent]:
        """The newest word of each."""
        rows = self._reading.store.events(
            run, kinds=[ProfileEvent.KIND], limit=MOST_LISTED, newest_first=True
        )
        read = (ProfileEvent.read(row.body) for row in reversed(rows))
        return {event.session: event for event in read if event is not None}

    def session(self, id: str, session: str) -> Resource:
        name = f"{COLLECTION}/{self._reading.run(id)}/profilerSessions/{session}"
        for found in self.sessions(id):
            if found["name"] == name:
                return found
        raise NotFound(f"run {id[:80]!r} has no profiler session {session[:80]!r}")


def _is_python(pid: int) -> bool:
    """The wheel runs in Python.  Anything else on this machine only passes its requests on."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith(("python", "pypy"))
    except OSError:
        return False


def _no_run(id: str) -> str:
    return f"there is no run {id[:80]!r} that was made here by PATCH"


# ── the forms ──────────────────────────────────────────────────────────────────────────────────


def _answer(run: RunId, resource: Resource, state: str, now_ns: int) -> Resource:
    workload = dict(resource.get("workload") or {})
    workload["state"] = state or "STATE_RUNNING"
    times = {"updateTime": rfc3339(now_ns)}
    return resource | {"name": f"{COLLECTION}/{run}", "workload": workload} | times


def _merged(kept: Resource, given: Resource, mask: Sequence[str]) -> Resource:
    """What a mask names is taken from what was given, or removed; without one, all that was."""
    made: Resource = {**kept}
    if not mask or "*" in mask:
        return made | given
    for path in mask:
        names = [_camel(name) for name in path.split(".")]
        source: Any = given
        for name in names:
            source = source.get(name) if isinstance(source, dict) else None
        _put(made, names, source)
    return made


def _put(into: Resource, names: Sequence[str], value: Any) -> None:
    for name in names[:-1]:
        inner = into.get(name)
        into[name] = into = {**inner} if isinstance(inner, dict) else {}
    if value is None:
        into.pop(names[-1], None)
    else:
        into[names[-1]] = value


def _in_camels(given: Resource) -> Resource:
    """Snake case is accepted too, as protobuf's JSON does."""
    made = {_camel(name): value for name, value in given.items()}
    for name in _INNER:
        if made.get(name) is not None:
            if not isinstance(made[name], dict):
                raise UsageError(f"{name} is not a JSON object")
            made[name] = {_camel(inner): value for inner, value in made[name].items()}
    return made


def _camel(name: str) -> str:
    return _SNAKE.sub(lambda found: found[1].upper(), name.strip())


def _text(value: Any) -> str:
    said = value if isinstance(value, str) else ""
    return "".join(c if c.isprintable() else " " for c in said[:_LONGEST]).strip()


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _profile(session: str, given: Resource, now_ns: int) -> ProfileEvent:
    targets = given.get("targetSessions")
    told = (
        [each for each in targets.values() if isinstance(each, dict)]
        if isinstance(targets, dict)
        else []
    )
    phases = {_PHASES.get(_text(each.get("sessionPhase")), STARTED) for each in told}
    state = FAILED if FAILED in phases else DONE if phases == {DONE} else STARTED
    starts = [_time(each.get("startTime")) for each in told]
    ends = [_time(each.get("endTime")) for each in told]
    return ProfileEvent(
        session,
        state,
        directory=_text(given.get("storageFolderUri")),
        start_ns=min((at for at in starts if at), default=now_ns),
        end_ns=max(ends, default=0) or (0 if state == STARTED else now_ns),
        origin="program",
    )


def _session(run: RunId, event: ProfileEvent) -> Resource:
    phase = next(name for name, state in _PHASES.items() if state == event.state)
    end = {"endTime": rfc3339(event.end_ns)} if event.end_ns else {}
    return {
        "name": f"{COLLECTION}/{run}/profilerSessions/{event.session}",
        "sessionPhase": phase,
        "storageFolderUri": event.directory,
        "startTime": rfc3339(event.start_ns),
        **end,
    }


def _time(said: Any) -> int:
    text = _text(said)
    if not text or text.startswith(_NOT_YET):
        return 0
    try:
        return max(0, int(datetime.fromisoformat(text).timestamp() * 1e9))
    except (ValueError, OverflowError):
        return 0
