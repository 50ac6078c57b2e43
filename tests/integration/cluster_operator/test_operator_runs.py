"""Runs as objects, and Events on the workload."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster_operator import objects, programs
from tests.integration.cluster_operator.kubectl import printed
from tests.integration.cluster_operator.site import Site

pytestmark = pytest.mark.xdist_group("operator")
Thing = dict[str, Any]


def _run_of(site: Site, workload: Thing) -> Thing | None:
    uid = workload["metadata"]["uid"]
    found = [
        run
        for run in site.api.list("runs", objects.NAMESPACE)
        if [each["uid"] for each in run["metadata"]["ownerReferences"]] == [uid]
    ]
    assert len(found) <= 1, found
    return found[0] if found else None


def _status(site: Site, workload: Thing) -> Thing:
    run = _run_of(site, workload) or {}
    status: Thing = run.get("status") or {}
    return status


def _events(site: Site, workload: Thing) -> list[tuple[str, str, str]]:
    uid = workload["metadata"]["uid"]
    return sorted(
        (each["type"], each["reason"], each["message"])
        for each in site.api.list("events", objects.NAMESPACE)
        if each["involvedObject"].get("uid") == uid
    )


def test_a_run_is_an_object_and_its_incidents_are_events_told_once(
    site: Site, tmp_path: Path
) -> None:
    workload, gate = objects.job(site.api, "opt"), tmp_path / "gate"
    pod = objects.pod(site.api, "opt-0", workload)
    first = site.begin_operator()
    site.begin(programs.STANDING, "opt", str(gate), **objects.inside(workload, pod))
    site.wait(lambda: _status(site, workload).get("stalled"), "it to stand still")
    stalled = site.wait(lambda: _events(site, workload), "an Event")
    assert len(stalled) == 1 and stalled[0][:2] == ("Warning", "Stalled"), stalled
    # Which rank, what it does, and in which line.
    assert re.match(r"run opt: rank 0 \w+ \(<string>:8\)", stalled[0][2]), stalled
    status = _status(site, workload)
    assert status["state"] == "stalled" and status["lastIncident"] in stalled[0][2]
    assert status["ranks"] == 1 and status["step"] in (9, 10)
    shown = printed(site, "get", "rwrun", "-n", objects.NAMESPACE)
    assert re.match("NAME +STATE +STEP +GOODPUT +STALLED +INCIDENT +AGE\n", shown), shown
    assert re.search(r"\nopt +stalled +\d+ +[\d.]+ +true +rank 0 .* +\d+s\n", shown), shown

    first.kill()
    gate.write_text("die")
    again = site.begin_operator()
    again.works()
    site.wait(lambda: _status(site, workload).get("state") == "failed", "it to fail")
    told = site.wait(
        lambda: _events(site, workload) if len(_events(site, workload)) >= 2 else None, "Events"
    )
    assert [each[:2] for each in told] == [
        ("Normal", "StallEnded"),
        ("Warning", "Stalled"),
    ]
    assert told[0][2] == "run opt: no longer: the run ended: failed"
    assert all(each["count"] == 1 for each in site.api.list("events", objects.NAMESPACE))

    again.kill()
    site.begin_operator("operator-b").works()
    handled = site.relay.count("GET", "/incidents")
    site.wait(lambda: site.relay.count("GET", "/incidents") > handled + 3, "looks")
    assert _events(site, workload) == told

    site.api.delete("job", "opt", objects.NAMESPACE, propagationPolicy="Background")
    site.wait(lambda: _run_of(site, workload) is None, "the run to go with its workload")


def test_a_healthy_run_has_an_object_and_no_event(site: Site) -> None:
    site.usual()
    job = site.api.get("job", "llama", objects.NAMESPACE)
    before = site.wait(lambda: _status(site, job).get("step"), "a step")
    site.wait(lambda: _status(site, job)["step"] > before, "a later step")
    status = _status(site, job)
    assert status["state"] == "running" and not status["stalled"] and status["ranks"] == 2
    assert status["url"].startswith(site.relay.address)
    assert _events(site, job) == []


def test_a_pod_that_names_another_workload_makes_nothing(site: Site) -> None:
    """Anybody may write an annotation: what it names must be there, with that uid."""
    job = site.api.get("job", "llama", objects.NAMESPACE)
    forged = job | {"metadata": job["metadata"] | {"name": "forged"}}
    objects.pod(site.api, "forger", forged)
    begun = site.usual()
    site.wait(lambda: _run_of(site, job), "the run")
    site.wait(lambda: begun.handled("runs") >= 2, "both to be looked at")
    runs = site.api.list("runs", objects.NAMESPACE)
    assert "forged" not in {each["metadata"]["ownerReferences"][0]["name"] for each in runs}
    site.api.delete("pod", "forger", objects.NAMESPACE)
