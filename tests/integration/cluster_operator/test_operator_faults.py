"""What goes wrong between the operator, the API server and the head: later, and never twice."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.cluster.faults import CUT, Asked
from tests.integration.cluster_operator import objects
from tests.integration.cluster_operator.relay import Heard
from tests.integration.cluster_operator.site import RUN, Site

pytestmark = pytest.mark.xdist_group("operator")
STATUS = r"/captures/[^/]+/status$"


def test_conflicts_lost_answers_and_watches_that_break(site: Site) -> None:
    """All of it in one life: a write meets 409, another is done and nobody says so, the head's
    answer is lost, watches break and what they missed is forgotten."""
    operator = site.usual()
    operator.works()
    faults = site.api.faults
    faults.conflict(STATUS, times=2)
    faults.lose("PATCH", STATUS, times=2)
    faults.fail("GET", r"/captures/", 503, times=2)
    site.relay.losing = re.compile(r"^POST .*/captures$")
    faults.drop_watches()
    faults.compact()
    before = site.relay.count("POST", "/captures")
    made = objects.capture(site.api, "rough", RUN)
    site.wait(lambda: site.relay.count("POST", "/captures") > before, "the head to be asked")
    site.relay.losing = re.compile("(?!)")
    status = site.ended("capture", "rough")
    assert status["phase"] == "Succeeded", (status, site.words())
    assert faults.pending() == 0
    site.check_captured_once(f"capture-{made['metadata']['uid']}")
    assert operator.process.poll() is None


def test_an_api_server_that_is_away_and_a_head_that_is(site: Site) -> None:
    """The lease is lost meanwhile, and taken again; nobody is asked twice."""
    operator = site.usual()
    operator.works()
    made = objects.capture(site.api, "patient", RUN)
    session = f"capture-{made['metadata']['uid']}"
    site.wait(lambda: session in site.captures(), "the head to be asked")
    site.api.faults.down()
    site.wait(lambda: not operator.is_leader(), "the lease to be lost")
    site.relay.is_away = True
    site.api.faults.up()
    operator.works()
    later = objects.capture(site.api, "later", RUN)
    site.wait(lambda: _says(site, "later", "does not answer"), "the object to say why it waits")
    site.relay.is_away = False
    assert site.ended("capture", "patient")["phase"] == "Succeeded"
    assert site.ended("capture", "later")["phase"] == "Succeeded"
    site.check_captured_once(session)
    site.check_captured_once(f"capture-{later['metadata']['uid']}")


def test_a_wrong_token_is_no_fault_of_the_object(site: Site) -> None:
    right = site.token_file.read_text()
    site.token_file.write_text("wrong-token-of-some-length")
    site.usual()
    made = objects.capture(site.api, "locked-out", RUN)
    site.wait(lambda: _says(site, "locked-out", "token"), "the object to say why it waits")
    site.token_file.chmod(0o644)  # no better: everybody may read it
    site.wait(lambda: _says(site, "locked-out", "chmod"), "the object to say why it waits")
    site.token_file.chmod(0o600)
    site.token_file.write_text(right)
    assert site.ended("capture", "locked-out")["phase"] == "Succeeded"
    site.check_captured_once(f"capture-{made['metadata']['uid']}")


@pytest.mark.parametrize(
    ("seconds", "settings"),
    [
        # A thirtieth of everything.
        (1.0, {"RUNWATCH_LEASE_SECONDS": "0.5", "RUNWATCH_ANSWER_SECONDS": "1.5"}),
        pytest.param(
            30.0,
            {"RUNWATCH_LEASE_SECONDS": "15", "RUNWATCH_ANSWER_SECONDS": "45"},
            marks=[pytest.mark.soak, pytest.mark.timeout(1800)],
        ),
    ],
)
def test_a_slow_api_server_makes_it_late(
    site: Site, seconds: float, settings: dict[str, str]
) -> None:
    """Each answer takes twice as long as a lease is good for."""
    site.api.faults.latency_seconds = seconds
    operator = site.begin_operator(**settings)
    made = objects.capture(site.api, "slow", RUN)
    assert site.ended("capture", "slow", 60 + 40 * seconds)["phase"] == "Succeeded"
    site.check_captured_once(f"capture-{made['metadata']['uid']}")
    assert operator.process.poll() is None


@pytest.mark.soak
@pytest.mark.parametrize("what", ["409", "lost", "cut", "500", "410", "watches", "server"])
def test_each_trouble_at_every_step(site: Site, what: str) -> None:
    """After each of the operator's deeds comes the trouble, for as long as the object lives."""
    faults = site.api.faults

    def forget() -> None:
        faults.compact()
        faults.drop_watches()

    troubles: dict[str, Callable[[], None]] = {
        "409": lambda: faults.conflict(STATUS),
        "lost": lambda: faults.lose("PATCH", STATUS),
        "cut": lambda: faults.fail("", r"/captures/", CUT),
        "500": lambda: faults.fail("", r"/captures/", 500),
        "410": forget,
        "watches": faults.drop_watches,
        "server": lambda: None,
    }

    def next_trouble(did: Asked | Heard) -> None:
        is_write = did.method in ("PATCH", "POST") and "/captures" in did.path
        if is_write and did.status < 300:
            troubles[what]()

    operator = site.begin_operator()
    operator.works()
    faults.done.append(next_trouble)

    def begun(heard: Heard) -> None:
        # Once: each trouble after it makes the operator ask again.
        if heard.method == "POST" and site.relay.count("POST", "/captures") == before + 1:
            next_trouble(heard)

    before = site.relay.count("POST", "/captures")
    site.relay.done.append(begun)
    made = objects.capture(site.api, "troubled", RUN)
    if what == "server":
        site.wait(lambda: site.relay.count("POST", "/captures") > before, "the head to be asked")
        faults.restart()
    status = site.ended("capture", "troubled")
    assert status["phase"] == "Succeeded", (status, site.words())
    site.check_captured_once(f"capture-{made['metadata']['uid']}")
    assert operator.process.poll() is None


def _says(site: Site, name: str, words: str) -> bool:
    status = site.api.get("capture", name, objects.NAMESPACE).get("status") or {}
    return status.get("phase") == "Pending" and words in status.get("message", "")
