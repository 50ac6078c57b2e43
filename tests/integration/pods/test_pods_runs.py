"""A pod becomes a run: of which workload, which rank, on which node, and how it ended."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Final

import pytest

from runwatch.testing import until
from tests.integration.pods import release
from tests.integration.pods.kubelet import Node
from tests.integration.pods.site import Site
from tests.integration.pods.workloads import JobSet, ours

pytestmark = pytest.mark.xdist_group("pods")

MODE: Final = "runwatch.dev/mode"


ENDS: Final = {
    "well": (0, "completed", ""),
    "three": (3, "failed", "exit code 3"),
    "fails": (1, "failed", "ValueError: the learning rate is negative (exit code 1)"),
}


def test_how_programs_end(site: Site, node: Node) -> None:
    jobs = {end: ours(f"ends-{end}", end) for end in ENDS}
    pods = {end: site.play(job.admitted(), node) for end, job in jobs.items()}
    for end, pod in pods.items():
        site.holds(pod, jobs[end], node)
        pod.main.signal(signal.SIGUSR1)
    for end, (code, state, words) in ENDS.items():
        assert pods[end].finish() == {"trainer": code}
        told = site.process(pods[end], jobs[end], exit_code=code, signal=None, state=state)
        assert told["reason"] == words and not told["out_of_memory"]


def test_ranks_are_those_of_the_controller(site: Site, node: Node) -> None:
    """Two pods of a Job count themselves by its variable; a launcher's own variable goes before."""
    job = ours("two-ranks")
    pods = [site.started(job, node, rank) for rank in (0, 1)]
    told = [site.process(pod, job, state="running") for pod in pods]
    assert [(each["rank"], each["host"]) for each in told] == [
        (0, "two-ranks-workers-0-0"),
        (1, "two-ranks-workers-0-1"),
    ]
    run = site.run(job)
    assert run is not None and run["ranks"] == 2 and run["attempts"] == 1
    torchrun = ours("a-launcher", env={"RANK": "7", "WORLD_SIZE": "8"})
    pod = site.started(torchrun, node)
    assert site.process(pod, torchrun, state="running")["rank"] == 7


def test_a_pod_without_an_agent_is_told_who_it_is(site: Site, node: Node) -> None:
    """Mode none: nothing is mounted or begun."""
    job = JobSet("untold", ["sleep", "600"], notes={MODE: "none"})
    pod = site.play(job.admitted(), node)
    told = until(lambda: environment_of(pod.main.pid), 60, "the program to begin")
    about = pod.pod["metadata"]
    assert told["POD_NAME"] == about["name"] and told["RUNWATCH_POD_UID"] == about["uid"]
    assert told["POD_NAMESPACE"] == "research" and told["NODE_NAME"] == "gpu-1"
    assert json.loads(told["RUNWATCH_WORKLOAD"])["uid"] == job.uid
    assert json.loads(told["GKE_DIAGON_IDENTIFIER"])["metadata.name"] == "untold"
    assert not {"RUNWATCH_DIR", "RUNWATCH_HEAD", "RUNWATCH_AGENT", "RUNWATCH_AUTO"} & told.keys()
    assert list(pod.containers) == ["trainer"] and not pod.sidecars
    volumes = [volume["name"] for volume in pod.pod["spec"]["volumes"]]
    assert volumes == ["programs"] and "initContainers" not in pod.pod["spec"]


def environment_of(pid: int) -> dict[str, str] | None:
    """None before it has become the container's program."""
    words = Path(f"/proc/{pid}/environ").read_text().split("\0")
    told = dict(word.split("=", 1) for word in words if word)
    return told if "POD_NAME" in told else None


@pytest.mark.soak
def test_an_agent_without_the_chart(site: Site) -> None:
    """Of the manifest in deploy/, on a node of its own."""
    node = site.node("gpu-2")
    site.start_agent(node, release.manifest())
    job = ours("without-the-chart", "three")
    pod = site.started(job, node)
    pod.main.signal(signal.SIGUSR1)
    assert pod.finish() == {"trainer": 3}
    assert site.process(pod, job, state="failed", exit_code=3)["node"] == "gpu-2"
