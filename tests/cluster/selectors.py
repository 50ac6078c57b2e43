"""Label and field selectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.cluster.answers import bad_request

Thing = dict[str, Any]
Test = Callable[[Thing], bool]

_SET = re.compile(r"^(!?)\s*([\w./-]+)\s*(?:(in|notin)\s*\(([^)]*)\)|(==|=|!=)\s*([\w./-]*))?$")
_COMMA = re.compile(r",(?![^(]*\))")


def by_labels(written: str) -> Test:
    """As in a query: `a=b,c!=d,e in (f,g),!h,i`."""
    tests = [_label_test(part.strip()) for part in _COMMA.split(written) if part.strip()]

    def matches(thing: Thing) -> bool:
        labels = thing["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return matches


def _label_test(written: str) -> Callable[[Mapping[str, str]], bool]:
    found = _SET.match(written)
    if found is None:
        raise bad_request(f"unable to parse requirement: {written}")
    absent, key, word, values, sign, value = found.groups()
    chosen = {each.strip() for each in (values or "").split(",")}
    if absent:
        return lambda labels: key not in labels
    if word == "in":
        return lambda labels: labels.get(key) in chosen
    if word == "notin":
        return lambda labels: labels.get(key) not in chosen
    if sign == "!=":
        return lambda labels: labels.get(key) != value
    if sign:
        return lambda labels: labels.get(key) == value
    return lambda labels: key in labels


def label_selector(selector: Thing | None, labels: Mapping[str, str]) -> bool:
    """As in an object: matchLabels and matchExpressions.  Empty: everything."""
    selector = selector or {}
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(_expression(each, labels) for each in selector.get("matchExpressions") or ())


def _expression(expression: Thing, labels: Mapping[str, str]) -> bool:
    key, operator = expression["key"], expression["operator"]
    values = expression.get("values") or ()
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise bad_request(f'"{operator}" is not a valid label selector operator')


_EVERY = ("metadata.name", "metadata.namespace")
_MORE = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "jobs": ("status.successful",),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}


def by_fields(written: str, plural: str) -> Test:
    tests: list[tuple[list[str], str, bool]] = []
    for part in filter(None, written.split(",")):
        found = re.match(r"^([\w.]+?)(==|=|!=)(.*)$", part)
        if found is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        key, sign, value = found.groups()
        if key not in _EVERY + _MORE.get(plural, ()):
            raise bad_request(
                f'Unable to find "{plural}" that match label selector "", field selector '
                f'"{written}": field label not supported: {key}'
            )
        tests.append((key.split("."), value, sign != "!="))

    def matches(thing: Thing) -> bool:
        return all((_field(thing, path) == value) == wanted for path, value, wanted in tests)

    return matches


def _field(thing: Thing, path: list[str]) -> str:
    value: Any = thing
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
