"""Journals that were damaged, or made to do harm, each from a seed.

`blind` flips and moves bytes, as a disk does; `sealed` does the same to what is in records and
gives them right checksums, as somebody does who knows the format; `told` writes records that are
whole and say what cannot be.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any, Final

from runwatch.journal.segment import (
    DEFINE,
    HEADER_LENGTH,
    KINDS,
    MAX_RECORD,
    ORIGIN,
    RECORD,
    TEXT_HEAD,
    event_record,
    padded,
    seal,
    segment_name,
    step_begin,
    step_end,
)
from runwatch.journal.writer import JournalWriter
from runwatch.record import BEGIN, END, JournalId, Origin, RunId, RunScope
from runwatch.testing import FakeClock
from tests.fuzz import hostile
from tests.unit.journal.journal_help import (
    SMALL,
    record_offsets,
)

NAME: Final = "6553f100-node-7-a1"
WAYS: Final = ("blind", "sealed", "told")
_WORDS: Final = (0, 1, 0xFF, 0xFFFF, 0xFFFFFFFF, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)
_NAMES: Final = ("type", "id", "run", "name", "rank", "world_size", "metric", "scope", "labels",
                 "journal", "host", "pid", "start_ns", "role", "boot", "attempt_key")  # fmt: skip


def whole(root: Path) -> bytes:
    """A segment with everything in it that a program writes, cut behind its last record."""
    origin = Origin(JournalId(NAME), "node", 7, hostile.NOW, "boot", 42)
    writer = JournalWriter(root, origin, segment_bytes=SMALL, clock=FakeClock(hostile.NOW))
    scope = writer.scope(RunScope(0, RunId("hostile"), "hostile", 0, 4))
    loss, save = writer.series("loss", scope=scope), writer.span_name("save", scope=scope)
    writer.event("run_start", {"run": "hostile", "rank": 0, "world_size": 4}, scope=scope)
    for step in range(12):
        writer.point(loss, step / 2, step)
    writer.points([loss, loss, loss], [1.0, 2.0, 3.0], 3)
    writer.span(save, 1, BEGIN)
    writer.span(save, 1, END)
    writer.event("config", {"part": "user", "values": {"lr": 0.1}}, scope=scope)
    writer.event("run_end", {"status": "completed", "explicit": True}, scope=scope)
    data = (writer.directory / segment_name(0)).read_bytes()
    writer.close()
    return data[: record_offsets(data)[-1] + 256]


def mutated(data: bytes, seed: int) -> bytes:
    """The same segment after an accident, or after somebody was at it."""
    draw = random.Random(seed)
    way = WAYS[seed % len(WAYS)]
    if way == "blind":
        return _blind(draw, data)
    return _sealed(draw, data) if way == "sealed" else _told(draw, data)


def _blind(draw: random.Random, data: bytes) -> bytes:
    spoilt = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8, 40))):
        at, choice = draw.randrange(len(spoilt)), draw.randrange(5)
        if choice == 0:
            spoilt[at] ^= 1 << draw.randrange(8)
        elif choice == 1:
            spoilt[at : at + 8] = draw.randbytes(8)
        elif choice == 2:  # a sector that was never written, or that is another file's
            at -= at % 512
            spoilt[at : at + 512] = draw.choice((bytes(512), draw.randbytes(512)))
        elif choice == 3:
            other = draw.randrange(len(spoilt)) // 8 * 8
            spoilt[at // 8 * 8 : at // 8 * 8 + 40] = spoilt[other : other + 40]
        else:
            del spoilt[at : at + draw.choice((1, 8, 64))]
        spoilt = spoilt or bytearray(8)
    return bytes(spoilt)


def _sealed(draw: random.Random, data: bytes) -> bytes:
    offsets = record_offsets(data)
    header, records = _header(draw, data), []
    for start, end in zip(offsets, offsets[1:], strict=False):
        body = bytearray(data[start + 4 : end])
        if draw.random() < 0.15:
            for _ in range(draw.choice((1, 1, 3))):
                at = draw.randrange(len(body))
                if draw.random() < 0.5:
                    body[at] = draw.randrange(256)
                else:
                    at = at // 8 * 8
                    word = struct.pack("<Q", draw.choice(_WORDS))
                    body[at : at + 8] = word[: len(body) - at]
            if draw.random() < 0.7:  # its length is right, so that what follows is found
                body[0:2] = struct.pack("<H", (end - start) // 8)
            if draw.random() < 0.3:
                body[2] = draw.choice(sorted(KINDS))
            body[3] = 0
        records.append(seal(bytes(body)))
    if draw.random() < 0.2:
        draw.shuffle(records)
    return header + b"".join(records) + bytes(256)


def _header(draw: random.Random, data: bytes) -> bytes:
    header = bytearray(data[:HEADER_LENGTH])
    if draw.random() < 0.3:
        at = draw.choice((12, 16, 24, 32, 40, 56, 64, 72, 76, 80, 88))
        header[at : at + 8] = struct.pack("<Q", draw.choice(_WORDS))
        if draw.random() < 0.9:
            header[48:52] = struct.pack("<I", zlib.crc32(header[:48]))
    return bytes(header)


def _told(draw: random.Random, data: bytes) -> bytes:
    """Behind what was there, records of every kind that say what they like."""
    records = [_said(draw) for _ in range(draw.randrange(1, 8))]
    end = record_offsets(data)[-1]
    if draw.random() < 0.1:  # its very first is who wrote it
        return data[:HEADER_LENGTH] + _text(ORIGIN, _fields(draw)) + b"".join(records) + bytes(256)
    return _header(draw, data) + data[HEADER_LENGTH:end] + b"".join(records) + bytes(256)


def _said(draw: random.Random) -> bytes:
    choice = draw.randrange(10)
    if choice < 5:
        kind = hostile.kind(draw)
        body = json.dumps(hostile.body(draw, kind)).encode()[: MAX_RECORD - 4_096]
        time_ns = draw.choice((5, 5, 5, -1, (1 << 63) - 1, -(1 << 63)))
        return event_record(time_ns, kind, body, 3, draw.choice((0, 1, 0xFFFFFFFF)))
    if choice < 7:
        return _text(DEFINE, _fields(draw))
    if choice == 7:
        step, begin, end = (draw.choice((0, 5, (1 << 63) - 1, -(1 << 63))) for _ in range(3))
        return step_begin(step, begin) + step_end(step, begin, draw.choice((0, begin)), end)
    number, units = draw.choice((*sorted(KINDS), 0, 9, 255)), draw.choice((2, 3, 5, 9))
    body = RECORD.pack(0, units, number, draw.choice((5, (1 << 63) - 1)))[4:]
    return seal((body + draw.randbytes(units * 8))[: units * 8 - 4])


def _fields(draw: random.Random) -> Any:
    if draw.random() < 0.1:
        return hostile.value(draw)
    made: dict[str, Any] = {
        "type": draw.choice(("run", "series", "span", "x", 5)), "id": 1, "run": "hostile",
        "name": "n", "metric": "loss", "journal": NAME, "host": "node", "pid": 7, "start_ns": 5,
    }  # fmt: skip
    for _ in range(draw.choice((0, 1, 1, 2, 4))):
        made[draw.choice(_NAMES)] = hostile.value(draw)
    return made


def _text(kind: int, fields: Any) -> bytes:
    data = json.dumps(fields).encode()[: MAX_RECORD - 64]
    total = padded(4 + TEXT_HEAD.size + len(data))
    return seal(TEXT_HEAD.pack(total // 8, kind, 5, len(data)) + data)
