"""Prometheus remote write, version 1.0: a snappy block with a `prometheus.WriteRequest`.

    WriteRequest  { repeated TimeSeries timeseries = 1; }
    TimeSeries    { repeated Label labels = 1; repeated Sample samples = 2; }
    Label         { string name = 1; string value = 2; }        sorted by name
    Sample        { double value = 1; int64 timestamp = 2; }    milliseconds, ascending

The messages are so few that they are written by hand.  The block is not compressed: snappy has a
form for bytes as they are, and a library for the other form would weigh more than it saves here,
where names and labels come once for many samples.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from typing import Final

from runwatch.exports.gauges import Gauge
from runwatch.wire.protobuf import integer, message, text, varint

HEADERS: Final = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
PREFIX: Final = "runwatch_"
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_:]")
_NOT_IN_LABELS: Final = re.compile(r"[^a-zA-Z0-9_]")
_STALE: Final = 0x7FF0000000000002  # the one NaN that means: this series has ended
_LITERAL: Final = 61 << 2  # bytes as they are; their number less one follows, in two bytes
_AT_ONCE: Final = 1 << 16

Labels = tuple[tuple[str, str], ...]


def write_request(gauges: Iterable[Gauge]) -> bytes:
    """The body of a request.  Of several values in one millisecond only the last is sent: the
    database has no finer time."""
    samples: dict[Labels, dict[int, bytes]] = {}
    for gauge in gauges:
        mine = samples.setdefault(labels_of(gauge.name, gauge.labels), {})
        for time_ns, value in zip(gauge.time_ns, gauge.value, strict=True):
            mine[time_ns // 1_000_000] = _STALE_BYTES if gauge.ends else struct.pack("<d", value)
    return snappy(b"".join(message(1, _series(*each)) for each in samples.items()))


def labels_of(name: str, labels: Mapping[str, str]) -> Labels:
    """Sorted, with the metric's name among them; its own name beside, if it had to be changed."""
    plain = PREFIX + _NOT_IN_NAMES.sub("_", name)
    found = {_label(key): value for key, value in labels.items() if value}
    if plain != PREFIX + name:
        found["metric"] = name
    return tuple(sorted({**found, "__name__": plain}.items()))


def snappy(data: bytes) -> bytes:
    """A snappy block that is not compressed."""
    block = [varint(len(data))]
    for at in range(0, len(data), _AT_ONCE):
        piece = data[at : at + _AT_ONCE]
        block += [bytes((_LITERAL,)), struct.pack("<H", len(piece) - 1), piece]
    return b"".join(block)


_STALE_BYTES: Final = struct.pack("<Q", _STALE)


def _series(labels: Labels, samples: Mapping[int, bytes]) -> bytes:
    named = b"".join(message(1, text(1, name) + text(2, value)) for name, value in labels)
    return named + b"".join(
        message(2, b"\x09" + value + integer(2, time_ms))
        for time_ms, value in sorted(samples.items())
    )


def _label(name: str) -> str:
    plain = _NOT_IN_LABELS.sub("_", name).lstrip("_") or "label"
    return plain if not plain[0].isdigit() else f"label_{plain}"
