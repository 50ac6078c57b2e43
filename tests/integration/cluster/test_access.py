"""Who may do what at the tests' API server: tokens, roles, and what a namespace enforces."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runwatch.k8s.api import Access, Api, ApiError
from tests.cluster.server import Cluster

pytestmark = pytest.mark.xdist_group("cluster_access")

Thing = dict[str, Any]
RBAC = "rbac.authorization.k8s.io/v1"


def role(name: str, *rules: tuple[str, str, str], names: tuple[str, ...] = ()) -> Thing:
    """Rules: groups, resources, verbs, each with commas."""
    told = []
    for groups, resources, verbs in rules:
        rule: Thing = {
            "apiGroups": groups.split(","),
            "resources": resources.split(","),
            "verbs": verbs.split(","),
        }
        told.append({**rule, "resourceNames": list(names)} if names else rule)
    return {"apiVersion": RBAC, "kind": "Role", "metadata": {"name": name}, "rules": told}


def bound(name: str, account: str, *, kind: str = "Role") -> Thing:
    return {
        "apiVersion": RBAC,
        "kind": "RoleBinding",
        "metadata": {"name": f"{name}-{account}"},
        "roleRef": {"apiGroup": RBAC.partition("/")[0], "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "team"}],
    }


@pytest.fixture(scope="module")
def reader(cluster: Cluster) -> str:
    """The token of an account that may get and list the pods of `team`, and one ConfigMap."""
    token = (cluster.account("team", "reader") / "token").read_text()
    rights = [
        role("pods", ("", "pods", "get,list,watch")),
        role("one", ("", "configmaps", "get,list,patch"), names=("mine",)),
        bound("pods", "reader"),
        bound("one", "reader"),
    ]
    cluster.apply(rights, "team")
    for name in ("mine", "other"):
        cluster.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}, "team"
        )
    return token


TEAM = "/api/v1/namespaces/team"
ALLOWED = {
    "get": ("GET", f"{TEAM}/pods/none", 404),
    "list": ("GET", f"{TEAM}/pods", 200),
    "one by its name": ("GET", f"{TEAM}/configmaps/mine", 200),
    "a list of the one": ("GET", f"{TEAM}/configmaps?fieldSelector=metadata.name%3Dmine", 200),
    "discovery": ("GET", "/api/v1", 200),
    "health": ("GET", "/readyz", 200),
}
REFUSED = {
    "another verb": (
        "POST", f"{TEAM}/pods",
        "pods is forbidden: {user} cannot create resource \"pods\" in API group \"\" in the "
        'namespace "team"',
    ),
    "another resource": (
        "GET", f"{TEAM}/secrets/x",
        'secrets "x" is forbidden: {user} cannot get resource "secrets" in API group "" in the '
        'namespace "team"',
    ),
    "another namespace": (
        "GET", "/api/v1/namespaces/default/pods",
        "pods is forbidden: {user} cannot list resource \"pods\" in API group \"\" in the "
        'namespace "default"',
    ),
    "all namespaces": (
        "GET", "/api/v1/pods",
        'pods is forbidden: {user} cannot list resource "pods" in API group "" at the cluster '
        "scope",
    ),
    "another name": (
        "GET", f"{TEAM}/configmaps/other",
        'configmaps "other" is forbidden: {user} cannot get resource "configmaps" in API group "" '
        'in the namespace "team"',
    ),
    "all of them": (
        "GET", f"{TEAM}/configmaps",
        'configmaps is forbidden: {user} cannot list resource "configmaps" in API group "" in the '
        'namespace "team"',
    ),
    "a subresource": (
        "POST", f"{TEAM}/pods/a/eviction",
        'pods "a" is forbidden: {user} cannot create resource "pods/eviction" in API group "" in '
        'the namespace "team"',
    ),
    "a group": (
        "GET", "/apis/apps/v1/namespaces/team/deployments",
        'deployments.apps is forbidden: {user} cannot list resource "deployments" in API group '
        '"apps" in the namespace "team"',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("method", "path", "status"), ALLOWED.values(), ids=ALLOWED)
def test_what_a_role_gives_is_given(
    cluster: Cluster, reader: str, method: str, path: str, status: int
) -> None:
    assert cluster.ask(method, path, token=reader).status == status


@pytest.mark.parametrize(("method", "path", "words"), REFUSED.values(), ids=REFUSED)
def test_what_no_role_gives_is_refused_in_the_documented_words(
    cluster: Cluster, reader: str, method: str, path: str, words: str
) -> None:
    answer = cluster.ask(method, path, {} if method == "POST" else None, token=reader)
    assert (answer.status, answer.thing["reason"]) == (403, "Forbidden")
    user = 'User "system:serviceaccount:team:reader"'
    assert answer.thing["message"] == words.format(user=user)


def test_a_cluster_role_gives_what_its_binding_reaches(cluster: Cluster) -> None:
    token = (cluster.account("team", "half") / "token").read_text()
    everywhere = {**role("nodes", ("", "nodes,pods", "list")), "kind": "ClusterRole"}
    cluster.apply([everywhere])
    cluster.apply([bound("nodes", "half", kind="ClusterRole")], "team")
    assert cluster.ask("GET", f"{TEAM}/pods", token=token).status == 200
    for path in ("/api/v1/nodes", "/api/v1/pods"):
        assert cluster.ask("GET", path, token=token).status == 403
    binding = {**bound("nodes", "half", kind="ClusterRole"), "kind": "ClusterRoleBinding"}
    cluster.apply([binding])
    for path in ("/api/v1/nodes", "/api/v1/pods"):
        assert cluster.ask("GET", path, token=token).status == 200
    cluster.delete("ClusterRoleBinding", binding["metadata"]["name"])
    assert cluster.ask("GET", "/api/v1/nodes", token=token).status == 403


def test_a_token_that_is_none_or_withdrawn_is_unauthorized(cluster: Cluster) -> None:
    account = cluster.account("team", "leaver")
    cluster.apply([role("leave", ("", "pods", "list")), bound("leave", "leaver")], "team")
    old = (account / "token").read_text()
    new = (cluster.account("team", "leaver") / "token").read_text()
    assert old != new
    for token in (old, new):  # a renewed token does not make the old one bad
        assert cluster.ask("GET", f"{TEAM}/pods", token=token).status == 200
    cluster.withdraw("team", "leaver")
    for token in (old, new, "nonsense", ""):
        answer = cluster.ask("GET", f"{TEAM}/pods", token=token)
        assert (answer.status, answer.thing["reason"]) == (401, "Unauthorized"), token


def test_a_token_s_review_says_whose_it_is(cluster: Cluster, reader: str) -> None:
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    status = cluster.ask("POST", path, {"spec": {"token": reader}}).thing["status"]
    assert status["authenticated"]
    assert status["user"]["username"] == "system:serviceaccount:team:reader"
    assert "system:serviceaccounts:team" in status["user"]["groups"]
    status = cluster.ask("POST", path, {"spec": {"token": "nonsense"}}).thing["status"]
    assert not status["authenticated"]


def test_our_own_client_reads_a_token_anew_that_is_taken_no_longer(cluster: Cluster) -> None:
    account = cluster.account("team", "renewed")
    cluster.apply([role("renew", ("", "pods", "list")), bound("renew", "renewed")], "team")

    async def trial() -> list[object]:
        told: list[object] = []
        async with Api(Access(cluster.server, account)) as api:
            told.append((await api.get(f"{TEAM}/pods"))["kind"])
            cluster.withdraw("team", "renewed")
            cluster.account("team", "renewed")  # the kubelet writes the file anew
            told.append((await api.get(f"{TEAM}/pods"))["kind"])
            for path in (f"{TEAM}/secrets", "/apis/none/v1/none"):
                try:
                    await api.get(path)
                except ApiError as error:
                    told.append((error.status, error.reason))
            cluster.withdraw("team", "renewed")
            try:
                await api.get(f"{TEAM}/pods")
            except ApiError as error:
                told.append(error.status)
        return told

    told = asyncio.run(trial())
    assert told == ["PodList", "PodList", (403, "Forbidden"), (404, "NotFound"), 401]


# ── Pod Security ──────────────────────────────────────────────────────────────────────────────

STRICT: Thing = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": "x:1",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ],
}
NODES: Thing = {**STRICT, "volumes": [{"name": "node", "hostPath": {"path": "/var/lib"}}]}
PLAIN: Thing = {"containers": [{"name": "main", "image": "x:1"}]}
LEVELS = {
    "privileged takes all": ("privileged", NODES, ""),
    "baseline takes a plain pod": ("baseline", PLAIN, ""),
    "baseline refuses hostPath": ("baseline", NODES, 'hostPath volumes (volume "node")'),
    "baseline refuses hostNetwork": ("baseline", {**PLAIN, "hostNetwork": True}, "host namespaces"),
    "restricted takes a strict pod": ("restricted", STRICT, ""),
    "restricted refuses a plain pod": (
        "restricted", PLAIN,
        'allowPrivilegeEscalation != false (container "main" must set',
    ),
    "restricted refuses a strict pod with hostPath": ("restricted", NODES, "hostPath"),
}  # fmt: skip


@pytest.mark.parametrize(("level", "spec", "words"), LEVELS.values(), ids=LEVELS)
def test_a_namespace_enforces_its_level(
    cluster: Cluster, level: str, spec: Thing, words: str
) -> None:
    cluster.namespace(level, {"pod-security.kubernetes.io/enforce": level})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec}
    answer = cluster.ask("POST", f"/api/v1/namespaces/{level}/pods", pod)
    assert answer.status == (403 if words else 201), answer.thing
    if words:
        assert f'violates PodSecurity "{level}:latest": ' in answer.thing["message"]
        assert words in answer.thing["message"]


def test_a_namespace_may_warn_alone(cluster: Cluster) -> None:
    cluster.namespace("warned", {"pod-security.kubernetes.io/warn": "restricted"})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": PLAIN}
    answer = cluster.ask("POST", "/api/v1/namespaces/warned/pods", pod)
    assert answer.status == 201
    assert 'would violate PodSecurity \\"restricted:latest\\"' in answer.headers["Warning"]


def test_a_pod_of_an_account_that_is_not_there_is_refused(cluster: Cluster) -> None:
    spec = {**PLAIN, "serviceAccountName": "nobody"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    answer = cluster.ask("POST", "/api/v1/namespaces/default/pods", pod)
    assert answer.status == 403 and 'serviceaccount "nobody" not found' in answer.thing["message"]
