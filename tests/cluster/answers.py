"""What the server refuses, in the form of a Status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.cluster.kinds import Kind

Thing = dict[str, Any]


class Cause(NamedTuple):
    """What is wrong with one field."""

    reason: str
    message: str
    field: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class Refusal(Exception):
    """An answer that is no object."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Thing | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = dict(headers or {})

    def status(self) -> Thing:
        told: Thing = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            told["details"] = self.details
        return told


def success(kind: Kind, name: str, uid: str) -> Thing:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**_details(kind, name), "uid": uid},
    }


def _details(kind: Kind, name: str) -> Thing:
    told: Thing = {"name": name} if name else {}
    if kind.group:
        told["group"] = kind.group
    return {**told, "kind": kind.plural}


def not_found(kind: Kind, name: str) -> Refusal:
    return Refusal(404, "NotFound", f'{kind.resource} "{name}" not found', _details(kind, name))


def no_such_resource() -> Refusal:
    return Refusal(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(kind: Kind, name: str) -> Refusal:
    message = f'{kind.resource} "{name}" already exists'
    return Refusal(409, "AlreadyExists", message, _details(kind, name))


def conflict(kind: Kind, name: str, why: str = "") -> Refusal:
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try "
        "again"
    )
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return Refusal(409, "Conflict", message, _details(kind, name))


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> Refusal:
    shown = ", ".join(str(cause) for cause in causes)
    if len(causes) > 1:
        shown = f"[{shown}]"
    named = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = _details(kind, name)
    details["kind"] = kind.kind
    details["causes"] = [cause._asdict() for cause in causes]
    return Refusal(422, "Invalid", f'{named} "{name}" is invalid: {shown}', details)


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def forbidden(message: str, details: Thing | None = None) -> Refusal:
    return Refusal(403, "Forbidden", message, details)


def unauthorized() -> Refusal:
    return Refusal(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> Refusal:
    message = "the server does not allow this method on the requested resource"
    return Refusal(405, "MethodNotAllowed", message, {})


def unsupported_media_type(accepted: Sequence[str]) -> Refusal:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
    return Refusal(415, "UnsupportedMediaType", message)


def too_old(asked: int, oldest: int) -> Refusal:
    return Refusal(410, "Expired", f"too old resource version: {asked} ({oldest})")


def continuation_expired() -> Refusal:
    message = (
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter."
    )
    return Refusal(410, "Expired", message)


def too_new(asked: int, newest: int) -> Refusal:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Too large resource version: {asked}, current: {newest}"
    details = {"causes": [cause], "retryAfterSeconds": 1}
    return Refusal(504, "Timeout", message, details, {"Retry-After": "1"})


def internal(message: str) -> Refusal:
    details = {"causes": [{"message": message}]}
    return Refusal(500, "InternalError", f"Internal error occurred: {message}", details)
