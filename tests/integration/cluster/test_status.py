"""`runwatch status --cluster` in a cluster with the chart, its real webhook, and real kubectl.

Each pod that should be watched and is not has its reason and its way out; beside each is a pod that
looks like it and is well.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from runwatch.cli.__main__ import main
from tests.cluster import objects
from tests.cluster.controllers import children, owned, played
from tests.cluster.kubelet import Kubelet
from tests.integration.cluster.estate import WATCH, Estate

pytestmark = pytest.mark.xdist_group("cluster_status")

Thing = dict[str, Any]
YES = {WATCH: "true"}


@pytest.fixture(scope="module")
def estate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    made = Estate(tmp_path_factory.mktemp("estate"))
    with made.cluster:
        try:
            _build(made)
            yield made
        finally:
            made.close()


def _build(made: Estate) -> None:
    made.cluster.namespace("team", YES)  # before anything of ours was there
    made.cluster.namespace("plain")
    _nodes(made)
    _before_the_webhook(made)
    made.at(6000)
    made.install()
    made.all_is_ready()
    made.agents("gpu-1")
    made.at(5000)
    _left_out(made)
    made.at(4000)
    _well(made)
    made.at(1000)
    _labelled_late(made)
    made.at(0)
    _just_begun(made)
    made.leads()


@pytest.fixture(scope="module")
def told(estate: Estate) -> Thing:
    """What an admin is told."""
    return status(estate.cluster.kubeconfig)


def status(config: Path, *words: str) -> Thing:
    done = asked_of(config, *words)
    assert done.stdout, done.stderr
    told: Thing = json.loads(done.stdout)
    assert done.returncode == (1 if told["attention"] else 0)
    return told


def asked_of(config: Path, *words: str, page: bool = False) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runwatch.cli", "status", "--cluster", *words]
    return subprocess.run(
        [*command, "--kubeconfig", str(config), *([] if page else ["--json"])],
        capture_output=True,
        text=True,
        timeout=60,
    )


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────


def _nodes(estate: Estate) -> None:
    taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
    routine = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    estate.node("gpu-1", spec={"taints": [routine]})
    estate.node("cpu-1", gpus=0)
    estate.node("gpu-tainted", spec={"taints": [taint]})
    estate.node("gpu-unmarked", labels={"nvidia.com/gpu.present": None})
    estate.node("gpu-silent", ready="Unknown")
    estate.node("gpu-forgotten")


def test_each_node_with_gpus_and_no_agent_has_its_reason(told: Thing) -> None:
    nodes = told["cluster"]["nodes"]
    assert (nodes["nodes"], nodes["with_accelerators"], nodes["agents_ready"]) == (6, 5, 1)
    why = {each["node"]: each["why"] for each in nodes["without_agent"]}
    assert why.pop("gpu-silent").startswith("the node is not ready")
    assert why == {
        "gpu-tainted": "the agent does not tolerate the taint team=x:NoSchedule",
        "gpu-unmarked": "the agent's node selector or affinity leaves it out",
        "gpu-forgotten": "the cluster has made no pod for it",
    }  # and neither gpu-1, whose taint is tolerated, nor cpu-1, which needs none


# ── pods that are left out ────────────────────────────────────────────────────────────────────


class Left(NamedTuple):
    """What is said of a pod that is left out."""

    key: str
    what: str
    todo: str


LEFT: dict[str, Left] = {
    "Job team/early": Left(
        "before_webhook",
        "it was created before the webhook was installed",
        "delete and create Job team/early anew",
    ),
    "Job team/down": Left(
        "webhook_down",
        "the webhook did not answer when it was created",
        "delete and create Job team/down anew",
    ),
    "Deployment team/web": Left(
        "webhook_down",
        "the webhook did not answer when it was created",
        "`kubectl rollout restart -n team deployment/web`",
    ),
    "Job plain/late": Left(
        "before_label",
        "it was created before Job late was labelled",
        "delete and create Job plain/late anew",
    ),
    "Job plain/edited": Left(
        "not_injected",
        "it was created before Job edited was labelled, or the webhook did not answer then",
        "delete and create Job plain/edited anew",
    ),
    "Pod plain/alone": Left(
        "not_injected",
        "it was created before the pod was labelled, or the webhook did not answer then",
        "delete and create the pod anew",
    ),
    "ReplicaSet plain/api": Left(
        "not_asked",
        "the API server does not ask the webhook about such pods",
        "label the namespace or the pod template with runwatch.dev/watch=true",
    ),
    "Job spared/exempt": Left(
        "exempt", "namespace spared is exempt from the webhook", "move the workload"
    ),
    "Pod kube-system/system": Left(
        "exempt", "namespace kube-system is exempt from the webhook", "take the label away"
    ),
    "Pod plain/etcd-gpu-1": Left("spared", "it is a static pod of its node", "take the label away"),
    "Job team/nowhere": Left("no_agent", "node cpu-1 has no agent: its records stay there", ""),
    "Job team/mute": Left(
        "no_run", "it runs, and no head has a run of it", 'runwatch.dev/exec: "true"'
    ),
    "Job team/other-head": Left("other_head", "its head is http://elsewhere:8090", "take"),
}


def _before_the_webhook(estate: Estate) -> None:
    estate.job("early", "team")


def _left_out(estate: Estate) -> None:
    cluster = estate.cluster
    with estate.webhook_away():
        estate.job("down", "team", labels=YES, count=2)
        for pod in played(cluster, objects.deployment("web"), "team"):
            estate.runs("team", pod["metadata"]["name"])
    estate.job("late", "plain", labels={"team": "x"})
    cluster.apply([_applied("edited", 1)], "plain")
    cluster.create(objects.pod("alone"), "plain")
    estate.runs("plain", "alone")
    alone = objects.deployment("api", labels=YES)  # without a Deployment, nothing marks its pods
    owner = cluster.create({**alone, "kind": "ReplicaSet"}, "plain")
    cluster.create(owned(objects.pod("api-0"), owner), "plain")
    estate.runs("plain", "api-0")
    cluster.namespace("spared", {**YES, "runwatch.dev/exempt": "true"})
    estate.job("exempt", "spared")
    cluster.create(objects.pod("system", labels=YES), "kube-system")
    estate.runs("kube-system", "system")
    node = cluster.get("node", "gpu-1", "")
    cluster.create(_static("etcd-gpu-1", node, YES), "plain")
    estate.runs("plain", "etcd-gpu-1")
    cluster.create(_static("proxy-gpu-1", node, {}), "team")
    estate.runs("team", "proxy-gpu-1")
    estate.job("nowhere", "team", "cpu-1")
    estate.job("mute", "team")
    env = {"RUNWATCH_HEAD": "http://elsewhere:8090"}
    spec = objects.pod_spec(objects.container(env=env), restartPolicy="Never")
    estate.job("other-head", "team", spec=spec)


def _applied(name: str, backoff: int, **labels: str) -> Thing:
    """As `kubectl apply` sends it, which writes labels and everything else under one name."""
    job = objects.job(name, count=1, labels=labels)
    job["spec"]["backoffLimit"] = backoff
    return job


def _static(name: str, node: Thing, labels: dict[str, str]) -> Thing:
    pod = objects.pod(name, labels=labels, notes={"kubernetes.io/config.mirror": "0" * 32})
    owner = {"apiVersion": "v1", "kind": "Node", "controller": True}
    pod["metadata"]["ownerReferences"] = [
        {**owner, "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
    ]
    return pod


def _labelled_late(estate: Estate) -> None:
    """Long after their pods."""
    label = {"metadata": {"labels": YES}}
    merge = {"Content-Type": "application/merge-patch+json"}
    for path in (
        "/apis/batch/v1/namespaces/plain/jobs/late",
        "/api/v1/namespaces/plain/pods/alone",
    ):
        path += "?fieldManager=kubectl-label"
        assert estate.cluster.ask("PATCH", path, label, headers=merge).status == 200
    [pod] = _pods_of_edited(estate)
    estate.runs("plain", pod["metadata"]["name"])
    estate.at(900)
    estate.cluster.apply([_applied("edited", 2, **YES)], "plain")


def _pods_of_edited(estate: Estate) -> list[Thing]:
    """The pod of a Job that was applied without a controller to see it."""
    job = estate.cluster.get("job", "edited", "plain")
    return [estate.cluster.create(owned(each, job), "plain") for each in children(job)]


@pytest.mark.parametrize("workload", LEFT)
def test_a_pod_that_is_left_out_has_its_reason_and_its_way_out(told: Thing, workload: str) -> None:
    left = {each["workload"]: each for each in told["cluster"]["pods"]["not_watched"]}
    expected = LEFT[workload]
    assert (left[workload]["why"], left[workload]["what"][: len(expected.what)]) == (
        expected.key,
        expected.what,
    )
    said = [each for each in told["attention"] if f"{workload} " in each["what"]]
    assert any(expected.what in each["what"] and expected.todo in each["todo"] for each in said)


# ── and their healthy look-alikes ─────────────────────────────────────────────────────────────


def _well(estate: Estate) -> None:
    cluster = estate.cluster
    estate.job("good", "team", count=2)
    estate.has_run("Job", "good", "team")
    estate.job("named", "plain", labels=YES)
    estate.has_run("Job", "named", "plain")
    estate.job("original", "plain", labels={"managed-mldiagnostics-gke": "true"})
    estate.has_run("Job", "original", "plain")
    spec = objects.pod_spec(restartPolicy="Never", hostNetwork=True)
    estate.job("host-network", "team", spec=spec)
    estate.has_run("Job", "host-network", "team")
    told_who = objects.job("told", count=1, notes={"runwatch.dev/mode": "none"})
    for pod in played(cluster, told_who, "team"):
        estate.runs("team", pod["metadata"]["name"], "cpu-1")
    estate.job("unlabelled", "plain", labels={"tier": "db"})
    estate.job("no-thanks", "team", labels={WATCH: "false"})
    with estate.webhook_away():  # so nobody watched these, and nobody needs to
        estate.job("over", "team")
        estate.job("leaving", "team")
        estate.job("refused", "team", labels={WATCH: "False"})
    for name, deed in (("over", ("over", "Succeeded")), ("leaving", ("deleted",))):
        [pod] = cluster.list("pods", "team", f"job-name={name}")
        Kubelet(cluster, "team", estate.time).does(pod["metadata"]["name"], *deed)


def _just_begun(estate: Estate) -> None:
    """It has no run yet, and no agent where it is: both may come."""
    estate.job("fresh", "team", "gpu-forgotten")
    played(estate.cluster, objects.job("pending", count=1), "team")


def test_nothing_else_is_left_out(told: Thing) -> None:
    pods = told["cluster"]["pods"]
    assert {each["workload"] for each in pods["not_watched"]} == LEFT.keys()
    counted = {each["pod"] for each in pods["not_watched"]}
    assert len(counted) == len(LEFT) + 2  # down and web have two pods each
    assert (pods["refused_by_label"], pods["spared"]) == (2, 1)  # proxy-gpu-1: its namespace is
    # good 2, named, original, host-network, told, fresh, pending
    assert pods["watched"] == 8


def test_it_reads_as_a_page(
    estate: Estate, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(estate.cluster.kubeconfig))
    assert main(["status", "--cluster"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    for words in (
        "✔ release runwatch in namespace runwatch",
        "✔ head 1 of 1 ready (runwatch/runwatch-head)",
        "✔ webhook 2 of 2 ready (runwatch/runwatch-webhook)",
        "its caBundle is good until",
        "runwatch-operator-0 leads",
        "6 nodes, 5 with nvidia.com/gpu",
        "2 pods of Job team/down are not watched",
        "pod team/no-thanks-0",
    ):
        assert words in said, said


def test_one_namespace_may_be_asked_for_alone(estate: Estate) -> None:
    pods = status(estate.cluster.kubeconfig, "--namespace", "plain")["cluster"]["pods"]
    assert {each["workload"] for each in pods["not_watched"]} == {
        each for each in LEFT if each.split()[1].startswith("plain/")
    }
    assert pods["watched"] == 2


# ── rights ────────────────────────────────────────────────────────────────────────────────────


# ── rights ────────────────────────────────────────────────────────────────────────────────────


def member(estate: Estate, name: str, *rules: tuple[str, str], namespace: str = "team") -> Path:
    """Of a team, who may list these (groups and kinds, with commas) in this namespace alone."""
    config = estate.cluster.kubeconfig_of("team", name)
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    given = [
        {"apiGroups": group.split(","), "resources": kinds.split(","), "verbs": ["get", "list"]}
        for group, kinds in rules
    ]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "team"}
    to = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    estate.cluster.apply(
        [
            {**rbac, "kind": "Role", "rules": given},
            {**rbac, "kind": "RoleBinding", "roleRef": to, "subjects": [subject]},
        ],
        namespace,
    )
    return config


def test_who_may_see_nothing_is_told_so(estate: Estate) -> None:
    config = member(estate, "nobody")
    done = asked_of(config)
    assert (done.returncode, done.stdout) == (1, "")
    assert "you may not look into this cluster: not looked at: pods is forbidden" in done.stderr
    assert "--namespace NS looks at one" in done.stderr


def test_who_may_see_pods_alone_is_not_told_what_only_labels_say(estate: Estate) -> None:
    told = status(member(estate, "somebody", ("", "pods")), "--namespace", "team")
    cluster = told["cluster"]
    assert (cluster["release"], cluster["head"]["ready"]) == ({"parts": {}, "releases": []}, None)
    assert "nodes is forbidden" in cluster["nodes"]["refused"]
    pods = cluster["pods"]
    # Was it to be watched?  early, down (2), web (2), proxy, no-thanks, refused
    assert (pods["not_watched"], pods["unknown"], told["attention"]) == ([], 8, [])
    watched = "good (2), host-network, told, fresh, pending, mute, nowhere, other-head"
    assert pods["watched"] == len(watched.split(", ")) + 1
    config = estate.cluster.kubeconfig_of("team", "somebody")
    said = " ".join(asked_of(config, "--namespace", "team", page=True).stdout.split())
    assert "8 more pods may be asked to be watched: not looked at: namespaces is forbidden" in said
    assert told["unread"] == ["release", "head", "webhook", "operator", "nodes", "pods"]
    assert said.endswith("looked at: release, head, webhook, operator, nodes, pods.")
    assert "? head not looked at: statefulsets.apps is forbidden" in said
    assert "not part of this release" not in said and "not installed" not in said


def test_who_may_see_a_namespace_is_told_of_its_pods(estate: Estate) -> None:
    rights = (
        ("", "pods,namespaces"),
        ("batch,apps", "jobs,cronjobs,deployments,replicasets,statefulsets"),
        ("runwatch.dev", "runs"),
    )
    pods = status(member(estate, "viewer", *rights), "--namespace", "team")["cluster"]["pods"]
    left = {each["workload"]: each["why"] for each in pods["not_watched"]}
    assert left == {
        "Job team/early": "not_injected",  # when the webhook came is not theirs to see
        "Job team/down": "not_injected",
        "Deployment team/web": "not_injected",
        "Job team/mute": "no_run",
        "Job team/nowhere": "no_run",  # nor where agents are, nor which head is the release's
        "Job team/other-head": "no_run",
    }
    assert pods["unknown"] == 0
    said = {each["workload"]: each["what"] for each in pods["not_watched"]}
    assert said["Job team/nowhere"].endswith("or its records do not reach this cluster's head")


def test_who_may_see_the_release_where_it_usually_is_is_told_of_it(estate: Estate) -> None:
    rights = (("", "pods"), ("apps", "statefulsets,deployments,daemonsets"))
    member(estate, "keeper", ("", "pods"))
    config = member(estate, "keeper", *rights, namespace="runwatch")
    cluster = status(config, "--namespace", "team")["cluster"]
    assert cluster["release"]["releases"] == [{"namespace": "runwatch", "name": "runwatch"}]
    assert (cluster["head"]["ready"], cluster["webhook"]["ready"]) == (1, 2)
    assert "refused" in cluster["nodes"]
