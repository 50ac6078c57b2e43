"""Torn tails, flipped bytes, foreign headers: the rest is read, and the damage is stated."""

from __future__ import annotations

import random
import shutil
import struct
import zlib
from pathlib import Path

import pytest

from runwatch.errors import SegmentError
from runwatch.journal.reader import HOLE_GRACE_SECONDS, JournalReader, count_records, read_origin
from runwatch.journal.segment import HEADER_LENGTH, VERSION, Header, segment_name
from runwatch.journal.writer import JournalWriter
from runwatch.record import BEGIN, START
from runwatch.testing import FakeClock
from tests.unit.journal.journal_help import (
    SMALL,
    Everything,
    origin,
    read_everything,
    record_offsets,
)


class Killed:
    """A one-segment journal as a killed writer leaves it, and copies of it to damage."""

    def __init__(self, root: Path) -> None:
        writer = JournalWriter(root / "original", origin(), segment_bytes=SMALL)
        loss, other, save = writer.series("loss"), writer.series("other"), writer.span_name("save")
        for i in range(20):
            writer.point(loss, float(i), i)
        writer.event("note", {"text": "in the middle"})
        writer.points([loss, other], [20.0, 0.0], 0)  # zeros inside a record
        writer.span(save, 1, BEGIN)
        writer.event("note", {"text": "at the end"})
        writer.point(loss, 21.0)
        data = (writer.directory / segment_name(0)).read_bytes()
        writer.close()
        self.offsets = record_offsets(data)
        self.data = data[: self.offsets[-1] + 256]
        self.directory = root / "copy" / "journals" / origin().journal
        self.directory.mkdir(parents=True)
        self.whole = self.read(self.data)
        self._contents: dict[int, set[object]] = {}

    def write(self, data: bytes, index: int = 0) -> None:
        (self.directory / segment_name(index)).write_bytes(data)

    def read(self, data: bytes) -> Everything:
        self.write(data)
        return read_everything(self.directory)

    def contents_before(self, byte: int) -> set[object]:
        """What the records that end at or before `byte` say, by reading only those."""
        end = max(o for o in self.offsets if o <= byte)
        if end not in self._contents:
            self._contents[end] = contents(self.read(self.data[:end]))
        return self._contents[end]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return Killed(tmp_path_factory.mktemp("killed"))


def texts(found: Everything) -> list[str]:
    return [event.body["text"] for event in found.events if event.kind == "note"]


def contents(found: Everything) -> set[object]:
    return {*found.points, *found.spans, *texts(found)}


def test_the_original_is_whole(killed: Killed) -> None:
    assert killed.whole.values("loss") == [float(i) for i in range(22)]
    assert texts(killed.whole) == ["in the middle", "at the end"]
    assert killed.whole.skipped == 0


def test_cut_at_every_byte(killed: Killed) -> None:
    for byte in range(killed.offsets[-6], len(killed.data)):
        found = killed.read(killed.data[:byte])
        assert contents(found) == killed.contents_before(byte), byte
        assert found.skipped == 0


def test_zeroed_from_every_byte(killed: Killed) -> None:
    for byte in range(killed.offsets[-6], killed.offsets[-1]):
        found = killed.read(killed.data[:byte].ljust(len(killed.data), b"\0"))
        whole = killed.contents_before(byte)
        # A record whose last bytes were zero anyway is still whole.
        assert whole <= contents(found) <= contents(killed.whole), byte
        assert len(contents(found) - whole) <= 2  # one record, of two points at most


def test_every_byte_of_the_last_records_garbled(killed: Killed) -> None:
    everything = contents(killed.whole)
    for byte in range(killed.offsets[-6], killed.offsets[-1]):
        data = bytearray(killed.data)
        data[byte] ^= 0xFF
        found = killed.read(bytes(data))
        assert contents(found) < everything, byte
        assert killed.contents_before(byte) <= contents(found)
        lost = everything - contents(found)
        in_last = byte >= killed.offsets[-2]
        assert len(lost) <= 2  # one record, of two points at most
        assert found.skipped == (0 if in_last else 1)


