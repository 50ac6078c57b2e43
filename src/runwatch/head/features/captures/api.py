"""Captures on demand under /api/v1: begin one, see how far it is, ask what could be captured.

Those of programs that are of no run have the same three routes without the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from runwatch.head.context import Context, Feature
from runwatch.head.features.captures.captures import CaptureActive, Captures, Preflight, Wanted
from runwatch.head.http.answering import body_of
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import RUN, Given, Parameter
from runwatch.head.http.replies import error_reply, json_reply
from runwatch.head.http.types import Answer, plain
from runwatch.record import RunId
from runwatch.views.captures import Capture, Captured, State, reasons


class NewCapture(msgspec.Struct, forbid_unknown_fields=True):
    hosts: list[str] | None = None
    """Only of these hosts; programs of no run: of all that have an agent."""
    ranks: list[int] | None = None
    duration_ms: int | None = None
    """Without it and `steps`, two seconds."""
    steps: int | None = None
    at_step: int | None = None
    """Begin with this step; without it, with the next."""
    session: str | None = None
    """Without one it is named by the time."""
    pids: list[int] = []
    """Only these processes."""
    ports: list[int] = []
    """Profiler ports to try, beside 9012 and 9999."""


class CaptureProcess(Answer):
    host: str
    rank: int
    pid: int
    way: str
    """sdk, port or kineto; empty: none is known."""
    state: State
    why: str
    framework: str
    files: list[str]
    bytes: int
    start_ns: int
    end_ns: int


class CaptureInfo(Answer):
    run: str
    session: str
    command: str
    state: State
    why: str
    start_ns: int
    duration_ms: int | None
    steps: int | None
    hosts: list[str]
    """Those that were asked."""
    unreachable: dict[str, str]
    """The others, and why."""
    processes: list[CaptureProcess]
    overlap_percent: float | None
    """What their windows have in common, of the time asked for."""


class PreflightProcess(Answer):
    host: str
    rank: int
    pid: int
    way: str
    """The way that a capture would take; empty: none leads to it."""
    why: str
    frameworks: list[str]
    ready_ms: int
    """How far ahead it must be asked."""


class PreflightInfo(Answer):
    processes: list[PreflightProcess]
    hosts: dict[str, str]
    """The hosts that were asked, and why one has no process to tell of."""
    lead_seconds: float
    """From the request to the start of a capture now."""


_SESSION: Final = Parameter("session", "string", "a capture's session", "path", shortest=1)
_ERRORS: Final = (404, 409, 422)


class CapturesApi(Feature):
    """Captures on demand."""

    def __init__(self, context: Context) -> None:
        nodes = context.nodes
        if nodes is None:
            self.captures = Captures(context.reading)
        else:
            self.captures = Captures(context.reading, nodes.outbox, nodes.own, nodes.names)

    def operations(self) -> list[Operation]:
        return [*self._table("/api/v1/runs/{run}", (RUN,)), *self._table("/api/v1", ())]

    def _table(self, base: str, which: tuple[Parameter, ...]) -> list[Operation]:
        of_run = " of a run" if which else " of programs without a run"
        info = {JSON: CaptureInfo}
        return [
            Operation(
                f"{base}/captures", f"Capture profiles{of_run}", self._start, which, info,
                _ERRORS, "POST", NewCapture, 202,
            ),
            Operation(
                f"{base}/captures/{{session}}", f"How far a capture{of_run} is", self._one,
                (*which, _SESSION), info, _ERRORS,
            ),
            Operation(
                f"{base}/captures/preflight", f"What could be captured{of_run}", self._preflight,
                which, {JSON: PreflightInfo}, _ERRORS, "POST", NewCapture,
            ),
        ]  # fmt: skip

    def _run(self, given: Given) -> RunId | None:
        return self.captures.reading.run(given["run"]) if "run" in given else None

    async def _start(self, request: Request, given: Given) -> Response:
        wanted = _wanted(await body_of(request, NewCapture))

        def begun() -> CaptureInfo:
            return _info(self.captures.start(self._run(given), wanted))

        try:
            return json_reply(await run_in_threadpool(begun), status=202)
        except CaptureActive as error:
            return error_reply(409, "active", str(error))

    async def _one(self, request: Request, given: Given) -> Response:
        def found() -> CaptureInfo:
            return _info(self.captures.find(self._run(given), given["session"]))

        return json_reply(await run_in_threadpool(found))

    async def _preflight(self, request: Request, given: Given) -> Response:
        wanted = _wanted(await body_of(request, NewCapture))

        def asked() -> PreflightInfo:
            return _preflight_info(self.captures.preflight(self._run(given), wanted))

        return json_reply(await run_in_threadpool(asked))


def _wanted(asked: NewCapture) -> Wanted:
    return Wanted(**{name: getattr(asked, name) for name in asked.__struct_fields__})


def _info(capture: Capture) -> CaptureInfo:
    asked = capture.asked
    return CaptureInfo(
        run=asked.run,
        session=asked.session,
        command=asked.command,
        state=capture.state,
        why=_why(capture),
        start_ns=asked.start_ns,
        duration_ms=asked.duration_ms,
        steps=asked.steps,
        hosts=list(asked.hosts),
        unreachable=dict(asked.unreachable),
        processes=[_process(each) for each in capture.processes],
        overlap_percent=capture.overlap_percent,
    )


def _why(capture: Capture) -> str:
    words = []
    for why, ranks in reasons(capture.processes).items():
        shown = ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
        words.append(f"rank{'s' if len(ranks) > 1 else ''} {shown}: {why}")
    return str(plain("; ".join(words)))


def _process(each: Captured) -> CaptureProcess:
    names = CaptureProcess.__struct_fields__
    said: dict[str, Any] = {name: plain(getattr(each, name)) for name in names}
    return CaptureProcess(**{**said, "files": [plain(name) for name in each.files]})


def _preflight_info(found: Preflight) -> PreflightInfo:
    return PreflightInfo(
        processes=[_could(process) for process in found.processes],
        hosts={plain(host): plain(why) for host, why in found.hosts.items()},
        lead_seconds=round(found.lead_seconds, 3),
    )


def _could(process: Mapping[str, Any]) -> PreflightProcess:
    return PreflightProcess(
        host=str(process.get("host") or ""),
        rank=int(process.get("rank") or 0),
        pid=int(process.get("pid") or 0),
        way=str(process.get("way") or ""),
        why=plain(str(process.get("why") or "")),
        frameworks=[str(name) for name in process.get("frameworks") or ()],
        ready_ms=int(process.get("ready_ms") or 0),
    )
