from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.operator_pods.site import Operator, Site, operator, running


@pytest.fixture(scope="package")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("pods")) as site:
        yield site


@pytest.fixture
def site(whole: Site) -> Site:
    """One for all tests: each has workloads and runs of its own."""
    whole.again()
    return whole


@pytest.fixture(scope="package")
def told(whole: Site) -> Iterator[Operator]:
    """One for all tests, too: it tells of many workloads at once anyway."""
    with operator(whole) as told:
        yield told
