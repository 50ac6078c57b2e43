"""One site for all tests that play pods: a head, and a node with its agent."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from runwatch.capture.process import children
from tests.integration.pods import kubelet, memory
from tests.integration.pods.kubelet import Node
from tests.integration.pods.left import left
from tests.integration.pods.site import Site


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Leaves nothing behind."""
    if why := kubelet.why_not():
        pytest.skip(f"no pod can be played here: {why}")
    root = tmp_path_factory.mktemp("site")
    before = {*children(os.getpid())}
    made = Site(root)
    try:
        made.start_head()
        yield made
    finally:
        made.close()
    assert not left(root, before)


@pytest.fixture(scope="package")
def node(site: Site) -> Node:
    """It has an agent."""
    made = site.node("gpu-1")
    site.start_agent(made)
    return made


@pytest.fixture(autouse=True)
def _cleared(site: Site) -> Iterator[None]:
    """The pods of a test end with it."""
    with site.cleared():
        yield


@pytest.fixture(scope="package")
def limited() -> None:
    """For tests whose pods have a memory limit."""
    if why := memory.why_not():
        pytest.skip(why)
