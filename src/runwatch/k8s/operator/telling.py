"""Tells of pods: what happened to one becomes records of its run, once.

Watches say which pod may be otherwise; it is read, and what is new of it goes into the operator's
own journal (`own_journal.py`).  What a pod says is kept (`known_pods.py`) until its run is known
(`pod_runs.py`): then all of it is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import TracebackType
from typing import Final, Self

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.k8s.api import Api, ApiError
from runwatch.k8s.operator import pod_events, pods
from runwatch.k8s.operator.head import Head, HeadError
from runwatch.k8s.operator.known_pods import KIND as KIND
from runwatch.k8s.operator.known_pods import KnownPod, KnownPods
from runwatch.k8s.operator.objects import Ref
from runwatch.k8s.operator.own_journal import OwnJournal
from runwatch.k8s.operator.pod_events import Ready
from runwatch.k8s.operator.pod_runs import PodRuns
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.kube import Thing, path_of

FRESH_SECONDS: Final = 600.0
"""A program may need so long until it says of which run it is; after that it is asked seldom."""
GONE_SECONDS: Final = 3_600.0
"""How long the run of a pod is waited for that is gone."""
TIDY_SECONDS: Final = 30.0
FULL_SECONDS: Final = 5.0
AWAY_SECONDS: Final = 5.0
logger = logging.getLogger("runwatch.operator")


class Telling:
    """`async with Telling(api, head, settings) as telling: await telling.handle(ref)`"""

    def __init__(
        self, api: Api, head: Head, settings: OperatorSettings, *, clock: Clock = system_clock
    ) -> None:
        self._api, self._settings, self._clock = api, settings, clock
        self._journal = OwnJournal(settings, clock=clock)
        self._pods = KnownPods()
        self._runs = PodRuns(head, settings.runs_seconds, on_told=self._pods.heard, clock=clock)
        self._nodes: dict[str, Ready] = {}
        self._minding: asyncio.Task[None] | None = None
        self._is_away = False
        """The head did not answer when it was asked last."""
        self.told = 0
        """So many records."""

    @property
    def problem(self) -> str:
        """Why nothing of this reaches the head at the moment; empty when all is well."""
        return self._journal.problem

    async def __aenter__(self) -> Self:
        for run, told in await asyncio.to_thread(self._journal.open):
            self._pods.recall(run, told, self._clock.mono_ns())
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
            self._vanished(self._pods.at(ref))
            return None
        before = self._pods.at(ref)
        pod = self._seen(thing)
        if before is not pod:
            self._vanished(before)
        return None if pod is None else await self._tell(pod)

    def gone(self, thing: Thing) -> None:
        """`thing`: the last state of a pod that is no more."""
        pod = self._seen(thing)
        if pod is not None:
            pod.status = pods.told_of_gone(thing, self._clock.wall_ns())
            self._ended(pod)

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
            for pod in self._pods:
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
        if pod is None:
            self._pods.keep(told)
        else:
            pod.add(told)
            self._write(pod)

    def _seen(self, thing: Thing) -> KnownPod | None:
        pod = self._pods.seen(thing, self._clock.mono_ns())
        if pod is not None:
            self._hear_of_node(pod)
        return pod

    def _hear_of_node(self, pod: KnownPod) -> None:
        ready = self._nodes.get(pod.about.node)
        if ready is not None and not pod.is_over:
            told = pod_events.told_of_node(ready, pod.about, pod.first_ns("scheduled"))
            if told is not None:
                pod.add(told)

    def _vanished(self, pod: KnownPod | None) -> None:
        """It went while nobody looked: a watch that breaks does not say what it missed."""
        if pod is not None and not pod.is_gone:
            if not pod.is_over:
                pod.add(pods.gone_unseen(pod.about, self._clock.wall_ns()))
            self._ended(pod)

    def _ended(self, pod: KnownPod) -> None:
        pod.is_gone = pod.is_over = True
        pod.changed_ns = self._clock.mono_ns()
        self._write(pod)

    # ── telling it ────────────────────────────────────────────────────────────────────────────

    async def _tell(self, pod: KnownPod) -> float | None:
        """Raises HeadError if only the head knows of which run it is, and was there until now."""
        error = None
        if not pod.is_sure or any(self._pods.news(pod)):
            error = await self._ask(pod)
        if not self._write(pod):
            return FULL_SECONDS
        if pod.is_sure:
            return None
        if error is None:
            return self._pause_ns(pod) / 1e9
        was_away, self._is_away = self._is_away, True
        if not was_away:  # one of them says it: there may be thousands
            raise error
        return AWAY_SECONDS

    async def _ask(self, pod: KnownPod) -> HeadError | None:
        """Of which runs it is; None: the head has answered."""
        about, made_ns = pod.about, pod.first_ns("created") or 0
        try:
            found = await self._runs.of(
                about.workload_uid,
                about.uid,
                made_ns,
                lambda: self._pods.is_sent_away(about.workload_uid),
            )
        except HeadError as error:
            return error
        self._is_away = False
        # What it was taken for does not count once its processes have spoken.
        pod.runs = {**({} if found.is_sure else pod.runs), **found.runs}
        pod.is_sure = pod.is_sure or found.is_sure
        return None

    def _write(self, pod: KnownPod) -> bool:
        """False: the disk is full."""
        for run, told in self._pods.news(pod):
            if not self._journal.tell(run, pod.runs[run] or run, told):
                return False
            self._pods.was_told(run, told)
            self.told += 1
        return True

    def _pause_ns(self, pod: KnownPod) -> int:
        """Until it is asked again of which run it is; while it is young, its process may say so."""
        fresh = self._clock.mono_ns() - pod.changed_ns < FRESH_SECONDS * 1e9
        settings = self._settings
        return int((settings.runs_seconds if fresh else settings.sweep_seconds) * 1e9)

    # ── meanwhile ─────────────────────────────────────────────────────────────────────────────

    async def _mind(self) -> None:
        tidied_ns = self._clock.mono_ns()
        while True:
            await asyncio.sleep(self._settings.runs_seconds)
            for pod in self._pods:
                with contextlib.suppress(RunwatchError):  # somebody is away: next time
                    await (self._mind_gone(pod) if pod.is_gone else self._mind_silent(pod))
            if (self._clock.mono_ns() - tidied_ns) / 1e9 >= TIDY_SECONDS:
                tidied_ns = self._clock.mono_ns()
                await self._tidy()

    async def _tidy(self) -> None:
        try:
            await asyncio.to_thread(self._journal.tidy)
        except OSError as error:
            logger.warning("the operator's journals cannot be tidied up: %s", error)

    async def _mind_gone(self, pod: KnownPod) -> None:
        """No watch tells of it any more."""
        now_ns = self._clock.mono_ns()
        if now_ns - pod.changed_ns > (FRESH_SECONDS if pod.runs else GONE_SECONDS) * 1e9:
            self._pods.forget(pod)
        elif now_ns - pod.looked_ns > self._pause_ns(pod):
            pod.looked_ns = now_ns
            await self._tell(pod)

    async def _mind_silent(self, pod: KnownPod) -> None:
        """All pods are listed now and then: one that was not seen for long may have vanished."""
        now_ns = self._clock.mono_ns()
        if now_ns - pod.looked_ns > 2 * self._settings.sweep_seconds * 1e9:
            pod.looked_ns = now_ns
            await self.handle(pod.ref)
            if self._pods.at(pod.ref) is not pod:
                self._vanished(pod)
