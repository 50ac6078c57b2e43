"""The OpenAPI 3.1 document, made from the table that also routes and parses requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
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
    400: "The head cannot understand the request.",
    401: "The request needs a token.",
    403: "The token does not allow this, or the request comes from another page or host name.",
    404: "There is no such run or session.",
    409: "Several runs have that name (`choices` lists their ids), or the session is active.",
    413: "The body is too large.",
    422: "The head understands the request but cannot answer it; the message says why.",
    503: "The head cannot read its store now; try again later.",
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
    """Media type → the type of the answer; None: another program's format, as text or bytes."""
    errors: tuple[int, ...] = ()
    method: str = "GET"
    body: Any = None
    """The type of the request's JSON body; a request may leave the body out."""
    status: int = 200
    """202: the head has begun the work, and goes on with it."""
    events: Mapping[str, Any] = field(default_factory=dict)
    """For a stream of server-sent events: the name of an event → the type of its data."""

    @property
    def name(self) -> str:
        words = "_".join(part.strip("{}") for part in self.path.split("/")[3:])
        return words if self.method == "GET" else f"{words}_{self.method.lower()}"


def document(operations: Sequence[Operation], *, version: str) -> dict[str, Any]:
    answers = {kind for op in operations for kind in (*op.content.values(), *op.events.values())}
    kinds = {kind for kind in answers | {op.body for op in operations} if kind is not None}
    ordered = [ErrorAnswer, *sorted(kinds, key=str)]
    schemas, components = msgspec.json.schema_components(
        ordered, ref_template="#/components/schemas/{name}"
    )
    by_kind = dict(zip(map(str, ordered), schemas, strict=True))
    _require_answer_fields(components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Runwatch",
            "version": version,
            "description": "Times are integers: nanoseconds since the epoch. A number that is not "
            "finite is the string NaN, Infinity or -Infinity; an absent number is null.",
        },
        "paths": _paths(operations, by_kind),
        "components": {
            "schemas": components,
            "responses": {f"Error{code}": _error(code, by_kind) for code in sorted(_ERRORS)},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # A token is optional: a head inside a program may have none, and health needs none.
        "security": [{}, {"token": []}],
    }


def _require_answer_fields(components: dict[str, Any]) -> None:
    """A request may leave out a field with a default, but an answer always has it."""
    for answer in _subclasses(Answer):
        schema = components.get(answer.__name__)
        if schema is not None and not answer.__struct_config__.omit_defaults:
            schema["required"] = list(answer.__struct_encode_fields__)


def _subclasses(kind: type[Answer]) -> Iterator[type[Answer]]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


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
            str(op.status): {"description": op.summary, "content": _content(op, schemas)},
            **{
                str(code): {"$ref": f"#/components/responses/Error{code}"}
                for code in sorted({*_ALWAYS, *op.errors})
            },
        },
    }


def _body(kind: Any, schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {"required": False, "content": {JSON: {"schema": schemas[str(kind)]}}}


def _content(op: Operation, schemas: Mapping[str, Any]) -> dict[str, Any]:
    # OpenAPI 3.1 cannot describe the events of a stream.
    events = {name: schemas[str(kind)] for name, kind in op.events.items()}
    more = {"x-events": events} if events else {}
    return {
        media: {"schema": _unshaped(media) if kind is None else schemas[str(kind)], **more}
        for media, kind in op.content.items()
    }


def _unshaped(media: str) -> dict[str, Any]:
    """The schema of another program's format: JSON of any shape, text or bytes."""
    return {} if media == JSON else {"type": "string"}


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
