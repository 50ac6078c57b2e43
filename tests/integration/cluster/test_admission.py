"""The tests' API server calls webhooks as a real one does, over TLS that it checks."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest
import trustme
from aiohttp import web

from tests.cluster.server import Answer, Cluster

pytestmark = pytest.mark.xdist_group("cluster_admission")

Thing = dict[str, Any]
Answers = Callable[[Thing], Thing | int]
PODS = "/api/v1/namespaces/hooked/pods"


class Hook:
    """A webhook of a test, over TLS: `answers` is given the review's request."""

    def __init__(self, answers: Answers, names: tuple[str, ...] = ("hook.tools.svc",)) -> None:
        self.authority = trustme.CA()
        self.asked: list[Thing] = []
        self.port = 0
        self._answers, self._names = answers, names
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    @property
    def bundle(self) -> str:
        return base64.b64encode(self.authority.cert_pem.bytes()).decode()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(100)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(100)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(*self._names).configure_cert(trust)
        server = web.Server(self._handle)
        runner = web.ServerRunner(server, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._stop.wait()
        for connection in server.connections:  # kept by who asked, who need not answer now
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        review = json.loads(await request.read())
        self.asked.append({**review["request"], "url": str(request.rel_url)})
        answer = self._answers(review["request"])
        if answer == SLOW:
            await self._stop.wait()
        if isinstance(answer, int):
            return web.Response(status=answer)
        response = {"uid": review["request"]["uid"], "allowed": True, **answer}
        return web.json_response(
            {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        )


SLOW = 1


def labels(**some: str) -> Answers:
    """Adds what is not there yet."""

    def answers(request: Thing) -> Thing:
        has = request["object"]["metadata"].get("labels") or {}
        steps = [] if has else [{"op": "add", "path": "/metadata/labels", "value": {}}]
        steps += [
            {"op": "add", "path": f"/metadata/labels/{key}", "value": value}
            for key, value in some.items()
            if key not in has
        ]
        return {
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(steps).encode()).decode(),
        }

    return answers


@pytest.fixture(autouse=True)
def hooked(cluster: Cluster) -> Iterator[None]:
    cluster.namespace("hooked", {"hook": "yes"})
    yield
    for each in cluster.list("MutatingWebhookConfiguration"):
        cluster.delete("MutatingWebhookConfiguration", each["metadata"]["name"])
    cluster.services.clear()


def install(cluster: Cluster, hook: Hook, name: str = "hook", **more: Any) -> None:
    service = more.pop("service", "hook")
    cluster.services["tools", service] = "127.0.0.1", hook.port
    webhook = {
        "name": f"{name}.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {
            "caBundle": more.pop("bundle", hook.bundle),
            "service": {"namespace": "tools", "name": service, "path": "/mutate"},
        },
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
                "operations": ["CREATE"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"hook": "yes"}},
        **more,
    }
    cluster.apply(
        [
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": name},
                "webhooks": [webhook],
            }
        ]
    )


def create(cluster: Cluster, path: str = PODS, **meta: Any) -> Answer:
    spec = {"containers": [{"name": "main", "image": "x:1"}]}
    meta = {"generateName": "p-", **meta}
    return cluster.ask(
        "POST", path, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    )


