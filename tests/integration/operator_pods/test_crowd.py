"""Many pods at once: each is told of, once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from runwatch.k8s.operator.objects import Ref
from runwatch.k8s.operator.telling import KIND, Telling
from runwatch.k8s.operator.work import Work
from tests.integration.operator_pods.site import TEAM, Operator, Site

DEEDS = ("scheduled", "accepted", "starts")


async def worked(telling: Telling, pods: list[str], least: int) -> None:
    """As the operator's line of work does it: who wants it comes again."""
    work = Work[Ref](telling.handle, first_seconds=0.1, longest_seconds=1.0)
    for pod in pods:
        work.add(Ref(KIND, TEAM, pod))
    going = asyncio.create_task(work.run())
    while telling.told < least and not going.done():
        await asyncio.sleep(0.05)
    going.cancel()
    await asyncio.wait([going])


def told_of_all(site: Site, told: Operator, count: int) -> None:
    run, before = site.name("crowd"), told.telling.told
    pods = [site.pod(run, rank) for rank in range(count)]
    site.time.passes(10)
    for rank, pod in enumerate(pods):
        for deed in DEEDS:
            site.kubelet.does(pod, deed)
        site.program(pod, run, rank=rank, ranks=count)
    told.runs(worked(told.telling, pods, before + 3 * count))
    site.settled()
    for pod in pods:
        site.kubelet.does(pod, "ends", exit_code=137, reason="OOMKilled")
    told.runs(worked(told.telling, pods, before + 4 * count))
    site.settled()
    rows = Counter((pod, what) for _, pod, what in site.told(run))
    assert rows == {
        (pod, what): 1 for pod in pods for what in ("created", "scheduled", "started", "oom_killed")
    }


def test_a_hundred_pods(site: Site, told: Operator) -> None:
    told_of_all(site, told, 100)


@pytest.mark.soak
def test_a_thousand_pods(site: Site, told: Operator) -> None:
    told_of_all(site, told, 1000)
