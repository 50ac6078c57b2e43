"""The lease, at an API server of the tests; time is a number."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from runwatch.k8s.api import Access, Api
from runwatch.k8s.operator.lease import Lease, LeaseLost
from runwatch.testing import FakeClock
from tests.cluster.server import Cluster
from tests.unit.k8s.conftest import all_closed

PATH = "runwatch-operator"
SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), enforced=False) as made:
        yield made


@pytest.fixture
def cluster(server: Cluster) -> Iterator[Cluster]:
    server.namespace("ours")
    yield server
    server.faults.clear()
    if server.find("lease", PATH, "ours"):
        server.delete("lease", PATH, "ours")


def access(cluster: Cluster) -> Access:
    return Access(cluster.server, cluster.account("ours", "operator"))


def lease(api: Api, name: str, clock: FakeClock, seconds: float = 15.0) -> Lease:
    return Lease(api, name, namespace="ours", seconds=seconds, clock=clock)


def spec(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.get("lease", PATH, "ours")["spec"]
    return found


def trial(cluster: Cluster, deed: Callable[[Api, FakeClock], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Api(access(cluster)) as api:
            await deed(api, FakeClock())
        await all_closed()

    asyncio.run(run())


def test_one_takes_it_and_another_when_it_was_not_renewed_for_its_time(cluster: Cluster) -> None:
    async def deed(api: Api, clock: FakeClock) -> None:
        a, b = lease(api, "a", clock), lease(api, "b", clock)
        assert await a.try_once() and not await b.try_once()
        clock.advance(9)
        await a.renew()
        clock.advance(9)
        assert not await b.try_once() and b.holder == "a"  # it was renewed meanwhile
        await a.renew()
        assert not await b.try_once()
        clock.advance(14)
        assert not await b.try_once()
        clock.advance(2)
        assert await b.try_once() and b.is_held
        with pytest.raises(LeaseLost):
            await a.renew()
        assert not a.is_held

    trial(cluster, deed)
    assert spec(cluster)["holderIdentity"] == "b" and spec(cluster)["leaseTransitions"] == 1


def test_the_holder_stops_before_another_may_begin(cluster: Cluster) -> None:
    async def deed(api: Api, clock: FakeClock) -> None:
        a, b = lease(api, "a", clock), lease(api, "b", clock)
        assert await a.try_once() and not await b.try_once()
        cluster.faults.fail("PATCH", "/leases/", 503, times=100)
        clock.advance(9)
        await a.renew()  # not renewed, and its time is not over
        assert a.is_held
        clock.advance(2)
        with pytest.raises(LeaseLost):
            await a.renew()
        cluster.faults.clear()
        assert not await b.try_once()

    trial(cluster, deed)


def test_of_two_that_write_at_once_one_has_it(cluster: Cluster) -> None:
    async def deed(api: Api, clock: FakeClock) -> None:
        several = [lease(api, f"operator-{number}", clock) for number in range(8)]
        cluster.faults.latency_seconds = 0.05  # all look before anybody has written
        assert sum(await asyncio.gather(*(each.try_once() for each in several))) == 1
        clock.advance(16)
        took = await asyncio.gather(*(each.try_once() for each in several))
        assert sum(took) <= 1

    trial(cluster, deed)
    assert cluster.get("lease", PATH, "ours")


def test_an_answer_that_was_lost_is_no_loss(cluster: Cluster) -> None:
    async def deed(api: Api, clock: FakeClock) -> None:
        a = lease(api, "a", clock)
        assert await a.try_once()
        cluster.faults.lose("PATCH", "/leases/")
        await a.renew()  # done, and nobody said so
        assert a.is_held
        await a.renew()  # 409: the version is that of our own write
        await a.renew()
        clock.advance(9)
        await a.renew()
        assert a.is_held

    trial(cluster, deed)


def test_killed_and_begun_again_under_its_name_it_need_not_wait(cluster: Cluster) -> None:
    async def deed(api: Api, clock: FakeClock) -> None:
        assert await lease(api, "a", clock).try_once()
        assert await lease(api, "a", clock).try_once()
        b, c = lease(api, "b", clock), lease(api, "a", clock)
        assert not await b.try_once() and await c.try_once()
        await c.release()
        assert not c.is_held and await b.try_once()

    trial(cluster, deed)
    assert spec(cluster)["leaseTransitions"] == 1


def test_where_the_server_is_slow_it_is_good_for_longer(cluster: Cluster) -> None:
    """Time passes while the server is asked: thirty seconds for each answer."""

    async def deed(api: Api, clock: FakeClock) -> None:
        cluster.faults.done.append(lambda _: clock.advance(30))
        a, b = lease(api, "a", clock), lease(api, "b", clock)
        assert await a.try_once()
        for _ in range(4):
            assert not await b.try_once()
            await a.renew()
        assert a.is_held
        cluster.faults.done.clear()

    trial(cluster, deed)
    assert spec(cluster)["leaseDurationSeconds"] == 180
