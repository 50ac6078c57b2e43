"""Who may do what, by the stored Roles and their bindings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.cluster.answers import Refusal, forbidden
from tests.cluster.storage import Storage

Thing = dict[str, Any]
GROUP: Final = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ("system:authenticated",)
    uid: str = ""

    @property
    def is_account(self) -> bool:
        return self.name.startswith("system:serviceaccount:")

    def info(self) -> Thing:
        """As admission is told."""
        told: Thing = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            told["uid"] = self.uid
        return told


ADMIN: Final = User("kubernetes-admin", ("system:masters", "system:authenticated"))


@dataclass(frozen=True)
class Deed:
    """What somebody wants to do."""

    verb: str
    group: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


def allowed(storage: Storage, user: User, deed: Deed) -> bool:
    if "system:masters" in user.groups:
        return True
    return any(_covers(rule, deed) for rule in rules(storage, user, deed.namespace))


def refused(user: User, deed: Deed) -> Refusal:
    what = f"{deed.plural}.{deed.group}" if deed.group else deed.plural
    subject = f'{what} "{deed.name}"' if deed.name else what
    where = f'in the namespace "{deed.namespace}"' if deed.namespace else "at the cluster scope"
    details: Thing = {"kind": deed.plural}
    if deed.name:
        details["name"] = deed.name
    if deed.group:
        details["group"] = deed.group
    return forbidden(
        f'{subject} is forbidden: User "{user.name}" cannot {deed.verb} resource '
        f'"{deed.resource}" in API group "{deed.group}" {where}',
        details,
    )


def rules(storage: Storage, user: User, namespace: str) -> Iterator[Thing]:
    """What somebody is given, in a namespace or everywhere."""
    for binding in storage.items((GROUP, "clusterrolebindings")):
        if _is_bound(binding.thing, user, ""):
            yield from _role(storage, binding.thing, "")
    if not namespace:
        return
    for binding in storage.items((GROUP, "rolebindings"), namespace):
        if _is_bound(binding.thing, user, namespace):
            yield from _role(storage, binding.thing, namespace)


def _is_bound(binding: Thing, user: User, namespace: str) -> bool:
    for subject in binding.get("subjects") or ():
        match subject["kind"]:
            case "ServiceAccount":
                place = subject.get("namespace") or namespace
                if user.name == f"system:serviceaccount:{place}:{subject['name']}":
                    return True
            case "User" if subject["name"] == user.name:
                return True
            case "Group" if subject["name"] in user.groups:
                return True
    return False


def _role(storage: Storage, binding: Thing, namespace: str) -> Iterator[Thing]:
    wanted = binding["roleRef"]
    if wanted["kind"] == "ClusterRole":
        role = storage.get((GROUP, "clusterroles"), "", wanted["name"])
    else:
        role = storage.get((GROUP, "roles"), namespace, wanted["name"])
    if role is not None:
        yield from role.thing.get("rules") or ()


def _covers(rule: Thing, deed: Deed) -> bool:
    names = rule.get("resourceNames")
    return (
        _has(rule.get("verbs"), deed.verb)
        and _has(rule.get("apiGroups"), deed.group)
        and _has_resource(rule.get("resources") or (), deed)
        and (not names or deed.name in names)
    )


def _has(words: list[str] | None, word: str) -> bool:
    return word in (words or ()) or "*" in (words or ())


def _has_resource(resources: Sequence[str], deed: Deed) -> bool:
    if deed.resource in resources or "*" in resources:
        return True
    return bool(deed.subresource) and f"*/{deed.subresource}" in resources
