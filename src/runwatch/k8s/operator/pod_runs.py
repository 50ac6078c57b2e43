"""Which run a pod is of: the one that its processes name to the head.

A pod in which nothing runs yet is of its workload's run, if there is one and it wants a pod: a rank
is missing, or the pod was made after the run began, and the run was not done by itself.  If the
workload has several runs nobody can say which.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from runwatch.clock import Clock, system_clock
from runwatch.k8s.operator.head import Head, HeadError
from runwatch.k8s.operator.pods import Told
from runwatch.kube import Thing, part, text
from runwatch.record import RunId
from runwatch.record.pods import PodTold

REMEMBERED: Final = 4_096
"""Workloads."""
AGAIN_SECONDS: Final = 60.0
_STAMPS: Final = ("state", "attempts", "ranks")
"""While these are as they were, the run's processes are hardly others: there may be thousands."""


class Found(NamedTuple):
    """The runs by id, with their names."""

    runs: Mapping[RunId, str]
    is_sure: bool
    """A process in the pod said so."""


class _Run:
    """A run with its processes, as the head had them when it was asked."""

    def __init__(self, run: Thing, processes: Sequence[Mapping[str, Any]], now_ns: int) -> None:
        self.run, self._is_empty, self._asked_ns = run, not processes, now_ns
        self.id, self.name = RunId(text(run, "run")), text(run, "name")
        self.pods = frozenset(text(each, "pod_uid") for each in processes)
        newest = max((_number(each, "attempt") for each in processes), default=0)
        members = [each for each in processes if each.get("attempt") == newest]
        ranks = {_number(e, "rank") for e in members if e.get("role", "process") == "process"}
        world = max((_number(each, "world_size") for each in members), default=0)
        self._is_short = len(ranks) < world
        self._began_ns = min((_number(each, "started_ns") for each in processes), default=0)

    def wants(self, created_ns: int, is_sent_away: Callable[[], bool]) -> bool:
        """Whether a pod that was made then may be for this run.  A program that is told to go may
        end well, and goes on in another pod."""
        if self._is_empty or not (self._is_short or created_ns > self._began_ns):
            return False
        return text(self.run, "state") != "completed" or is_sent_away()

    def is_old(self, run: Thing, now_ns: int) -> bool:
        """`run`: as it is by now."""
        if any(self.run.get(key) != run.get(key) for key in _STAMPS):
            return True
        is_due = now_ns - self._asked_ns >= AGAIN_SECONDS * 1e9
        return is_due and self.run.get("last_ns") != run.get("last_ns")


@dataclass(slots=True)
class _Workload:
    looked_ns: int | None = None
    failed: HeadError | None = None
    """How the last look ended, if it did not succeed."""
    runs: Sequence[_Run] = ()
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class PodRuns:
    """All pods of a workload share a look, which is good for `seconds`."""

    def __init__(
        self,
        head: Head,
        seconds: float,
        *,
        on_told: Callable[[RunId, Told], None] = lambda run, told: None,
        clock: Clock = system_clock,
    ) -> None:
        """`on_told` is given what the head has of a run's pods, once and before the run is named:
        other operators told it, whose journals are elsewhere."""
        self._head, self._clock, self._on_told = head, clock, on_told
        self._good_ns = int(seconds * 1e9)
        self._workloads: OrderedDict[str, _Workload] = OrderedDict()

    async def of(
        self,
        workload: str,
        pod: str,
        created_ns: int,
        is_sent_away: Callable[[], bool] = lambda: False,
    ) -> Found:
        """Of the pod with this uid.  `is_sent_away`: whether a pod of the workload was, and had not
        ended.  Raises HeadError."""
        runs = await self._look(workload)
        if mine := {run.id: run.name for run in runs if pod in run.pods}:
            return Found(mine, True)
        if len(runs) == 1 and runs[0].wants(created_ns, is_sent_away):
            return Found({runs[0].id: runs[0].name}, False)
        return Found({}, False)

    async def _look(self, uid: str) -> Sequence[_Run]:
        known = self._workloads.setdefault(uid, _Workload())
        self._workloads.move_to_end(uid)
        while len(self._workloads) > REMEMBERED:
            self._workloads.popitem(last=False)
        async with known.lock:
            now_ns = self._clock.mono_ns()
            if known.looked_ns is None or now_ns - known.looked_ns >= self._good_ns:
                try:
                    known.runs, known.failed = await self._asked(uid, known.runs, now_ns), None
                except HeadError as error:
                    known.failed = error
                known.looked_ns = self._clock.mono_ns()
            if (failed := known.failed) is not None:  # all who wait need not ask in vain
                raise HeadError(str(failed), failed.status, failed.code)
        return known.runs

    async def _asked(self, uid: str, before: Sequence[_Run], now_ns: int) -> list[_Run]:
        known, found = {run.id: run for run in before}, []
        for run in await self._head.runs(uid):
            each = known.get(RunId(text(run, "run")))
            if each is None:
                await self._hear(RunId(text(run, "run")))
            if each is None or each.is_old(run, now_ns):
                each = _Run(run, await self._head.processes(text(run, "run")), now_ns)
            found.append(each)
        return found

    async def _hear(self, run: RunId) -> None:
        for event in await self._head.events(run, PodTold.KIND):
            self._on_told(run, Told(_number(event, "time_ns"), PodTold.of(part(event, "body"))))


def _number(thing: Mapping[str, Any], name: str) -> int:
    value = thing.get(name)
    return value if isinstance(value, int) else 0
