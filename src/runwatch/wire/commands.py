"""Commands to messages and to files, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from runwatch.errors import WireError
from runwatch.record import Command
from runwatch.wire import spine_pb2 as pb

FOLDER: Final = "commands"
"""Below a Runwatch directory: `commands/<host>/<id>.json`, for agents that have no stream."""


def command_to_message(command: Command) -> pb.Command:
    return pb.Command(
        id=command.id,
        kind=command.kind,
        body_json=json.dumps(dict(command.body)),
        issued_ns=command.issued_ns,
        expires_ns=command.expires_ns,
    )


def command_from_message(message: pb.Command) -> Command:
    body = _object(message.body_json)
    return _checked(Command(message.id, message.kind, body, message.issued_ns, message.expires_ns))


def command_to_json(command: Command) -> str:
    return json.dumps(
        {
            "id": command.id,
            "kind": command.kind,
            "body": dict(command.body),
            "issued_ns": command.issued_ns,
            "expires_ns": command.expires_ns,
        }
    )


def command_from_json(text: str) -> Command:
    fields = _object(text)
    try:
        return _checked(
            Command(
                str(fields["id"]),
                str(fields["kind"]),
                dict(fields["body"]),
                int(fields["issued_ns"]),
                int(fields["expires_ns"]),
            )
        )
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"not a command: {error!r} in {text[:80]!r}") from error


def is_command_id(text: str) -> bool:
    return 0 < len(text) <= 80 and all(c.isascii() and (c.isalnum() or c == "-") for c in text)


def _checked(command: Command) -> Command:
    if not is_command_id(command.id):
        raise WireError(f"not a command id: {command.id[:80]!r}")
    return command


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise WireError(f"a command's body is not JSON: {text[:80]!r}") from error
    if not isinstance(value, dict):
        raise WireError(f"a command's body is not a JSON object: {text[:80]!r}")
    return value
