"""The little of OpenAPI that kubectl asks for: that changes may be validated here, and the schemas
of definitions for `kubectl explain`.

kubectl then sends what it is given as it is, and the server says what is wrong with it.
"""

from __future__ import annotations

from typing import Any

from tests.cluster.kinds import Kind, Kinds

Thing = dict[str, Any]


def page(parts: list[str], kinds: Kinds) -> Thing | None:
    """None: there is no such page."""
    match parts:
        case ["openapi", "v3"]:
            return {
                "paths": {
                    each: {"serverRelativeURL": f"/openapi/v3/{each}"}
                    for each in dict.fromkeys(_path(kind) for kind in kinds)
                }
            }
        case ["openapi", "v3", *rest]:
            found = [kind for kind in kinds if _path(kind) == "/".join(rest)]
            return _document(found) if found else None
    return None


def _path(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _document(kinds: list[Kind]) -> Thing:
    paths: Thing = {}
    for kind in kinds:
        inside = "namespaces/{namespace}/" if kind.namespaced else ""
        parameters = [
            {"name": name, "in": "query", "schema": {"type": "string"}}
            for name in ("dryRun", "fieldManager", "fieldValidation")
        ]
        paths[f"/{_path(kind)}/{inside}{kind.plural}/{{name}}"] = {
            "patch": {
                "parameters": parameters,
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {
                    "group": kind.group,
                    "version": kind.version,
                    "kind": kind.kind,
                },
            }
        }
    schemas = {
        f"{kind.group}.{kind.version}.{kind.kind}": {
            **kind.schema,
            "x-kubernetes-group-version-kind": [
                {"group": kind.group, "version": kind.version, "kind": kind.kind}
            ],
        }
        for kind in kinds
        if kind.schema is not None
    }
    info = {"title": "Kubernetes", "version": "v1.32.4"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}
