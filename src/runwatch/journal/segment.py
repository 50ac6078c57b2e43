"""The bytes of a journal.  Version 2; version 1 had no STEP records and no header fields for them.

A journal is a directory `<root>/journals/<journal id>/` of segment files `00000000.seg`,
`00000001.seg` …, written by one process only.  `next.tmp` is a segment prepared in advance,
`turn.tmp` one made when none was prepared.  It is renamed to a segment's name after its header,
origin and definitions are written.  Beside the segments lie the process's control socket and the
agent's notes: how far a head has stored the journal (`stored.py`), and how the process ended.  All
numbers are little-endian.

Segment header (128 bytes)

    offset  size  field
         0     8  magic  b"RWJOURN\\n"
         8     2  version (2)
        10     2  header length (128): where the first record starts
        12     4  segment index
        16     8  segment length in bytes, preallocated
        24     8  records in all earlier segments of this journal, without DEFINE and ORIGIN
        32     8  wall clock  } ns, both read at the same moment when the journal was opened;
        40     8  monotonic   } the pair is the same in every segment of a journal
        48     4  crc32 of bytes 0–47
        52     4  reserved
        56     8  heartbeat: monotonic ns of the writer's last sign of life; updated in place
        64     8  end: offset behind the last record, 0 until the segment is complete; in place
        72     4  span name of STEP records     }
        76     4  series of their seconds       } 0 until defined; in place
        80     4  series of their data wait     }
        84     4  reserved
        88     8  added to the times of STEP records to get monotonic ns
        96    32  reserved, zero

Record (8-byte aligned, its length a multiple of 8)

         0     4  crc32 of bytes 4 … length
         4     2  length of the record in units of 8 bytes
         6     1  kind
         7     1  reserved, zero
         8     8  time, monotonic ns (wall time = time - header monotonic + header wall)
        16     …  by kind:

    POINT   step i64 · series u32 · reserved u32 · value f64                          (40 bytes)
    POINTS  step i64 · n u32 · n series u32 · pad to 8 · n values f64
    SPAN    step i64 · name u32 · span u32 · edge u8 (0 begin, 1 end) · pad           (40 bytes)
    EVENT   step i64 · scope u32 · kind length u32 · kind utf-8 · body JSON · pad
    DEFINE  length u32 · JSON of one definition
    ORIGIN  length u32 · JSON of the writer's identity; the first record of every segment

    instead of the time and the rest:
    STEP_BEGIN  step i64 · begin i64                                                  (24 bytes)
    STEP_END    step i64 · begin i64 · asked i64 · end i64                            (40 bytes)

STEP records are what a training loop writes most, so they are small.  A STEP_BEGIN stands for a
span's begin.  A STEP_END stands for the span's end, a point with the step's seconds and, if `asked`
is not 0, a point with the seconds that the loop waited for data.  The span's number comes from its
begin (`step_span`).  Times are ticks of a clock that is cheaper to read; a number in the header
converts them to monotonic ns.  A STEP_BEGIN does not count as a record.
On processors that show stores in order the crc may be UNCHECKED.  Such a record is complete once
its last word is there: that word is stored last and is never 0.  (A reader that follows a live
journal must see the last word before it reads the rest.)

An absent step is -2^63.  Every segment repeats the origin and all definitions so far, so that any
segment can be read alone after older ones were dropped.

After a crash.  A killed process leaves whole records, then at most one torn record (its crc is
wrong), then zeros.  A length of zero means "nothing here yet".  A reader skips a torn or damaged
record in the middle: it looks for the next 8-byte boundary with a valid record.  On a network file
system another host may see later pages before earlier ones: a hole, for a time.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from runwatch.errors import NewerJournalError, SegmentError
from runwatch.record import (
    Definition,
    JournalId,
    Origin,
    RunScope,
    Series,
    SpanName,
)

MAGIC: Final = b"RWJOURN\n"
VERSION: Final = 2
READABLE: Final = (1, 2)
HEADER_LENGTH: Final = 128
HEARTBEAT_OFFSET: Final = 56
END_OFFSET: Final = 64
STEPS_OFFSET: Final = 72
MAX_RECORD: Final = 0xFFFF * 8
DEFAULT_SEGMENT_BYTES: Final = 4 << 20
MIN_SEGMENT_BYTES: Final = 1 << 20
LONGEST_SEGMENT: Final = 64 << 20
"""A reader reads at most this much of a segment: a header may claim any length."""
MOST_SEGMENTS: Final = 1 << 31
_FARTHEST_NS: Final = 1 << 62
_MOST_RECORDS: Final = 1 << 60
PREPARED: Final = "next.tmp"
MADE_IN_TURN: Final = "turn.tmp"

POINT: Final = 1
POINTS: Final = 2
SPAN: Final = 3
EVENT: Final = 4
DEFINE: Final = 5
ORIGIN: Final = 6
STEP_BEGIN: Final = 7
STEP_END: Final = 8
KINDS: Final = frozenset((POINT, POINTS, SPAN, EVENT, DEFINE, ORIGIN, STEP_BEGIN, STEP_END))
NOT_COUNTED: Final = frozenset((DEFINE, ORIGIN, STEP_BEGIN))
POINT_LENGTH: Final = 40
SPAN_LENGTH: Final = 40

HEADER = struct.Struct("<8sHHIQQqqI")
RECORD = struct.Struct("<IHBxq")
CRC = struct.Struct("<I")
WORD = struct.Struct("<q")

# The bodies are records without their crc, packed in one go; `PUT` stores crc and body together.
POINT_BODY = struct.Struct("<HBxqqI4xd")
SPAN_BODY = struct.Struct("<HBxqqIIB7x")
EVENT_HEAD = struct.Struct("<HBxqqII")
EVENT_REST = struct.Struct("<qII")
"""The part of an event's head behind its time."""
TEXT_HEAD = struct.Struct("<HBxqI")
PUT_40 = struct.Struct("<I36s")
POINTS_HEAD = struct.Struct("<HBxqqI")
STEP_IDS = struct.Struct("<III")
STEPS_HEAD = struct.Struct("<IIIxxxxq")
STEP_BEGIN_WORDS = struct.Struct("<qqq")
STEP_END_WORDS = struct.Struct("<qqqqq")
UNCHECKED: Final = 0x50455453
STEP_BEGIN_HEAD: Final = UNCHECKED | STEP_BEGIN_WORDS.size // 8 << 32 | STEP_BEGIN << 48
STEP_END_HEAD: Final = UNCHECKED | STEP_END_WORDS.size // 8 << 32 | STEP_END << 48
"""The first words of unsealed STEP records."""
_STEP_UNITS: Final = {STEP_BEGIN: STEP_BEGIN_WORDS.size // 8, STEP_END: STEP_END_WORDS.size // 8}
_NO_WORD: Final = bytes(8)


@lru_cache(maxsize=256)
def points_body(count: int) -> struct.Struct:
    pad = 4 if count % 2 == 0 else 0
    return struct.Struct(f"<HBxqqI{count}I{pad}x{count}d")


def points_of(series: Sequence[int]) -> tuple[struct.Struct, struct.Struct, bytes]:
    """For repeated records of the same series: the layouts of the body and of the whole record,
    with the series as ready-made bytes, and those bytes.  The same bytes as `points_body`."""
    count = len(series)
    pad = 4 if count % 2 == 0 else 0
    body = struct.Struct(f"<HBxqqI{4 * count}s{pad}x{count}d")
    return body, struct.Struct(f"<I{body.size}s"), struct.pack(f"<{count}I", *series)


def padded(length: int) -> int:
    return -(-length // 8) * 8


def seal(body: bytes) -> bytes:
    """Prefix a record's body with its crc and pad it; the body's length field must be right."""
    body = body.ljust(padded(len(body) + 4) - 4, b"\0")
    return CRC.pack(zlib.crc32(body)) + body


def step_begin(step: int, begin: int) -> bytes:
    return seal(STEP_BEGIN_WORDS.pack(STEP_BEGIN_HEAD, step, begin)[4:])


def step_end(step: int, begin: int, asked: int, end: int) -> bytes:
    return seal(STEP_END_WORDS.pack(STEP_END_HEAD, step, begin, asked, end)[4:])


def step_span(begin: int) -> int:
    """The number of a step's span, above the numbers of counted spans."""
    return 1 << 31 | begin & 0x7FFFFFFF


def is_plain_step(data: bytes, at: int, kind: int, units: int) -> bool:
    """Whether an UNCHECKED record is a complete step."""
    end = at + units * 8
    return _STEP_UNITS.get(kind) == units and end <= len(data) and data[end - 8 : end] != _NO_WORD


def text_record(kind: int, time_ns: int, text: Mapping[str, Any]) -> bytes:
    data = json.dumps(text, separators=(",", ":")).encode()
    total = padded(4 + TEXT_HEAD.size + len(data))
    if total > MAX_RECORD:
        raise SegmentError(f"a definition of {len(data)} bytes does not fit: at most {MAX_RECORD}")
    return seal(TEXT_HEAD.pack(total // 8, kind, time_ns, len(data)) + data)


def event_record(time_ns: int, kind: str, body: bytes, step: int, scope: int) -> bytes:
    name = kind.encode(errors="replace")
    total = padded(4 + EVENT_HEAD.size + len(name) + len(body))
    if total > MAX_RECORD:
        raise SegmentError(f"an event of {len(body)} bytes does not fit: at most {MAX_RECORD}")
    head = EVENT_HEAD.pack(total // 8, EVENT, time_ns, step, scope, len(name))
    return seal(head + name + body)


_TYPES: Final[Mapping[str, type[RunScope] | type[Series] | type[SpanName]]] = {
    "run": RunScope,
    "series": Series,
    "span": SpanName,
}
_NAMES: Final = {kind: name for name, kind in _TYPES.items()}


def definition_to_json(definition: Definition) -> dict[str, Any]:
    defaults = {k: v for k, v in asdict(definition).items() if v not in ("", {}, None)}
    return {"type": _NAMES[type(definition)], **defaults}


def definition_from_json(fields: Mapping[str, Any]) -> Definition:
    """Ignores unknown fields, so that a newer writer's journal can still be read."""
    kind = _TYPES.get(str(fields.get("type")))
    if kind is None:
        raise SegmentError(f"definition of unknown type {fields.get('type')!r}")
    accepted = {k: v for k, v in fields.items() if k in kind.__dataclass_fields__}
    return kind(**accepted)


def origin_to_json(origin: Origin) -> dict[str, Any]:
    return asdict(origin)


def origin_from_json(fields: Mapping[str, Any]) -> Origin:
    return Origin(**{k: v for k, v in fields.items() if k in Origin.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class Header:
    index: int
    length: int
    records_before: int
    wall_ns: int
    mono_ns: int
    heartbeat_ns: int = 0
    end: int = 0
    step_ids: tuple[int, int, int] = (0, 0, 0)
    """Span name, seconds and data wait of STEP records."""
    tick_shift: int = 0

    def pack(self) -> bytes:
        fixed = HEADER.pack(
            MAGIC,
            VERSION,
            HEADER_LENGTH,
            self.index,
            self.length,
            self.records_before,
            self.wall_ns,
            self.mono_ns,
            0,
        )[:48]
        head = fixed + CRC.pack(zlib.crc32(fixed)) + bytes(4)
        in_place = WORD.pack(self.heartbeat_ns) + WORD.pack(self.end)
        steps = STEPS_HEAD.pack(*self.step_ids, self.tick_shift)
        return (head + in_place + steps).ljust(HEADER_LENGTH, b"\0")

    @classmethod
    def unpack(cls, data: bytes, path: Path) -> Header:
        if len(data) < HEADER_LENGTH or data[:8] != MAGIC:
            raise SegmentError(f"not a journal segment: {path}")
        _, version, _, index, length, before, wall, mono, crc = HEADER.unpack_from(data)
        if crc != zlib.crc32(data[:48]):
            raise SegmentError(f"the header of {path} is damaged")
        if version not in READABLE:
            raise NewerJournalError(
                f"{path} has journal version {version}; this Runwatch reads up to {VERSION}: "
                "upgrade Runwatch"
            )
        if max(abs(wall), abs(mono)) > _FARTHEST_NS or before > _MOST_RECORDS:
            raise SegmentError(f"the header of {path} has impossible clocks or record counts")
        (heartbeat,) = WORD.unpack_from(data, HEARTBEAT_OFFSET)
        (end,) = WORD.unpack_from(data, END_OFFSET)
        *ids, shift = STEPS_HEAD.unpack_from(data, STEPS_OFFSET)
        name, seconds, wait = ids
        return cls(index, length, before, wall, mono, heartbeat, end, (name, seconds, wait), shift)


_SEGMENT_NAME: Final = re.compile(r"([0-9]{8,10})\.seg", re.ASCII)


def segment_name(index: int) -> str:
    return f"{index:08d}.seg"


def segment_indexes(directory: Path) -> list[int]:
    """Indexes of the segments that exist, ascending; [] for a directory that is gone."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return indexes_among(names)


def indexes_among(names: Iterable[str]) -> list[int]:
    """The indexes of the segments among a journal's files, ascending."""
    indexes = (int(match[1]) for name in names if (match := _SEGMENT_NAME.fullmatch(name)))
    return sorted(index for index in indexes if index < MOST_SEGMENTS)


def journal_directories(root: Path) -> list[Path]:
    """The journals under a Runwatch directory, oldest name first."""
    try:
        with os.scandir(root / "journals") as entries:
            names = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [root / "journals" / name for name in names]


def origin_from_name(name: str) -> Origin:
    """The origin as far as the journal's name tells, for one whose bytes are damaged."""
    start, _, rest = name.partition("-")
    host, _, pid = rest.rpartition("-")[0].rpartition("-")
    try:
        return Origin(JournalId(name), host, int(pid), int(start, 16) * 1_000_000_000)
    except ValueError:
        return Origin(JournalId(name), "", 0, 0)


def new_journal_id(host: str, pid: int, wall_ns: int, salt: str) -> JournalId:
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-.") else "-" for c in host)
    return JournalId(f"{wall_ns // 1_000_000_000:x}-{safe[:64].strip('.') or 'host'}-{pid}-{salt}")
