"""One of several operators works: the one that holds the Lease.

The holder renews it all the time.  Whoever sees it unchanged for as long as it is good for, by its
own clock, takes it; times that others wrote are not compared with ours, since clocks differ.  Every
write says which version it replaces, so of two that write at once one gets 409.
A holder that could not renew it for two thirds of that time stops: before another may begin.
Where the server is so slow that this time would not do, the lease is good for longer, as it says.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.k8s.api import Api, ApiError
from runwatch.k8s.names import LEASE
from runwatch.kube import Thing, part, path_of, text

LEASES: Final = ("coordination.k8s.io/v1", "leases")
ANSWERS: Final = 6.0
"""A lease is good for at least as long as so many answers of the API server take."""
logger = logging.getLogger("runwatch.operator")


class LeaseLost(RunwatchError):
    """Another operator may work from now on: this one must not."""


@dataclass(slots=True)
class _Seen:
    version: str
    mono_ns: int


class Lease:
    def __init__(
        self,
        api: Api,
        identity: str,
        *,
        namespace: str,
        name: str = LEASE,
        seconds: float = 15.0,
        clock: Clock = system_clock,
    ) -> None:
        self._api, self._identity, self._clock = api, identity, clock
        self._seconds = seconds
        self._namespace, self._name = namespace, name
        self._all = path_of(*LEASES, namespace)
        self._path = path_of(*LEASES, namespace, name)
        self._seen: _Seen | None = None
        self._held: Thing = {}
        self._renewed_ns = 0
        self._held_seconds = seconds
        """As our last write says."""
        self._slowest_seconds = 0.0
        """How long an answer takes: the latest one's, and of those before it what is left."""
        self.holder = ""
        """Who holds it, as last seen."""

    @property
    def is_held(self) -> bool:
        return bool(self._held)

    @property
    def pause_seconds(self) -> float:
        return self._seconds / 5

    @property
    def good_for_seconds(self) -> float:
        return max(self._seconds, ANSWERS * self._slowest_seconds)

    @property
    def margin_seconds(self) -> float:
        """After so long without a renewal, the holder stops."""
        return self._held_seconds * 2 / 3

    async def acquire(self) -> None:
        """Returns when it is ours."""
        while not await self.try_once():
            await asyncio.sleep(self.pause_seconds)

    async def try_once(self) -> bool:
        try:
            found = await self._look()
            if found is not None and not self._is_free(found):
                return False
            await self._renewed(found)
        except ApiError as error:
            if error.status != 409:
                logger.warning("the lease %s cannot be taken: %s", self._name, error)
            return False
        self.holder = self._identity
        return True

    async def _renewed(self, found: Thing | None) -> None:
        """Others count from when they see our write: never from before it was sent."""
        begun_ns, good_for = self._clock.mono_ns(), self.good_for_seconds
        self._held = await self._write(found, good_for)
        self._renewed_ns, self._held_seconds = begun_ns, good_for
        self._took(begun_ns)

    def _took(self, begun_ns: int) -> None:
        took = (self._clock.mono_ns() - begun_ns) / 1e9
        self._slowest_seconds = max(took, self._slowest_seconds * 0.9)

    async def _look(self) -> Thing | None:
        begun_ns = self._clock.mono_ns()
        try:
            return await self._api.get(self._path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        finally:
            self._took(begun_ns)

    def _is_free(self, found: Thing) -> bool:
        spec, now_ns = part(found, "spec"), self._clock.mono_ns()
        version = text(part(found, "metadata"), "resourceVersion")
        self.holder = text(spec, "holderIdentity")
        if self._seen is None or self._seen.version != version:
            self._seen = _Seen(version, now_ns)
        if not self.holder or self.holder == self._identity:
            # Our own name in it: we were killed, and begin again in the same pod.
            return True
        good_for = spec.get("leaseDurationSeconds")
        seconds = float(good_for) if isinstance(good_for, int) else self._seconds
        return (now_ns - self._seen.mono_ns) / 1e9 > seconds

    async def _write(self, found: Thing | None, good_for: float) -> Thing:
        wall = _micro(self._clock.wall_ns())
        before = part(found or {}, "spec")
        is_ours = text(before, "holderIdentity") == self._identity
        turns = before.get("leaseTransitions")
        count = turns if isinstance(turns, int) else 0
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, math.ceil(good_for)),
            "acquireTime": before.get("acquireTime", wall) if is_ours else wall,
            "renewTime": wall,
            "leaseTransitions": count if is_ours or found is None else count + 1,
        }
        metadata: Mapping[str, Any] = {"name": self._name, "namespace": self._namespace}
        lease = {"apiVersion": LEASES[0], "kind": "Lease", "metadata": metadata, "spec": spec}
        if found is None:
            return await self._api.create(self._all, lease)
        return await self._change(found, spec)

    async def _change(self, found: Thing, spec: Mapping[str, Any]) -> Thing:
        """If it is still how it was found: else ApiError 409."""
        version = text(part(found, "metadata"), "resourceVersion")
        return await self._api.patch(
            self._path, {"metadata": {"resourceVersion": version}, "spec": spec}
        )

    async def hold(self) -> None:
        """Renews it for as long as that succeeds.  Raises LeaseLost."""
        while True:
            await asyncio.sleep(self.pause_seconds)
            await self.renew()

    async def renew(self) -> None:
        """Once, if that succeeds.  Raises LeaseLost when the time is over by then."""
        left = self.margin_seconds - (self._clock.mono_ns() - self._renewed_ns) / 1e9
        why = "the API server does not answer"
        try:
            async with asyncio.timeout(max(left, 0)):
                if not (why := await self._tried()):
                    return
        except TimeoutError:
            pass
        if (self._clock.mono_ns() - self._renewed_ns) / 1e9 >= self.margin_seconds:
            self._held = {}
            raise LeaseLost(f"the lease {self._name} was not renewed in time: {why}")
        logger.warning("the lease %s is not renewed yet: %s", self._name, why)

    async def _tried(self) -> str:
        """Why it is not renewed; "" if it is, or is still ours."""
        try:
            await self._renewed(self._held)
        except ApiError as error:
            if error.status == 409 and await self._is_still_ours():
                return ""
            return str(error)
        return ""

    async def _is_still_ours(self) -> bool:
        """After 409: an earlier write of ours came, whose answer did not.  Raises LeaseLost."""
        try:
            found = await self._look()
        except ApiError:
            return False
        holder = text(part(found or {}, "spec"), "holderIdentity")
        if found is None or holder != self._identity:
            self._held = {}
            raise LeaseLost(f"the lease {self._name} is {holder or 'nobody'}'s now")
        self._held = found
        return True

    async def release(self) -> None:
        """The next operator need not wait."""
        held, self._held = self._held, {}
        if not held:
            return
        try:
            await self._change(held, {"holderIdentity": ""})
        except ApiError as error:
            logger.info("the lease %s was not given back: %s", self._name, error)


def _micro(time_ns: int) -> str:
    """MicroTime, as leases have it."""
    moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns // 1_000 % 1_000_000:06d}Z"
