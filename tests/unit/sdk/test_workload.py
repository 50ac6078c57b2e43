"""What a pod's environment says, and what of it decides: the run's name, and who began together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runwatch.rows import ProcessRow
from runwatch.sdk import collect
from runwatch.sdk.guard import tally
from runwatch.sdk.identity import attempt_key, default_name, identify
from runwatch.sdk.workload import LONGEST, Workload, pod_facts, workload
from runwatch.views.attempts import attempts
from tests.unit.views.rows import process


def told(kind: str = "Job", name: str = "llama", uid: str = "w-1", **more: Any) -> dict[str, str]:
    thing = {"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": uid, **more}
    return {"RUNWATCH_WORKLOAD": json.dumps(thing)}


POD = {
    "POD_NAME": "llama-0-x7",
    "POD_NAMESPACE": "ml",
    "RUNWATCH_POD_UID": "u-1",
    "RUNWATCH_CONTAINER": "train",
    "NODE_NAME": "gke-a100-1",
}


def test_a_watched_pod_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {
        "pod": "llama-0-x7", "pod_namespace": "ml", "pod_uid": "u-1", "container": "train",
        "node": "gke-a100-1", "workload": "JobSet/llama", "workload_uid": "w-1",
    }  # fmt: skip
    environment = POD | told("JobSet", created="2026-01-02T03:04:05Z", plural="jobsets")
    assert pod_facts(environment) == expected
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    start = collect.run_start(identify(None), "")
    assert expected.items() <= start.body().items()


def test_outside_a_cluster_the_names_mean_other_things() -> None:
    mine = {"POD_NAME": "the whales", "NODE_NAME": "laptop", "POD_NAMESPACE": "x"}
    assert pod_facts(mine) == pod_facts({}) == {}
    assert pod_facts(mine | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})["pod"] == "the whales"


def test_a_process_without_a_pod_writes_what_it_always_did() -> None:
    body = collect.run_start(identify("x", environment={}), "").body()
    assert not {"pod", "pod_uid", "container", "node", "workload"} & body.keys()


@pytest.mark.parametrize("wrong", ["{", "[1]", "7", '"JobSet"', "[" * 100_000, "null"])
def test_what_is_no_workload_is_counted_and_never_raises(wrong: str) -> None:
    assert workload({"RUNWATCH_WORKLOAD": wrong}) == Workload()
    assert tally.counts == {"workload": 1}


def test_odd_fields_are_left_out_and_long_ones_cut() -> None:
    odd = {"kind": ["JobSet"], "name": "x" * 10_000, "uid": "\ud800"}
    assert workload({"RUNWATCH_WORKLOAD": json.dumps(odd)}) == Workload("", "x" * LONGEST, "?")
    assert pod_facts({"RUNWATCH_POD_UID": "u", "POD_NAME": "\udcff"}) == {
        "pod": "?",
        "pod_uid": "u",
    }
    assert tally.counts == {}
    assert workload({"RUNWATCH_WORKLOAD": "  "}) == Workload()


def test_the_workload_names_what_nobody_else_names() -> None:
    assert default_name(told()) == "llama"
    assert default_name(told() | {"JOBSET_NAME": "the-set"}) == "the-set"
    assert default_name(told() | {"LWS_LEADER_ADDRESS": "llama-3.llama.ml"}) == "llama-3"
    assert default_name(told() | {"RUNWATCH_NAME": "mine"}) == "mine"
    assert identify("given", environment=told(), modules={}).run == "given"


def test_two_namespaces_whose_jobs_are_called_the_same_are_two_runs() -> None:
    ours, theirs = (POD | told() | {"POD_NAMESPACE": space} for space in ("ml", "vision"))
    assert default_name(ours) == "ml/llama"
    assert default_name(ours | {"JOBSET_NAME": "the-set"}) == "ml/the-set"
    assert identify(None, environment=ours).run != identify(None, environment=theirs).run
    assert default_name(ours | {"RUNWATCH_NAME": "mine"}) == "mine"
    assert default_name(POD | {"JOBSET_NAME": "the-set"}) == "the-set", "nobody watches the pod"


def test_pods_of_a_stateful_set_are_its_ranks_unless_a_launcher_says_more() -> None:
    second = told("StatefulSet") | {"RUNWATCH_POD_INDEX": "1"}
    assert identify(None, environment=second, modules={}).rank == 1
    assert identify(None, environment=second | {"RANK": "7"}, modules={}).rank == 7
    assert identify(None, environment=second | {"LWS_WORKER_INDEX": "0"}, modules={}).rank == 0


# ── who began together ─────────────────────────────────────────────────────────────────────────

Pods = list[tuple[dict[str, str], int, float, float]]
"""Environment, rank, when it began and when it was last heard of."""


def numbers(pods: Pods) -> list[int]:
    rows: list[ProcessRow] = [
        process(str(at), rank=rank, host=f"p{at}", start=start, last=last, key=attempt_key(env))
        for at, (env, rank, start, last) in enumerate(pods)
    ]
    told = attempts(rows)
    return [told[row.journal, row.run] for row in rows]


def test_pods_of_one_job_are_one_attempt_however_late_one_comes() -> None:
    job = told()
    assert numbers([(job, 0, 0, 900), (job, 1, 5, 900), (job, 2, 400, 900)]) == [1, 1, 1]
    assert numbers([(job, 0, 0, 300), (job, 1, 5, 300), (job, 2, 400, 900)]) == [1, 1, 1]
    other = told(uid="w-2")  # it has rank 2 alone, whose pod came late
    assert numbers([(job, 0, 0, 300), (job, 1, 5, 300), (other, 2, 400, 900)]) == [1, 1, 2]


LAUNCHED = {
    "plain Job": {},
    "JobSet": {"JOBSET_NAME": "llama", "JOBSET_RESTART_ATTEMPT": "0"},
    "LWS": {"LWS_LEADER_ADDRESS": "llama-0.llama.ml"},
    "PyTorchJob": {"MASTER_ADDR": "llama-master-0", "MASTER_PORT": "23456", "RANK": "0"},
}


@pytest.mark.parametrize("kind", LAUNCHED)
def test_pods_that_are_made_again_are_the_next_attempt_of_the_run(kind: str) -> None:
    env = told() | LAUNCHED[kind]
    again = env | {"JOBSET_RESTART_ATTEMPT": "1"} if kind == "JobSet" else env
    pods: Pods = [(env, 0, 0, 100), (env, 1, 2, 100), (again, 1, 130, 300), (again, 0, 133, 300)]
    assert numbers(pods) == [1, 1, 2, 2]


@pytest.mark.parametrize("kind", LAUNCHED)
def test_a_workload_that_is_made_again_is_the_next_attempt_of_the_run(kind: str) -> None:
    first, second = (told(uid=uid) | LAUNCHED[kind] for uid in ("w-1", "w-2"))
    assert identify(None, environment=first, modules={}).run == "llama" or kind == "LWS"
    assert (
        identify(None, environment=first, modules={}).run
        == identify(None, environment=second, modules={}).run
    )
    pods: Pods = [(first, 0, 0, 100), (first, 1, 2, 100), (second, 0, 110, 300)]
    assert numbers([*pods, (second, 1, 111, 300)]) == [1, 1, 2, 2]


def test_a_pod_that_is_replaced_while_others_go_on_is_of_their_attempt() -> None:
    job = told()
    assert numbers([(job, 0, 0, 900), (job, 1, 2, 100), (job, 1, 160, 900)]) == [1, 1, 1]
