"""Captures on demand under /api/v1: begin one, see how far it is, ask what could be captured.

Those of programs that are of no run have the same three routes without the run.
"""

from __future__ import annotations

from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from runwatch.head.context import Context, Feature
from runwatch.head.features.captures.captures import (
    CaptureActive,
    CaptureRequest,
    Captures,
    Preflight,
)
from runwatch.head.features.captures.ports import OwnPorts
from runwatch.head.http.answering import body_of
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import RUN, Given, Parameter
from runwatch.head.http.replies import error_reply, json_reply
from runwatch.head.http.types import Answer, plain
from runwatch.record import RunId
from runwatch.record.commands import TargetPreflight
from runwatch.views.captures import Capture, State, TargetState, reasons
from runwatch.views.profiles import rank_words


class NewCapture(CaptureRequest, frozen=True, forbid_unknown_fields=True):
    pass  # the name that a request has in the API's document


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
            folder, clock = context.profiles.folder, context.reading.clock
            ports = OwnPorts(folder, nodes.own.record, clock) if folder is not None else None
            self.captures = Captures(context.reading, nodes.outbox, nodes.own, nodes.names, ports)

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
        wanted = await body_of(request, NewCapture)

        def start() -> CaptureInfo:
            return _info(self.captures.start(self._run(given), wanted))

        try:
            return json_reply(await run_in_threadpool(start), status=202)
        except CaptureActive as error:
            return error_reply(409, "active", str(error))

    async def _one(self, request: Request, given: Given) -> Response:
        def find() -> CaptureInfo:
            return _info(self.captures.find(self._run(given), given["session"]))

        return json_reply(await run_in_threadpool(find))

    async def _preflight(self, request: Request, given: Given) -> Response:
        wanted = await body_of(request, NewCapture)

        def preflight() -> PreflightInfo:
            return _preflight_info(self.captures.preflight(self._run(given), wanted))

        return json_reply(await run_in_threadpool(preflight))


def _info(capture: Capture) -> CaptureInfo:
    request = capture.request
    return CaptureInfo(
        run=capture.run,
        session=request.session,
        command=request.command,
        state=capture.state,
        why=_why(capture),
        start_ns=request.start_ns,
        duration_ms=request.duration_ms,
        steps=request.steps,
        hosts=list(request.hosts),
        unreachable=dict(request.unreachable),
        processes=[_process(target) for target in capture.targets],
        overlap_percent=capture.overlap_percent,
    )


def _why(capture: Capture) -> str:
    whys = reasons(capture.targets).items()
    return str(plain("; ".join(f"{rank_words(ranks)}: {why}" for why, ranks in whys)))


def _process(target: TargetState) -> CaptureProcess:
    return CaptureProcess(
        host=plain(target.host),
        rank=target.rank,
        pid=target.pid,
        way=plain(target.way),
        state=target.state,
        why=plain(target.why),
        framework=plain(target.framework),
        files=[plain(name) for name in target.files],
        bytes=target.bytes,
        start_ns=target.start_ns,
        end_ns=target.end_ns,
    )


def _preflight_info(preflight: Preflight) -> PreflightInfo:
    return PreflightInfo(
        processes=[_ready(target) for target in preflight.targets],
        hosts={plain(host): plain(why) for host, why in preflight.hosts.items()},
        lead_seconds=round(preflight.lead_seconds, 3),
    )


def _ready(target: TargetPreflight) -> PreflightProcess:
    return PreflightProcess(
        host=target.host,
        rank=target.rank,
        pid=target.pid,
        way=target.way,
        why=plain(target.why),
        frameworks=list(target.frameworks),
        ready_ms=target.ready_ms,
    )
