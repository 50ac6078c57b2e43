"""Two operators: one works, the other takes over."""

from __future__ import annotations

import pytest

from tests.integration.cluster_operator import objects
from tests.integration.cluster_operator.deeds import Deeds
from tests.integration.cluster_operator.site import RUN, Site

CONNECTIONS = "mldiagnosticsconnections.diagon.gke.io"
pytestmark = pytest.mark.xdist_group("operator")


def _holder(site: Site) -> str:
    lease = site.api.find("lease", "runwatch-operator", "runwatch") or {"spec": {}}
    return str(lease["spec"].get("holderIdentity", ""))


def test_one_of_two_works_and_the_other_takes_over_when_it_dies(site: Site) -> None:
    first = site.begin_operator("operator-a", RUNWATCH_LEASE_SECONDS="5")
    first.works()
    second = site.begin_operator("operator-b", RUNWATCH_LEASE_SECONDS="5")
    site.wait(lambda: second.asked("readyz") == 200, "the second to be ready")
    # Killed after the head was asked: the second must find what the first began.
    deeds = Deeds(site, "captures", kill_at=2)
    deeds.of(first)
    made = objects.capture(site.api, "shared", RUN)
    site.wait(lambda: deeds.is_killed, "the first to be killed")
    assert not second.is_leader()
    assert site.ended("capture", "shared")["phase"] == "Succeeded"
    assert second.is_leader() and _holder(site) == "operator-b"
    site.check_captured_once(f"capture-{made['metadata']['uid']}")


def test_told_to_end_it_gives_the_lease_back(site: Site) -> None:
    first = site.begin_operator("operator-a", RUNWATCH_LEASE_SECONDS="60")
    first.works()
    second = site.begin_operator("operator-b", RUNWATCH_LEASE_SECONDS="1")
    site.wait(lambda: second.asked("readyz") == 200, "the second to be ready")
    assert first.asked("healthz") == first.asked("readyz") == 200
    assert first.stop() == 0, first.words()
    # The first's lease would have been good for a minute.
    site.wait(second.is_leader, "the second to lead")
    assert second.stop() == 0
    assert _holder(site) == ""


def test_limited_to_a_namespace_it_works_there_with_rights_for_that(site: Site) -> None:
    """And without the connections' kind, which a site may turn off."""
    site.api.delete("crd", CONNECTIONS)
    values = {"operator": {"namespaces": [objects.NAMESPACE]}, "crds": {"connections": False}}
    site.grant(values)
    site.api.namespace("others")
    try:
        operator = site.begin_operator(RUNWATCH_NAMESPACES=objects.NAMESPACE)
        objects.capture(site.api, "inside", "no-such-run")
        objects.capture(site.api, "outside", "no-such-run", namespace="others")
        site.ended("capture", "inside")
        again = objects.capture(site.api, "later", "no-such-run")
        assert site.ended("capture", again["metadata"]["name"])["phase"] == "Failed"
        assert not site.api.get("capture", "outside", "others").get("status")
        assert operator.process.poll() is None
        assert site.refused() == []
    finally:
        site.api.delete("capture", "outside", "others")
        site.grant({})
