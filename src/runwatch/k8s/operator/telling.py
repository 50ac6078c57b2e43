"""Tells of pods: what happened to one becomes records of its run, once.

Watches say which pod may be otherwise; it is read, and what is new of it goes into the operator's
own journal (`own_journal.py`).  What a pod says is kept until its run is known (`pod_runs.py`):
then all of it is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final, Self

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.k8s.api import Api, ApiError
from runwatch.k8s.operator import pod_events, pods
from runwatch.k8s.operator.head import Head, HeadError
from runwatch.k8s.operator.objects import Kind, Ref, uid_of
from runwatch.k8s.operator.own_journal import OwnJournal
from runwatch.k8s.operator.pod_events import Ready
from runwatch.k8s.operator.pod_runs import PodRuns
from runwatch.k8s.operator.pods import Told
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.k8s.operator.whose import whose
from runwatch.kube import Thing, path_of
from runwatch.record import RunId
from runwatch.record.pods import PodTold, What

KIND: Final = Kind("v1", "pods", "Pod")
FRESH_SECONDS: Final = 600.0
"""A program may need so long until it says of which run it is; after that it is asked seldom."""
GONE_SECONDS: Final = 3_600.0
"""How long the run of a pod is waited for that is gone."""
TIDY_SECONDS: Final = 30.0
FULL_SECONDS: Final = 5.0
MOST_EARLY: Final = 4_096
"""Pods of which an Event is known and nothing else."""
MOST_EVENTS: Final = 32
MOST_SENTENCES: Final = 16
MOST_LIVES: Final = 500
logger = logging.getLogger("runwatch.operator")

Key = tuple[str, ...]


@dataclass(slots=True)
class _Pod:
    about: PodTold
    looked_ns: int
    """When it was read last, or brought by a watch; monotonic."""
    changed_ns: int
    """When it was otherwise last."""
    status: Sequence[Told] = ()
    more: dict[Key, Told] = field(default_factory=dict)
    """What Events and its node said."""
    runs: dict[RunId, str] = field(default_factory=dict)
    is_sure: bool = False
    is_over: bool = False
    is_gone: bool = False

    def all(self) -> Iterable[Told]:
        yield from self.status
        for told in self.more.values():
            # An Event knows neither workload nor node.
            who = {name: getattr(self.about, name) for name in _WHO}
            yield Told(told.time_ns, replace(told.what, **who))

    def first_ns(self, what: What) -> int | None:
        return next((told.time_ns for told in self.status if told.what.what == what), None)


_WHO: Final = ("pod", "namespace", "uid", "node", "workload", "workload_uid")
"""What a record says of which pod it is; the rest is what happened."""


class Telling:
    """`async with Telling(api, head, settings) as telling: await telling.handle(ref)`"""

    def __init__(
        self, api: Api, head: Head, settings: OperatorSettings, *, clock: Clock = system_clock
    ) -> None:
        self._api, self._settings, self._clock = api, settings, clock
        self._journal = OwnJournal(settings, clock=clock)
        self._runs = PodRuns(head, settings.runs_seconds, clock=clock)
        self._pods: dict[str, _Pod] = {}
        """By uid."""
        self._places: dict[Ref, str] = {}
        self._told: defaultdict[str, set[tuple[RunId, Key]]] = defaultdict(set)
        """By pod, also what earlier operators told."""
        self._early: OrderedDict[str, dict[Key, Told]] = OrderedDict()
        self._nodes: dict[str, Ready] = {}
        self._minding: asyncio.Task[None] | None = None
        self.told = 0
        """So many records."""

    @property
    def problem(self) -> str:
        """Why nothing of this reaches the head at the moment; empty when all is well."""
        return self._journal.problem

    async def __aenter__(self) -> Self:
        for run, told in await asyncio.to_thread(self._journal.open):
            self._recall(run, told)
        self._minding = asyncio.create_task(self._mind())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._minding is not None:
            self._minding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._minding
        await asyncio.to_thread(self._journal.close)

    # ── what comes ────────────────────────────────────────────────────────────────────────────

    async def handle(self, ref: Ref) -> float | None:
        """Tells what is new of a pod; after how many seconds it is looked at again."""
        try:
            thing = await self._api.get(ref.path)
        except ApiError as error:
            if error.status != 404:
                raise
            self._vanished(self._places.get(ref, ""))
            return None
        pod = self._seen(thing)
        return None if pod is None else await self._tell(pod)

    def gone(self, thing: Thing) -> None:
        """`thing`: the last state of a pod that is no more."""
        pod = self._seen(thing)
        if pod is not None:
            pod.status = pods.told_of_gone(thing, self._clock.wall_ns())
            self._ended(pod)

    def _ended(self, pod: _Pod) -> None:
        pod.is_gone = pod.is_over = True
        pod.changed_ns = self._clock.mono_ns()
        self._write(pod)

    async def node(self, name: str) -> float | None:
        """Tells the runs of a node's pods whether it is heard of."""
        try:
            ready = pod_events.ready_of(await self._api.get(path_of("v1", "nodes", name=name)))
        except ApiError as error:
            if error.status != 404:
                raise
            ready = None
        if ready is None:
            self._nodes.pop(name, None)
        elif ready != self._nodes.get(name):
            self._nodes[name] = ready
            for pod in self._pods.values():
                if pod.about.node == name:
                    self._hear_of_node(pod)
                    self._write(pod)
        return None

    def event(self, event: Thing) -> None:
        """`event`: one of the core's, about whatever."""
        told = pod_events.told_of_event(event)
        if told is None:
            return
        pod = self._pods.get(told.what.uid)
        if pod is not None:
            _add(pod.more, told)
            self._write(pod)
            return
        _add(self._early.setdefault(told.what.uid, {}), told)
        while len(self._early) > MOST_EARLY:
            self._early.popitem(last=False)

    # ── what is known of a pod ────────────────────────────────────────────────────────────────

    def _recall(self, run: RunId, told: Told) -> None:
        """An earlier operator told it."""
        what, now_ns = told.what.what, self._clock.mono_ns()
        about = replace(pods.NOBODY, **{name: getattr(told.what, name) for name in _WHO})
        self._told[about.uid].add((run, told.key))
        pod = self._pods.setdefault(about.uid, _Pod(about, now_ns, now_ns))
        self._places[_ref(about)] = about.uid
        pod.runs.setdefault(run, "")
        pod.is_over = pod.is_over or what in ("ended", "deleted")

    def _vanished(self, uid: str) -> None:
        """It went while nobody looked: a watch that breaks does not say what it missed."""
        pod = self._pods.get(uid)
        if pod is None or pod.is_gone:
            return
        if not pod.is_over:
            _add(pod.more, pods.gone_unseen(pod.about, self._clock.wall_ns()))
        self._ended(pod)

    def _seen(self, thing: Thing) -> _Pod | None:
        """None: nobody watches it."""
        uid, about = uid_of(thing), pods.about(thing)
        if whose(thing) is None:
            self._early.pop(uid, None)
            return None
        status, now_ns = pods.told_of(thing), self._clock.mono_ns()
        pod = self._pods.setdefault(uid, _Pod(about, now_ns, now_ns))
        before, self._places[_ref(about)] = self._places.get(_ref(about), uid), uid
        if before != uid:
            self._vanished(before)
        for told in self._early.pop(uid, {}).values():
            _add(pod.more, told)
        if status != pod.status:
            pod.status, pod.changed_ns = status, now_ns
        pod.about, pod.is_over, pod.looked_ns = about, pods.is_over(thing), now_ns
        self._hear_of_node(pod)
        return pod

    def _hear_of_node(self, pod: _Pod) -> None:
        ready = self._nodes.get(pod.about.node)
        if ready is not None and not pod.is_over:
            told = pod_events.told_of_node(ready, pod.about, pod.first_ns("scheduled"))
            if told is not None:
                _add(pod.more, told)

    # ── telling it ────────────────────────────────────────────────────────────────────────────

    async def _tell(self, pod: _Pod) -> float | None:
        """Raises HeadError if only the head knows of which run it is."""
        if not pod.is_sure or self._news(pod, pod.runs):
            try:
                made_ns = pod.first_ns("created") or 0
                found = await self._runs.of(pod.about.workload_uid, pod.about.uid, made_ns)
            except HeadError:
                self._write(pod)
                if not pod.is_sure:
                    raise
            else:
                # What it was taken for does not count once its processes have spoken.
                pod.runs = dict(found.runs) if found.is_sure else pod.runs | found.runs
                pod.is_sure = pod.is_sure or found.is_sure
        if not self._write(pod):
            return FULL_SECONDS
        return None if pod.is_sure else self._pause_ns(pod) / 1e9

    def _news(self, pod: _Pod, runs: Iterable[RunId]) -> list[tuple[RunId, Told]]:
        known = self._told.get(pod.about.uid, set())
        return [(run, told) for run in runs for told in pod.all() if (run, told.key) not in known]

    def _write(self, pod: _Pod) -> bool:
        """False: the disk is full."""
        known = self._told[pod.about.uid]
        for run, told in self._news(pod, pod.runs):
            if (run, told.key) in known or self._is_enough(run, told.what):
                continue
            if not self._journal.tell(run, pod.runs[run] or run, told):
                return False
            known.add((run, told.key))
            self.told += 1
        return True

    def _is_enough(self, run: RunId, told: PodTold) -> bool:
        """Of sentences with a digest in them, or of a container that ends again and again."""
        alike = sum(at == run and key[0] == told.what for at, key in self._told[told.uid])
        return alike >= (MOST_SENTENCES if told.what in pods.SENTENCES else MOST_LIVES)

    # ── meanwhile ─────────────────────────────────────────────────────────────────────────────

    async def _mind(self) -> None:
        tidied_ns = self._clock.mono_ns()
        while True:
            await asyncio.sleep(self._settings.runs_seconds)
            await self._mind_gone()
            await self._mind_silent()
            if (self._clock.mono_ns() - tidied_ns) / 1e9 >= TIDY_SECONDS:
                tidied_ns = self._clock.mono_ns()
                await self._tidy()

    async def _tidy(self) -> None:
        try:
            await asyncio.to_thread(self._journal.tidy)
        except OSError as error:
            logger.warning("the operator's journals cannot be tidied up: %s", error)

    async def _mind_gone(self) -> None:
        """No watch tells of these any more."""
        now_ns = self._clock.mono_ns()
        for uid, pod in list(self._pods.items()):
            if not pod.is_gone:
                continue
            if now_ns - pod.looked_ns > self._pause_ns(pod):
                pod.looked_ns = now_ns
                with contextlib.suppress(RunwatchError):  # the head is away: next time
                    await self._tell(pod)
            quiet = (now_ns - pod.changed_ns) / 1e9
            if quiet > (FRESH_SECONDS if pod.runs else GONE_SECONDS):
                self._forget(uid)

    def _pause_ns(self, pod: _Pod) -> int:
        """Until it is asked again of which run it is; while it is young, its process may say so."""
        fresh = self._clock.mono_ns() - pod.changed_ns < FRESH_SECONDS * 1e9
        settings = self._settings
        return int((settings.runs_seconds if fresh else settings.sweep_seconds) * 1e9)

    async def _mind_silent(self) -> None:
        """All pods are listed now and then: which was not seen for long may have vanished."""
        most_ns = int(2 * self._settings.sweep_seconds * 1e9)
        now_ns = self._clock.mono_ns()
        for pod in list(self._pods.values()):
            if not pod.is_gone and now_ns - pod.looked_ns > most_ns:
                pod.looked_ns = now_ns
                with contextlib.suppress(RunwatchError):
                    await self.handle(_ref(pod.about))
                    if self._places.get(_ref(pod.about)) != pod.about.uid:
                        self._vanished(pod.about.uid)

    def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid)
        self._told.pop(uid, None)
        if self._places.get(_ref(pod.about)) == uid:
            del self._places[_ref(pod.about)]


def _ref(pod: PodTold) -> Ref:
    return Ref(KIND, pod.namespace, pod.pod)


def _add(known: dict[Key, Told], told: Told) -> None:
    if len(known) < MOST_EVENTS:
        known.setdefault(told.key, told)
