"""Something is away for a while: the head, the wire, the agent, the pods themselves."""

from __future__ import annotations

import signal

import pytest

from tests.integration.pods.kubelet import Node
from tests.integration.pods.site import Site
from tests.integration.pods.test_pods_sidecar import SIDECAR
from tests.integration.pods.workloads import JobSet, ours

pytestmark = pytest.mark.xdist_group("pods")

ALL = 6, float(sum(range(6)))
"""What `ours` logs: how often, and the sum."""


def arrives(site: Site, job: JobSet) -> None:
    """All of it, and nothing twice."""
    site.until(lambda: site.values(job) == ALL, f"all of {job.name}", job)


def hasty(name: str, end: str = "well", **more: object) -> JobSet:
    return ours(name, end, env={"HURRIES": "1"}, **more)


def test_the_head_comes_later_than_the_pods(site: Site, node: Node) -> None:
    """One has ended by then.  The agent in a pod that has ended waits: no other will come."""
    bare = site.node("bare-2")
    before, alone, after = hasty("before-it"), hasty("alone", **SIDECAR), ours("over-it")
    site.stop_head()
    try:
        ended, lonely = site.play(before.admitted(), node), site.play(alone.admitted(), bare)
        living = site.play(after.admitted(), node)
        assert ended.finish() == {"trainer": 0} and lonely.main.wait(60) == 0
        agent = lonely.sidecars["runwatch-agent"]
        agent.signal(signal.SIGTERM)
    finally:
        site.start_head()
    assert agent.wait(60) == 0, agent.words()
    for job in (before, alone):
        arrives(site, job)
    site.process(ended, before, state="completed")
    site.process(living, after, state="running")
    living.main.signal(signal.SIGUSR1)
    assert living.finish() == {"trainer": 0}
    arrives(site, after)
    site.process(living, after, state="completed", exit_code=0)


def test_the_wire_of_the_agent_is_cut(site: Site, node: Node) -> None:
    job = ours("cut-off", "three")
    pod = site.started(job, node)
    site.wire.cut(site.agents[node.name].address)
    try:
        pod.main.signal(signal.SIGUSR1)
        assert pod.finish() == {"trainer": 3}
        assert site.values(job) == (5, sum(range(5)))
    finally:
        site.wire.mend(site.agents[node.name].address)
    arrives(site, job)
    site.process(pod, job, state="failed", exit_code=3)


def test_the_agent_is_killed_and_comes_again(site: Site, node: Node) -> None:
    """One pod ends while there is none.  The next agent watches the other again."""
    ending, going = ours("ends-unseen"), ours("goes-on")
    unseen, seen = site.started(ending, node), site.started(going, node)
    site.kill_agent(node)
    unseen.main.signal(signal.SIGUSR1)
    assert unseen.finish() == {"trainer": 0}
    site.start_agent(node)
    arrives(site, ending)
    site.process(unseen, ending, state="completed")
    site.until(lambda: site.watches(node, seen.main.pid), "the next agent to hold it")
    seen.main.signal(signal.SIGKILL)
    site.process(seen, going, state="killed", signal="SIGKILL")


def test_pods_that_come_again_are_the_next_attempt(site: Site, node: Node) -> None:
    """Of the same workload, and the same run."""
    job = ours("again", "three")
    first = site.started(job, node)
    first.main.signal(signal.SIGUSR1)
    assert first.finish() == {"trainer": 3}
    site.process(first, job, state="failed", exit_code=3)
    second = site.started(job, node)
    assert site.process(second, job, state="running")["attempt"] == 2
    assert [each["attempt"] for each in site.processes(job)] == [1, 2]
    run = site.run(job)
    assert run is not None and run["attempts"] == 2 and run["state"] == "running"
