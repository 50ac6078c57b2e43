"""Stacks and incidents under /api/v1: which there are, and take some now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from runwatch.head.features.stacks.incidents import Incidents, StackTaker, Wanted
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
from runwatch.head.http.parameters import RUN, Given, Parameter
from runwatch.head.http.patience import for_caller
from runwatch.head.http.replies import json_reply
from runwatch.head.http.types import plain
from runwatch.head.outbox import Sent
from runwatch.head.reading import Reading
from runwatch.record import Batch, RunId
from runwatch.record.commands import StacksResult
from runwatch.views.diagnosis.evidence import gather
from runwatch.views.diagnosis.hang import HangReport, diagnose
from runwatch.views.incidents import Incident

MOST_SAMPLES: Final = 20_000
MOST_NEWEST: Final = 4_000
LONGEST_WAIT: Final = 25.0
MOST_ROUNDS: Final = 10
TOGETHER_NS: Final = 60 * 10**9
"""Stacks of several ranks belong together if they were taken within this time."""
_CLOCKS_NS: Final = 120 * 10**9
"""Clocks of nodes may be off by so much."""

_INCIDENT: Final = Parameter("incident", "string", "an incident's id", "path", shortest=1)
_COMMAND: Final = Parameter("command", "string", "a command's id", "path", shortest=1)
_RANK: Final = Parameter("rank", "integer", "only these ranks", repeated=True)
_WHICH: Final = (
    RUN,
    _RANK,
    Parameter("incident", "string", "those taken for this incident", shortest=1),
    Parameter("command", "string", "those taken by this command", shortest=1),
    Parameter("time", "integer", "the last before here, in nanoseconds since the epoch"),
)
_FLAME: Final = (
    RUN,
    _RANK,
    Parameter("start", "integer", "from here on, in nanoseconds since the epoch"),
    Parameter("end", "integer", "up to but without here, in nanoseconds since the epoch"),
    Parameter("incident", "string", "only those taken for this incident", shortest=1),
    Parameter("command", "string", "only those taken by this command", shortest=1),
    Parameter("format", "string", "how", choices=("speedscope", "collapsed"), default="speedscope"),
)

Body = Mapping[str, Any]


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
        found = [incident_info(incident) for incident in self.incidents.all(run)]
        return IncidentList(run=run, incidents=found)

    def _one(self, given: Given) -> IncidentDetail:
        run = self._reading.run(given["run"])
        incident = self._find(run, given["incident"])
        stacks = self._taker.taken(run, incident=incident.id, start_ns=_before(incident))
        return IncidentDetail(
            **_fields(incident), report=plain(incident.report), stacks=_processes(stacks)
        )

    def _find(self, run: RunId, id: str) -> Incident:
        found = self.incidents.all(run)
        if id == "last" and found:
            return found[0]
        for incident in found:
            if incident.id == id:
                return incident
        raise NotFound(f"run {run!r} has no incident {id[:80]!r}")

    # ── stacks ────────────────────────────────────────────────────────────────────────────────

    def _stacks(self, given: Given) -> StackList:
        run = self._reading.run(given["run"])
        bodies = self._chosen(run, given)
        return stack_list(run, _of_ranks(bodies, given["rank"]))

    def _chosen(self, run: RunId, given: Given) -> list[Body]:
        if given["incident"] is not None:
            incident = self._find(run, given["incident"])
            return self._taker.taken(run, incident=incident.id, start_ns=_before(incident))
        if given["command"] is not None:
            return self._taker.taken(run, command=given["command"])
        until_ns = given["time"]
        end_ns = None if until_ns is None else until_ns + 1
        newest = self._taker.taken(run, end_ns=end_ns, limit=MOST_NEWEST)
        last_ns = max((_time(body) for body in newest), default=0)
        together = [body for body in newest if last_ns - _time(body) < TOGETHER_NS]
        last = max(together, key=_time, default={}).get("command")
        # Rounds of one command belong together; of others the newest of each process will do.
        return [b for b in together if b.get("command") == last] if last else _newest(together)

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
        gap = 1.0
        wanted = Wanted(asked.ranks, asked.rounds, gap, asked.native)
        sent = self._taker.ask(run, wanted, hosts)
        if wait > 0:
            self._taker.wait(sent, wait)
        bodies = self._taker.taken(run, command=sent.id, start_ns=sent.issued_ns - _CLOCKS_NS)
        return stack_list(run, bodies, sent)

    async def _flame(self, request: Request, given: Given) -> Response:
        def made() -> Response:
            run = self._reading.run(given["run"])
            incident = given["incident"] and self._find(run, given["incident"]).id
            bodies = self._taker.taken(
                run,
                incident=incident,
                command=given["command"],
                start_ns=given["start"],
                end_ns=given["end"],
                limit=MOST_SAMPLES,
            )
            bodies = _of_ranks(bodies, given["rank"])
            if given["format"] == "collapsed":
                text = "".join(collapsed(bodies))
                return Response(text, media_type="text/plain")
            return json_reply(speedscope(bodies, name=run))

        return await for_caller(request, made)

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
    run: RunId, bodies: Sequence[Body], sent: Sent[StacksResult] | None = None
) -> StackList:
    """Grouped; who keeps the others waiting is said only after a second look, and of the stuck."""
    report = diagnose(gather(bodies))
    tells = len({body.get("round") for body in bodies}) > 1 and report.stuck
    return StackList(
        run=run,
        time_ns=max((_time(body) for body in bodies), default=None),
        command=sent.id if sent else str(next((b.get("command") or "" for b in bodies), "")),
        text=plain(report.text) if tells else "",
        confidence=report.confidence if tells else "",
        ranks=list(report.ranks) if tells else [],
        unreachable=dict(sent.unreachable) if sent else {},
        waiting_for=sorted(set(sent.hosts) - set(sent.results)) if sent else [],
        groups=_groups(report) if bodies else [],
        processes=_processes(bodies),
    )


def _groups(report: HangReport) -> list[StackGroup]:
    return [
        StackGroup(
            ranks=group["ranks"],
            text=plain(group["text"]),
            state=group["state"],
            thread=plain(group["thread"]),
            frames=[_frame(frame) for frame in group["frames"]],
            problems=[plain(str(problem)) for problem in group["problems"]],
        )
        for group in report.to_json()["groups"]
    ]


def _processes(bodies: Iterable[Body]) -> list[ProcessStacks]:
    ordered = sorted(bodies, key=lambda b: (_int(b, "rank"), bool(b.get("child_of")), _time(b)))
    return [_process(body) for body in ordered]


def _process(body: Body) -> ProcessStacks:
    problems, threads = body.get("problems"), body.get("threads")
    return ProcessStacks(
        rank=_int(body, "rank"),
        host=plain(str(body.get("host", ""))),
        pid=_int(body, "pid"),
        child_of=_int(body, "child_of"),
        time_ns=_time(body),
        how=plain(str(body.get("how", ""))),
        state=plain(str(body.get("state", ""))),
        fault=plain(str(body.get("fault", ""))),
        problems=[plain(str(each)) for each in problems] if isinstance(problems, list) else [],
        incident=plain(str(body.get("incident", ""))),
        round=_int(body, "round"),
        command=plain(str(body.get("command", ""))),
        threads=[_thread(each) for each in threads] if isinstance(threads, list) else [],
    )


def _thread(body: Body) -> ThreadInfo:
    return ThreadInfo(
        name=plain(str(body.get("name", ""))),
        native_id=_int(body, "native_id"),
        is_main=bool(body.get("is_main")),
        holds_gil=bool(body.get("holds_gil")),
        idle=bool(body.get("idle")),
        frames=[_frame(frame) for frame in body.get("frames") or ()],
        tasks=[_task(task) for task in body.get("tasks") or ()],
    )


def _task(body: Body) -> TaskInfo:
    return TaskInfo(
        name=plain(str(body.get("name", ""))),
        awaits=[plain(str(name)) for name in body.get("awaits") or ()],
        is_root=bool(body.get("is_root")),
        frames=[_frame(frame) for frame in body.get("frames") or ()],
    )


def _frame(body: Body) -> FrameInfo:
    return FrameInfo(
        function=plain(str(body.get("function", ""))),
        file=plain(str(body.get("file", ""))),
        line=_int(body, "line"),
        native=bool(body.get("native")),
    )


def incident_info(incident: Incident) -> IncidentInfo:
    return IncidentInfo(**_fields(incident))


def _fields(incident: Incident) -> dict[str, Any]:
    return {
        "id": plain(incident.id),
        "run": incident.run,
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


def _newest(bodies: Iterable[Body]) -> list[Body]:
    found: dict[tuple[int, int], Body] = {}
    for body in sorted(bodies, key=_time):
        found[_int(body, "rank"), _int(body, "pid")] = body
    return list(found.values())


def _of_ranks(bodies: Sequence[Body], ranks: Sequence[int]) -> list[Body]:
    return [body for body in bodies if not ranks or body.get("rank") in ranks]


def _time(body: Body) -> int:
    return _int(body, "time_ns")


def _int(body: Body, key: str) -> int:
    value = body.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
