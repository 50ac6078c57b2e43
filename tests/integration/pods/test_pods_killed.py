"""A pod is killed: by a signal, by whoever deletes it, by the kernel when its memory ran out."""

from __future__ import annotations

import signal

import pytest

from tests.integration.pods.kubelet import Node
from tests.integration.pods.site import Site
from tests.integration.pods.workloads import ours

pytestmark = pytest.mark.xdist_group("pods")


def test_by_a_signal(site: Site, node: Node) -> None:
    job = ours("shot")
    pod = site.started(job, node)
    pod.main.signal(signal.SIGKILL)
    assert pod.finish() == {"trainer": 128 + signal.SIGKILL}
    told = site.process(pod, job, state="killed", signal="SIGKILL")
    assert told["exit_code"] is None and not told["out_of_memory"]
    assert site.values(job) == (5, sum(range(5)))


def test_it_is_deleted(site: Site, node: Node) -> None:
    """Process 1 of a pod does not hear a SIGTERM that it has no handler for: the grace passes."""
    job = ours("deleted")
    pod = site.started(job, node)
    pod.evict(grace_seconds=0.5)
    assert pod.main.process.returncode == 128 + signal.SIGKILL
    told = site.process(pod, job, state="killed", signal="SIGKILL")
    assert not told["out_of_memory"]


def test_memory_ran_out_in_one_of_three(site: Site, node: Node, limited: None) -> None:
    """Its neighbours have limits, too.  One is killed at the same time, and one goes on."""
    eater = ours("eater", "eats", memory="192Mi")
    others = ours("killed-beside", memory="192Mi"), ours("lives-beside", memory="192Mi")
    eating, killed, living = (site.started(job, node) for job in (eater, *others))
    eating.main.signal(signal.SIGUSR1)
    eating.finish()
    killed.main.signal(signal.SIGKILL)
    assert eating.main.reason == "OOMKilled" and killed.finish() and killed.main.reason == "Error"
    told = site.process(eating, eater, state="killed", signal="SIGKILL")
    assert told["out_of_memory"] and "memory" in told["reason"]
    beside = site.process(killed, others[0], state="killed", signal="SIGKILL")
    assert not beside["out_of_memory"] and "memory" not in beside["reason"]
    living.main.signal(signal.SIGUSR1)
    assert living.finish() == {"trainer": 0}
    well = site.process(living, others[1], state="completed", exit_code=0)
    assert not well["out_of_memory"]


@pytest.mark.soak
def test_memory_runs_out_again_and_again(site: Site, node: Node, limited: None) -> None:
    """Each time it is known, and the one that goes on beside them never gets the blame."""
    calm = ours("calm", memory="192Mi")
    living = site.started(calm, node)
    for number in range(12):
        job = ours(f"eater-{number}", "eats", memory=f"{128 + 32 * number}Mi")
        pod = site.started(job, node)
        pod.main.signal(signal.SIGUSR1)
        pod.finish()
        told = site.process(pod, job, state="killed", signal="SIGKILL")
        assert told["out_of_memory"], told
        pod.close()
        assert site.process(living, calm, state="running")
    living.main.signal(signal.SIGKILL)
    assert not site.process(living, calm, state="killed", signal="SIGKILL")["out_of_memory"]
