from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.chart import define
from tests.cluster.server import Cluster

Said = subprocess.CompletedProcess[str]
Kubectl = Callable[..., Said]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With the chart's own kinds."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        define(made)
        yield made


@pytest.fixture(scope="package", autouse=True)
def caches_nothing_at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What kubectl remembers of clusters that are gone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECACHEDIR", str(tmp_path_factory.mktemp("kubectl")))
        yield


@pytest.fixture(autouse=True)
def nothing_goes_wrong(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test plans to go wrong ends with it."""
    yield
    if "cluster" in request.fixturenames:
        made: Cluster = request.getfixturevalue("cluster")
        made.faults.clear()
        made.faults.up()


@pytest.fixture
def kubectl(cluster: Cluster) -> Kubectl:
    """`kubectl("get", "pods").stdout`, as an admin; `code`: how it must end."""

    def run(*words: str, code: int = 0, config: Path | None = None, say: str = "") -> Said:
        done = subprocess.run(
            ["kubectl", *words],
            env={**os.environ, "KUBECONFIG": str(config or cluster.kubeconfig)},
            input=say,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done

    return run
