"""One review, one answer: who is asked what for it, and what becomes of it when nobody answers."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from runwatch.k8s.api import Api
from runwatch.k8s.judge import Judge, Verdict
from runwatch.k8s.reviews import Question
from runwatch.k8s.settings import WebhookSettings
from runwatch.k8s.workloads import Workloads
from runwatch.testing import FakeClock
from tests.cluster import objects
from tests.cluster.controllers import owned
from tests.cluster.server import Cluster
from tests.unit.k8s.admitted import SETTINGS
from tests.unit.k8s.conftest import Asking

Thing = dict[str, Any]
WATCH = {"runwatch.dev/watch": "true"}
JUDGE_SECONDS = 5.0


def asked(
    asking: Asking[Verdict],
    pod: Thing,
    space: str,
    *,
    seconds: float = JUDGE_SECONDS,
    settings: WebhookSettings = SETTINGS,
) -> Verdict:
    async def judge(api: Api) -> Verdict:
        workloads = Workloads(api)
        until = asyncio.get_running_loop().time() + seconds
        verdict = await Judge(workloads, settings, "runwatch").judge(
            Question("u", space, pod), until
        )
        await workloads.close()
        return verdict

    return asking(judge)


def changes(verdict: Verdict) -> bool:
    return "patch" in verdict.review["response"]


def warning(verdict: Verdict) -> str:
    (words,) = verdict.review["response"]["warnings"]
    assert isinstance(words, str)
    return words


def test_what_is_no_pod_is_allowed_and_nobody_is_asked(
    cluster: Cluster, asking: Asking[Verdict], space: str
) -> None:
    since = len(cluster.asked)
    verdict = asked(asking, {}, space)
    assert (verdict.outcome, changes(verdict)) == ("other", False)
    assert cluster.asked[since:] == []


@pytest.mark.parametrize(
    ("pod", "outcome"),
    [
        (objects.pod(labels={"app.kubernetes.io/part-of": "runwatch"}), "spared"),
        (objects.pod(labels={"runwatch.dev/watch": "false"}), "unwatched"),
        (objects.pod(labels={"managed-mldiagnostics-gke": "false"}), "unwatched"),
    ],
)
def test_who_says_no_itself_costs_no_question(
    cluster: Cluster, asking: Asking[Verdict], space: str, pod: Thing, outcome: str
) -> None:
    cluster.namespace(space, WATCH)
    since = len(cluster.asked)
    assert asked(asking, pod, space).outcome == outcome
    assert cluster.asked[since:] == []


def test_a_namespace_that_is_exempt_is_so_whatever_else_is_labelled(
    cluster: Cluster, asking: Asking[Verdict], space: str
) -> None:
    """Also if the API server asks all the same: its selectors may be somebody's own."""
    cluster.namespace(space, WATCH | {"diagon-webhook-exempt": "true"})
    verdict = asked(asking, objects.pod(labels=WATCH), space)
    assert (verdict.outcome, changes(verdict)) == ("spared", False)


def test_who_is_not_labelled_stays_as_it_is(asking: Asking[Verdict], space: str) -> None:
    verdict = asked(asking, objects.pod(), space)
    assert (verdict.outcome, verdict.review["response"]) == (
        "unwatched",
        {"uid": "u", "allowed": True},
    )


def test_who_waits_too_long_starts_unwatched_and_is_told(
    cluster: Cluster, asking: Asking[Verdict], space: str
) -> None:
    cluster.faults.slow("GET", f"/{space}", 30)
    verdict = asked(asking, objects.pod(labels=WATCH), space, seconds=0.05)
    assert (verdict.outcome, changes(verdict)) == ("late", False)
    assert "not watched" in warning(verdict) and "did not answer within 3 s" in warning(verdict)


def test_who_cannot_be_known_starts_unwatched_and_is_told(
    cluster: Cluster, asking: Asking[Verdict], space: str
) -> None:
    job = cluster.create(objects.job("a", labels=WATCH), space)
    cluster.faults.fail("GET", f"/{space}/jobs/", 500, times=9)
    verdict = asked(asking, owned(objects.pod(), job), space)
    assert (verdict.outcome, changes(verdict)) == ("failed", False)
    assert "500" in warning(verdict)


def test_a_server_that_does_not_tell_its_version_has_no_sidecars(
    cluster: Cluster, asking: Asking[Verdict], space: str
) -> None:
    """A sidecar that an old cluster takes for an init container would keep the pod for ever."""
    cluster.namespace(space, WATCH)
    cluster.faults.fail("GET", "/version", 500, times=9)
    verdict = asked(asking, objects.pod(notes={"runwatch.dev/mode": "sidecar"}), space)
    steps = json.loads(base64.b64decode(verdict.review["response"]["patch"]))
    assert verdict.outcome == "injected"
    assert not [step for step in steps if "initContainers" in step["path"]]


def test_the_same_pod_is_judged_the_same(
    cluster: Cluster, asking: Asking[Verdict], space: str
) -> None:
    job = cluster.create(objects.job("a", labels=WATCH), space)
    pod = owned(objects.pod(), job)
    assert asked(asking, pod, space) == asked(asking, pod, space)


def test_a_namespace_that_was_labelled_a_moment_ago_is_watched(
    cluster: Cluster, asking: Asking[list[str]], space: str
) -> None:
    """`kubectl label namespace` and `kubectl apply`, soon after a pod that was not watched."""
    clock = FakeClock()

    async def outcomes(api: Api) -> list[str]:
        judge = Judge(Workloads(api, clock=clock), SETTINGS, "runwatch")
        found = []
        for number in range(3):
            until = asyncio.get_running_loop().time() + JUDGE_SECONDS
            question = Question("u", space, objects.pod(f"p-{number}"))
            found.append((await judge.judge(question, until)).outcome)
            if number == 1:
                await asyncio.to_thread(cluster.namespace, space, WATCH)
            clock.advance(1.0)
        return found

    assert asking(outcomes) == ["unwatched", "unwatched", "injected"]


def test_a_crowd_in_an_unlabelled_namespace_is_one_question(
    cluster: Cluster, asking: Asking[None], space: str
) -> None:
    since = len(cluster.asked)

    async def crowd(api: Api) -> None:
        judge = Judge(Workloads(api, clock=FakeClock()), SETTINGS, "runwatch")
        until = asyncio.get_running_loop().time() + JUDGE_SECONDS
        asked = [judge.judge(Question("u", space, objects.pod()), until) for _ in range(50)]
        assert {each.outcome for each in await asyncio.gather(*asked)} == {"unwatched"}

    asking(crowd)
    assert [each.path for each in cluster.asked[since:]] == [f"/api/v1/namespaces/{space}"]
