"""Stacks and incidents under /api/v1: which there are, and take some now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runwatch.errors import NotFound, UsageError
from runwatch.exports.collapsed import collapsed
from runwatch.exports.speedscope import speedscope
from runwatch.head.context import Context, Feature
from runwatch.head.features.stacks.hangs import HangWatch, Surroundings
from runwatch.head.features.stacks.incidents import (
    GAP_SECONDS,
    Incidents,
    StackTaker,
    evidence_of,
)
from runwatch.head.features.stacks.speedscope import Speedscope
from runwatch.head.features.stacks.types import (
    CommandInfo,
    FrameInfo,
    IncidentDetail,
    IncidentInfo,
    IncidentList,
    ProcessStacks,
    StackGroup,
    StackList,
    TakeStacks,
    TaskInfo,
    ThreadInfo,
)
from runwatch.head.http.access import CALLER
from runwatch.head.http.answering import answered, body_of
from runwatch.head.http.guests import Sees, seen
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import END, RUN, START, Given, Parameter
from runwatch.head.http.patience import for_caller
from runwatch.head.http.replies import json_reply
from runwatch.head.http.types import plain
from runwatch.head.outbox import Sent
from runwatch.head.reading import Reading
from runwatch.record import Batch, RunId
from runwatch.record.commands import StacksResult, StacksWanted
from runwatch.record.stacks import AsyncTask, Frame, Incident, Stacks, Thread
from runwatch.views.diagnosis.hang import HangReport, diagnose

MOST_SAMPLES: Final = 20_000
MOST_NEWEST: Final = 4_000
LONGEST_WAIT: Final = 25.0
MOST_ROUNDS: Final = 10
TOGETHER_NS: Final = 60 * 10**9
"""Stacks of several ranks belong together if they were taken within this time."""
_CLOCKS_NS: Final = 120 * 10**9
"""Clocks of nodes may be off by so much."""

_FORMATS: Final = ("speedscope", "collapsed")
_INCIDENT: Final = Parameter("incident", "string", "an incident's id", "path", shortest=1)
_COMMAND: Final = Parameter("command", "string", "a command's id", "path", shortest=1)
_RANK: Final = Parameter("rank", "integer", "only these ranks", repeated=True)
_WHICH: Final = (
    RUN,
    _RANK,
    Parameter("incident", "string", "those taken for this incident", shortest=1),
    Parameter("command", "string", "those taken by this command", shortest=1),
    Parameter("time", "integer", "the newest until then, in nanoseconds since the epoch"),
)
_FLAME: Final = (
    RUN,
    _RANK,
    START,
    END,
    Parameter("incident", "string", "only those taken for this incident", shortest=1),
    Parameter("command", "string", "only those taken by this command", shortest=1),
    Parameter("format", "string", "the file's format", choices=_FORMATS, default=_FORMATS[0]),
)


class StacksApi(Feature):
    """Stacks, incidents, and the watch that finds them."""

    def __init__(self, context: Context) -> None:
        reading, nodes = context.reading, context.nodes
        self._taker = StackTaker(reading, nodes.outbox if nodes else None)
        self.incidents = Incidents(self._taker, nodes.own if nodes else None, clock=reading.clock)
        self.hangs = None
        if nodes is not None:
            self.hangs = HangWatch(
                reading,
                self.incidents,
                Surroundings(reading.alive, nodes.known_ns, reading.clock_offsets),
                still=nodes.still,
                settings=context.serving.hangs,
                clock=reading.clock,
            )
        self._speedscope = Speedscope()

    def routes(self) -> Sequence[Route]:
        return self._speedscope.routes()

    def watch(self) -> None:
        """Begin to look for runs that stand still."""
        if self.hangs is not None:
            self.hangs.start()

    def stored(self, batches: Sequence[Batch]) -> None:
        if self.hangs is not None:
            self.hangs.stored(batches)

    def close(self) -> None:
        if self.hangs is not None:
            self.hangs.close()

    @property
    def _reading(self) -> Reading:
        return self._taker.reading

    def operations(self) -> list[Operation]:
        of_run, errors = "/api/v1/runs/{run}", (404, 409)
        return [
            Operation(
                f"{of_run}/incidents", "When it stood still or went down, and who was to blame",
                answered(self._list), (RUN,), {JSON: IncidentList}, errors,
            ),
            Operation(
                f"{of_run}/incidents/{{incident}}", "One incident, with its stacks",
                answered(self._one), (RUN, _INCIDENT), {JSON: IncidentDetail}, errors,
            ),
            Operation(
                f"{of_run}/stacks", "Where its processes were, grouped", answered(self._stacks),
                _WHICH, {JSON: StackList}, errors,
            ),
            Operation(
                f"{of_run}/stacks", "Look where its processes are now", self._take, (RUN,),
                {JSON: StackList}, (*errors, 422), "POST", TakeStacks,
            ),
            Operation(
                f"{of_run}/flame", "Its stacks as a flame graph", self._flame, _FLAME,
                {JSON: None, "text/plain": None}, errors,
            ),
            Operation(
                "/api/v1/commands/{command}", "How far a command is", self._command_of,
                (_COMMAND,), {JSON: CommandInfo}, (404,),
            ),
        ]  # fmt: skip

    # ── incidents ─────────────────────────────────────────────────────────────────────────────

    def _list(self, given: Given) -> IncidentList:
        run = self._reading.run(given["run"])
        incidents = [incident_info(run, incident) for incident in self.incidents.of(run)]
        return IncidentList(run=run, incidents=incidents)

    def _one(self, given: Given) -> IncidentDetail:
        run = self._reading.run(given["run"])
        incident = self._find(run, given["incident"])
        stacks = self._taker.taken(run, incident=incident.id, start_ns=_before(incident))
        return IncidentDetail(
            **_fields(run, incident), report=plain(incident.report), stacks=_processes(stacks)
        )

    def _find(self, run: RunId, id: str) -> Incident:
        incidents = self.incidents.of(run)
        if id == "last" and incidents:
            return incidents[0]
        for incident in incidents:
            if incident.id == id:
                return incident
        raise NotFound(f"run {run!r} has no incident {id[:80]!r}")

    # ── stacks ────────────────────────────────────────────────────────────────────────────────

    def _stacks(self, given: Given) -> StackList:
        run = self._reading.run(given["run"])
        return stack_list(run, _of_ranks(self._chosen(run, given), given["rank"]))

    def _chosen(self, run: RunId, given: Given) -> list[Stacks]:
        if given["incident"] is not None:
            incident = self._find(run, given["incident"])
            return self._taker.taken(run, incident=incident.id, start_ns=_before(incident))
        if given["command"] is not None:
            return self._taker.taken(run, command=given["command"])
        until_ns = given["time"]
        end_ns = None if until_ns is None else until_ns + 1
        newest = self._taker.taken(run, end_ns=end_ns, limit=MOST_NEWEST)
        last = max(newest, key=_time, default=Stacks())
        together = [each for each in newest if last.time_ns - each.time_ns < TOGETHER_NS]
        if not last.command:
            return _newest(together)
        # Rounds of one command belong together.
        return [each for each in together if each.command == last.command]

    async def _take(self, request: Request, given: Given) -> Response:
        asked = await body_of(request, TakeStacks)
        if not 1 <= asked.rounds <= MOST_ROUNDS:
            raise UsageError(f"rounds is {asked.rounds}: a number from 1 to {MOST_ROUNDS}")
        wait = min(max(asked.wait_seconds, 0.0), LONGEST_WAIT)
        return json_reply(await run_in_threadpool(lambda: self._taken(given["run"], asked, wait)))

    def _taken(self, key: str, asked: TakeStacks, wait: float) -> StackList:
        run = self._reading.run(key)
        hosts = self._taker.hosts(run, asked.ranks)
        if not hosts:
            raise UsageError(f"no process of run {run!r} is running: there is nothing to look at")
        wanted = StacksWanted(
            ranks=None if asked.ranks is None else tuple(asked.ranks),
            rounds=asked.rounds,
            gap_seconds=GAP_SECONDS,
            native=asked.native,
        )
        sent = self._taker.ask(run, wanted, hosts)
        if wait > 0:
            self._taker.wait(sent, wait)
        stacks = self._taker.taken(run, command=sent.id, start_ns=sent.issued_ns - _CLOCKS_NS)
        return stack_list(run, stacks, sent)

    async def _flame(self, request: Request, given: Given) -> Response:
        def answer() -> Response:
            run = self._reading.run(given["run"])
            incident = given["incident"] and self._find(run, given["incident"]).id
            stacks = self._taker.taken(
                run,
                incident=incident,
                command=given["command"],
                start_ns=given["start"],
                end_ns=given["end"],
                limit=MOST_SAMPLES,
            )
            stacks = _of_ranks(stacks, given["rank"])
            if given["format"] == "collapsed":
                text = "".join(collapsed(stacks))
                return Response(text, media_type="text/plain")
            return json_reply(speedscope(stacks, name=run))

        return await for_caller(request, answer)

    async def _command_of(self, request: Request, given: Given) -> Any:
        sees = seen(request.scope[CALLER].sight, self._reading)
        return await answered(lambda given: self._command(given, sees))(request, given)

    def _command(self, given: Given, sees: Sees) -> CommandInfo:
        outbox = self._taker.outbox
        sent = None if outbox is None else outbox.find(given["command"])
        if sent is None or not sees(sent.run or ""):
            raise NotFound(f"no command {given['command'][:80]!r} was sent since this head began")
        return CommandInfo(
            id=sent.id,
            kind=sent.kind,
            issued_ns=sent.issued_ns,
            done=sent.is_done,
            hosts=list(sent.hosts),
            unreachable=dict(sent.unreachable),
            results={host: plain(result.body()) for host, result in list(sent.results.items())},
        )


# ── as API shapes ─────────────────────────────────────────────────────────────────────────────


def stack_list(
    run: RunId, stacks: Sequence[Stacks], sent: Sent[StacksResult] | None = None
) -> StackList:
    """Grouped.  Who keeps the others waiting is told only after a second look, and of the stuck."""
    report = diagnose(evidence_of(stacks))
    tells = len({each.round for each in stacks}) > 1 and report.stuck
    return StackList(
        run=run,
        time_ns=max((each.time_ns for each in stacks), default=None),
        command=sent.id if sent else next((each.command or "" for each in stacks), ""),
        text=plain(report.text) if tells else "",
        confidence=report.confidence if tells else "",
        ranks=list(report.ranks) if tells else [],
        unreachable=dict(sent.unreachable) if sent else {},
        waiting_for=sorted(set(sent.hosts) - set(sent.results)) if sent else [],
        groups=_groups(report) if stacks else [],
        processes=_processes(stacks),
    )


def _groups(report: HangReport) -> list[StackGroup]:
    return [
        StackGroup(
            ranks=group["ranks"],
            text=plain(group["text"]),
            state=group["state"],
            thread=plain(group["thread"]),
            frames=[_frame(Frame.of(frame)) for frame in group["frames"]],
            problems=[plain(str(problem)) for problem in group["problems"]],
        )
        for group in report.to_json()["groups"]
    ]


def _processes(stacks: Iterable[Stacks]) -> list[ProcessStacks]:
    ordered = sorted(stacks, key=lambda each: (each.rank or 0, bool(each.child_of), each.time_ns))
    return [_process(each) for each in ordered]


def _process(stacks: Stacks) -> ProcessStacks:
    return ProcessStacks(
        rank=stacks.rank or 0,
        host=plain(stacks.host or ""),
        pid=stacks.pid,
        child_of=stacks.child_of or 0,
        time_ns=stacks.time_ns,
        how=plain(stacks.how),
        state=plain(stacks.state),
        fault=plain(stacks.fault or ""),
        problems=[plain(problem) for problem in stacks.problems],
        incident=plain(stacks.incident or ""),
        round=stacks.round or 0,
        command=plain(stacks.command or ""),
        threads=[_thread(thread) for thread in stacks.threads],
    )


def _thread(thread: Thread) -> ThreadInfo:
    return ThreadInfo(
        name=plain(thread.name),
        native_id=thread.native_id,
        is_main=thread.is_main,
        holds_gil=thread.holds_gil,
        idle=thread.idle,
        frames=[_frame(frame) for frame in thread.frames],
        tasks=[_task(task) for task in thread.tasks],
    )


def _task(task: AsyncTask) -> TaskInfo:
    return TaskInfo(
        name=plain(task.name),
        awaits=[plain(name) for name in task.awaits],
        is_root=task.is_root,
        frames=[_frame(frame) for frame in task.frames],
    )


def _frame(frame: Frame) -> FrameInfo:
    return FrameInfo(
        function=plain(frame.function),
        file=plain(frame.file),
        line=frame.line,
        native=frame.native,
    )


def incident_info(run: RunId, incident: Incident) -> IncidentInfo:
    return IncidentInfo(**_fields(run, incident))


def _fields(run: RunId, incident: Incident) -> dict[str, Any]:
    return {
        "id": plain(incident.id),
        "run": run,
        "kind": incident.kind,
        "state": incident.state,
        "since_ns": incident.since_ns,
        "detected_ns": incident.detected_ns,
        "named_ns": incident.named_ns,
        "closed_ns": incident.closed_ns,
        "why": plain(incident.why),
        "text": plain(incident.text),
        "confidence": plain(incident.confidence),
        "ranks": list(incident.ranks),
        "rounds": incident.rounds,
        "severity": incident.severity,
    }


def _before(incident: Incident) -> int:
    return incident.since_ns - _CLOCKS_NS


def _newest(stacks: Iterable[Stacks]) -> list[Stacks]:
    """Of each process."""
    newest = {(each.rank or 0, each.pid): each for each in sorted(stacks, key=_time)}
    return list(newest.values())


def _of_ranks(stacks: Sequence[Stacks], ranks: Sequence[int]) -> list[Stacks]:
    return [each for each in stacks if not ranks or each.rank in ranks]


def _time(stacks: Stacks) -> int:
    return stacks.time_ns
