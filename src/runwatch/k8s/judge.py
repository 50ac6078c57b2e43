"""Answers one review: is the pod watched, and what does it get?  No failure keeps a pod waiting."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.k8s.api import ApiError
from runwatch.k8s.inject import inject
from runwatch.k8s.reviews import Question, answer
from runwatch.k8s.settings import WebhookSettings
from runwatch.k8s.wishes import is_watched, said_by, spared
from runwatch.k8s.workloads import Chain, Workloads
from runwatch.kube import Thing, labels

SIDECARS_SINCE: Final = (1, 29)
UNLABELLED_SECONDS: Final = 1.0
"""So long it is believed that a namespace is not labelled."""
_ODD: Final = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What a pod leads to that is none, where a list is a number or the like."""
logger = logging.getLogger("runwatch.webhook")


class Verdict(NamedTuple):
    outcome: str
    """For the metrics: injected, unwatched, spared, other, failed, late."""
    review: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Judge:
    workloads: Workloads
    settings: WebhookSettings
    own_namespace: str
    clock: Clock = system_clock

    async def judge(self, question: Question, until: float) -> Verdict:
        """`until`: by the event loop's clock."""
        try:
            async with asyncio.timeout_at(until):
                return await self._judge(question)
        except TimeoutError:
            what = f"the API server did not answer within {self.settings.seconds:g} s"
            return self._unchanged(question, "late", what)
        except RunwatchError as error:
            return self._unchanged(question, "failed", str(error))
        except _ODD as error:
            what = f"it has not the form of a pod ({type(error).__name__}: {error})"
            return self._unchanged(question, "failed", what)

    def _unchanged(self, question: Question, outcome: str, why: str) -> Verdict:
        logger.warning("a pod of namespace %a starts unwatched: %s", question.namespace, why)
        return Verdict(outcome, answer(question.uid, warnings=[f"this pod is not watched: {why}"]))

    async def _judge(self, question: Question) -> Verdict:
        pod, name, settings = question.pod, question.namespace, self.settings
        if not pod:
            return Verdict("other", answer(question.uid))
        if spared(pod, {}, name, settings, self.own_namespace):
            return Verdict("spared", answer(question.uid))
        if said_by(labels(pod)) is False:
            return Verdict("unwatched", answer(question.uid))
        chain, namespace = await self._surroundings(pod, name)
        if not is_watched(pod, chain, namespace):
            # Who labels a namespace and starts something in it does not wait until we forget.
            namespace = await self.workloads.namespace(name, seconds=UNLABELLED_SECONDS)
        if spared(pod, namespace, name, settings, self.own_namespace):
            return Verdict("spared", answer(question.uid))
        if not is_watched(pod, chain, namespace):
            return Verdict("unwatched", answer(question.uid))
        injection = inject(
            pod,
            chain=chain,
            namespace=namespace,
            name=name,
            settings=settings,
            has_sidecars=await self._has_sidecars(),
            now_ns=self.clock.wall_ns(),
        )
        return Verdict("injected", answer(question.uid, injection.patch, injection.warnings))

    async def _surroundings(self, pod: Thing, namespace: str) -> tuple[Chain, Thing]:
        chain, about = await asyncio.gather(
            self.workloads.chain(pod, namespace), self.workloads.namespace(namespace)
        )
        return chain, about

    async def _has_sidecars(self) -> bool:
        try:
            return await self.workloads.version() >= SIDECARS_SINCE
        except ApiError:
            return False
