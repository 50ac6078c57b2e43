"""CustomResourceDefinitions: what a real server refuses of them, and what it adds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.cluster.answers import Cause

Thing = dict[str, Any]

_NOT_IN_LOGIC: Final = (
    "type",
    "default",
    "description",
    "title",
    "nullable",
    "additionalProperties",
    "x-kubernetes-preserve-unknown-fields",
)


def wrong_definition(definition: Thing) -> Iterator[Cause]:
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    for field in ("group", "scope", "versions"):
        if not spec.get(field):
            yield Cause("FieldValueRequired", "Required value", f"spec.{field}")
    for field in ("plural", "kind"):
        if not names.get(field):
            yield Cause("FieldValueRequired", "Required value", f"spec.names.{field}")
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if definition["metadata"].get("name") != wanted:
        message = f'Invalid value: must be spec.names.plural+"."+spec.group: {wanted}'
        yield Cause("FieldValueInvalid", message, "metadata.name")
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        message = f'Unsupported value: "{spec.get("scope")}"'
        yield Cause("FieldValueNotSupported", message, "spec.scope")
    versions = spec.get("versions") or []
    if versions and sum(bool(version.get("storage")) for version in versions) != 1:
        message = "Invalid value: must have exactly one version marked as storage version"
        yield Cause("FieldValueInvalid", message, "spec.versions")
    for at, version in enumerate(versions):
        path = f"spec.versions[{at}].schema.openAPIV3Schema"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield Cause("FieldValueRequired", "Required value: schemas are required", path)
        else:
            yield from _wrong_structure(schema, path, root=True)


def _wrong_structure(schema: Thing, path: str, *, root: bool = False) -> Iterator[Cause]:
    open_kind = schema.get("x-kubernetes-int-or-string") or schema.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    if root and schema.get("type") != "object":
        message = "Invalid value: must be object at the root"
        yield Cause("FieldValueInvalid", message, f"{path}.type")
    elif not schema.get("type") and not open_kind:
        message = "Required value: must not be empty for specified object fields"
        yield Cause("FieldValueRequired", message, f"{path}.type")
    if schema.get("properties") and schema.get("additionalProperties"):
        message = "Forbidden: additionalProperties and properties are mutual exclusive"
        yield Cause("FieldValueForbidden", message, f"{path}.additionalProperties")
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        yield Cause("FieldValueRequired", "Required value: must be specified", f"{path}.items")
    for name, inner in (schema.get("properties") or {}).items():
        if not (root and name in ("apiVersion", "kind", "metadata")):
            yield from _wrong_structure(inner, f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from _wrong_structure(schema[name], f"{path}.{name}")
    for word in ("allOf", "anyOf", "oneOf"):
        for at, inner in enumerate(schema.get(word) or ()):
            yield from _wrong_logic(inner, schema, f"{path}.{word}[{at}]")
    if isinstance(schema.get("not"), dict):
        yield from _wrong_logic(schema["not"], schema, f"{path}.not")


def _wrong_logic(schema: Thing, outside: Thing, path: str) -> Iterator[Cause]:
    """Inside of logic nothing is declared: only values are checked, of fields known outside."""
    number = outside.get("x-kubernetes-int-or-string")
    for word in _NOT_IN_LOGIC:
        if word in schema and not (number and word == "type"):
            message = "Forbidden: must be empty to be structural"
            yield Cause("FieldValueForbidden", message, f"{path}.{word}")
    known = outside.get("properties") or {}
    for name, inner in (schema.get("properties") or {}).items():
        if name not in known:
            message = "Required value: because it is defined in " + path
            yield Cause("FieldValueRequired", message, f"{path}.properties[{name}]")
        else:
            yield from _wrong_logic(inner, known[name], f"{path}.properties[{name}]")
    for word in ("allOf", "anyOf", "oneOf"):
        for at, inner in enumerate(schema.get(word) or ()):
            yield from _wrong_logic(inner, outside, f"{path}.{word}[{at}]")
    if isinstance(schema.get("not"), dict):
        yield from _wrong_logic(schema["not"], outside, f"{path}.not")


def established(definition: Thing, time: str) -> None:
    """The status that it has as soon as it is served."""
    spec = definition["spec"]
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")

    def condition(kind: str, reason: str, message: str) -> Thing:
        return {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": time,
        }

    definition["status"] = {
        "acceptedNames": names,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition(
                "Established", "InitialNamesAccepted", "the initial names have been accepted"
            ),
        ],
        "storedVersions": [each["name"] for each in spec["versions"] if each.get("storage")],
    }
