"""Traces with known answers: an XSpace or a Kineto trace, event by event."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def number(field_number: int, value: int) -> bytes:
    return varint(field_number << 3) + varint(value)


def part(field_number: int, body: bytes | str) -> bytes:
    body = body.encode() if isinstance(body, str) else body
    return varint(field_number << 3 | 2) + varint(len(body)) + body


@dataclass
class Plane:
    name: str
    lines: list[bytes] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    stats: dict[str, int] = field(default_factory=dict)
    own: list[bytes] = field(default_factory=list)

    def line(self, name: str, *events: bytes, timestamp_ns: int = 0) -> Plane:
        header = part(2, name) + (number(3, timestamp_ns) if timestamp_ns else b"")
        self.lines.append(header + b"".join(part(4, event) for event in events))
        return self

    def event(self, name: str, start_ns: int, end_ns: int, **stats: int | str) -> bytes:
        """As writers have it: a duration of nothing is left out."""
        known = self.names.setdefault(name, len(self.names) + 1)
        lasted = number(3, (end_ns - start_ns) * 1000) if end_ns > start_ns else b""
        said = b"".join(part(4, self.stat(key, value)) for key, value in stats.items())
        return number(1, known) + number(2, start_ns * 1000) + lasted + said

    def stat(self, name: str, value: int | str) -> bytes:
        known = self.stats.setdefault(name, len(self.stats) + 1)
        said = number(4, value) if isinstance(value, int) else part(5, value)
        return number(1, known) + said

    def bytes(self) -> bytes:
        names = ((4, self.names), (5, self.stats))
        return b"".join(
            (
                part(2, self.name),
                *(part(3, line) for line in self.lines),
                *(
                    _entry(field_number, *each)
                    for field_number, map_ in names
                    for each in map_.items()
                ),
                *(part(6, stat) for stat in self.own),
            )
        )


def _entry(field_number: int, name: str, key: int) -> bytes:
    return part(field_number, number(1, key) + part(2, number(1, key) + part(2, name)))


def xspace(*planes: Plane, errors: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> bytes:
    found = [part(1, plane.bytes()) for plane in planes]
    found += [part(2, error) for error in errors] + [part(4, host) for host in hosts]
    return b"".join(found)


def complete(
    name: str, cat: str, start_ns: int, end_ns: int, pid: int | str = 100, tid: int | str = 100,
    **args: Any,
) -> dict[str, Any]:  # fmt: skip
    times = {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args}


def kernel(
    name: str, start_ns: int, end_ns: int, stream: int = 7, device: int = 0
) -> dict[str, Any]:
    return complete(name, "kernel", start_ns, end_ns, device, stream, device=device, stream=stream)


def kineto(*events: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"schemaVersion": 1, **fields, "traceEvents": list(events)}, indent=2)


def written(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
