"""What Kubernetes itself says of objects: the published schemas of a version, nothing left open.

Kinds of others have small schemas in `kinds/`: the fields that we use, as their documents name
them; a pod template in them is one of Kubernetes'.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.cluster import schemas

Thing = dict[str, Any]
KINDS: Final = Path(__file__).parent / "kinds"
_PUBLISHED: Final = resources.files("kubernetes_validate") / "kubernetes-json-schema"
VERSIONS: Final = sorted(
    (int(found[1]), int(found[2]))
    for folder in _PUBLISHED.iterdir()
    if (found := re.fullmatch(r"v(\d+)\.(\d+)\.0-local-strict", folder.name))
)
NEWEST: Final = VERSIONS[-1]


def complaints(thing: Thing, version: tuple[int, int]) -> list[str]:
    """With the path of each."""
    if (schema := foreign(thing["apiVersion"], thing["kind"])) is None:
        return list(_published(json.dumps(thing, sort_keys=True), version))
    copy = json.loads(json.dumps(thing))
    found = [f"{path}: no such field" for path in schemas.pruned(copy, schema)]
    return found + [f"{cause.field}: {cause.message}" for cause in schemas.wrong(copy, schema)]


@cache
def _published(text: str, version: tuple[int, int]) -> tuple[str, ...]:
    thing = json.loads(text)
    group, _, number = thing["apiVersion"].rpartition("/")
    form = "-".join(filter(None, (group.partition(".")[0], number)))
    validator = _validator(f"{thing['kind'].lower()}-{form}.json", version)
    return tuple(f"{error.json_path}: {error.message}" for error in validator.iter_errors(thing))


@cache
def _validator(file: str, version: tuple[int, int]) -> Draft202012Validator:
    schema = _schema(file, version)
    registry: Registry[Any] = Resource.from_contents(schema) @ _definitions(version)
    return Draft202012Validator(schema, registry=registry)


@cache
def _definitions(version: tuple[int, int]) -> Registry[Any]:
    return Resource.from_contents(_schema("_definitions.json", version)) @ Registry()


def _schema(file: str, version: tuple[int, int]) -> Thing:
    major, minor = version
    path = _PUBLISHED / f"v{major}.{minor}.0-local-strict" / file
    schema: Thing = json.loads(path.read_text())
    return schema


@cache
def _foreign() -> dict[tuple[str, str], Thing]:
    return {
        (each["apiVersion"], each["kind"]): each["schema"]
        for path in sorted(KINDS.glob("*.yaml"))
        for each in yaml.load_all(path.read_text(), yaml.CSafeLoader)
    }


def foreign(api_version: str, kind: str) -> Thing | None:
    return _foreign().get((api_version, kind))


def templates(thing: Any) -> Iterator[Thing]:
    """Pod templates in an object, however deep."""
    if isinstance(thing, list):
        for each in thing:
            yield from templates(each)
    elif isinstance(thing, dict):
        if isinstance(thing.get("spec"), dict) and "containers" in thing["spec"]:
            yield thing
        else:
            for each in thing.values():
                yield from templates(each)
