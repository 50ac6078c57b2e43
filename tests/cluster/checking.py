"""What is filled into an object before it is stored, and what is refused of it."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Iterator
from typing import Any, Final

from tests.cluster import definitions, pods, schemas, webhooks
from tests.cluster.answers import Cause, bad_request
from tests.cluster.kinds import Kind

Thing = dict[str, Any]

_SUBDOMAIN: Final = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_PATH_NAME: Final = re.compile(r"^[^/%]+$")
_VALUE: Final = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
_KEY: Final = re.compile(
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
ANNOTATIONS_BYTES: Final = 256 * 1024


def suffix() -> str:
    """Five letters, as the server ends a generated name."""
    number = uuid.uuid4().int
    return "".join(_LETTERS[(number >> (8 * at)) % len(_LETTERS)] for at in range(5))


def same_kind(kind: Kind, thing: object) -> Thing:
    if not isinstance(thing, dict):
        raise bad_request("the body of the request is no object")
    for field, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        said = thing.setdefault(field, wanted)
        if said != wanted:
            raise bad_request(
                f"the {'API version' if field == 'apiVersion' else 'kind'} in the data ({said}) "
                f"does not match the expected one ({wanted})"
            )
    if not isinstance(thing.setdefault("metadata", {}), dict):
        raise bad_request("metadata is no object")
    return thing


def filled(kind: Kind, thing: Thing) -> list[str]:
    """Defaults; fields that a definition does not know are taken out, and named."""
    lost: list[str] = []
    if kind.schema is not None:
        lost = schemas.pruned(thing, kind.schema)
        schemas.defaulted(thing, kind.schema)
    match kind.kind:
        case "Pod" if not kind.group:
            pods.filled(thing, suffix())
        case "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration":
            webhooks.filled(thing)
        case "Secret":
            thing.setdefault("type", "Opaque")
            for name, value in (thing.pop("stringData", None) or {}).items():
                written = base64.b64encode(str(value).encode()).decode()
                thing["data"] = {**(thing.get("data") or {}), name: written}
    return lost


def wrong(kind: Kind, thing: Thing) -> Iterator[Cause]:
    """What is refused of an object, whether it is new or changed."""
    yield from _wrong_meta(kind, thing["metadata"])
    if kind.schema is not None:
        yield from schemas.wrong(thing, kind.schema)
    match kind.kind:
        case "Pod" if not kind.group:
            yield from pods.wrong_pod(thing)
        case "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration":
            yield from webhooks.wrong(thing)
        case "CustomResourceDefinition":
            yield from definitions.wrong_definition(thing)


def _wrong_meta(kind: Kind, meta: Thing) -> Iterator[Cause]:
    name = meta.get("name", "")
    form = _PATH_NAME if kind.group == "rbac.authorization.k8s.io" else _SUBDOMAIN
    if not form.match(name) or len(name) > 253:
        message = (
            f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case '
            "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
            "character"
        )
        yield Cause("FieldValueInvalid", message, "metadata.name")
    for key, value in (meta.get("labels") or {}).items():
        if not _KEY.match(key):
            message = f'Invalid value: "{key}": name part must consist of alphanumeric characters'
            yield Cause("FieldValueInvalid", message, "metadata.labels")
        if not isinstance(value, str) or not _VALUE.match(value):
            message = (
                f'Invalid value: "{value}": a valid label must be an empty string or consist of …'
            )
            yield Cause("FieldValueInvalid", message, "metadata.labels")
    size = 0
    for key, value in (meta.get("annotations") or {}).items():
        if not _KEY.match(key.lower()) or not isinstance(value, str):
            message = f'Invalid value: "{key}": {value!r}'
            yield Cause("FieldValueInvalid", message, "metadata.annotations")
        size += len(key) + len(str(value).encode())
    if size > ANNOTATIONS_BYTES:
        message = f"Too long: may not be more than {ANNOTATIONS_BYTES} bytes"
        yield Cause("FieldValueTooLong", message, "metadata.annotations")
    controllers = 0
    for at, owner in enumerate(meta.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                inside = f"metadata.ownerReferences[{at}].{field}"
                yield Cause("FieldValueInvalid", 'Invalid value: "": must not be empty', inside)
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        message = "Invalid value: Only one reference can have Controller set to true"
        yield Cause("FieldValueInvalid", message, "metadata.ownerReferences")


def refused_change(kind: Kind, before: Thing, after: Thing) -> Iterator[Cause]:
    """What is refused of a change alone."""
    if before["metadata"].get("deletionTimestamp"):
        had = set(before["metadata"].get("finalizers") or ())
        new = sorted(set(after["metadata"].get("finalizers") or ()) - had)
        if new:
            shown = ", ".join(f'"{each}"' for each in new)
            message = (
                "Forbidden: no new finalizers can be added if the object is being deleted, found "
                f"new finalizers []string{{{shown}}}"
            )
            yield Cause("FieldValueForbidden", message, "metadata.finalizers")
    if kind.kind == "Pod" and not kind.group:
        yield from pods.changed(before, after)


def refused_replacement(kind: Kind, thing: Thing) -> Iterator[Cause]:
    """Some kinds are replaced only by who says which version was read."""
    conditional = kind.custom or kind.plural == "leases"
    if conditional and not thing["metadata"].get("resourceVersion"):
        message = "Invalid value: 0x0: must be specified for an update"
        yield Cause("FieldValueInvalid", message, "metadata.resourceVersion")
