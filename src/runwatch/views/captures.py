"""A capture: one request's progress, on each of its targets.

A head writes one event `capture` when it has asked the nodes.  The events `profile` of the
processes and the nodes' `command_result` say how it went: whichever head looks later reads the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from runwatch.record.capture_limits import PATIENCE_SECONDS, STEPS_SECONDS
from runwatch.record.captures import DONE, FAILED, CaptureRequested, Target
from runwatch.record.commands import CaptureResult, TargetProfile
from runwatch.views.profiles import Part

PATIENCE_NS: Final = int(PATIENCE_SECONDS * 1e9)
STEPS_NS: Final = int(STEPS_SECONDS * 1e9)

State = Literal["asked", "running", "done", "failed", "partial"]
_OVER: Final = frozenset({"done", "failed"})
_RESULT_STATES: Final[Mapping[str, State]] = {DONE: "done", FAILED: "failed"}


@dataclass(frozen=True, slots=True)
class TargetState:
    """How far a capture is on one target."""

    host: str
    rank: int
    pid: int
    way: str = ""
    """sdk, port or kineto; empty while it is not known, or if none leads to it."""
    state: State = "asked"
    why: str = ""
    framework: str = ""
    files: tuple[str, ...] = ()
    bytes: int = 0
    start_ns: int = 0
    """By the head's clock, like `end_ns`; 0: it has not begun."""
    end_ns: int = 0
    node: str = ""
    """Whose agent was asked, if not its host's own."""

    @property
    def is_over(self) -> bool:
        return self.state in _OVER

    @property
    def asked_of(self) -> str:
        return self.node or self.host


@dataclass(frozen=True, slots=True)
class Capture:
    run: str
    """Empty: programs of no run."""
    request: CaptureRequested
    targets: tuple[TargetState, ...]
    """By host and rank."""

    @property
    def state(self) -> State:
        states = {target.state for target in self.targets}
        if not states:
            return "failed"
        if states <= _OVER:
            return states.pop() if len(states) == 1 else "partial"
        return "running" if states - {"asked"} else "asked"

    @property
    def is_over(self) -> bool:
        return self.state not in ("asked", "running")

    @property
    def overlap_percent(self) -> float | None:
        """What all windows have in common, of the time asked for; None for fewer than two.

        Where steps were asked for, of the longest window.
        """
        windows = [
            (target.start_ns, target.end_ns)
            for target in self.targets
            if target.state == "done" and 0 < target.start_ns < target.end_ns
        ]
        if len(windows) < 2:
            return None
        common = min(end for _, end in windows) - max(start for start, _ in windows)
        longest = max(end - start for start, end in windows)
        whole = (self.request.duration_ms or 0) * 10**6 or longest
        return min(max(0.0, 100 * common / whole), 100.0)


def given_up_ns(request: CaptureRequested) -> int:
    """From then on, a target of which nothing was heard has failed."""
    duration_ms = request.duration_ms
    return (
        request.start_ns + PATIENCE_NS + (STEPS_NS if duration_ms is None else duration_ms * 10**6)
    )


def capture_of(
    run: str,
    request: CaptureRequested,
    parts: Iterable[Part],
    results: Iterable[CaptureResult],
    now_ns: int,
) -> Capture:
    """`parts` and `results`: those that this request's command left."""
    by_node = {result.host: result for result in results}
    states = {(target.host, target.rank): _expected(target) for target in request.processes}
    for part in parts:
        key = part.host, part.rank
        states[key] = _with_part(states.get(key) or TargetState(*key, 0), part)
    for node, result in by_node.items():
        for target in result.processes:
            key = target.host or node, target.rank
            before = states.get(key) or TargetState(*key, 0)
            states[key] = _with_result(replace(before, node=node), target)
    late = now_ns > given_up_ns(request)
    ended = [_ended(each, request, by_node.get(each.asked_of), late) for each in states.values()]
    ended += _silent(request, by_node, {each.asked_of for each in ended}, late)
    shifted = [_in_our_time(each, request.ahead_ns.get(each.asked_of, 0)) for each in ended]
    return Capture(run, request, tuple(sorted(shifted, key=lambda each: (each.host, each.rank))))


def _expected(target: Target) -> TargetState:
    return TargetState(target.host, target.rank, target.pid, target.way, node=target.node)


def _with_part(before: TargetState, part: Part) -> TargetState:
    return replace(
        before,
        state=part.state,
        why=part.why,
        framework=part.framework,
        files=part.files,
        bytes=part.bytes,
        start_ns=part.start_ns,
        end_ns=part.end_ns or 0,
    )


def _with_result(before: TargetState, target: TargetProfile) -> TargetState:
    """The node's word; what the process told of itself is as good, and fuller."""
    reached = replace(before, pid=target.pid, way=target.way or before.way)
    state = _RESULT_STATES.get(target.state)
    if before.is_over or state is None:
        return reached
    return replace(
        reached,
        state=state,
        why=target.why,
        framework=target.framework,
        files=target.files,
        bytes=target.bytes,
        start_ns=target.start_ns,
        end_ns=target.end_ns,
    )


def _ended(
    target: TargetState, request: CaptureRequested, result: CaptureResult | None, late: bool
) -> TargetState:
    if target.is_over:
        return target
    if result is not None:
        why = result.why or "its node says nothing of it"
        return replace(target, state="failed", why=why)
    if target.asked_of in request.unreachable:
        return replace(target, state="failed", why=request.unreachable[target.asked_of])
    return replace(target, state="failed", why="nothing was heard of it") if late else target


def _silent(
    request: CaptureRequested,
    by_node: Mapping[str, CaptureResult],
    heard: set[str],
    late: bool,
) -> list[TargetState]:
    """Hosts of which no process is known: programs without a run are known when they answer."""
    silent = (host for host in (*request.hosts, *request.unreachable) if host not in heard)
    return [_ended(TargetState(host, 0, 0), request, by_node.get(host), late) for host in silent]


def _in_our_time(target: TargetState, ahead_ns: int) -> TargetState:
    start, end = (ns - ahead_ns if ns else 0 for ns in (target.start_ns, target.end_ns))
    return replace(target, start_ns=start, end_ns=end)


def reasons(targets: Iterable[TargetState]) -> dict[str, list[int]]:
    """Why some were not captured, each cause once, with the ranks that it befell."""
    ranks: dict[str, list[int]] = {}
    for target in targets:
        if target.state == "failed":
            ranks.setdefault(target.why, []).append(target.rank)
    return ranks
