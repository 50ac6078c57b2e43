"""`runwatch status --cluster`: what it makes of objects.  Each finding beside what is healthy."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from runwatch.cli.cluster.kubectl import Listed
from runwatch.cli.status.cluster import sections
from runwatch.cli.status.cluster.asking import WORKLOADS
from runwatch.cli.status.cluster.asking import told as told_of
from runwatch.cli.status.cluster.told import Told
from runwatch.cli.status.picture import picture
from runwatch.cli.status.types import Section
from runwatch.k8s.workloads import PLURALS
from tests.unit.cli import cluster_things as world
from tests.unit.cli.cluster_things import Thing, ago, healthy, injected, labelled, pod, told

WATCH = "runwatch.dev/watch"


def problems(cluster: Told) -> list[str]:
    return [
        f"{section.name}: {problem.what} → {problem.todo}"
        for section in sections(cluster)
        for problem in section.problems
    ]


def only(cluster: Told) -> str:
    found = problems(cluster)
    assert len(found) == 1, found
    return found[0]


def section(cluster: Told, name: str) -> Section:
    return next(each for each in sections(cluster) if each.name == name)


def job(name: str = "llama", **parts: Any) -> Thing:
    return world.thing("Job", name, "ml", api="batch/v1", **parts)


# ── what is well is silent ────────────────────────────────────────────────────────────────────


def test_a_healthy_cluster_is_silent() -> None:
    cluster = told(healthy())
    assert problems(cluster) == []
    said = "\n".join(line for each in sections(cluster) for line in each.lines)
    assert "rw in namespace runwatch, chart runwatch-0.1.0" in said
    assert "1 of 1 ready (runwatch/rw-head)" in said
    assert "rw-operator-1 leads, for 1 h 00 min" in said
    assert "agents: 1 of 1 ready" in said
    assert "2 nodes, 1 with nvidia.com/gpu" in said
    assert "1 pod of labelled workloads, 1 watched" in said
    assert re.search(r"caBundle is good until 2027-09-1\d", said)


LOOK_ALIKES = {
    "a CPU node has no agent": [world.node("cpu-9", gpus=0)],
    "a labelled pod has ended": [
        labelled(pod("old", status={"phase": "Succeeded"}, age=200_000), WATCH, "true")
    ],
    "an agent is just starting": [
        world.node("gpu-2", age=30),
        world.agent("gpu-2", running=None, age=20),
    ],
    "a node is new": [world.node("gpu-2", age=20)],
    "nobody asked for it": [pod("web"), pod("db", "shop")],
    "a watched pod just started, with no run yet": [injected(pod("young", running=30))],
    "it is told who it is, and no more": [injected(pod("quiet"), "v1 none")],
    "its agent is in the pod": [world.node("cpu-7", gpus=0), injected(
        pod("side", node="cpu-7", owner=job()), "v1 sidecar")],
    "system pods": [pod("dns", "kube-system")],
}  # fmt: skip


@pytest.mark.parametrize("more", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_look_alikes_are_silent(more: Sequence[Thing]) -> None:
    assert problems(told([*healthy(), *more])) == []


# ── the release ───────────────────────────────────────────────────────────────────────────────


def test_nothing_is_installed() -> None:
    cluster = told([world.node("gpu-1"), world.space("ml")])
    assert only(cluster).startswith("release: Runwatch is not installed in this cluster → install")
    assert "helm install runwatch" in only(cluster)


def test_who_may_not_look_is_told_so_and_not_that_it_is_missing() -> None:
    cluster = told([], refused={"StatefulSet": "not looked at: forbidden"})
    assert problems(cluster) == []
    assert section(cluster, "release").lines == ["not looked at: forbidden"]


def test_a_head_that_is_not_ready() -> None:
    def waits(each: Thing) -> Thing:
        if each["kind"] == "StatefulSet":
            each["status"] = {}
        if each["metadata"]["name"] == "rw-head" and each["kind"] == "Pod":
            each["status"] = {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                     "message": "0/2 nodes are available: pod has unbound PersistentVolumeClaims."}
                ]
            }  # fmt: skip
        return each

    said = only(told(healthy(), waits))
    assert "runwatch/rw-head is not ready (Unschedulable: 0/2 nodes" in said
    assert "programs go on recording" in said and "kubectl describe pod -n runwatch" in said


def test_two_releases_and_a_broken_upgrade() -> None:
    other = world.ours("Deployment", "operator", name="b", status={"readyReplicas": 1})
    other["metadata"]["labels"] |= {
        "app.kubernetes.io/instance": "b", "helm.sh/chart": "runwatch-0.2.0",
    }  # fmt: skip
    said = problems(told([*healthy(), other]))
    assert any("2 releases are installed" in each for each in said)
    assert any("several charts: runwatch-0.1.0, runwatch-0.2.0" in each for each in said)


@pytest.mark.parametrize("component", ["webhook", "operator"])
def test_no_replica_is_ready(component: str) -> None:
    def down(each: Thing) -> Thing:
        if each["metadata"]["name"] == f"rw-{component}" and each["kind"] == "Deployment":
            each["status"] = {}
        return each

    assert f"{component}: no {component} is ready" in only(told(healthy(), down))


# ── the webhook ───────────────────────────────────────────────────────────────────────────────


def with_webhook(made: Thing) -> Told:
    kind = "MutatingWebhookConfiguration"
    return told(healthy(), lambda each: made if each["kind"] == kind else each)


def test_no_configuration() -> None:
    # The Deployment is there, the API server asks nobody.
    kind = "MutatingWebhookConfiguration"
    said = only(told(healthy(), world.without(kind=kind, component="webhook")))
    assert "the API server has no webhook configuration of ours → `helm upgrade`" in said


def test_a_configuration_that_was_left_behind() -> None:
    said = only(told(healthy(), world.without(kind="Deployment", component="webhook")))
    assert "asks a webhook that is not there (rw-webhook)" in said
    assert "kubectl delete mutatingwebhookconfiguration rw-webhook" in said


@pytest.mark.parametrize("ca", ["", "bm90IGEgY2VydGlmaWNhdGU="], ids=["none", "no certificate"])
def test_no_authority(ca: str) -> None:
    assert "has no caBundle that can be read" in only(with_webhook(world.webhook(ca)))


def test_an_authority_that_has_expired() -> None:
    assert "its caBundle has expired at" in only(with_webhook(world.webhook(world.bundle(-1))))
    assert "expires within 12 h" in only(with_webhook(world.webhook(world.bundle(0.501))))
    assert problems(with_webhook(world.webhook(world.bundle(20)))) == []


def test_of_two_authorities_one_is_enough() -> None:
    import base64

    both = b"".join(base64.b64decode(world.bundle(days)) for days in (-1, 90))
    assert problems(with_webhook(world.webhook(base64.b64encode(both).decode()))) == []


def test_a_webhook_that_pods_wait_for() -> None:
    said = only(with_webhook(world.webhook(policy="Fail")))
    assert "failurePolicy is Fail" in said and "`helm upgrade` the release" in said


# ── the operator ──────────────────────────────────────────────────────────────────────────────


def test_nobody_leads() -> None:
    kind = "Lease"
    said = only(told(healthy(), lambda each: None if each["kind"] == kind else each))
    assert "operator: no operator leads → `kubectl logs -n runwatch" in said


def test_a_leader_that_is_gone() -> None:
    def late(each: Thing) -> Thing:
        if each["kind"] == "Lease":
            each["spec"]["renewTime"] = ago(120)
        return each

    assert "rw-operator-1 has not renewed its lease for 2 min 00 s" in only(told(healthy(), late))


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────

TAINT = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
IMAGE = {
    "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}],
    "conditions": [{"type": "Ready", "status": "False"}],
}
LEFT_OUT = {
    "a taint": (
        [world.node("gpu-2", taints=[TAINT])],
        "gpu-2: no agent: the agent does not tolerate the taint dedicated=ml:NoSchedule → add it "
        "to agent.tolerations",
    ),
    "not ready": (
        [world.node("gpu-2", ready="Unknown")],
        "gpu-2: no agent: the node is not ready since 2026-11-19T11:50:00Z (KubeletStopped)",
    ),
    "an image": (
        [world.node("gpu-2"), world.agent("gpu-2", status=IMAGE)],
        "cannot be pulled (ImagePullBackOff) → correct image.repository and image.tag",
    ),
    "a selector": (
        [world.node("tpu-1", gpus=0) | {"status": {
            "allocatable": {"google.com/tpu": "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }}],
        "tpu-1: no agent: the agent's node selector or affinity leaves it out → `kubectl label "
        "node tpu-1 runwatch.dev/agent=true` lets an agent run there",
    ),
    "no pod": (
        [world.node("gpu-2")],
        "gpu-2: no agent: the cluster has made no pod for it",
    ),
    "an agent that ends": (
        [world.node("gpu-2"), world.agent("gpu-2", status={
            "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
            "conditions": [{"type": "Ready", "status": "False"}],
        })],
        "the agent ends again and again → `kubectl logs -n runwatch rw-agent-gpu-2 --previous`",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("more", "words"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_a_node_without_an_agent(more: Sequence[Thing], words: str) -> None:
    cluster = told([*healthy(), *more])
    assert words in only(cluster)
    [left] = section(cluster, "nodes").facts["without_agent"]
    assert left["node"] == more[0]["metadata"]["name"]


def test_tolerated_taints_are_silent() -> None:
    taints = [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
    ]
    more = [world.node("gpu-2", taints=taints), world.agent("gpu-2")]
    assert problems(told([*healthy(), *more])) == []


def test_nodes_with_the_same_trouble_are_one_line() -> None:
    more = [world.node(f"gpu-{n}", taints=[TAINT]) for n in range(2, 12)]
    said = only(told([*healthy(), *more]))
    assert "10 nodes (gpu-10, gpu-11, gpu-2, gpu-3, gpu-4 and 5 more): no agent" in said


def test_nodes_that_nobody_chose_are_one_line_too() -> None:
    more = [world.node(f"tpu-{n}") for n in range(3)]
    for each in more:
        each["metadata"]["labels"] = {}
    said = only(told([*healthy(), *more]))
    assert "3 nodes (tpu-0, tpu-1, tpu-2): no agent" in said
    assert "`kubectl label node NODE runwatch.dev/agent=true`" in said


def test_a_namespace_that_forbids_agents() -> None:
    def strict(each: Thing) -> Thing | None:
        if each["kind"] == "Namespace" and each["metadata"]["name"] == "runwatch":
            each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "restricted"
        if each["kind"] == "DaemonSet":
            each["status"] = {"desiredNumberScheduled": 1}
        return None if each["metadata"]["name"] == "rw-agent-gpu-1" else each

    said = problems(told(healthy(), strict))
    assert any("enforces Pod Security 'restricted'" in each for each in said)


# ── pods ──────────────────────────────────────────────────────────────────────────────────────


def unwatched(*more: Thing) -> tuple[str, str]:
    """The one problem that there is, and its word for programs."""
    cluster = told([*healthy(), *more])
    said = only(cluster)
    return said, section(cluster, "pods").facts["not_watched"][0]["why"]


def wants(name: str = "bert", **parts: Any) -> Thing:
    return labelled(job(name, **parts), WATCH, "true")


def test_created_before_the_webhook() -> None:
    owner = wants(age=200_000)
    pods = [pod(f"bert-{n}", owner=owner, age=190_000) for n in range(3)]
    said, why = unwatched(owner, *pods)
    assert "3 pods of Job ml/bert are not watched: it was created before the webhook" in said
    assert "delete and create Job ml/bert anew" in said and why == "before_webhook"


def test_created_before_the_label() -> None:
    owner = labelled(job("bert"), WATCH, "true", seconds_ago=60)
    said, why = unwatched(owner, pod("bert-0", owner=owner, age=600))
    assert "before Job bert was labelled" in said and why == "before_label"


def test_the_webhook_was_down() -> None:
    owner = labelled(job("bert"), WATCH, "true", seconds_ago=900)
    said, why = unwatched(owner, pod("bert-0", owner=owner, age=600))
    assert "the webhook did not answer when it was created" in said and why == "webhook_down"


def test_one_of_both_if_nobody_knows_when_it_was_labelled() -> None:
    said, why = unwatched(labelled(pod("alone", age=600), WATCH, "true"))
    assert "before the pod was labelled, or the webhook did not answer" in said
    assert "delete and create the pod anew" in said and why == "not_injected"


@pytest.mark.parametrize("seconds_ago", [60, 600])
def test_a_label_may_be_older_than_the_last_change_of_who_set_it(seconds_ago: float) -> None:
    """`kubectl apply` writes labels and everything else under one name, with one time."""
    owner = labelled(job("bert"), WATCH, "true", seconds_ago=seconds_ago)
    [entry] = owner["metadata"]["managedFields"]
    entry["fieldsV1"]["f:spec"] = {"f:parallelism": {}}
    _, why = unwatched(owner, pod("bert-0", owner=owner, age=600))
    assert why == "not_injected"


def test_many_workloads_with_the_same_trouble_are_one_line() -> None:
    jobs = [labelled(job(f"j{n}"), WATCH, "true", seconds_ago=900) for n in range(9)]
    pods = [pod(f"{each['metadata']['name']}-0", owner=each, age=600) for each in jobs]
    cluster = told([*healthy(), *jobs, *pods])
    said = only(cluster)
    assert "9 pods are not watched (Job ml/j0, Job ml/j1, " in said and "and 4 more" in said
    assert "for each of them, as the first: delete and create Job ml/j0 anew" in said
    assert len(section(cluster, "pods").facts["not_watched"]) == 9


def test_a_deployment_has_an_easier_way() -> None:
    top = labelled(world.thing("Deployment", "serve", "ml", api="apps/v1"), WATCH, "true")
    middle = world.thing("ReplicaSet", "serve-1", "ml", api="apps/v1", owner=top)
    said, _ = unwatched(top, middle, pod("serve-1-a", owner=middle, age=200_000))
    assert "`kubectl rollout restart -n ml deployment/serve`" in said


def test_an_exempt_namespace() -> None:
    quiet = world.space("quiet", runwatch_dev__exempt="true")
    said, why = unwatched(quiet, labelled(pod("a", "quiet"), WATCH, "true"))
    assert "namespace quiet is exempt from the webhook" in said and why == "exempt"


def test_a_pod_that_no_selector_lets_be_asked_about() -> None:
    def unlabelled_only(each: Thing) -> Thing:
        if each["kind"] == "MutatingWebhookConfiguration":
            [hook] = each["webhooks"]
            hook["objectSelector"]["matchExpressions"].append(
                {"key": "batch.kubernetes.io/job-name", "operator": "Exists"}
            )
        return each

    owner = wants()
    cluster = told([*healthy(), owner, pod("bert-0", owner=owner)], unlabelled_only)
    said = only(cluster)
    assert "does not ask the webhook about such pods" in said
    assert "label the namespace or the pod template" in said and "webhook.workloadLabels" in said
    assert section(cluster, "pods").facts["not_watched"][0]["why"] == "not_asked"


SPARED = {
    "a static pod": (pod("a", notes={"kubernetes.io/config.mirror": "x"}), "static pod"),
    "Windows by its word": (pod("a", spec={"os": {"name": "windows"}}), "Windows pod"),
    "Windows by its node": (
        pod("a", spec={"nodeSelector": {"kubernetes.io/os": "windows"}}), "Windows pod",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "words"), SPARED.values(), ids=SPARED)
def test_pods_that_the_webhook_spares(made: Thing, words: str) -> None:
    said, why = unwatched(labelled(made, WATCH, "true"))
    assert words in said and "take the label away" in said and why == "spared"


def test_there_is_no_webhook() -> None:
    owner = wants()
    cluster = told(
        [*healthy(), owner, pod("bert-0", owner=owner)],
        lambda each: None if _is_of_webhook(each) else each,
    )
    said = only(cluster)
    assert "Job ml/bert is not watched: there is no webhook" in said
    assert "`helm upgrade` the release with webhook.enabled=true, then delete and create" in said


def _is_of_webhook(each: Thing) -> bool:
    return bool(each["metadata"]["labels"].get("app.kubernetes.io/component") == "webhook")


def test_the_originals_label_counts_too() -> None:
    said, _ = unwatched(labelled(pod("old", age=200_000), "managed-mldiagnostics-gke", "true"))
    assert "before the webhook was installed" in said


def test_a_nearer_false_is_obeyed_and_told() -> None:
    team = labelled(world.space("team"), WATCH, "true")
    cluster = told([*healthy(), team, labelled(pod("a", "team"), WATCH, "false")])
    assert problems(cluster) == []
    [line] = [each for each in section(cluster, "pods").lines if "not watched" in each]
    assert line == (
        "pod team/a is not watched: runwatch.dev/watch=false on the pod is nearer than "
        "runwatch.dev/watch=true on its namespace"
    )


def test_a_pod_for_another_head() -> None:
    spec = {"containers": [{"env": [{"name": "RUNWATCH_HEAD", "value": "http://old:8090"}]}]}
    owner = job("llama")  # has a run
    said, why = unwatched(injected(pod("b", owner=owner, spec=spec)))
    assert "its head is http://old:8090, the release's is http://rw-head" in said
    assert why == "other_head"
    spec["containers"][0]["env"][0]["value"] = "rw-head.runwatch.svc"
    assert problems(told([*healthy(), injected(pod("b", owner=owner, spec=spec))])) == []


def test_injected_and_no_run() -> None:
    said, why = unwatched(wants(), injected(pod("bert-0", owner=wants())))
    assert "its program does not call runwatch" in said and why == "no_run"
    assert 'runwatch.dev/exec: "true"' in said
    said, why = unwatched(wants(), injected(pod("bert-0", owner=wants()), "v1 node exec"))
    assert "though it is started by exec" in said and why == "no_run_exec"


def test_nobody_can_say_whether_there_is_a_run() -> None:
    cluster = told([*healthy(), wants(), injected(pod("bert-0", owner=wants()))])
    assert problems(Told(cluster.now_ns, cluster.things, {}, None)) == []


def test_a_node_pod_where_no_agent_is() -> None:
    said, why = unwatched(injected(pod("llama-1", owner=job(), node="cpu-1")))
    assert "node cpu-1 has no agent: its records stay there" in said and why == "no_agent"
    assert "kubectl label node cpu-1 runwatch.dev/agent=true" in said
    assert "or set the annotation runwatch.dev/mode: sidecar" in said


def test_only_one_namespace_is_looked_at() -> None:
    things = [*healthy(), labelled(pod("a", "shop", age=200_000), WATCH, "true")]
    cluster = told(things)
    assert problems(Told(cluster.now_ns, cluster.things, {}, cluster.run_workloads, "ml")) == []
    assert problems(Told(cluster.now_ns, cluster.things, {}, cluster.run_workloads, "shop"))


# ── from kubectl's answers; on a terminal ─────────────────────────────────────────────────────


def test_a_thing_that_two_calls_tell_counts_once() -> None:
    head = healthy()[1]
    cluster = told_of([Listed((head,), ()), Listed((head, pod("x")), ())], 7)
    assert len(cluster.of("Pod")) == 2 and cluster.run_workloads is None


def test_what_is_forbidden_is_known_by_its_kind() -> None:
    why = (
        'Error from server (Forbidden): nodes is forbidden: User "ada" cannot list resource '
        '"nodes" in API group "" at the cluster scope',
        'Error from server (Forbidden): daemonsets.apps is forbidden: User "ada" cannot list',
    )
    cluster = told_of([Listed((), why)], 7, knows_runs=True)
    assert set(cluster.refused) == {"Node", "DaemonSet"}
    assert cluster.refused["Node"].startswith("not looked at: nodes is forbidden")
    assert cluster.run_workloads == frozenset()


def test_every_kind_that_the_webhook_knows_is_asked_for() -> None:
    known = {f"{plural}.{group}" if group else plural for (group, _), plural in PLURALS.items()}
    assert set(WORKLOADS) == known - {"pods"}


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_a_terminal_and_json(width: int) -> None:
    more = [world.node(f"gpu-{n}", taints=[TAINT]) for n in range(2, 12)]
    cluster = told([*healthy(), *more, wants(), injected(pod("bert-0", owner=wants()))])
    said = picture("in a cluster", sections(cluster), width=width, coloured=False)
    assert all(len(line) <= width for line in said.splitlines())
    assert said.splitlines()[-1] == "2 things need attention."
    json.dumps([dict(each.facts) for each in sections(cluster)])
