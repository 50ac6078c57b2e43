"""Protobuf bodies, as typed clients send them: kubectl's own commands `create` and
`auth can-i`, helm's releases.

The few kinds that are here become objects; of others the server says that it takes JSON alone.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.cluster.answers import bad_request, unsupported_media_type

Thing = dict[str, Any]

FORM: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\0"

# Message: field number, its name, its type.  `*`: a list.  Types of messages have a capital.
_TABLE: Final = """
ObjectMeta 1 name text
ObjectMeta 2 generateName text
ObjectMeta 3 namespace text
ObjectMeta 11 labels map
ObjectMeta 12 annotations map
ObjectMeta 14 finalizers text*
Namespace 1 metadata ObjectMeta
ConfigMap 1 metadata ObjectMeta
ConfigMap 2 data map
ServiceAccount 1 metadata ObjectMeta
Secret 1 metadata ObjectMeta
Secret 2 data bytes-map
Secret 3 type text
Secret 4 stringData map
TokenRequest 1 metadata ObjectMeta
DeleteOptions 2 preconditions Preconditions
DeleteOptions 4 propagationPolicy text
Preconditions 1 uid text
Preconditions 2 resourceVersion text
SelfSubjectReview 1 metadata ObjectMeta
SelfSubjectRulesReview 1 metadata ObjectMeta
SelfSubjectRulesReview 2 spec RulesSpec
RulesSpec 1 namespace text
SelfSubjectAccessReview 1 metadata ObjectMeta
SelfSubjectAccessReview 2 spec AccessSpec
SubjectAccessReview 1 metadata ObjectMeta
SubjectAccessReview 2 spec AccessSpec
AccessSpec 1 resourceAttributes Attributes
AccessSpec 3 user text
AccessSpec 4 groups text*
Attributes 1 namespace text
Attributes 2 verb text
Attributes 3 group text
Attributes 4 version text
Attributes 5 resource text
Attributes 6 subresource text
Attributes 7 name text
Role 1 metadata ObjectMeta
Role 2 rules Rule*
ClusterRole 1 metadata ObjectMeta
ClusterRole 2 rules Rule*
Rule 1 verbs text*
Rule 2 apiGroups text*
Rule 3 resources text*
Rule 4 resourceNames text*
RoleBinding 1 metadata ObjectMeta
RoleBinding 2 subjects Subject*
RoleBinding 3 roleRef RoleRef
ClusterRoleBinding 1 metadata ObjectMeta
ClusterRoleBinding 2 subjects Subject*
ClusterRoleBinding 3 roleRef RoleRef
Subject 1 kind text
Subject 2 apiGroup text
Subject 3 name text
Subject 4 namespace text
RoleRef 1 apiGroup text
RoleRef 2 kind text
RoleRef 3 name text
"""


def _read_table() -> Mapping[str, Mapping[int, tuple[str, str]]]:
    messages: dict[str, dict[int, tuple[str, str]]] = {}
    for row in _TABLE.strip().splitlines():
        message, number, name, form = row.split()
        messages.setdefault(message, {})[int(number)] = name, form
    return messages


_MESSAGES: Final = _read_table()


def decoded(body: bytes) -> Thing:
    if not body.startswith(_MAGIC):
        raise bad_request("the body is no protobuf of Kubernetes")
    fields = dict(_fields(body[len(_MAGIC) :]))
    kind = {number: value.decode() for number, value in _fields(fields.get(1, b""))}
    if kind.get(2) not in _MESSAGES:
        raise unsupported_media_type(["application/json", "application/yaml"])
    return {"apiVersion": kind[1], "kind": kind[2], **_message(kind[2], fields.get(2, b""))}


def _message(name: str, raw: bytes) -> Thing:
    thing: Thing = {}
    for number, value in _fields(raw):
        if number not in _MESSAGES[name]:
            continue
        field, form = _MESSAGES[name][number]
        match form:
            case "text":
                if value:  # what is not set is sent as ""
                    thing[field] = value.decode()
            case "text*":
                thing.setdefault(field, []).append(value.decode())
            case "map" | "bytes-map":
                pair = dict(_fields(value))
                said = pair.get(2, b"")
                written = said.decode() if form == "map" else base64.b64encode(said).decode()
                thing.setdefault(field, {})[pair[1].decode()] = written
            case _ if form.endswith("*"):
                thing.setdefault(field, []).append(_message(form[:-1], value))
            case _:
                thing[field] = _message(form, value)
    return thing


def _fields(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Field numbers with what has a length; numbers are left out."""
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        match key & 7:
            case 0:
                _, at = _varint(raw, at)
            case 1:
                at += 8
            case 2:
                length, at = _varint(raw, at)
                yield key >> 3, raw[at : at + length]
                at += length
            case 5:
                at += 4
            case form:
                raise bad_request(f"a field of an unknown form {form} in protobuf")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(raw):
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise bad_request("protobuf ends in the middle of a number")
