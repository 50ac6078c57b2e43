"""A capture that was asked for: how far it has come, on each process.

A head writes one event `capture` when it has asked the nodes.  What came of it is in the events
`profile` of the processes and in the nodes' `command_result`: whichever head looks later reads the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from runwatch.views.profiles import Part

CAPTURE: Final = "capture"
RESULT: Final = "command_result"
PATIENCE_NS: Final = 240 * 10**9
"""From a capture's planned end to its being given up: traces take their time to be written."""
STEPS_NS: Final = 600 * 10**9

State = Literal["asked", "running", "done", "failed", "partial"]
_OVER: Final = frozenset({"done", "failed"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What a head asked for: an event `capture`."""

    run: str
    session: str
    command: str
    start_ns: int
    """Of the head's clock."""
    duration_ms: int | None
    steps: int | None
    hosts: tuple[str, ...]
    unreachable: Mapping[str, str]
    ahead_ns: Mapping[str, int]
    """How far each host's clock is ahead of the head's."""
    processes: tuple[Mapping[str, Any], ...]
    """host, node, rank, pid of those that were to be captured."""

    @classmethod
    def of(cls, run: str, body: Mapping[str, Any]) -> Asked:
        return cls(
            run,
            str(body.get("session") or ""),
            str(body.get("command") or ""),
            int(body.get("start_ns") or 0),
            body.get("duration_ms"),
            body.get("steps"),
            tuple(body.get("hosts") or ()),
            dict(body.get("unreachable") or {}),
            {str(host): int(ns) for host, ns in (body.get("ahead_ns") or {}).items()},
            tuple(body.get("processes") or ()),
        )

    @property
    def given_up_ns(self) -> int:
        window_ns = STEPS_NS if self.duration_ms is None else self.duration_ms * 1_000_000
        return self.start_ns + window_ns + PATIENCE_NS


@dataclass(frozen=True, slots=True)
class Captured:
    """One process."""

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
    """Of the head's clock, like `end_ns`; 0: it has not begun."""
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
    asked: Asked
    processes: tuple[Captured, ...]
    """By host and rank."""

    @property
    def state(self) -> State:
        states = {process.state for process in self.processes}
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
            (process.start_ns, process.end_ns)
            for process in self.processes
            if process.state == "done" and 0 < process.start_ns < process.end_ns
        ]
        if len(windows) < 2:
            return None
        common = min(end for _, end in windows) - max(start for start, _ in windows)
        whole = (self.asked.duration_ms or 0) * 10**6 or max(end - start for start, end in windows)
        return min(max(0.0, 100 * common / whole), 100.0)


def capture_of(
    asked: Asked, parts: Iterable[Part], results: Iterable[Mapping[str, Any]], now_ns: int
) -> Capture:
    """`results`: bodies of `command_result` of this command."""
    answered = {str(body.get("host")): body for body in results}
    known = {(p["host"], p["rank"]): _expected(p) for p in asked.processes}
    for part in parts:
        key = part.host, part.rank
        known[key] = _with_part(known.get(key) or Captured(part.host, part.rank, 0), part)
    for node, body in answered.items():
        for process in body.get("processes") or ():
            key = str(process.get("host") or node), int(process.get("rank") or 0)
            before = known.get(key) or Captured(*key, 0)
            known[key] = _with_result(replace(before, node=node), process)
    late = now_ns > asked.given_up_ns
    ended = [_ended(each, asked, answered.get(each.asked_of), late) for each in known.values()]
    ended += _silent(asked, answered, {each.asked_of for each in ended}, late)
    shifted = [_in_our_time(each, asked.ahead_ns.get(each.asked_of, 0)) for each in ended]
    return Capture(asked, tuple(sorted(shifted, key=lambda each: (each.host, each.rank))))


def _expected(process: Mapping[str, Any]) -> Captured:
    way = str(process.get("way") or "")
    node = str(process.get("node") or "")
    return Captured(process["host"], process["rank"], int(process.get("pid") or 0), way, node=node)


def _with_part(before: Captured, part: Part) -> Captured:
    state: State = "running" if part.state == "running" else part.state
    return replace(
        before,
        state=state,
        why=part.why,
        framework=part.framework,
        files=part.files,
        bytes=part.bytes,
        start_ns=part.start_ns,
        end_ns=part.end_ns or 0,
    )


def _with_result(before: Captured, said: Mapping[str, Any]) -> Captured:
    """The node's word; what the process told itself is as good, and fuller."""
    found = replace(before, pid=int(said.get("pid") or 0), way=str(said.get("way") or before.way))
    state = said.get("state")
    if before.is_over or state not in ("done", "failed"):
        return found
    return replace(
        found,
        state=state,
        why=str(said.get("why") or ""),
        framework=str(said.get("framework") or ""),
        files=tuple(map(str, said.get("files") or ())),
        bytes=int(said.get("bytes") or 0),
        start_ns=int(said.get("start_ns") or 0),
        end_ns=int(said.get("end_ns") or 0),
    )


def _ended(each: Captured, asked: Asked, answer: Mapping[str, Any] | None, late: bool) -> Captured:
    if each.is_over:
        return each
    if answer is not None:
        why = str(answer.get("why") or "its node says nothing of it")
        return replace(each, state="failed", why=why)
    if each.asked_of in asked.unreachable:
        return replace(each, state="failed", why=asked.unreachable[each.asked_of])
    return replace(each, state="failed", why="nothing was heard of it") if late else each


def _silent(
    asked: Asked, answered: Mapping[str, Mapping[str, Any]], heard: set[str], late: bool
) -> list[Captured]:
    """Hosts of which no process is known: programs without a run are known when they answer."""
    found: list[Captured] = []
    for host in (*asked.hosts, *asked.unreachable):
        if host not in heard:
            empty = Captured(host, 0, 0)
            found.append(_ended(empty, asked, answered.get(host), late))
    return found


def _in_our_time(each: Captured, ahead_ns: int) -> Captured:
    start, end = (ns - ahead_ns if ns else 0 for ns in (each.start_ns, each.end_ns))
    return replace(each, start_ns=start, end_ns=end)


def reasons(processes: Sequence[Captured]) -> dict[str, list[int]]:
    """Why some were not captured, each cause once, with the ranks that it befell."""
    found: dict[str, list[int]] = {}
    for each in processes:
        if each.state == "failed":
            found.setdefault(each.why, []).append(each.rank)
    return found
