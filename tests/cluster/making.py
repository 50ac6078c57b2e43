"""What every controller does: makes objects of templates, and tells containers variables."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Thing = dict[str, Any]


def made(api_version: str, kind: str, about: Thing, spec: Thing) -> Thing:
    return {"apiVersion": api_version, "kind": kind, "metadata": about, "spec": spec}


def pod_of(
    template: Thing, labels: Mapping[str, str], notes: Mapping[str, str] | None = None, **name: str
) -> Thing:
    """`name`: name or generateName."""
    inner = copy.deepcopy(template)
    its = inner.get("metadata") or {}
    about: Thing = {**name, "labels": {**(its.get("labels") or {}), **labels}}
    about["annotations"] = {**(its.get("annotations") or {}), **(notes or {})}
    return made("v1", "Pod", about, inner["spec"])


def tell(pod: Thing, told: list[Thing]) -> None:
    """These variables follow those that its containers have."""
    for each in pod["spec"]["containers"]:
        each.setdefault("env", []).extend(copy.deepcopy(told))


def values(**told: str) -> list[Thing]:
    return [{"name": name, "value": value} for name, value in told.items()]


def field(name: str, path: str) -> Thing:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
