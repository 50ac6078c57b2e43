"""Points read by the thousand say what they say one by one, wherever the damage is."""

from __future__ import annotations

import math
import struct
import zlib
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.journal import columns as columns_module
from runwatch.journal import reader as reader_module
from runwatch.journal.columns import (
    RUN,
    Part,
    append_points,
    append_singly,
    append_spans_singly,
    count_whole,
    cut,
    survey,
    unchecked,
)
from runwatch.journal.lanes import ROWS, grows, is_count, shifted
from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import (
    EVENT,
    HEADER_LENGTH,
    POINT,
    POINT_BODY,
    POINT_LENGTH,
    RECORD,
    SPAN,
    SPAN_BODY,
    SPAN_LENGTH,
    event_record,
    seal,
    segment_name,
)
from runwatch.journal.writer import JournalWriter
from runwatch.record import BEGIN, END, NO_STEP, Batch, Points, Position, Spans
from runwatch.testing import FakeClock
from tests.sampling import sampled
from tests.unit.journal.journal_help import (
    SECOND,
    SMALL,
    origin,
    record_offsets,
)

LONG = 2 * ROWS + 300


def point(i: int, time_ns: int | None = None) -> bytes:
    time_ns = 5_000 * SECOND + i if time_ns is None else time_ns
    return seal(POINT_BODY.pack(POINT_LENGTH // 8, POINT, time_ns, i, i % 5, i / 3))


def rows(points: Points) -> list[tuple[int, int, int, bytes]]:
    values = [struct.pack("<d", value) for value in points.value]
    return list(zip(points.series, points.time_ns, points.step, values, strict=True))


def edges(spans: Spans) -> list[tuple[int, ...]]:
    columns = (spans.name, spans.span, spans.edge, spans.time_ns, spans.step)
    return list(zip(*columns, strict=True))


# ── whole or damaged ──────────────────────────────────────────────────────────────────────────

BLOCK = b"".join(point(i) for i in range(LONG))
flips = st.lists(st.tuples(st.integers(0, len(BLOCK) - 1), st.integers(1, 255)), max_size=6)


def flipped(data: bytes, where: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for byte, bits in where:
        changed[byte] ^= bits
    return bytes(changed)


def count_one_by_one(block: bytes) -> int:
    for count, at in enumerate(range(0, len(block), POINT_LENGTH)):
        (crc,) = struct.unpack_from("<I", block, at)
        if zlib.crc32(block[at + 4 : at + POINT_LENGTH]) != crc:
            return count
    return len(block) // POINT_LENGTH


@given(flips, st.integers(0, LONG))
def test_the_first_damaged_point_is_found(where: list[tuple[int, int]], count: int) -> None:
    block = flipped(BLOCK, where)[: count * POINT_LENGTH]
    assert count_whole(block) == count_one_by_one(block)


def test_every_bit_of_a_point_counts() -> None:
    block = BLOCK[: 20 * POINT_LENGTH]
    for bit in range(7 * POINT_LENGTH * 8, 8 * POINT_LENGTH * 8):
        assert count_whole(flipped(block, [(bit // 8, 1 << bit % 8)])) == 7


@given(st.integers(1, 2**32 - 1), st.integers(0, 90), st.integers(1, 9))
def test_the_same_error_in_two_points_does_not_cancel_out(
    error: int, first: int, distance: int
) -> None:
    """Two crcs that are off by the same: a plain sum of all would not see it."""
    changed = bytearray(BLOCK[: 100 * POINT_LENGTH])
    for number in (first, first + distance):
        (crc,) = struct.unpack_from("<I", changed, number * POINT_LENGTH)
        struct.pack_into("<I", changed, number * POINT_LENGTH, crc ^ error)
    assert count_whole(bytes(changed)) == first


# ── into columns ──────────────────────────────────────────────────────────────────────────────

int64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(int64, max_size=50), int64)
def test_a_column_is_shifted_as_its_numbers_are(numbers: list[int], by: int) -> None:
    numbers = [n for n in numbers if -(2**63) <= n + by < 2**63]
    assert shifted(array("q", numbers), by) == array("q", [n + by for n in numbers])


@given(st.lists(st.integers(0, 2**62 - 1), max_size=50), st.integers(0, 2**62 - 1))
def test_no_digit_carries_into_the_next(numbers: list[int], by: int) -> None:
    assert shifted(array("q", numbers), by) == array("q", [n + by for n in numbers])


@pytest.mark.parametrize("shift", sampled([0, 2**62, 1_700_000_000 * SECOND, -7], 2))
@pytest.mark.parametrize("count", [0, 1, ROWS, ROWS + 1, LONG])
def test_columns_are_the_points_one_by_one(shift: int, count: int) -> None:
    block = BLOCK[: count * POINT_LENGTH]
    at_once, singly = Points(), Points()
    for points in (at_once, singly):
        points.append(9, 9, 9, 9.0)
    append_points(block, shift, at_once)
    append_singly(block, shift, singly)
    assert rows(at_once) == rows(singly)
    assert len(at_once) == count + 1


# ── what a column is like ─────────────────────────────────────────────────────────────────────

numbers = st.one_of(
    st.lists(int64, max_size=30).map(lambda some: array("q", some)),
    st.lists(st.integers(-2, 40), max_size=30, unique=True).map(lambda s: array("q", sorted(s))),
    st.lists(st.floats(), max_size=30).map(lambda some: array("d", some)),
    st.lists(st.floats(0, 9), max_size=30, unique=True).map(lambda s: array("d", sorted(s))),
)


@given(numbers, st.booleans())
def test_a_column_grows_as_its_numbers_do(column: array[float], not_a_number: bool) -> None:
    if not_a_number and column.typecode == "d":
        column.append(math.nan)
    assert grows(column) == all(a < b for a, b in pairwise(column))


@given(st.integers(-(2**63), 2**63 - 200), st.integers(0, 100), st.data())
def test_a_count_is_told_from_what_is_none(first: int, length: int, data: st.DataObject) -> None:
    column = array("q", range(first, first + length))
    assert is_count(column)
    if length > 1:
        place = data.draw(st.integers(1, length - 1))
        column[place] += data.draw(st.sampled_from([-1, 1, 90]))
        assert not is_count(column)


# ── in a journal ──────────────────────────────────────────────────────────────────────────────


def one_by_one(data: bytes) -> list[Part]:
    """`survey` with each record a part of its own, and checked."""
    parts: list[Part] = []
    at = 0
    while at + 16 <= len(data):
        crc, units, kind, time_ns = RECORD.unpack_from(data, at)
        end = at + units * 8
        if units < 2 or end > len(data) or zlib.crc32(data[at + 4 : end]) != crc:
            break
        is_plain = kind == POINT and units == 5 and not data[at + 7]
        parts.append((RUN, at, end, 0) if is_plain else (kind, at, end, time_ns))
        at = end
    return parts


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segment with long runs of points, short ones, and all other kinds between them."""
    root = tmp_path_factory.mktemp("columns")
    writer = JournalWriter(root, origin(), segment_bytes=SMALL, clock=FakeClock())
    loss, other, save = writer.series("loss"), writer.series("other"), writer.span_name("save")
    for length in (1, 9, 100, 100, 100, 3, ROWS + 50, 7, 8, 100, 2 * ROWS):
        for i in range(length):
            writer.point(loss, i / 7, i)
        for i in range(length % 30):
            writer.span(save, i, END, i)
            writer.point(loss, 0.5, i)
        writer.event("note", {"length": length, "words": "x" * (length % 90)})
        writer.span(save, length, BEGIN)
        writer.points([loss, other], [1.0, float(length)], length)
        writer.event("note", {"again": length})
        writer.point(other, math.nan)
    data = (writer.directory / segment_name(0)).read_bytes()
    writer.close()
    path = root / "segment"
    path.write_bytes(data[: record_offsets(data)[-1] + 64])
    return path


def batches(directory: Path, max_bytes: int) -> Iterator[Batch]:
    reader = JournalReader(directory, clock=FakeClock())
    try:
        while (batch := reader.read(final=True, max_bytes=max_bytes)) is not None:
            yield batch
    finally:
        reader.close()


def told(directory: Path, max_bytes: int) -> list[object]:
    return [
        (b.start, b.end, b.skipped_records, rows(b.points), edges(b.spans), b.events)
        for b in batches(directory, max_bytes)
    ]


def told_one_by_one(directory: Path, max_bytes: int) -> list[object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_module, "survey", one_by_one)
        patch.setattr(reader_module, "count_whole", lambda block: len(block) // POINT_LENGTH)
        patch.setattr(reader_module, "append_points", append_singly)
        patch.setattr(reader_module, "append_spans", append_spans_singly)
        return told(directory, max_bytes)


damages = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(["flip", "zeros", "again", "out"])), max_size=4
)


@settings(max_examples=40, deadline=None)
@given(damages, st.sampled_from([1 << 20, 100_000, 5_000]), st.data())
def test_a_damaged_journal_reads_as_it_does_one_by_one(
    journal: Path,
    tmp_path_factory: pytest.TempPathFactory,
    harm: list[tuple[float, str]],
    max_bytes: int,
    data: st.DataObject,
) -> None:
    changed = bytearray(journal.read_bytes())
    for share, kind in harm:
        at = HEADER_LENGTH + int(share * (len(changed) - HEADER_LENGTH - 8))
        if kind == "flip":
            changed[at] ^= data.draw(st.integers(1, 255))
        elif kind == "zeros":
            changed[at : at + 4096] = bytes(min(4096, len(changed) - at))
        elif kind == "again":  # a page that came twice
            changed[at : at + 80] = changed[max(at - 400, HEADER_LENGTH) :][:80]
        else:
            del changed[at // 8 * 8 : at // 8 * 8 + 24]
    directory = tmp_path_factory.mktemp("damaged") / origin().journal
    directory.mkdir()
    (directory / segment_name(0)).write_bytes(changed)
    assert told(directory, max_bytes) == told_one_by_one(directory, max_bytes)


def test_a_whole_journal_is_read_whole(journal: Path, tmp_path: Path) -> None:
    directory = tmp_path / origin().journal
    directory.mkdir()
    (directory / segment_name(0)).write_bytes(journal.read_bytes())
    (batch,) = batches(directory, 1 << 20)
    lengths = [e.body["length"] for e in batch.events if "length" in e.body]
    more = sum(length % 30 for length in lengths)
    assert len(batch.points) == sum(lengths) + more + 3 * len(lengths) and len(lengths) == 11
    assert len(batch.spans) == more + 11
    assert batch.end == Position(journal.stat().st_size - 64)
    assert told(directory, 1 << 20) == told_one_by_one(directory, 1 << 20)


# ── odd records ───────────────────────────────────────────────────────────────────────────────


def test_a_point_that_says_more_keeps_its_place() -> None:
    """As a newer writer might have it: longer, or with a flag in the byte that is reserved."""
    longer = seal(POINT_BODY.pack(6, POINT, 50, 50, 1, 0.5) + bytes(8))
    flagged = bytearray(point(60)[4:])
    flagged[3] = 1
    data = point(0) + point(1) + longer + point(2) + seal(bytes(flagged)) + point(3)
    assert [kind for kind, *_ in survey(data)] == [RUN, POINT, RUN, POINT, RUN]
    assert unchecked(data, survey(data)) == b"".join(map(point, range(4)))


@pytest.mark.parametrize("odd", ["longer", "flagged", "span", "torn"])
@pytest.mark.parametrize("place", sampled([1, 19, 8, 18], 2))
def test_an_odd_record_in_a_run_as_long_as_the_one_before(
    odd: str, place: int, tmp_path: Path
) -> None:
    """A loop does the same again and again, so a run is taken to be as long as the last one."""
    flagged = bytearray(point(60)[4:])
    flagged[3] = 1
    record = {
        "longer": seal(POINT_BODY.pack(6, POINT, 50, 50, 1, 0.5) + bytes(8)),
        "flagged": seal(bytes(flagged)),
        "span": seal(SPAN_BODY.pack(SPAN_LENGTH // 8, SPAN, 50, 50, 1, 1, BEGIN)),
        "torn": point(60)[:-1] + b"\x55",
    }[odd]
    note = event_record(1, "note", b"{}", NO_STEP, 0)
    run, again = ([point(i) for i in range(20)] for _ in range(2))
    again[place] = record
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL, clock=FakeClock())
    path = writer.directory / segment_name(0)
    head = path.read_bytes()[: record_offsets(path.read_bytes())[-1]]
    writer.close()
    path.write_bytes(head + b"".join([*run, note, *again, note, *run]))
    seen = list(batches(writer.directory, 1 << 20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_module, "_is_run", lambda *_: False)
        slowly = list(batches(writer.directory, 1 << 20))
    for one in (seen, slowly):
        assert sum(len(batch.points) for batch in one) == 60 - (odd in ("span", "torn"))
        assert sum(len(batch.spans) for batch in one) == (odd == "span")
        assert sum(batch.skipped_records for batch in one) == (odd == "torn")
    assert [row for b in seen for row in rows(b.points)] == [
        row for b in slowly for row in rows(b.points)
    ]


@given(st.integers(0, 12))
def test_what_lies_behind_a_damaged_point_is_cut_off(whole: int) -> None:
    note = event_record(1, "note", b"{}", NO_STEP, 0)
    data = b"".join(map(point, range(5))) + note + b"".join(map(point, range(5, 10))) + note
    parts = cut(survey(data), whole)
    kinds = [kind for kind, *_ in parts]
    assert len(unchecked(data, parts)) == min(whole, 10) * POINT_LENGTH
    assert kinds.count(EVENT) == (whole >= 5) + (whole >= 10)


DEEP = b"[" * 20_000 + b"]" * 20_000


@pytest.mark.parametrize("bad", [b"{", b"", b"1,2", b"\xff", b'{"a":1},{"b":2', DEEP])
def test_an_event_that_cannot_be_read_takes_no_other_along(bad: bytes, tmp_path: Path) -> None:
    directory = tmp_path / origin().journal
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL, clock=FakeClock())
    writer.event("note", {"number": 1})
    data = bytearray((writer.directory / segment_name(0)).read_bytes())
    writer.close()
    end = record_offsets(bytes(data))[-1]
    more = event_record(5, "note", bad, 3, 1) + event_record(6, "note", b'{"number":2}', 4, 1)
    data[end : end + len(more)] = more
    directory = writer.directory
    (directory / segment_name(0)).write_bytes(data)
    (batch,) = batches(directory, 1 << 20)
    assert [e.body.get("number", e.kind) for e in batch.events] == [1, 2, "journal_gap"]
    assert batch.skipped_records == 1
