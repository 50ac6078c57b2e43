"""Many pods at once: each workload's run is one object, each pod's story is told once."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.integration.cluster_operator import objects, programs
from tests.integration.cluster_operator.site import Site

pytestmark = pytest.mark.xdist_group("operator")
Thing = dict[str, Any]


@pytest.mark.parametrize(
    ("workloads", "pods"), [(4, 25), pytest.param(20, 50, marks=pytest.mark.soak)]
)
def test_a_thousand_pods_at_once(site: Site, workloads: int, pods: int) -> None:
    """A tenth of them but in the soak.  The operator is killed amid them."""
    jobs = [objects.job(site.api, f"crowd-{number}") for number in range(workloads)]
    made = {
        job["metadata"]["uid"]: [
            objects.pod(site.api, f"{job['metadata']['name']}-{number}", job)
            for number in range(pods)
        ]
        for job in jobs
    }
    told = [
        objects.inside(job, made[job["metadata"]["uid"]][0]) | {"RUNWATCH_ATTEMPT": "one"}
        for job in jobs
    ]
    program = site.begin(programs.SEVERAL)
    assert program.stdin is not None
    program.stdin.write("".join(f"{json.dumps(each)}\n" for each in told).encode())
    program.stdin.close()
    first = site.begin_operator()
    site.wait(lambda: _runs(site, jobs), "the first runs")
    first.kill()
    again = site.begin_operator()
    site.wait(lambda: len(_runs(site, jobs)) >= workloads, "an object for each run")
    site.wait(lambda: again.handled("pods") >= workloads * pods, "each pod to be looked at")
    owners = Counter(each["metadata"]["ownerReferences"][0]["uid"] for each in _runs(site, jobs))
    assert owners == Counter(made.keys())
    for run in _runs(site, jobs):
        assert run["status"]["state"] == "completed", run
    for run in _runs(site, jobs):
        _check_told(site, run, made[run["metadata"]["ownerReferences"][0]["uid"]])
    for job in jobs:
        site.api.delete("job", job["metadata"]["name"], objects.NAMESPACE)
        for pod in made[job["metadata"]["uid"]]:
            site.api.delete("pod", pod["metadata"]["name"], objects.NAMESPACE)


def _runs(site: Site, jobs: list[Thing]) -> list[Thing]:
    uids = {job["metadata"]["uid"] for job in jobs}
    return [
        run
        for run in site.api.list("runs", objects.NAMESPACE)
        if run["metadata"]["ownerReferences"][0]["uid"] in uids and run.get("status")
    ]


def _check_told(site: Site, run: Thing, pods: list[Thing]) -> None:
    """Of the pod that is the run's: its process said so.  The others came for nothing."""

    def told() -> list[tuple[str, str, int]]:
        _, answer = site.ask(f"/runs/{run['spec']['run']}/events?kind=pod&limit=10000")
        return [
            (each["body"]["uid"], each["body"]["what"], each["time_ns"])
            for each in answer["events"]
        ]

    found = site.wait(told, f"what is told of {pods[0]['metadata']['name']}")
    assert {uid for uid, _, _ in found} == {pods[0]["metadata"]["uid"]}
    assert len(found) == len(set(found)), found
