"""A thousand pods at once, and bodies that are no reviews."""

from __future__ import annotations

import http.client
import json
import ssl
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.cluster import objects
from tests.cluster.controllers import children, owned, played
from tests.integration.webhook.site import Site, is_watched

Thing = dict[str, Any]


def at_once(site: Site, count: int, name: str, people: int = 64) -> list[Thing]:
    """All pods of a JobSet, as if its controllers were infinitely quick."""
    cluster = site.cluster
    stored = cluster.create(objects.job_set(name, jobs=4, count=count // 4), "team")
    jobs = [cluster.create(owned(each, stored), "team") for each in children(stored)]
    pods = [owned(pod, job) for job in jobs for pod in children(job)]
    assert len(pods) == count
    with ThreadPoolExecutor(people) as waiting:
        return list(waiting.map(lambda pod: cluster.create(pod, "team"), pods))


def all_are_injected(site: Site, count: int) -> None:
    since, before = len(site.cluster.asked), len(site.cluster.reviews)
    pods = at_once(site, count, f"crowd-{count}")
    assert Counter(map(is_watched, pods)) == {True: count}
    assert len({pod["metadata"]["uid"] for pod in pods}) == count
    reviews = site.cluster.reviews[before:]
    assert (len(reviews), {each.failure for each in reviews}) == (count, {""})
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        names = [each["name"] for each in container["env"]]
        assert len(set(names)) == len(names)
        assert [each["name"] for each in pod["spec"]["volumes"]].count("runwatch-records") == 1
    identities = {
        each["value"]
        for pod in pods
        for each in pod["spec"]["containers"][0]["env"]
        if each["name"] == "GKE_DIAGON_IDENTIFIER"
    }
    assert len(identities) == 1
    reads = [each for each in site.cluster.asked[since:] if each.method == "GET"]
    assert len(reads) < 30  # the owners, now and then


def test_two_hundred_pods_at_once_are_all_watched(site: Site) -> None:
    site.start().ready()
    all_are_injected(site, 200)


@pytest.mark.soak
def test_a_thousand_pods_at_once_are_all_watched(site: Site) -> None:
    """The API server of the tests is in this process, and takes most of the time."""
    site.configure({"timeoutSeconds": 5})
    site.start(RUNWATCH_WEBHOOK_SECONDS="3").ready()
    all_are_injected(site, 1000)


def told_otherwise(site: Site) -> int:
    """So many pods started unwatched because of a failure or with a warning that says so."""
    answers = [(each.failure, each.answer or {"response": {}}) for each in site.cluster.reviews]
    return sum(bool(failure or answer["response"].get("warnings")) for failure, answer in answers)


@pytest.mark.soak
def test_a_thousand_pods_in_one_moment(site: Site) -> None:
    """As many connections: what is late is left alone and told, and nothing is half done."""
    site.start().ready()
    pods = at_once(site, 1000, "moment", people=1000)
    found = Counter(map(is_watched, pods))
    assert found.total() == 1000 and found[False] == told_otherwise(site)
    assert is_watched(played(site.cluster, objects.job("then", count=1), "team")[0])


def test_a_crowd_before_an_api_server_that_answers_late(site: Site) -> None:
    """Each pod is watched, or starts unwatched and is told; none is half watched, none refused."""
    site.start().ready()
    site.cluster.faults.slow("GET", "/jobsets/", 30, times=1)
    pods = at_once(site, 100, "late")
    found = Counter(map(is_watched, pods))
    assert found.total() == 100 and found[False] == told_otherwise(site) > 0
    site.cluster.faults.clear()
    assert is_watched(played(site.cluster, objects.job("then", count=1), "team")[0])


def post(site: Site, body: bytes, path: str = "/mutate", method: str = "POST") -> tuple[int, bytes]:
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    port = site.replicas[0].port
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=trust, timeout=100)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


BODIES: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "no JSON": lambda: b"{" * 7,
    "not UTF-8": lambda: b'{"apiVersion": "\xff\xfe"}',
    "another version": lambda: b'{"apiVersion": "admission.k8s.io/v1beta1", "request": {}}',
    "too deep": lambda: b'{"a":' * 200_000,
    "a list": lambda: b"[" + b"{}," * 1000 + b"{}]",
}


@pytest.mark.parametrize("body", BODIES)
def test_what_is_no_review_is_refused_and_the_next_one_is_answered(shared: Site, body: str) -> None:
    status, told = post(shared, BODIES[body]())
    assert status == 400 and told.endswith(b"\n")
    review: Thing = {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u-1"}}
    status, told = post(shared, json.dumps(review).encode())
    assert (status, json.loads(told)["response"]) == (200, {"uid": "u-1", "allowed": True})


def test_a_body_that_is_too_large_is_refused(shared: Site) -> None:
    status, _ = post(shared, b" " * (9 << 20))
    assert status == 413


@pytest.mark.parametrize(("method", "path"), [("GET", "/mutate"), ("POST", "/"), ("GET", "/x")])
def test_other_paths_are_none(shared: Site, method: str, path: str) -> None:
    assert post(shared, b"", path, method)[0] in (404, 405)


def test_nothing_of_what_was_sent_is_in_the_log(shared: Site) -> None:
    """Pods have secrets in their environment."""
    secret = "s3cr3t-value"
    pod = objects.pod(
        spec={"containers": {"secret": secret}}, labels={"runwatch.dev/watch": "true"}
    )
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {"uid": "u", "kind": kind, "operation": "CREATE", "namespace": "team", "object": pod}
    review = {"apiVersion": "admission.k8s.io/v1", "request": request}
    status, told = post(shared, json.dumps(review).encode())
    assert (status, json.loads(told)["response"]["allowed"]) == (200, True)
    words = shared.replicas[0].words()
    assert "starts unwatched" in words and secret not in words
    assert "Traceback" not in words
