"""Captures as objects: a real operator, a real head, real programs."""

from __future__ import annotations

import pytest

from runwatch.testing import until
from tests.integration.cluster_operator import objects
from tests.integration.cluster_operator.site import RUN, WORLD, Site

pytestmark = pytest.mark.xdist_group("operator")


def test_a_capture_is_carried_out_once_and_says_where_its_traces_are(site: Site) -> None:
    operator = site.usual()
    made = objects.capture(site.api, "first", RUN)
    session = f"capture-{made['metadata']['uid']}"
    status = site.ended("capture", "first")
    assert status["phase"] == "Succeeded", (status, operator.words())
    assert status["session"] == session and not status["message"]
    assert [each["pod"] for each in status["ranks"]] == ["llama-0", "llama-1"]
    assert [each["rank"] for each in status["traces"]] == list(range(WORLD))
    assert all(each["url"].startswith(site.relay.address) for each in status["traces"])
    (complete,) = status["conditions"]
    assert (complete["type"], complete["status"]) == ("Complete", "True")
    site.check_captured_once(session)
    thing = site.api.get("capture", "first", objects.NAMESPACE)
    assert not thing["metadata"].get("annotations") and not thing["metadata"].get("finalizers")


def test_what_cannot_be_captured_fails_in_words(site: Site) -> None:
    site.usual()
    objects.capture(site.api, "nobody", "no-such-run")
    objects.capture(site.api, "no-rank", RUN, ranks=[7], durationSeconds=1)
    nobody, no_rank = site.ended("capture", "nobody"), site.ended("capture", "no-rank")
    assert nobody["phase"] == no_rank["phase"] == "Failed"
    assert "no-such-run" in nobody["message"]
    assert "7" in no_rank["message"]
    assert not any("no-such-run" in each for each in site.captures())


def test_an_ended_capture_is_deleted_when_its_time_is_over(site: Site) -> None:
    site.usual()
    objects.capture(site.api, "short", "no-such-run", durationSeconds=1, ttlSecondsAfterFinished=1)
    objects.capture(site.api, "long", "no-such-run", durationSeconds=1)
    site.ended("capture", "long")
    gone = site.api.find
    until(lambda: gone("capture", "short", objects.NAMESPACE) is None, what=site.words())
    assert gone("capture", "long", objects.NAMESPACE) is not None


def test_a_capture_that_is_deleted_meanwhile_is_not_made_again(site: Site) -> None:
    operator = site.usual()
    made = objects.capture(site.api, "brief", RUN)
    session = f"capture-{made['metadata']['uid']}"
    until(lambda: session in site.captures(), 30, site.words())
    site.api.delete("capture", "brief", objects.NAMESPACE)
    # One with the same name is another one: it waits until the first has ended.
    again = objects.capture(site.api, "brief", RUN)
    status = site.ended("capture", "brief")
    assert status["phase"] == "Succeeded", status
    site.check_captured_once(session)
    site.check_captured_once(f"capture-{again['metadata']['uid']}")
    assert operator.process.poll() is None
