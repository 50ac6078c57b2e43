"""The OpenAPI 3.1 document, made from the same table that routes and parses requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from runwatch.head.http.parameters import Given, Parameter
from runwatch.head.http.types import Answer, ErrorAnswer

JSON: Final = "application/json"
PARQUET: Final = "application/vnd.apache.parquet"
_ERRORS: Final = {
    400: "The request cannot be understood.",
    401: "A token is needed.",
    403: "Not from this page or under this host name, or not with this token.",
    404: "There is no such run, or session.",
    409: "Several runs have that name (`choices` lists their ids), or the session is active.",
    413: "The body is too large.",
    422: "Understood, but it cannot be answered.",
    503: "The store cannot be read now.",
}
_ALWAYS: Final = (400, 401, 403, 413, 503)

Respond = Callable[[Request, Given], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One route of the API."""

    path: str
    summary: str
    respond: Respond
    parameters: tuple[Parameter, ...] = ()
    content: Mapping[str, Any] = field(default_factory=dict)
    """Media type → the type of the answer; None is text or bytes."""
    errors: tuple[int, ...] = ()
    method: str = "GET"
    body: Any = None
    """The type of what is sent, as JSON; it may be left out."""
    status: int = 200
    """202: it was begun, and goes on."""

    @property
    def name(self) -> str:
        words = "_".join(part.strip("{}") for part in self.path.split("/")[3:])
        return words if self.method == "GET" else f"{words}_{self.method.lower()}"


def document(operations: Sequence[Operation], *, version: str) -> dict[str, Any]:
    said = {kind for op in operations for kind in op.content.values()}
    kinds = {kind for kind in said | {op.body for op in operations} if kind is not None}
    ordered = [ErrorAnswer, *sorted(kinds, key=str)]
    schemas, components = msgspec.json.schema_components(
        ordered, ref_template="#/components/schemas/{name}"
    )
    by_kind = dict(zip(map(str, ordered), schemas, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Runwatch",
            "version": version,
            "description": "Times are integers, nanoseconds since the epoch. Numbers that are not "
            "finite are the strings NaN, Infinity and -Infinity; absent ones are null.",
        },
        "paths": _paths(operations, by_kind),
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # Either: one that is part of a program may have no token, and health is told to anyone.
        "security": [{}, {"token": []}],
    }


def _paths(operations: Sequence[Operation], schemas: Mapping[str, Any]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for op in operations:
        paths.setdefault(op.path, {})[op.method.lower()] = _operation(op, schemas)
    return paths


def _operation(op: Operation, schemas: Mapping[str, Any]) -> dict[str, Any]:
    body = {} if op.body is None else {"requestBody": _body(op.body, schemas)}
    return {
        "operationId": op.name,
        "summary": op.summary,
        "parameters": [_parameter(parameter) for parameter in op.parameters],
        **body,
        "responses": {
            str(op.status): {"description": op.summary, "content": _content(op.content, schemas)},
            **{str(code): _error(code, schemas) for code in sorted({*_ALWAYS, *op.errors})},
        },
    }


def _body(kind: Any, schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {"required": False, "content": {JSON: {"schema": schemas[str(kind)]}}}


def _content(content: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {
        media: {"schema": schemas[str(kind)] if kind is not None else {"type": "string"}}
        for media, kind in content.items()
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required or parameter.place == "path",
        "description": parameter.description,
        "schema": parameter.schema(),
    }
    if parameter.repeated:
        described |= {"style": "form", "explode": True}
    return described


def _error(code: int, schemas: Mapping[str, Any]) -> dict[str, Any]:
    error: type[Answer] = ErrorAnswer
    return {"description": _ERRORS[code], "content": {JSON: {"schema": schemas[str(error)]}}}
