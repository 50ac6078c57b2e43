"""Nobody captures a neighbour: an object reaches what runs in its own namespace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.cluster_operator import objects
from tests.integration.cluster_operator.site import RUN, Site

pytestmark = pytest.mark.xdist_group("operator")
NEIGHBOUR = "neighbour"


@pytest.fixture
def neighbour(site: Site) -> Iterator[str]:
    site.api.namespace(NEIGHBOUR)
    yield NEIGHBOUR
    for kind in ("captures", "mldiagnosticsconnections"):
        for space in (NEIGHBOUR, "runwatch"):
            for thing in site.api.list(kind, space):
                site.api.delete(kind, thing["metadata"]["name"], space)


def test_a_neighbour_captures_nobody_and_is_not_told_where_the_run_is(
    site: Site, neighbour: str
) -> None:
    site.begin_operator()
    objects.capture(site.api, "curious", RUN, namespace=neighbour)
    place = str(site.profiles / "curious")
    objects.connection(site.api, "curious", neighbour, storageLocation=place)
    refused = site.ended("capture", "curious", namespace=neighbour)
    assert refused["phase"] == "Failed" and f"namespace {neighbour}" in refused["message"]
    assert objects.NAMESPACE not in refused["message"].split()
    refused = site.ended("mldiagnosticsconnection", "curious", namespace=neighbour)
    assert refused["captureResult"]["status"] == "Failed"
    assert "podNamespace" in refused["captureResult"]["errorMessage"]
    uids = [
        site.api.get(kind, "curious", neighbour)["metadata"]["uid"]
        for kind in ("capture", "mldiagnosticsconnection")
    ]
    assert not any(uid in session for uid in uids for session in site.captures())
    assert not (site.profiles / "curious").exists()


def test_who_looks_after_the_cluster_captures_everything(site: Site, neighbour: str) -> None:
    """From the operator's namespace, and from those that its settings name."""
    site.begin_operator(RUNWATCH_WIDE_NAMESPACES=f"another, {neighbour}")
    for space in ("runwatch", neighbour):
        made = objects.capture(site.api, "all", RUN, namespace=space)
        assert site.ended("capture", "all", namespace=space)["phase"] == "Succeeded"
        site.check_captured_once(f"capture-{made['metadata']['uid']}")