def test_every_byte_of_a_record_in_the_middle_flipped(killed: Killed) -> None:
    for byte in range(killed.offsets[8], killed.offsets[10]):
        data = bytearray(killed.data)
        data[byte] ^= 1 << (byte % 8)
        found = killed.read(bytes(data))
        assert len(found.values("loss")) == 21, byte
        assert found.skipped == 1
        assert found.kinds().count("journal_gap") == 1
        assert found.bodies("journal_gap")[0]["reason"] == "damaged"


def test_a_hole_is_waited_for_while_the_writer_may_live(killed: Killed) -> None:
    clock = FakeClock()
    data = bytearray(killed.data)
    data[killed.offsets[8] : killed.offsets[9]] = bytes(killed.offsets[9] - killed.offsets[8])
    killed.write(bytes(data))
    reader = JournalReader(killed.directory, clock=clock)
    found = Everything()
    first = reader.read()
    assert first is not None
    found.add(first)
    assert reader.read() is None
    # In time: the page comes from another host.
    killed.write(killed.data)
    batch = reader.read()
    assert batch is not None
    found.add(batch)
    assert found.points == killed.whole.points
    # Too late: it is given up, and said so.
    data[killed.offsets[8] : killed.offsets[9]] = b"\x77" * 40
    killed.write(bytes(data))
    reader.seek(first.end)
    assert reader.read() is None
    clock.advance(HOLE_GRACE_SECONDS)
    late = reader.read()
    reader.close()
    assert late is not None
    assert late.skipped_records == 1
    assert [e.kind for e in late.events if e.kind == "journal_gap"] == ["journal_gap"]


def test_random_damage_invents_nothing(killed: Killed) -> None:
    everything = contents(killed.whole)
    chance = random.Random(7)
    for _ in range(300):
        data = bytearray(killed.data)
        for _ in range(chance.randint(1, 6)):
            start = chance.randrange(HEADER_LENGTH, len(data))
            size = chance.choice((1, 2, 8, 40, 300))
            noise = chance.choice((chance.randbytes(size), bytes(size), b"\xff" * size))
            data[start : start + size] = noise[: len(data) - start]
        assert contents(killed.read(bytes(data))) - everything <= {
            (f"#{number}", *rest) for number in range(9) for _, *rest in killed.whole.points
        } | {(f"#{number}", *rest) for number in range(9) for _, *rest in killed.whole.spans}


def test_a_whole_segment_of_noise_is_stepped_over(killed: Killed, tmp_path: Path) -> None:
    chance = random.Random(3)
    noise = b"".join(chance.choice((chance.randbytes(8), bytes(8))) for _ in range(100_000))
    found = killed.read(killed.data[: killed.offsets[5]] + noise + killed.data[killed.offsets[5] :])
    assert found.points == killed.whole.points
    assert found.skipped == 1


def rotated(root: Path) -> JournalWriter:
    """A closed journal of several segments, one value after the other."""
    writer = JournalWriter(root, origin(), segment_bytes=SMALL)
    loss = writer.series("loss")
    for i in range(80_000):
        writer.point(loss, float(i))
    writer.close()
    assert len(list(writer.directory.glob("*.seg"))) == 4
    return writer


def test_damage_is_counted_exactly_once_the_next_segment_tells(tmp_path: Path) -> None:
    writer = rotated(tmp_path)
    path = writer.directory / segment_name(1)
    data = bytearray(path.read_bytes())
    offsets = record_offsets(bytes(data))
    data[offsets[100] : offsets[150]] = b"\x55" * (offsets[150] - offsets[100])
    path.write_bytes(data)
    found = read_everything(writer.directory)
    assert len(found.values("loss")) == 80_000 - 50
    assert found.skipped == 50
    assert sum(body.get("records", 1) for body in found.bodies("journal_gap")) == 50


