"""How a run's process ended that nobody saw end, as its cluster tells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from runwatch.record import RunId
from tests.cluster.kubelet import UNSCHEDULABLE
from tests.integration.asked import Asked
from tests.integration.operator_pods.site import Operator, Program, Site


class Running(NamedTuple):
    """A pod whose program was heard of for a minute; by now it is silent."""

    site: Site
    told: Operator
    pod: str
    program: Program

    def does(self, deed: str, *arguments: Any, **more: Any) -> None:
        self.site.kubelet.does(self.pod, deed, *arguments, **more)
        self.site.time.passes(1)

    def removed(self) -> None:
        self.told.looks(self.pod)
        self.told.telling.gone(self.site.kubelet.removes(self.pod))


def begun(site: Site, told: Operator, run: str, **more: Any) -> Running:
    pod = site.pod(run, **more)
    site.time.passes(20)
    site.kubelet.does(pod, "scheduled", f"node-of-{pod}")
    site.kubelet.node(f"node-of-{pod}")
    site.time.passes(5)
    site.kubelet.does(pod, "accepted")
    site.time.passes(5)
    site.kubelet.does(pod, "starts", "train")
    told.hears_of(f"node-of-{pod}")
    site.time.passes(5)
    program = site.program(pod, run)
    site.time.passes(60)
    program.heard()
    told.looks(pod)
    site.time.passes(2)
    return Running(site, told, pod, program)


# ── what it died of ───────────────────────────────────────────────────────────────────────────


def out_of_memory(it: Running) -> None:
    it.does("ends", exit_code=137, reason="OOMKilled")
    it.does("over", "Failed")


def pressure(it: Running) -> None:
    it.does("ends", exit_code=137)
    it.does("evicted")


def preempted(it: Running) -> None:
    it.does("preempted")
    it.does("deleted")
    it.does("ends", exit_code=143)
    it.removed()


def drained(it: Running) -> None:
    it.does("evicted_by_api")
    it.does("deleted")
    it.does("ends", exit_code=143)
    it.removed()


def node_silent(it: Running) -> None:
    it.site.time.passes(40)
    it.site.kubelet.node(f"node-of-{it.pod}", "Unknown")
    it.told.hears_of(f"node-of-{it.pod}")
    it.site.time.passes(300)
    it.does("tainted")
    it.does("deleted")


def node_removed(it: Running) -> None:
    it.does("collected")
    it.removed()


def deleted(it: Running) -> None:
    it.does("deleted")
    it.does("ends", exit_code=137)
    it.removed()


def deleted_at_once(it: Running) -> None:
    it.removed()


def by_itself(it: Running) -> None:
    it.does("ends", exit_code=137)
    it.does("over", "Failed")


def failed(it: Running) -> None:
    it.does("ends", exit_code=3)
    it.does("over", "Failed")


@pytest.mark.parametrize(
    "story, state, words",
    [
        (out_of_memory, "killed", "killed by SIGKILL, out of memory"),
        (pressure, "killed", "evicted: The node was low on resource: memory."),
        (preempted, "killed", "preempted: default-scheduler: preempting to accommodate"),
        (drained, "killed", "evicted: Eviction API: evicting"),
        (node_silent, "killed", "lost with its node: Kubelet stopped posting node status."),
        (node_removed, "killed", "lost with its node: PodGC: node no longer exists"),
        (deleted, "killed", "killed by SIGKILL, pod"),
        (deleted_at_once, "killed", "deleted"),
        (by_itself, "killed", "killed by SIGKILL"),
        (failed, "failed", "its container ended with exit code 3"),
    ],
)
def test_a_death_that_nobody_saw(
    site: Site, told: Operator, story: Callable[[Running], None], state: str, words: str
) -> None:
    run = site.name(story.__name__.replace("_", "-"))
    it = begun(site, told, run)
    site.arrives(run, 3)
    assert site.run(run)["state"] == "lost"
    story(it)
    told.looks(it.pod)
    site.settled()
    seen = site.run(run)
    assert (seen["state"], words in seen["reason"]) == (state, True), seen["reason"]
    assert ("memory" in seen["reason"]) == (story in (out_of_memory, pressure))


# ── and what was no death ─────────────────────────────────────────────────────────────────────


def cleaned_up(it: Running) -> None:
    """As the controller of Jobs does it some time after the end."""
    it.program.done()
    it.does("ends")
    it.does("over", "Succeeded")
    it.told.looks(it.pod)
    it.site.time.passes(300)
    it.does("deleted", 0)
    it.removed()


def silent_success(it: Running) -> None:
    it.does("ends")
    it.does("over", "Succeeded")
    it.does("deleted", 0)
    it.removed()


def sidecar_killed(it: Running) -> None:
    it.program.done()
    it.does("ends", "train")
    it.does("ends", "proxy", exit_code=137)
    it.does("over", "Succeeded")


def blip(it: Running) -> None:
    """The node was not heard of for a moment, and the program was."""
    for status in ("Unknown", "True"):
        it.site.kubelet.node(f"node-of-{it.pod}", status)
        it.told.hears_of(f"node-of-{it.pod}")
        it.site.time.passes(10)
    it.program.heard()
    it.program.done()
    it.does("ends")
    it.does("over", "Succeeded")


@pytest.mark.parametrize("story", [cleaned_up, silent_success, sidecar_killed, blip])
def test_a_pod_that_ended_well(
    site: Site, told: Operator, story: Callable[[Running], None]
) -> None:
    run = site.name(story.__name__.replace("_", "-"))
    it = begun(site, told, run, sidecars=["proxy"] if story is sidecar_killed else ())
    story(it)
    told.looks(it.pod)
    site.settled()
    seen = site.run(run)
    assert (seen["state"], seen["reason"]) == ("completed", "")


def test_a_program_that_is_heard_of_runs_whatever_its_node_s_kubelet_does(
    site: Site, told: Operator
) -> None:
    run = site.name("alive")
    it = begun(site, told, run)
    site.time.seconds = site.reading.clock.wall_ns() // 10**9
    site.kubelet.node(f"node-of-{it.pod}", "Unknown")
    told.hears_of(f"node-of-{it.pod}")
    it.program.heard()
    site.arrives(run, 4)
    assert (site.run(run)["state"], site.run(run)["reason"]) == ("running", "")


# ── containers that are started again ─────────────────────────────────────────────────────────


def test_each_life_of_a_container_ends_its_own_process(site: Site, told: Operator) -> None:
    run = site.name("lives")
    it = begun(site, told, run, restart_policy="OnFailure")
    it.does("ends", exit_code=3)
    told.looks(it.pod)
    it.does("restarts")
    again = site.program(it.pod, run, of="again")
    site.time.passes(60)
    again.heard()
    it.does("ends", exit_code=137, reason="OOMKilled")
    told.looks(it.pod)
    site.settled()
    history = site.run(run)["history"]
    assert [each["state"] for each in history] == ["failed", "killed"]
    assert "its container ended with exit code 3" in history[0]["reason"]
    assert "killed by SIGKILL, out of memory" in history[1]["reason"]


def test_a_container_that_ends_again_and_again_is_named(site: Site, told: Operator) -> None:
    run = site.name("loop")
    it = begun(site, told, run, restart_policy="Always")
    for _ in range(2):
        it.does("ends", exit_code=1)
        it.does("waits_again")
        told.looks(it.pod)
        it.does("restarts")
    assert site.run(run)["waits"] == ""
    it.does("ends", exit_code=1)
    it.does("waits_again")
    told.looks(it.pod)
    site.settled()
    words = f"pod {it.pod}: container train ends again and again, the last time with exit code 1"
    assert site.run(run)["waits"] == words


# ── of which run it is ────────────────────────────────────────────────────────────────────────


def test_a_pod_is_told_of_when_its_first_process_has_named_a_run(
    site: Site, told: Operator
) -> None:
    run, before = site.name("first"), told.telling.told
    pod = site.pod(run)
    told.telling.event(site.kubelet.says(site.thing(pod), "FailedScheduling", UNSCHEDULABLE))
    site.time.passes(30)
    site.kubelet.does(pod, "scheduled")
    site.kubelet.does(pod, "accepted")
    [again] = told.looks(pod)
    assert again is not None and told.telling.told == before
    pulling = site.kubelet.says(
        site.thing(pod), "Pulling", 'Pulling image "x"', container="train", warning=False
    )
    told.telling.event(pulling)
    site.time.passes(30)
    site.kubelet.does(pod, "starts")
    site.program(pod, run)
    told.minds(0.1)
    assert told.looks(pod) == [None]
    assert site.arrives(run, 5) == [
        (0, pod, "created"),
        (0, pod, "unschedulable"),
        (30, pod, "pulling"),
        (30, pod, "scheduled"),
        (60, pod, "started"),
    ]


def test_while_the_next_attempt_waits_the_run_says_so(site: Site, told: Operator) -> None:
    run = site.name("again")
    it = begun(site, told, run)
    out_of_memory(it)
    told.looks(it.pod)
    site.time.passes(3)
    pod = site.pod(run)
    site.kubelet.does(pod, "unschedulable")
    told.looks(pod)
    site.arrives(run, 7)
    assert f"pod {pod}: waiting for a node: {UNSCHEDULABLE}" in site.run(run)["waits"]
    asked_ns = site.time.ns
    site.time.passes(100)
    site.kubelet.does(pod, "scheduled")
    site.time.passes(20)
    site.kubelet.does(pod, "accepted")
    site.kubelet.does(pod, "starts")
    told.looks(pod)
    site.program(pod, run).heard()
    site.arrives(run, 9)
    second = [s for s in site.reading.processes(RunId(run)) if s.attempt == 2]
    waited = [(s.queued_at_ns, s.granted_at_ns) for s in second]
    assert waited == [(asked_ns, asked_ns + 100 * 10**9)]
    assert site.run(run)["waits"] == ""


def test_a_program_that_was_told_to_go_and_ended_well_goes_on_in_the_next_pod(
    site: Site, told: Operator
) -> None:
    run = site.name("spot")
    it = begun(site, told, run)
    it.does("preempted")
    it.does("deleted")
    it.does("ends")
    it.removed()
    site.time.passes(3)
    pod = site.pod(run)
    site.kubelet.does(pod, "unschedulable")
    told.looks(pod)
    site.settled()
    assert site.run(run)["state"] == "completed"
    assert (site.run(run)["waits"]).startswith(f"pod {pod}: waiting for a node")


def test_the_next_pod_of_a_workload_whose_run_was_done_is_another_run_s(
    site: Site, told: Operator
) -> None:
    run = site.name("sweep")
    it = begun(site, told, run)
    it.does("ends")
    it.does("over", "Succeeded")
    told.looks(it.pod)
    site.settled()
    before = told.telling.told
    told.looks(site.pod(run))
    assert told.telling.told == before


def test_a_rank_that_is_missing_is_seen_to_wait(site: Site, told: Operator) -> None:
    run = site.name("wide")
    pods = [site.pod(run, rank) for rank in range(2)]
    site.kubelet.does(pods[1], "unschedulable")
    site.kubelet.does(pods[0], "scheduled")
    site.program(pods[0], run, ranks=2)
    told.looks(*pods)
    assert (0, pods[1], "unschedulable") in site.arrives(run, 4)


def test_of_several_runs_of_a_workload_nobody_guesses(site: Site, told: Operator) -> None:
    sweep, before = site.name("sweep"), told.telling.told
    pods = [site.pod(sweep, rank) for rank in range(3)]
    for rank in range(2):
        site.program(pods[rank], f"{sweep}-{rank}")
    site.time.passes(10)
    late = site.pod(sweep, 3)
    told.looks(*pods, late)
    for rank in range(2):
        assert site.arrives(f"{sweep}-{rank}", 1) == [(0, pods[rank], "created")]
    assert told.telling.told == before + 2


def test_a_pod_that_was_taken_for_the_next_attempt_and_is_of_another_run(
    site: Site, told: Operator
) -> None:
    run, other = site.name("one"), site.name("other")
    it = begun(site, told, run)
    it.does("ends", exit_code=1)
    it.does("over", "Failed")
    told.looks(it.pod)
    pod = site.pod(run)
    told.looks(pod)
    site.time.passes(10)
    site.kubelet.does(pod, "scheduled")
    site.kubelet.does(pod, "accepted")
    site.kubelet.does(pod, "starts")
    site.program(pod, other)
    told.looks(pod)
    site.kubelet.does(pod, "ends")
    told.looks(pod)
    found = [what for _, name, what in site.arrives(other, 4) if name == pod]
    assert sorted(found) == ["container_ended", "created", "scheduled", "started"]
    site.settled()
    taken_for = [what for _, name, what in site.told(run) if name == pod]
    assert "created" in taken_for and "container_ended" not in taken_for


def test_a_pod_of_nobody_is_left_alone(site: Site, told: Operator) -> None:
    before = told.telling.told
    thing = {"containers": [{"name": "main", "image": "x"}]}
    meta = {"name": site.name("stranger"), "namespace": "team"}
    pod = site.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": thing})
    told.telling.event(site.kubelet.says(pod, "Evicted", "x"))
    assert told.looks(meta["name"]) == [None]
    told.telling.gone(pod)
    assert told.telling.told == before


# ── what people are shown ─────────────────────────────────────────────────────────────────────


def test_the_timeline_has_what_happened_once(site: Site, told: Operator) -> None:
    run = site.name("shown")
    it = begun(site, told, run)
    out_of_memory(it)
    told.looks(it.pod)
    site.arrives(run, 5)
    assert sorted(shown(site, run, f"?start={site.began_ns}")) == [
        (0, "created"), (20, "scheduled"), (30, "started"), (97, "ended"), (97, "oom_killed"),
    ]  # fmt: skip
    assert (97, "oom_killed") in shown(site, run)


def test_show_says_in_words_what_happened(site: Site, told: Operator, tmp_path: Path) -> None:
    run = site.name("words")
    it = begun(site, told, run)
    pressure(it)
    told.looks(it.pod)
    site.settled()
    ask = Asked(tmp_path, RUNWATCH_HEAD=site.at.http, RUNWATCH_TOKEN=site.at.token)
    said = " ".join(ask("show", run, "--once").stdout.split())
    assert f"pod {it.pod}: container train ended with exit code 137" in said
    assert f"pod {it.pod} evicted: The node was low on resource: memory." in said
    assert f"pod {it.pod}: was made" not in said
    logs = ask("logs", run)
    assert f"pod {it.pod} evicted: The node was low on resource: memory." in logs.stderr
    assert "evicted" not in logs.stdout
    assert "evicted" not in ask("logs", run, "--grep", "loss", code=1).stderr


def shown(site: Site, run: str, asked: str = "") -> list[tuple[int, str]]:
    events = site.get(f"/runs/{run}/timeline{asked}")["events"]
    return [
        ((each["time_ns"] - site.began_ns) // 10**9, each["body"]["what"])
        for each in events
        if each["kind"] == "pod"
    ]
