"""What the server says that it serves."""

from __future__ import annotations

from typing import Any, Final

from tests.cluster.kinds import VERBS, Kind, Kinds

Thing = dict[str, Any]

VERSION: Final = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.4",
    "gitCommit": "0" * 40,
    "gitTreeState": "clean",
    "buildDate": "2025-04-22T15:57:46Z",
    "goVersion": "go1.23.8",
    "compiler": "gc",
    "platform": "linux/amd64",
}

# Group, version, kind, plural, namespaced: asked by POST alone.
REVIEWS: Final = (
    ("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", False),
    ("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", False),
    ("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", False),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False),
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", False),
    ("authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", True),
)

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_SUB_KINDS: Final = {
    "eviction": ("policy", "v1", "Eviction"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    "scale": ("autoscaling", "v1", "Scale"),
    "binding": ("", "v1", "Binding"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
}


def answer(parts: list[str], kinds: Kinds) -> Thing | None:
    """None: there is no such page."""
    match parts:
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["api", "v1"]:
            return _resources("", "v1", kinds)
        case ["apis"]:
            groups = [_group(name, kinds) for name in _groups(kinds)]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group] if group in _groups(kinds):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, kinds)}
        case ["apis", group, version] if version in _versions(group, kinds):
            return _resources(group, version, kinds)
    return None


def aggregated(parts: list[str], accept: str, kinds: Kinds) -> Thing | None:
    """All of a root's groups in one answer, for clients that know to ask for it."""
    if parts not in (["api"], ["apis"]) or "as=APIGroupDiscoveryList" not in accept:
        return None
    groups = [""] if parts == ["api"] else _groups(kinds)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_whole_group(group, kinds) for group in groups],
    }


def _whole_group(group: str, kinds: Kinds) -> Thing:
    versions = [
        {
            "version": version,
            "resources": _whole_resources(group, version, kinds),
            "freshness": "Current",
        }
        for version in _versions(group, kinds)
    ]
    return {"metadata": {"name": group} if group else {}, "versions": versions}


def _whole_resources(group: str, version: str, kinds: Kinds) -> list[Thing]:
    """The same as `_resources` tells, with the subresources inside of their resources."""
    told: dict[str, Thing] = {}
    for each in _resources(group, version, kinds)["resources"]:
        name, _, sub = each["name"].partition("/")
        kind = {
            "group": each.get("group", group),
            "version": each.get("version", version),
            "kind": each["kind"],
        }
        if sub:
            inside = {"subresource": sub, "responseKind": kind, "verbs": each["verbs"]}
            told[name].setdefault("subresources", []).append(inside)
            continue
        told[name] = {
            "resource": name,
            "responseKind": kind,
            "scope": "Namespaced" if each["namespaced"] else "Cluster",
            "singularResource": each["singularName"],
            "verbs": each["verbs"],
        }
        for word in ("shortNames", "categories"):
            if word in each:
                told[name][word] = each[word]
    return list(told.values())


def _groups(kinds: Kinds) -> list[str]:
    named = [kind.group for kind in kinds if kind.group] + [each[0] for each in REVIEWS]
    return list(dict.fromkeys(named))


def _versions(group: str, kinds: Kinds) -> list[str]:
    served = [kind.version for kind in kinds if kind.group == group]
    reviewed = [each[1] for each in REVIEWS if each[0] == group]
    return list(dict.fromkeys(served + reviewed))


def _group(name: str, kinds: Kinds) -> Thing:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in _versions(name, kinds)
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(group: str, version: str, kinds: Kinds) -> Thing:
    resources: list[Thing] = []
    for kind in kinds:
        if (kind.group, kind.version) == (group, version):
            resources.append(_resource(kind))
            resources += [_subresource(kind, name) for name in kind.subresources]
    for each in REVIEWS:
        if each[:2] == (group, version):
            review = {"name": each[3], "singularName": each[2].lower(), "namespaced": each[4]}
            resources.append({**review, "kind": each[2], "verbs": ["create"]})
    named = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": named,
        "resources": resources,
    }


def _resource(kind: Kind) -> Thing:
    told: Thing = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(VERBS),
    }
    if kind.short:
        told["shortNames"] = list(kind.short)
    if kind.categories:
        told["categories"] = list(kind.categories)
    return told


def _subresource(kind: Kind, name: str) -> Thing:
    told: Thing = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": ["get", "patch", "update"],
    }
    if name == "log":
        told["verbs"] = ["get"]
    if name in _SUB_KINDS:
        group, version, sub_kind = _SUB_KINDS[name]
        told |= {"group": group, "version": version, "kind": sub_kind}
        if name != "scale":
            told["verbs"] = ["create"]
    return told
