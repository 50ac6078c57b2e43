"""The errand `stacks`: where every thread of a run's processes on this node is, now.

Each process is looked at from outside if the kernel allows it, else asked.  Its answer is one
event `stacks` in its run, as is the reason why there is none.  Processes that it forked (data
loader workers) are looked at with it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from runwatch.agent.collectors.base import Target
from runwatch.agent.errands.commands import Context
from runwatch.agent.errands.control import ask
from runwatch.agent.neighbours import why_not_theirs
from runwatch.capture import process, pulse
from runwatch.capture.asking import ask_stacks, runs_a_loop, with_answer
from runwatch.capture.outside import look
from runwatch.capture.stacks import MAX_EVENT_BYTES, Stacks
from runwatch.journal.liveness import PROC, start_ticks
from runwatch.record import Command
from runwatch.record.commands import StacksResult

AT_ONCE: Final = 8
MAX_CHILDREN: Final = 16
MAX_ROUNDS: Final = 20
MAX_GAP_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 10.0
ASK_SECONDS: Final = 4.0
_MAX_PROBLEMS: Final = 64


@dataclass(frozen=True, slots=True)
class Request:
    """A command's body.  What is missing or odd is as if nobody had said it."""

    run: str = ""
    """"": every run's."""
    ranks: frozenset[int] | None = None
    pids: frozenset[int] | None = None
    incident: str = ""
    rounds: int = 1
    gap_seconds: float = 3.0
    """From the beginning of one round to the beginning of the next."""
    native: bool = True
    first_round: int = 0
    """The number of the first round: an incident may have had others."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Request:
        return cls(
            run=str(body.get("run") or ""),
            ranks=_numbers(body.get("ranks")),
            pids=_numbers(body.get("pids")),
            incident=str(body.get("incident") or ""),
            rounds=int(_between(body.get("rounds"), 1, 1, MAX_ROUNDS)),
            gap_seconds=_between(body.get("gap_seconds"), 3.0, 0.0, MAX_GAP_SECONDS),
            native=body.get("native") is not False,
            first_round=int(_between(body.get("first_round"), 0, 0, 1_000_000)),
        )

    def wants(self, target: Target) -> bool:
        return (
            (not self.run or target.run == self.run)
            and (self.ranks is None or target.rank in self.ranks)
            and (self.pids is None or target.pid in self.pids)
        )


@dataclass(frozen=True, slots=True)
class Subject:
    """A process to look at, and whose part of the run it belongs to."""

    target: Target
    pid: int
    start_ticks: int
    child_of: int = 0
    """0: a rank's own process."""


def errand(command: Command, context: Context) -> StacksResult:
    request = Request.of(command.body)
    wanted = [target for target in context.targets() if request.wants(target)]
    looking = _Looking(command, request, context)
    looked: set[int] = set()
    problems: dict[int, str] = {}
    seen: set[int] = set()
    pause = threading.Event()
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="runwatch-stacks") as pool:
        for number in range(request.rounds):
            due_ns = context.clock.mono_ns() + int(request.gap_seconds * 1e9)
            found = subjects(wanted, context.targets())
            seen |= {each.pid for each in found}
            for stacks in pool.map(partial(looking.at, number=number), found):
                if stacks.threads:
                    looked.add(stacks.pid)
                else:
                    problems[stacks.pid] = "; ".join(stacks.problems[:2])
            if number + 1 < request.rounds:
                left = (due_ns - context.clock.mono_ns()) / 1e9
                # Who was looked at last is not looked at again at once.
                context.clock.wait(max(left, request.gap_seconds / 2), pause.wait)
    told = dict(sorted(problems.items())[:_MAX_PROBLEMS])
    return StacksResult(
        processes=len(seen),
        looked=len(looked),
        problems={str(pid): why for pid, why in told.items()},
    )


