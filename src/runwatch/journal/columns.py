"""Points and spans by the thousand: find them in a stretch of a journal, check them, make columns.

A training loop writes mostly these, and each is 40 bytes of one layout.  So one crc checks them
all.  We move each record's crc from before its body to behind it and take the crc of the whole.  If
all records are intact, the result depends only on how many there are.

How reliable that is: a crc is linear, and an error in a record is still in the crc after the
records behind it.  So one damaged record is detected exactly if its own crc would detect it.
Several damaged records pass only if their errors cancel out, by chance once in 2^32; errors within
32 bits never do.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from functools import lru_cache
from typing import Any, Final

from runwatch.journal.lanes import ROWS, shifted
from runwatch.journal.segment import (
    POINT,
    POINT_BODY,
    POINT_LENGTH,
    PUT_40,
    RECORD,
    SPAN,
    SPAN_BODY,
    SPAN_LENGTH,
    STEP_BEGIN,
    UNCHECKED,
    is_plain_step,
    seal,
)
from runwatch.journal.steps import STEP_LENGTH, run_length
from runwatch.record import Points, Spans

RUN: Final = -1
PLAIN_SPAN: Final = -2
"""Kinds of a `Part` that is not checked yet: consecutive points (RUN), or one span."""

STEPS: Final = 1 << 8
"""Kind of a `Part`: consecutive steps, each begun and ended, with nothing between them."""

Part = tuple[int, int, int, int]
"""(kind, where it begins, where it ends, its time) of one record or of a run of points."""

_LOOKS: Final = bytes([POINT_LENGTH // 8, 0, POINT, 0])
_SPAN_LOOKS: Final = bytes([SPAN_LENGTH // 8, 0, SPAN, 0])
_LOOKS_BY_BYTE: Final = tuple((4 + i, _LOOKS[i : i + 1]) for i in range(4))
_SHORT: Final = 8
_LITTLE_ENDIAN: Final = sys.byteorder == "little"
_WHOLE: Final = seal(POINT_BODY.pack(POINT_LENGTH // 8, POINT, 0, 0, 0, 0.0))


def survey(data: bytes) -> list[Part]:
    """The parts of `data`, up to the first record that is incomplete or damaged.

    Runs of points, and spans, are not checked yet.  All other records are.
    """
    parts: list[Part] = []
    crc32, header, add = zlib.crc32, RECORD.unpack_from, parts.append
    at, size, run = 0, len(data), 0
    while at + 16 <= size:
        crc, units, kind, time_ns = header(data, at)
        if kind == POINT and (run := _run_length(data, at, run)):
            end = at + run * POINT_LENGTH
            add((RUN, at, end, 0))
        elif kind == SPAN and at + SPAN_LENGTH <= size and data.startswith(_SPAN_LOOKS, at + 4):
            end = at + SPAN_LENGTH
            add((PLAIN_SPAN, at, end, 0))
        elif kind == STEP_BEGIN and crc == UNCHECKED and (steps := run_length(data, at)):
            end = at + steps * STEP_LENGTH
            add((STEPS, at, end, 0))
        else:
            end = at + units * 8
            plain = crc == UNCHECKED and is_plain_step(data, at, kind, units)
            if not plain and (units < 2 or end > size or crc32(data[at + 4 : end]) != crc):
                break
            add((kind, at, end, time_ns))
        at = end
    return parts


def _run_length(data: bytes, at: int, guess: int) -> int:
    """How many consecutive records from `at` on look like points."""
    ahead, fitting = at + 4 - POINT_LENGTH, (len(data) - at) // POINT_LENGTH
    if not data.startswith(_LOOKS, ahead + 2 * POINT_LENGTH):
        return int(fitting > 0 and data.startswith(_LOOKS, at + 4))
    if 0 < guess <= min(fitting, ROWS) and _is_run(data, at, guess):
        return guess
    count = _SHORT
    while count < fitting and data.startswith(_LOOKS, ahead + count * POINT_LENGTH):
        count *= 2  # a short run needs only a short look
    count = min(count, fitting)
    for offset, looks in _LOOKS_BY_BYTE:
        column = data[at + offset : at + count * POINT_LENGTH : POINT_LENGTH]
        count = len(column) - len(column.lstrip(looks))
    return count


def _is_run(data: bytes, at: int, count: int) -> bool:
    """Whether the run has the guessed length, that of the last run: loops repeat themselves."""
    end = at + count * POINT_LENGTH
    if data.startswith(_LOOKS, end + 4):
        return False
    # The other header bytes are covered by the crcs, which are checked later.
    return data[at + 6 : end : POINT_LENGTH].count(POINT) == count


def unchecked(data: bytes, parts: list[Part]) -> bytes:
    """The points and spans that are not checked yet, one after another."""
    view = memoryview(data)  # so that each is copied only once
    return b"".join([view[at:end] for kind, at, end, _ in parts if kind < 0])


def count_whole(block: bytes) -> int:
    """How many points and spans come before the first damaged one."""
    size = ROWS * POINT_LENGTH
    for start in range(0, len(block), size):
        some = block[start : start + size]
        if not _are_whole(some):
            return start // POINT_LENGTH + _count_singly(some)
    return len(block) // POINT_LENGTH


def _are_whole(block: bytes) -> bool:
    words = array("I", block)
    crcs = words[0::10]
    del words[0]
    words.append(0)
    words[9::10] = crcs
    return zlib.crc32(words) == _crc_of_whole(len(crcs))


@lru_cache(maxsize=64)
def _crc_of_whole(count: int) -> int:
    return zlib.crc32((_WHOLE[4:] + _WHOLE[:4]) * count)


def _count_singly(block: bytes) -> int:
    for count, (crc, body) in enumerate(PUT_40.iter_unpack(block)):
        if zlib.crc32(body) != crc:
            return count
    return len(block) // POINT_LENGTH


def cut(parts: list[Part], whole: int) -> list[Part]:
    """`parts` up to and including the first `whole` unchecked points and spans."""
    for place, (kind, at, end, time_ns) in enumerate(parts):
        if kind < 0:
            count = (end - at) // POINT_LENGTH
            if whole < count:
                shortened = (kind, at, at + whole * POINT_LENGTH, time_ns)
                return [*parts[:place], shortened] if whole else parts[:place]
            whole -= count
    return parts


def append_points(block: bytes, shift: int, points: Points) -> None:
    """Decode points a column at a time.  `shift` turns their times into wall time."""
    if len(block) < _SHORT * POINT_LENGTH or not _LITTLE_ENDIAN:
        append_singly(block, shift, points)
        return
    size = ROWS * POINT_LENGTH
    columns: tuple[list[array[Any]], ...] = ([], [], [], [])
    for start in range(0, len(block), size):
        some = block[start : start + size]
        words = array("q", some)
        columns[0].append(array("I", some)[6::10])
        columns[1].append(shifted(words[1::5], shift))
        columns[2].append(words[2::5])
        columns[3].append(words[4::5])
    targets: list[array[Any]] = [points.series, points.time_ns, points.step, points.value]
    for column, pieces in zip(targets, columns, strict=True):
        column.frombytes(b"".join(pieces))  # in one go: a growing column is copied repeatedly


def append_spans(block: bytes, shift: int, spans: Spans) -> None:
    for start in range(0, len(block), ROWS * SPAN_LENGTH):
        some = block[start : start + ROWS * SPAN_LENGTH]
        if len(some) < _SHORT * SPAN_LENGTH or not _LITTLE_ENDIAN:
            append_spans_singly(some, shift, spans)
            continue
        halves, words = array("I", some), array("q", some)
        spans.name.extend(halves[6::10])
        spans.span.extend(halves[7::10])
        spans.edge.frombytes(some[32::SPAN_LENGTH])
        spans.time_ns.extend(shifted(words[1::5], shift))
        spans.step.extend(words[2::5])


def append_spans_singly(block: bytes, shift: int, spans: Spans) -> None:
    for at in range(4, len(block), SPAN_LENGTH):
        _, _, time_ns, step, name, span, edge = SPAN_BODY.unpack_from(block, at)
        spans.append(name, span, edge, time_ns + shift, step)


def append_singly(block: bytes, shift: int, points: Points) -> None:
    """`append_points` one by one, for any byte order and a partial block."""
    for at in range(4, len(block) - POINT_LENGTH + 5, POINT_LENGTH):
        _, _, time_ns, step, series, value = POINT_BODY.unpack_from(block, at)
        points.append(series, time_ns + shift, step, value)
