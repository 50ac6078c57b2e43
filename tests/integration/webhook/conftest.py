"""A site for the tests of a module that leave the webhook alone, and one for each of the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.server import Cluster
from tests.integration.webhook.site import Site

_spaces = itertools.count()


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One webhook that serves."""
    place = tmp_path_factory.mktemp("webhook")
    with Cluster(place / "cluster") as cluster:
        site = Site(place, cluster)
        cluster.namespace("team", {"runwatch.dev/watch": "true"})
        site.start().ready()
        yield site
        site.close()


@pytest.fixture
def space(shared: Site) -> str:
    """A namespace of the test's own, without labels."""
    name = f"space-{next(_spaces)}"
    shared.cluster.namespace(name)
    return name


@pytest.fixture
def steady(shared: Site) -> Iterator[Site]:
    """The same, for faults of the API server: there are none afterwards."""
    yield shared
    shared.cluster.faults.clear()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """No webhook runs yet."""
    with Cluster(tmp_path / "cluster") as cluster:
        made = Site(tmp_path, cluster)
        cluster.namespace("team", {"runwatch.dev/watch": "true"})
        yield made
        made.close()
