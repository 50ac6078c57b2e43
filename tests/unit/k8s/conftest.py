"""An API server for the tests of this room that ask one; its rights are other tests' matter."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from runwatch.k8s.api import Access, Api
from tests.cluster.server import Cluster

T = TypeVar("T")
_spaces = itertools.count()
Asking = Callable[[Callable[[Api], Awaitable[T]]], T]


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), enforced=False) as cluster:
        yield cluster


@pytest.fixture
def space(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own, and no faults after it."""
    name = f"space-{next(_spaces)}"
    cluster.namespace(name)
    yield name
    cluster.faults.clear()


async def all_closed() -> None:
    """A connection that was given up says goodbye first: the loop may not end before."""
    polled = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    async with asyncio.timeout(100):
        while len(polled.get_map()) > 1:  # the loop's own
            await asyncio.sleep(0.001)


@pytest.fixture
def asking(cluster: Cluster) -> Asking[T]:
    """Does something with a client, in a loop of its own."""

    def ask(deed: Callable[[Api], Awaitable[T]]) -> T:
        async def asked() -> T:
            access = Access(cluster.server, cluster.account("runwatch", "webhook"))
            async with Api(access, seconds=5) as api:
                done = await deed(api)
            await all_closed()
            return done

        return asyncio.run(asked())

    return ask
