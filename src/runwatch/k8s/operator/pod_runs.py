"""Which run a pod is of: the one that its processes name to the head.

A pod in which nothing runs yet is of its workload's run, if there is one and it wants a pod: a rank
is missing, or what was there has ended.  If the workload has several runs nobody can say which.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from runwatch.clock import Clock, system_clock
from runwatch.k8s.operator.head import Head
from runwatch.kube import Thing, text
from runwatch.record import RunId

REMEMBERED: Final = 4_096
"""Workloads."""
_STAMPS: Final = ("state", "last_ns", "attempts", "ranks")
"""If these are as they were, so are the run's processes."""


class Found(NamedTuple):
    """The runs by id, with their names."""

    runs: Mapping[RunId, str]
    is_sure: bool
    """A process in the pod said so."""


@dataclass(slots=True)
class _Run:
    run: Thing
    processes: Sequence[Mapping[str, Any]] = ()

    @property
    def id(self) -> RunId:
        return RunId(text(self.run, "run"))

    def has_pod(self, uid: str) -> bool:
        return any(each.get("pod_uid") == uid for each in self.processes)

    def wants(self, created_ns: int) -> bool:
        """Whether a pod that was made then may be for this run."""
        if text(self.run, "state") == "completed" or not self.processes:
            return False
        newest = max(_number(each, "attempt") for each in self.processes)
        members = [
            each
            for each in self.processes
            if each.get("attempt") == newest and each.get("role", "process") == "process"
        ]
        ranks = {_number(each, "rank") for each in members}
        is_short = len(ranks) < max((_number(each, "world_size") for each in members), default=0)
        began_ns = min(_number(each, "started_ns") for each in self.processes)
        return is_short or created_ns > began_ns


@dataclass(slots=True)
class _Workload:
    looked_ns: int | None = None
    runs: dict[RunId, _Run] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class PodRuns:
    """All pods of a workload share a look, which is good for `seconds`."""

    def __init__(self, head: Head, seconds: float, *, clock: Clock = system_clock) -> None:
        self._head, self._clock = head, clock
        self._good_ns = int(seconds * 1e9)
        self._workloads: OrderedDict[str, _Workload] = OrderedDict()

    async def of(self, workload: str, pod: str, created_ns: int) -> Found:
        """Of the pod with this uid.  Raises HeadError."""
        runs = await self._look(workload)
        mine = [run for run in runs if run.has_pod(pod)]
        if mine:
            return Found({run.id: text(run.run, "name") for run in mine}, True)
        if len(runs) == 1 and runs[0].wants(created_ns):
            return Found({runs[0].id: text(runs[0].run, "name")}, False)
        return Found({}, False)

    async def _look(self, uid: str) -> list[_Run]:
        known = self._workloads.setdefault(uid, _Workload())
        self._workloads.move_to_end(uid)
        while len(self._workloads) > REMEMBERED:
            self._workloads.popitem(last=False)
        async with known.lock:
            now_ns = self._clock.mono_ns()
            if known.looked_ns is None or now_ns - known.looked_ns >= self._good_ns:
                known.runs = {run.id: run for run in await self._asked(uid, known.runs)}
                known.looked_ns = now_ns
        return list(known.runs.values())

    async def _asked(self, uid: str, before: Mapping[RunId, _Run]) -> list[_Run]:
        found: list[_Run] = []
        for run in await self._head.runs(uid):
            each = _Run(run)
            was = before.get(each.id)
            if was is not None and all(was.run.get(key) == run.get(key) for key in _STAMPS):
                each.processes = was.processes
            else:
                each.processes = await self._head.processes(each.id)
            found.append(each)
        return found


def _number(thing: Mapping[str, Any], name: str) -> int:
    value = thing.get(name)
    return value if isinstance(value, int) else 0
