"""The four forms of a patch."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

import jsonpatch
import yaml

from tests.cluster.answers import Cause, Refusal, bad_request, invalid, unsupported_media_type
from tests.cluster.kinds import Kind

Thing = dict[str, Any]

STEPS: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

# Lists whose items are merged by a key.  Others are replaced.
_KEYS: Final = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "port"),
    "conditions": ("type",),
    "imagePullSecrets": ("name",),
    "secrets": ("name",),
    "ownerReferences": ("uid",),
    "hostAliases": ("ip",),
    "podIPs": ("ip",),
    "addresses": ("type",),
    "topologySpreadConstraints": ("topologyKey",),
    "webhooks": ("name",),
}
_SETS: Final = ("finalizers",)


def patched(kind: Kind, form: str, body: bytes, thing: Thing) -> Thing:
    """`thing` is not changed."""
    accepted = [STEPS, MERGE, APPLY] if kind.custom else [STEPS, MERGE, STRATEGIC, APPLY]
    if form not in accepted:
        raise unsupported_media_type(accepted)
    change = parsed(body)
    if form == STEPS:
        return _stepped(kind, change, thing)
    if not isinstance(change, dict):
        raise bad_request("the patch is no object")
    merge = merged if form == MERGE or kind.custom else strategic
    result: Thing = merge(thing, change)
    return result


def parsed(body: bytes) -> Any:
    """JSON, or the YAML that apply sends."""
    try:
        return json.loads(body)
    except ValueError:
        pass
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding patch: {error}") from error


def _stepped(kind: Kind, change: Any, thing: Thing) -> Thing:
    name = thing["metadata"].get("name", "")
    try:
        steps = jsonpatch.JsonPatch(change)
        result = steps.apply(thing)
    except jsonpatch.JsonPatchTestFailed as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise invalid(kind, name, [Cause("FieldValueInvalid", message, "patch")]) from error
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise Refusal(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
            {"causes": [{"message": str(error)}]},
        ) from error
    if not isinstance(result, dict):
        raise bad_request("the patch leaves no object")
    return result


def merged(value: Any, change: Any) -> Any:
    """RFC 7386."""
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    result = dict(value) if isinstance(value, dict) else {}
    for name, item in change.items():
        if item is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), item)
    return result


def strategic(value: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    if change.get("$patch") == "replace":
        return {name: copy.deepcopy(item) for name, item in change.items() if name != "$patch"}
    result = dict(value) if isinstance(value, dict) else {}
    for name, item in change.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            result[field] = [each for each in result.get(field) or [] if each not in item]
        elif name.startswith("$"):
            continue  # orders and keys to retain
        elif item is None:
            result.pop(name, None)
        elif isinstance(item, list):
            result[name] = _strategic_list(name, result.get(name) or [], item)
        else:
            result[name] = strategic(result.get(name), item)
    return result


def _strategic_list(name: str, before: list[Any], change: list[Any]) -> list[Any]:
    if name in _SETS:
        return [*before, *(each for each in change if each not in before)]
    items = [each for each in change if isinstance(each, dict)]
    if any(each.get("$patch") == "replace" for each in items):
        return [copy.deepcopy(each) for each in change if each.get("$patch") != "replace"]
    key = next((k for k in _KEYS.get(name, ()) if items and all(k in each for each in items)), "")
    if not key:
        return copy.deepcopy(change)
    result = list(before)
    for item in items:
        there = [at for at, each in enumerate(result) if each.get(key) == item[key]]
        if item.get("$patch") == "delete":
            result = [each for each in result if each.get(key) != item[key]]
        elif there:
            result[there[0]] = strategic(result[there[0]], item)
        else:
            result.append(strategic({}, item))
    return result
