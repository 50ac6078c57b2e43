"""What a request is about, by its path and method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.cluster import answers, discovery
from tests.cluster.kinds import Kind, Kinds
from tests.cluster.rbac import Deed

_ONE = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}
FORWARD = "portforward"
_MANY = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


@dataclass(frozen=True)
class Route:
    """A request about objects."""

    verb: str
    """As rules of access name it."""
    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def deed(self, query: Mapping[str, str]) -> Deed:
        name = self.name
        if not name:  # who asks for one by a field selector needs the right to that one alone
            name = query.get("fieldSelector", "").partition("metadata.name=")[2].partition(",")[0]
        space = self.namespace
        if self.kind.plural == "namespaces" and self.name:  # who has rights inside may see it
            space = self.name
        return Deed(self.verb, self.kind.group, self.kind.plural, space, name, self.subresource)


@dataclass(frozen=True)
class Review:
    """A question that is asked by POST."""

    group: str
    plural: str
    namespace: str


def parts_of(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def route(
    method: str, parts: list[str], query: Mapping[str, str], kinds: Kinds
) -> Route | Review | None:
    """None: it is not about objects.  What is not served is refused."""
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    review = _review(method, group, version, rest, namespace)
    if review is not None:
        return review
    kind = kinds.at(group, version, rest[0])
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        raise answers.no_such_resource()
    name, subresource = [*rest[1:], "", ""][:2]
    if subresource and subresource not in kind.subresources:
        raise answers.no_such_resource()
    if name and kind.namespaced and not namespace:
        raise answers.no_such_resource()
    verb = (_ONE if name else _MANY).get(method)
    if verb is None or (method == "POST" and name and not subresource):
        raise answers.method_not_allowed()
    if subresource == FORWARD:  # also as a WebSocket, which is asked for by GET
        verb = "create"
    if verb in ("get", "list") and not subresource and query.get("watch") in ("true", "1"):
        verb = "watch"
    return Route(verb, kind, namespace, name, subresource)


def _review(
    method: str, group: str, version: str, rest: list[str], namespace: str
) -> Review | None:
    for each in discovery.REVIEWS:
        if each[:2] == (group, version) and rest == [each[3]]:
            if method != "POST":
                raise answers.method_not_allowed()
            return Review(group, each[3], namespace)
    return None
