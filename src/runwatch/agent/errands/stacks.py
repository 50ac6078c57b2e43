"""The errand `stacks`: where every thread of a run's processes on this node is, now.

The agent looks at each process from outside if the kernel allows it, else it asks the process.  It
records one event `stacks` in the process's run, also if nobody could look: then the event says why.
Processes that it forked (data loader workers) are looked at with it.
"""

from __future__ import annotations

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
from runwatch.capture.stacks import shortened
from runwatch.journal.liveness import PROC, start_ticks
from runwatch.record import Command
from runwatch.record.commands import StacksResult, StacksWanted
from runwatch.record.stacks import Stacks

AT_ONCE: Final = 8
MAX_CHILDREN: Final = 16
MAX_ROUNDS: Final = 20
MAX_GAP_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 10.0
ASK_SECONDS: Final = 4.0
_MAX_PROBLEMS: Final = 64


@dataclass(frozen=True, slots=True)
class Subject:
    """A process to look at, and the rank that it belongs to."""

    target: Target
    pid: int
    start_ticks: int
    child_of: int = 0
    """0: a rank's own process."""


def errand(command: Command, context: Context) -> StacksResult:
    looking = _Looking(command, bounded(StacksWanted.of(command.body)), context)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="runwatch-stacks") as pool:
        looking.at_all(pool)
    return looking.result()


def bounded(wanted: StacksWanted) -> StacksWanted:
    """No command keeps us at it for longer than this."""
    return replace(
        wanted,
        rounds=min(max(wanted.rounds, 1), MAX_ROUNDS),
        gap_seconds=min(max(wanted.gap_seconds, 0.0), MAX_GAP_SECONDS),
    )


def is_wanted(target: Target, wanted: StacksWanted) -> bool:
    return (
        (not wanted.run or target.run == wanted.run)
        and (wanted.ranks is None or target.rank in wanted.ranks)
        and (wanted.pids is None or target.pid in wanted.pids)
    )