class _Looking:
    def __init__(self, command: Command, request: Request, context: Context) -> None:
        self._command = command
        self._request = request
        self._context = context
        # A process and its forked children write to one file when they are asked by signal.
        self._files: dict[Path, threading.Lock] = {}

    def at(self, subject: Subject, *, number: int) -> Stacks:
        before = self._pulse(subject)
        stacks, answers = self._answered(self._stacks(subject), subject)
        known = {thread.native_id for thread in stacks.threads}
        felt = pulse.both(before, self._pulse(subject), known)
        rest = self._rest(subject, number) | ({} if felt is None else {"pulse": felt})
        rest |= {} if answers is None else {"answers": answers}
        short = stacks.shortened(MAX_EVENT_BYTES - len(json.dumps(rest)))
        self._context.event("stacks", {**short.to_json(), **rest}, scope=subject.target.scope)
        return short

    def _pulse(self, subject: Subject) -> dict[str, Any]:
        return pulse.feel(subject.pid, self._context.clock.mono_ns())

    def _stacks(self, subject: Subject) -> Stacks:
        clock, ticks = self._context.clock, subject.start_ticks
        if why := _not_for(subject):
            return Stacks(subject.pid, clock.wall_ns(), "outside", (), problems=(why,))
        seen = look(subject.pid, self._request.native, LOOK_SECONDS, start_ticks=ticks, clock=clock)
        if seen.threads and (why := _not_for(subject)):  # it may have become another's since
            return replace(seen, threads=()).with_problems(why)
        if seen.threads or not _may_answer(seen):
            return seen
        journal = self._context.journal(subject.target)
        with self._files.setdefault(journal, threading.Lock()):
            told = ask_stacks(
                journal,
                subject.pid,
                ASK_SECONDS,
                # The socket is the rank's own: a child's stacks are not to be had there.
                ask=None if subject.child_of else ask,
                start_ticks=ticks,
                clock=clock,
            )
        return told.with_problems(*(f"from outside: {why}" for why in seen.problems))

    def _answered(self, seen: Stacks, subject: Subject) -> tuple[Stacks, bool | None]:
        """Ask whom we saw from outside, where that tells more; None: not asked.

        What an event loop waits for is in its tasks, and whether somebody keeps the interpreter's
        lock shows when a thread of ours wants it.
        """
        busy = any(thread.holds_gil for thread in seen.threads)
        if seen.how != "outside" or subject.child_of or not (busy or runs_a_loop(seen)):
            return seen, None
        journal = self._context.journal(subject.target)
        return with_answer(seen, partial(ask, journal), process.python_version(subject.pid))

    def _rest(self, subject: Subject, number: int) -> dict[str, Any]:
        rest = {
            "rank": subject.target.rank,
            "host": subject.target.host or self._context.host,
            "journal": subject.target.labels.get("journal", ""),
            "incident": self._request.incident,
            "round": self._request.first_round + number,
            "command": self._command.id,
        }
        return {**rest, "child_of": subject.child_of} if subject.child_of else rest


def _not_for(subject: Subject) -> str:
    """Why the process is not its run's user's to look into; "" if it is."""
    uid = subject.target.uid
    return "" if uid is None else why_not_theirs(subject.pid, uid)


def _may_answer(seen: Stacks) -> bool:
    """Whom no state is known of is gone; a zombie answers nobody."""
    return bool(seen.state) and seen.state not in process.DEAD


def subjects(
    wanted: Iterable[Target], all_targets: Sequence[Target], *, proc: Path = PROC
) -> list[Subject]:
    """The processes themselves first, then those they forked, at most MAX_CHILDREN of each."""
    known = {target.pid: target for target in all_targets}
    ranks: list[Subject] = []
    forked: list[Subject] = []
    for target in wanted:
        parent = _parent_of(target, known, proc)
        own = Subject(target, target.pid, target.start_ticks, parent)
        (forked if parent else ranks).append(own)
        forked += _forked(target, known, proc)
    return ranks + forked


def _parent_of(target: Target, known: Mapping[int, Target], proc: Path) -> int:
    """The rank that forked this one, if its journal is that of a child; else 0."""
    parent = int(process.read_status(target.pid, proc=proc).get("PPid") or 0)
    other = known.get(parent)
    same = other is not None and (other.run, other.rank) == (target.run, target.rank)
    return parent if same else 0


def _forked(target: Target, known: Collection[int], proc: Path) -> list[Subject]:
    """Python descendants with no journal of their own: those with one are targets themselves."""
    found: list[Subject] = []
    waiting = process.children(target.pid, proc=proc)
    while waiting and len(found) < MAX_CHILDREN:
        pid = waiting.pop(0)
        if pid in known or pid == os.getpid():
            continue
        ticks = start_ticks(pid, proc=proc)
        if ticks is not None and _is_worker(pid, proc):
            found.append(Subject(target, pid, ticks, child_of=target.pid))
        waiting += process.children(pid, proc=proc)
    return found


def _is_worker(pid: int, proc: Path) -> bool:
    """A Python process that may hold its rank up; multiprocessing's bookkeeper does not."""
    return process.is_python(pid, proc=proc) is not False and not process.is_bookkeeper(
        pid, proc=proc
    )


def _numbers(value: object) -> frozenset[int] | None:
    if not isinstance(value, (list, tuple)):
        return None
    return frozenset(each for each in value if isinstance(each, int))


def _between(value: object, default: float, low: float, high: float) -> float:
    if not isinstance(value, (int, float)) or value != value:
        return default
    return min(max(float(value), low), high)