def test_a_segment_cut_short_is_counted(tmp_path: Path) -> None:
    writer = rotated(tmp_path)
    path = writer.directory / segment_name(1)
    data = path.read_bytes()
    offsets = record_offsets(data)
    path.write_bytes(data[: offsets[1000]])
    found = read_everything(writer.directory)
    assert found.skipped == len(offsets) - 1 - 1000
    assert len(found.values("loss")) + found.skipped == 80_000


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("version", "is damaged"),
        ("magic", "not a journal segment"),
        ("flipped", "is damaged"),
        ("index", "holds segment 9"),
        ("empty", "not a journal segment"),
    ],
)
def test_a_header_that_cannot_be_read(tmp_path: Path, damage: str, reason: str) -> None:
    writer = rotated(tmp_path)
    path = writer.directory / segment_name(1)
    data = bytearray(path.read_bytes())
    held = count_records(path)
    match damage:
        case "version":
            struct.pack_into("<H", data, 8, 3)
        case "magic":
            data[0] = 0
        case "flipped":
            data[17] ^= 4
        case "index":
            struct.pack_into("<I", data, 12, 9)
        case "empty":
            data = bytearray()
    if damage == "index":
        struct.pack_into("<I", data, 48, zlib.crc32(data[:48]))
    path.write_bytes(data)

    if damage != "index":
        with pytest.raises(SegmentError, match=reason):
            Header.unpack(bytes(data), path)
    found = read_everything(writer.directory)
    assert len(found.values("loss")) == 80_000 - held
    assert found.skipped == held
    assert reason in found.bodies("journal_gap")[0]["reason"]


def test_a_journal_of_a_later_version_stays_for_those_who_can_read_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = rotated(tmp_path)
    for path in writer.directory.glob("*.seg"):
        data = bytearray(path.read_bytes())
        struct.pack_into("<H", data, 8, VERSION + 1)
        struct.pack_into("<I", data, 48, zlib.crc32(data[:48]))
        path.write_bytes(data)
    reader = JournalReader(writer.directory)
    assert [reader.read(final=True), reader.read(final=True)] == [None, None]
    reader.close()
    assert reader.position == START
    (said,) = caplog.messages
    assert f"has journal version {VERSION + 1}; this Runwatch reads up to {VERSION}" in said


def test_a_damaged_first_header_leaves_the_origin_to_the_next_segment(tmp_path: Path) -> None:
    writer = rotated(tmp_path)
    (writer.directory / segment_name(0)).write_bytes(b"garbage")
    assert read_origin(writer.directory) == origin()


def test_a_damaged_only_header_is_reported_under_the_name(killed: Killed) -> None:
    data = bytearray(killed.data)
    data[20] ^= 1
    found = killed.read(bytes(data))
    assert found.points == []
    assert "is damaged" in found.bodies("journal_gap")[0]["reason"]
    named = read_origin(killed.directory)
    assert named is not None
    assert (named.journal, named.host, named.pid) == (origin().journal, "node", 7)
    assert named.start_ns == 0x6553F100 * 10**9


def test_a_damaged_origin_record_costs_only_itself(killed: Killed) -> None:
    data = bytearray(killed.data)
    data[HEADER_LENGTH + 20] ^= 1
    assert killed.read(bytes(data)).points == killed.whole.points


def test_a_name_that_says_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "strange"
    directory.mkdir()
    (directory / segment_name(0)).write_bytes(b"garbage")
    named = read_origin(directory)
    assert named is not None
    assert (named.journal, named.pid) == ("strange", 0)


def test_garbled_end_and_heartbeat_lose_nothing(tmp_path: Path) -> None:
    writer = rotated(tmp_path)
    path = writer.directory / segment_name(1)
    original = path.read_bytes()
    for end in (-1, 0, 130, 1 << 40):
        data = bytearray(original)
        struct.pack_into("<qq", data, 56, -(2**62), end)
        path.write_bytes(data)
        found = read_everything(writer.directory)
        assert len(found.values("loss")) == 80_000, end


def test_a_file_deleted_or_cut_under_the_reader(tmp_path: Path) -> None:
    writer = rotated(tmp_path)
    reader = JournalReader(writer.directory)
    found = Everything()
    first = reader.read(max_bytes=4000)
    assert first is not None
    found.add(first)
    with (writer.directory / segment_name(0)).open("r+b") as file:
        file.truncate(10)
    while (batch := reader.read(final=True)) is not None:
        found.add(batch)
    reader.close()
    assert found.skipped > 0
    assert len(found.values("loss")) + found.skipped == 80_000
    shutil.rmtree(writer.directory)
    assert reader.read(final=True) is None