class _Looking:
    """At the processes that one command asks for."""

    def __init__(self, command: Command, wanted: StacksWanted, context: Context) -> None:
        self._command = command
        self._wanted = wanted
        self._context = context
        # A process and its forked children write to one file when they are asked by signal.
        self._files: dict[Path, threading.Lock] = {}
        self._pids: set[int] = set()
        self._looked: set[int] = set()
        self._problems: dict[int, str] = {}

    def at_all(self, pool: ThreadPoolExecutor) -> None:
        """In every round, at each process that is wanted."""
        clock, wanted, pause = self._context.clock, self._wanted, threading.Event()
        targets = [each for each in self._context.targets() if is_wanted(each, wanted)]
        for number in range(wanted.rounds):
            due_ns = clock.mono_ns() + int(wanted.gap_seconds * 1e9)
            processes = subjects(targets, self._context.targets())
            for stacks in pool.map(partial(self.at, number=number), processes):
                self._count(stacks)
            if number + 1 < wanted.rounds:
                left = (due_ns - clock.mono_ns()) / 1e9
                # The process that was looked at last is not looked at again at once.
                clock.wait(max(left, wanted.gap_seconds / 2), pause.wait)

    def _count(self, stacks: Stacks) -> None:
        self._pids.add(stacks.pid)
        if stacks.threads:
            self._looked.add(stacks.pid)
        else:
            self._problems[stacks.pid] = "; ".join(stacks.problems[:2])

    def result(self) -> StacksResult:
        reasons = sorted(self._problems.items())[:_MAX_PROBLEMS]
        return StacksResult(
            processes=len(self._pids),
            looked=len(self._looked),
            problems={str(pid): why for pid, why in reasons},
        )

    def at(self, subject: Subject, *, number: int) -> Stacks:
        before = self._pulse(subject)
        stacks, answers = self._answered(self._stacks(subject), subject)
        threads = {thread.native_id for thread in stacks.threads}
        stacks = replace(
            stacks,
            rank=subject.target.rank,
            host=subject.target.host or self._context.host,
            journal=subject.target.labels.get("journal", ""),
            incident=self._wanted.incident,
            round=self._wanted.first_round + number,
            command=self._command.id,
            child_of=subject.child_of or None,
            pulse=pulse.both(before, self._pulse(subject), threads),
            answers=answers,
        )
        short = shortened(stacks)
        self._context.event(short.KIND, short.body(), scope=subject.target.scope)
        return short

    def _pulse(self, subject: Subject) -> dict[str, Any]:
        return pulse.feel(subject.pid, self._context.clock.mono_ns())

    def _stacks(self, subject: Subject) -> Stacks:
        clock, ticks = self._context.clock, subject.start_ticks
        if why := _not_for(subject):
            return Stacks(subject.pid, clock.wall_ns(), "outside", problems=(why,))
        seen = look(subject.pid, self._wanted.native, LOOK_SECONDS, start_ticks=ticks, clock=clock)
        if seen.threads and (why := _not_for(subject)):  # it may have become another's since
            return replace(seen, threads=()).with_problems(why)
        if seen.threads or not _may_answer(seen):
            return seen
        journal = self._context.journal(subject.target)
        with self._files.setdefault(journal, threading.Lock()):
            answer = ask_stacks(
                journal,
                subject.pid,
                ASK_SECONDS,
                # The socket is the rank's own: it does not give a child's stacks.
                ask=None if subject.child_of else ask,
                start_ticks=ticks,
                clock=clock,
            )
        return answer.with_problems(*(f"from outside: {why}" for why in seen.problems))

    def _answered(self, seen: Stacks, subject: Subject) -> tuple[Stacks, bool | None]:
        """Ask the process that we saw from outside, where that tells more; None: not asked.

        Only the process can show the tasks of an event loop.  And if nobody gives the interpreter's
        lock away, our thread in that process cannot answer.
        """
        busy = any(thread.holds_gil for thread in seen.threads)
        if seen.how != "outside" or subject.child_of or not (busy or runs_a_loop(seen)):
            return seen, None
        journal = self._context.journal(subject.target)
        return with_answer(seen, partial(ask, journal), process.python_version(subject.pid))


def _not_for(subject: Subject) -> str:
    """Why the user of the run may not look into this process; "" if that user may."""
    uid = subject.target.uid
    return "" if uid is None else why_not_theirs(subject.pid, uid)


def _may_answer(seen: Stacks) -> bool:
    """A process without a state is gone; a zombie answers nobody."""
    return bool(seen.state) and seen.state not in process.DEAD


def subjects(
    wanted: Iterable[Target], all_targets: Sequence[Target], *, proc: Path = PROC
) -> list[Subject]:
    """The ranks' own processes first, then those they forked, at most MAX_CHILDREN of each."""
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
    """The pid of the rank's own process, if that forked this one; else 0."""
    parent = int(process.read_status(target.pid, proc=proc).get("PPid") or 0)
    other = known.get(parent)
    same = other is not None and (other.run, other.rank) == (target.run, target.rank)
    return parent if same else 0


def _forked(target: Target, known: Collection[int], proc: Path) -> list[Subject]:
    """Python descendants with no journal of their own: those with one are targets themselves."""
    forked: list[Subject] = []
    waiting = process.children(target.pid, proc=proc)
    while waiting and len(forked) < MAX_CHILDREN:
        pid = waiting.pop(0)
        if pid in known or pid == os.getpid():
            continue
        ticks = start_ticks(pid, proc=proc)
        if ticks is not None and _is_worker(pid, proc):
            forked.append(Subject(target, pid, ticks, child_of=target.pid))
        waiting += process.children(pid, proc=proc)
    return forked


def _is_worker(pid: int, proc: Path) -> bool:
    """A Python process that may hold its rank up; multiprocessing's bookkeeper does not."""
    return process.is_python(pid, proc=proc) is not False and not process.is_bookkeeper(
        pid, proc=proc
    )