def test_a_review_tells_what_is_documented_and_its_patch_is_applied(cluster: Cluster) -> None:
    with Hook(labels(seen="yes")) as hook:
        install(cluster, hook, timeoutSeconds=5)
        told = create(cluster, name="named")
        assert told.status == 201 and told.thing["metadata"]["labels"] == {"seen": "yes"}
        [asked] = hook.asked
        assert asked["url"] == "/mutate?timeout=5s"
        assert asked["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
        assert asked["resource"] == {"group": "", "version": "v1", "resource": "pods"}
        assert (asked["namespace"], asked["name"], asked["operation"]) == (
            "hooked",
            "named",
            "CREATE",
        )
        assert asked["userInfo"]["username"] == "kubernetes-admin"
        assert asked["object"]["spec"]["restartPolicy"] == "Always"  # defaults come first
        assert asked["oldObject"] is None and asked["dryRun"] is False
        assert create(cluster).thing["metadata"]["name"].startswith("p-")
        assert "name" not in hook.asked[1]
        cluster.ask("POST", f"{PODS}?dryRun=All", {**told.thing, "metadata": {"name": "dry"}})
        assert hook.asked[2]["dryRun"] is True
    assert [each.failure for each in cluster.reviews[-3:]] == ["", "", ""]


@pytest.mark.parametrize("answer", [500, SLOW, {"uid": "another"}, {"patch": "bm9uZQ=="}])
@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
def test_who_does_not_answer_well_is_ignored_or_fails_as_the_policy_says(
    cluster: Cluster, answer: Thing | int, policy: str
) -> None:
    with Hook(lambda _: answer) as hook:
        install(cluster, hook, failurePolicy=policy, timeoutSeconds=1)
        told = create(cluster)
    assert told.status == (201 if policy == "Ignore" else 500), told.thing
    if policy == "Fail":
        assert 'failed calling webhook "hook.example.com"' in told.thing["message"]
    if answer == SLOW:
        assert "context deadline exceeded" in cluster.reviews[-1].failure
    assert cluster.reviews[-1].failure


def test_nobody_there_is_no_answer(cluster: Cluster) -> None:
    with Hook(labels()) as hook:
        install(cluster, hook, failurePolicy="Ignore")
    assert create(cluster).status == 201 and cluster.reviews[-1].failure  # it has ended
    cluster.services.clear()
    assert create(cluster).status == 201
    assert 'service "hook" not found' in cluster.reviews[-1].failure


def test_who_is_not_of_the_authority_or_not_of_the_name_is_not_trusted(cluster: Cluster) -> None:
    other = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    with Hook(labels(seen="yes")) as hook:
        install(cluster, hook, bundle=other, failurePolicy="Ignore")
        assert "labels" not in create(cluster).thing["metadata"]
        assert "certificate verify failed" in cluster.reviews[-1].failure and not hook.asked
    with Hook(labels(seen="yes"), names=("other.tools.svc",)) as hook:
        install(cluster, hook, failurePolicy="Ignore")
        assert "labels" not in create(cluster).thing["metadata"]
        assert "ostname mismatch" in cluster.reviews[-1].failure and not hook.asked


def test_a_refusal_has_the_webhook_s_words(cluster: Cluster) -> None:
    no = {"allowed": False, "status": {"code": 403, "message": "not today"}}
    with Hook(lambda _: no) as hook:
        install(cluster, hook, failurePolicy="Ignore")
        told = create(cluster)
    assert told.status == 403
    assert told.thing["message"] == (
        'admission webhook "hook.example.com" denied the request: not today'
    )


def test_warnings_reach_who_asked(cluster: Cluster) -> None:
    with Hook(lambda _: {"warnings": ["mind the gap"]}) as hook:
        install(cluster, hook)
        assert create(cluster).headers["Warning"] == '299 - "mind the gap"'


SELECTED: dict[str, tuple[Thing, bool]] = {
    "the namespace has the label": ({}, True),
    "another label is asked of it": ({"namespaceSelector": {"matchLabels": {"hook": "no"}}}, False),
    "it is exempt": (
        {"namespaceSelector": {"matchExpressions": [{"key": "hook", "operator": "DoesNotExist"}]}},
        False,
    ),
    "its name is a label, too": (
        {
            "namespaceSelector": {
                "matchExpressions": [
                    {
                        "key": "kubernetes.io/metadata.name",
                        "operator": "NotIn",
                        "values": ["kube-system"],
                    }
                ]
            }
        },
        True,
    ),
    "the pod has the label": ({"objectSelector": {"matchLabels": {"a": "b"}}}, True),
    "the pod has it not": ({"objectSelector": {"matchLabels": {"a": "c"}}}, False),
    "other operations": (
        {
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods"],
                    "operations": ["UPDATE"],
                }
            ]
        },
        False,
    ),
    "every kind": (
        {
            "rules": [
                {
                    "apiGroups": ["*"],
                    "apiVersions": ["*"],
                    "resources": ["*"],
                    "operations": ["*"],
                }
            ]
        },
        True,
    ),
}


@pytest.mark.parametrize(("more", "is_asked"), SELECTED.values(), ids=SELECTED)
def test_selectors_and_rules_decide_who_is_asked_about(
    cluster: Cluster, more: Thing, is_asked: bool
) -> None:
    with Hook(labels()) as hook:
        install(cluster, hook, **more)
        assert create(cluster, labels={"a": "b"}).status == 201
        assert bool(hook.asked) is is_asked


@pytest.mark.parametrize(("policy", "calls"), [("IfNeeded", 2), ("Never", 1)])
def test_after_a_later_change_it_is_asked_again_if_it_wants(
    cluster: Cluster, policy: str, calls: int
) -> None:
    with Hook(labels(first="1")) as first, Hook(labels(second="2"), ("other.tools.svc",)) as second:
        install(cluster, first, "a", reinvocationPolicy=policy)
        install(cluster, second, "b", service="other")
        told = create(cluster).thing
        assert told["metadata"]["labels"] == {"first": "1", "second": "2"}
        assert (len(first.asked), len(second.asked)) == (calls, 1)
        if calls == 2:
            assert first.asked[1]["object"]["metadata"]["labels"]["second"] == "2"


def test_what_a_webhook_makes_of_a_pod_is_checked(cluster: Cluster) -> None:
    def breaks(_: Thing) -> Thing:
        step = {"op": "add", "path": "/spec/containers/0/volumeMounts/-", "value": {"name": "x"}}
        return {
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps([step]).encode()).decode(),
        }

    with Hook(breaks) as hook:
        install(cluster, hook)
        told = create(cluster)
    assert told.status == 422 and 'volumeMounts[1].name: Not found: "x"' in told.thing["message"]
