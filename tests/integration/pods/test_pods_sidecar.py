"""Where no folder of the node may be mounted, the agent is in the pod."""

from __future__ import annotations

import signal
from typing import Any, Final

import pytest

from tests.cluster.podsecurity import violations
from tests.integration.pods.kubelet import Node
from tests.integration.pods.site import Site
from tests.integration.pods.workloads import JobSet, ours

pytestmark = pytest.mark.xdist_group("pods")

LABELS: Final = {"pod-security.kubernetes.io/enforce": "restricted"}
SIDECAR: Final[dict[str, Any]] = {"namespace_labels": LABELS, "restricted": True}
MANY: Final = 2_000


def hasty(name: str, end: str) -> JobSet:
    """It waits for nobody."""
    return ours(name, end, str(MANY), env={"HURRIES": "1"}, **SIDECAR)


@pytest.fixture(scope="module")
def bare(site: Site) -> Node:
    """A node without an agent."""
    return site.node("bare-1")


def test_the_records_of_a_program_that_dies_at_once_arrive(site: Site, bare: Node) -> None:
    """Without a word: the program writes to a map, and its agent is told to end right after it."""
    job = hasty("vanished", "vanishes")
    pod = site.play(job.admitted(), bare)
    assert pod.finish() == {"trainer": 9}
    assert pod.sidecars["runwatch-agent"].process.returncode == 0, pod.words()
    assert site.values(job) == (MANY + 1, sum(range(MANY + 1))), pod.words()


def test_it_meets_the_restricted_profile(site: Site, bare: Node) -> None:
    job = ours("restricted", **SIDECAR)
    admitted = job.admitted()
    assert violations("restricted", job.pod()) == violations("restricted", admitted) == []
    pod = site.play(admitted, bare)
    told = site.process(pod, job, state="running")
    assert told["host"] == "restricted-workers-0-0" and told["node"] == "bare-1"
    agent = pod.sidecars["runwatch-agent"]
    pod.main.signal(signal.SIGUSR1)
    assert pod.finish() == {"trainer": 0} and agent.process.returncode == 0
    site.process(pod, job, state="completed")
    assert not bare.path("/var/lib/runwatch").exists()


@pytest.mark.soak
def test_who_asks_for_its_stacks_is_told_why_there_are_none(site: Site, bare: Node) -> None:
    """In a container of its own an agent sees no other's processes."""
    job = ours("unseen", **SIDECAR)
    site.process(site.play(job.admitted(), bare), job, state="running")
    run = site.run(job)
    assert run is not None

    def answered() -> str:
        return site.command("stacks", run["run"]).stdout if "no agent of it" not in said() else ""

    def said() -> str:
        return str(site.ask(f"/runs/{run['run']}/stacks", {"rounds": 1})["unreachable"])

    assert "sidecar" in site.until(answered, "an answer")
