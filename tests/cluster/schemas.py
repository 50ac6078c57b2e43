"""Structural schemas of definitions: unknown fields are pruned, defaults set, values checked.

Rules in CEL (`x-kubernetes-validations`) are not evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.cluster.answers import Cause

Schema = dict[str, Any]
_META = ("apiVersion", "kind", "metadata")


def pruned(value: Any, schema: Schema, path: str = "", *, root: bool = True) -> list[str]:
    """Takes fields out that the schema does not name; returns their paths."""
    lost: list[str] = []
    if isinstance(value, dict):
        known = schema.get("properties") or {}
        more = schema.get("additionalProperties")
        keeps = schema.get("x-kubernetes-preserve-unknown-fields")
        root = root or bool(schema.get("x-kubernetes-embedded-resource"))
        for name in list(value):
            inside = f"{path}.{name}" if path else name
            if root and name in _META:
                continue
            if name in known:
                lost += pruned(value[name], known[name], inside, root=False)
            elif isinstance(more, dict):
                lost += pruned(value[name], more, inside, root=False)
            elif not keeps and not more:
                del value[name]
                lost.append(inside)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for at, item in enumerate(value):
            lost += pruned(item, schema["items"], f"{path}[{at}]", root=False)
    return lost


def defaulted(value: Any, schema: Schema) -> None:
    """Sets what is missing and has a default."""
    if isinstance(value, dict):
        for name, inner in (schema.get("properties") or {}).items():
            default = inner.get("default")
            if default is not None and (
                name not in value or (value[name] is None and not inner.get("nullable"))
            ):
                value[name] = json.loads(json.dumps(default))
            if name in value:
                defaulted(value[name], inner)
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            for name, item in value.items():
                if name not in (schema.get("properties") or {}):
                    defaulted(item, more)
    elif isinstance(value, list):
        for item in value:
            defaulted(item, schema.get("items") or {})


def wrong(value: Any, schema: Schema, path: str = "") -> Iterator[Cause]:
    """What the schema does not allow."""
    if value is None and schema.get("nullable"):
        return
    said = _type_said(value, schema)
    if said:
        wanted = schema.get("type", "integer or string")
        yield _invalid(path, value, f'{_at(path)} must be of type {wanted}: "{said}"')
        return
    choices = schema.get("enum")
    if choices is not None and value not in choices:
        shown = ", ".join(json.dumps(each) for each in choices)
        message = f"Unsupported value: {json.dumps(value)}: supported values: {shown}"
        yield Cause("FieldValueNotSupported", message, path)
    if isinstance(value, str):
        yield from _wrong_text(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _wrong_number(value, schema, path)
    elif isinstance(value, list):
        yield from _wrong_list(value, schema, path)
    elif isinstance(value, dict):
        yield from _wrong_object(value, schema, path)
    yield from _wrong_logic(value, schema, path)


def _at(path: str) -> str:
    return f"{path} in body" if path else "body"


def _invalid(path: str, value: Any, message: str) -> Cause:
    shown = json.dumps(value) if not isinstance(value, dict | list) else f'"{_kind(value)}"'
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: {message}", path)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string", int: "integer", float: "number"}
    return names.get(type(value), "null")


def _type_said(value: Any, schema: Schema) -> str:
    """The value's type, if it is not what it must be."""
    said = _kind(value)
    if schema.get("x-kubernetes-int-or-string"):
        return "" if said in ("integer", "string") else said
    wanted = schema.get("type")
    if not wanted or said == wanted or (said, wanted) == ("integer", "number"):
        return ""
    return said


def _wrong_text(value: str, schema: Schema, path: str) -> Iterator[Cause]:
    least, most = schema.get("minLength"), schema.get("maxLength")
    if least is not None and len(value) < least:
        yield _invalid(path, value, f"{_at(path)} should be at least {least} chars long")
    if most is not None and len(value) > most:
        message = f"Too long: may not be more than {most} bytes"
        yield Cause("FieldValueTooLong", message, path)
    pattern = schema.get("pattern")
    if pattern is not None and not re.search(pattern, value):
        yield _invalid(path, value, f"{_at(path)} should match '{pattern}'")
    if schema.get("format") == "date-time" and not _is_time(value):
        yield _invalid(path, value, f'{_at(path)} must be of type date-time: "{value}"')


def _is_time(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return re.search(r"T.*(Z|[+-]\d\d:\d\d)$", value) is not None


def _wrong_number(value: float, schema: Schema, path: str) -> Iterator[Cause]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and value < least:
        message = f"{_at(path)} should be greater than or equal to {least}"
        yield _invalid(path, value, message)
    if most is not None and value > most:
        yield _invalid(path, value, f"{_at(path)} should be less than or equal to {most}")
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if bits and not -(2**bits) <= value < 2**bits:
        yield _invalid(path, value, f"{_at(path)} must be of type {schema['format']}: {value}")


def _wrong_list(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least is not None and len(value) < least:
        yield _invalid(path, value, f"{_at(path)} should have at least {least} items")
    if most is not None and len(value) > most:
        yield Cause(
            "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items", path
        )
    seen: list[Any] = []
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    for at, item in enumerate(value):
        yield from wrong(item, schema.get("items") or {}, f"{path}[{at}]")
        form = schema.get("x-kubernetes-list-type")
        mark = {key: item.get(key) for key in keys} if form == "map" else item
        if form in ("map", "set") or schema.get("uniqueItems"):
            if mark in seen:
                message = f"Duplicate value: {json.dumps(mark)}"
                yield Cause("FieldValueDuplicate", message, f"{path}[{at}]")
            seen.append(mark)


def _wrong_object(value: dict[str, Any], schema: Schema, path: str) -> Iterator[Cause]:
    known = schema.get("properties") or {}
    more = schema.get("additionalProperties")
    for name in schema.get("required") or ():
        if name not in value:
            inside = f"{path}.{name}" if path else name
            yield Cause("FieldValueRequired", "Required value", inside)
    for name, item in value.items():
        inside = f"{path}.{name}" if path else name
        inner = known.get(name, more)
        if isinstance(inner, dict):
            yield from wrong(item, inner, inside)


def _wrong_logic(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    for each in schema.get("allOf") or ():
        yield from wrong(value, each, path)
    some = schema.get("anyOf")
    if some and not any(_fits(value, each, path) for each in some):
        yield _invalid(path, value, f"{_at(path)} must validate at least one schema (anyOf)")
    one = schema.get("oneOf")
    if one and sum(_fits(value, each, path) for each in one) != 1:
        yield _invalid(path, value, f"{_at(path)} must validate one and only one schema (oneOf)")
    refused = schema.get("not")
    if refused is not None and _fits(value, refused, path):
        yield _invalid(path, value, f"{_at(path)} must not validate the schema (not)")


def _fits(value: Any, schema: Schema, path: str) -> bool:
    return next(wrong(value, schema, path), None) is None
