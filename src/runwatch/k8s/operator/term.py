"""One term of the operator that holds the lease: its lines of work, and what is put into them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from runwatch.clock import Clock, system_clock
from runwatch.k8s import names
from runwatch.k8s.api import Api, ApiError
from runwatch.k8s.operator import captures, connections, objects, telling
from runwatch.k8s.operator.captures import Captures
from runwatch.k8s.operator.connections import Connections
from runwatch.k8s.operator.events import Events
from runwatch.k8s.operator.head import Head
from runwatch.k8s.operator.objects import Kind, Ref, ref_of
from runwatch.k8s.operator.runs import Runs
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.k8s.operator.telling import Telling
from runwatch.k8s.operator.watches import Watch, watch_all
from runwatch.k8s.operator.whose import whose
from runwatch.k8s.operator.work import Work
from runwatch.kube import Thing, part, text

NODE: Final = Kind("v1", "nodes", "Node")
EVENT: Final = Kind("v1", "events", "Event")
_LOUD: Final = ("Scheduled", "Pulled", "Created", "Started", "Killing", "Unhealthy")
"""Reasons of Events of which there are many and none is told."""
_ABOUT_PODS: Final = ",".join(
    ("involvedObject.kind=Pod", *(f"reason!={reason}" for reason in _LOUD))
)
Key = TypeVar("Key")
logger = logging.getLogger("runwatch.operator")


class Term:
    """Nothing outlives it but what is written: the next one begins as after a restart."""

    def __init__(
        self,
        api: Api,
        head: Head,
        settings: OperatorSettings,
        pods: Telling,
        identity: str,
        *,
        clock: Clock = system_clock,
    ) -> None:
        self._api, self._settings, self._telling = api, settings, pods
        told = Events(api, identity)
        self._captures = self._line(Captures(api, head, settings, clock=clock).handle)
        self._connections = self._line(Connections(api, head, settings, clock=clock).handle)
        self._runs = self._line(Runs(api, head, settings, told, clock=clock).handle)
        self._pods = self._line(pods.handle)
        self._nodes = self._line(pods.node)
        self.lines: dict[str, Work[Any]] = {
            "captures": self._captures,
            "connections": self._connections,
            "runs": self._runs,
            "pods": self._pods,
            "nodes": self._nodes,
        }

    def _line(self, handle: Callable[[Key], Awaitable[float | None]]) -> Work[Key]:
        return Work(
            handle,
            first_seconds=self._settings.first_delay_seconds,
            longest_seconds=self._settings.retry_seconds,
        )

    async def run(self) -> None:
        """Until it is cancelled, or meets what is no RunwatchError."""
        watches, only = self._watches(), self._settings.only
        async with asyncio.TaskGroup() as group:
            for line in self.lines.values():
                group.create_task(line.run())
            group.create_task(
                watch_all(self._api.access, watches, only, self._settings.answer_seconds)
            )
            group.create_task(self._sweep(watches))

    # ── what may be otherwise ─────────────────────────────────────────────────────────────────

    def _watches(self) -> Sequence[Watch]:
        return (
            Watch(captures.KIND, self._object(captures.KIND, self._captures)),
            Watch(connections.KIND, self._object(connections.KIND, self._connections)),
            Watch(telling.KIND, self._pod, labels=f"{names.WATCHED}=true"),
            Watch(NODE, self._node, is_wide=True),
            Watch(EVENT, self._event, fields=_ABOUT_PODS),
        )

    @staticmethod
    def _object(kind: Kind, line: Work[Ref]) -> Callable[[bool, Thing], None]:
        def tell(is_gone: bool, thing: Thing) -> None:
            line.add(ref_of(kind, thing))

        return tell

    def _pod(self, is_gone: bool, pod: Thing) -> None:
        if is_gone:
            self._telling.gone(pod)
        self._pods.add(ref_of(telling.KIND, pod))
        workload = whose(pod)
        if workload is not None and not is_gone:
            # One that is looked at now and then is looked at soon, and not at each change of a pod.
            is_known = workload in self._runs
            self._runs.add(workload, self._settings.runs_seconds if is_known else 0.0)

    def _node(self, is_gone: bool, node: Thing) -> None:
        self._nodes.add(text(part(node, "metadata"), "name"))

    def _event(self, is_gone: bool, event: Thing) -> None:
        if not is_gone:
            self._telling.event(event)

    async def _sweep(self, watches: Sequence[Watch]) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep_seconds)
            for watch in watches:
                try:
                    await self._list(watch)
                except ApiError as error:
                    logger.warning("%s are not listed: %s", watch.kind.plural, error)

    async def _list(self, watch: Watch) -> None:
        only = () if watch.is_wide else self._settings.only
        for thing in await objects.listed(self._api, watch.kind, only, watch.labels, watch.fields):
            watch.tell(False, thing)
