"""Killed between any deed and its answer, and begun again: what was asked for is done once."""

from __future__ import annotations

from typing import Any

import pytest

from runwatch.testing import until
from tests.integration.cluster_operator import objects
from tests.integration.cluster_operator.deeds import Deeds
from tests.integration.cluster_operator.site import RUN, Site

pytestmark = pytest.mark.xdist_group("operator")
Thing = dict[str, Any]


def a_capture(site: Site, name: str) -> Thing:
    return objects.capture(site.api, name, RUN)


def a_connection(site: Site, name: str) -> Thing:
    return objects.connection(
        site.api, name, podName="llama-0,llama-1", storageLocation=str(site.profiles)
    )


KINDS = {
    "captures": (a_capture, "capture"),
    "mldiagnosticsconnections": (a_connection, "connection"),
}


def one_life(site: Site, plural: str, kill_at: int) -> Deeds:
    """One object, and an operator that dies at this deed; 0: at none."""
    make, kind = KINDS[plural]
    deeds = Deeds(site, plural, kill_at=kill_at)
    deeds.of(site.begin_operator())
    name = f"{kind}-{kill_at}"
    made = make(site, name)
    if kill_at:
        first = site.operators[0].process
        until(lambda: first.poll() is not None, 60, f"deed {kill_at} of {deeds.names}")
        site.begin_operator()
    status = site.ended(plural, name)
    assert status["phase"] == "Succeeded", (kill_at, deeds.names, status, site.words())
    session = f"{kind}-{made['metadata']['uid']}"
    site.check_captured_once(session)
    if kind == "connection":
        folder = site.profiles / "plugins/profile" / session
        assert sorted(each.name for each in folder.iterdir()) == [
            "llama-0.kineto.json.gz",
            "llama-1.kineto.json.gz",
        ]
    return deeds


def steps(site: Site, plural: str) -> int:
    """How many deeds one life has that nobody disturbs."""
    deeds = one_life(site, plural, 0)
    site.end_operators()
    assert "head 202" in deeds.names and len(deeds.names) >= 4, deeds.names
    return len(deeds.names)


@pytest.mark.parametrize(("plural", "kill_at"), [("captures", 2), ("mldiagnosticsconnections", 3)])
def test_killed_at_a_deed_it_is_captured_once(site: Site, plural: str, kill_at: int) -> None:
    """Those by which the head is asked: the rest is in the soak."""
    one_life(site, plural, kill_at)


@pytest.mark.soak
@pytest.mark.parametrize("plural", KINDS)
def test_killed_at_every_deed_it_is_captured_once(site: Site, plural: str) -> None:
    for kill_at in range(1, steps(site, plural) + 1):
        one_life(site, plural, kill_at)
        site.end_operators()
