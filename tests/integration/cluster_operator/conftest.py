from __future__ import annotations

from collections.abc import Iterator

import pytest

from runwatch.testing import until
from tests.integration.cluster_operator import objects
from tests.integration.cluster_operator.site import DEADLINE, RUN, WORLD, Site


@pytest.fixture(scope="package")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for the whole package: torch takes long to import, and keeps a processor busy."""
    made = Site(tmp_path_factory.mktemp("site"))
    try:
        made.start()
        made.train()
        until(lambda: _ready(made) == WORLD, DEADLINE, made.words())
        yield made
    finally:
        made.close()


@pytest.fixture
def site(training: Site) -> Iterator[Site]:
    """No operator but the usual one, no lease and no object is left of it."""
    yield training
    refused = training.refused()
    if not training.is_usual():
        training.end_operators()
    training.settle()
    assert refused == [], "rights that the chart does not give"
    for kind in ("captures", "mldiagnosticsconnections"):
        for thing in training.api.list(kind):
            training.api.delete(kind, thing["metadata"]["name"], objects.NAMESPACE)


def _ready(site: Site) -> int:
    status, told = site.ask(f"/runs/{RUN}/captures/preflight", {})
    return len(told["processes"]) if status == 200 else 0
