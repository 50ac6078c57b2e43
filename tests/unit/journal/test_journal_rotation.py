"""Many segments: going on, dropping the oldest, what the writer says about it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwatch.journal.file_system import is_network_file_system
from runwatch.journal.reader import JournalReader, count_records
from runwatch.journal.segment import (
    HEADER_LENGTH,
    Header,
    journal_directories,
    segment_indexes,
    segment_name,
)
from runwatch.journal.writer import JournalWriter
from runwatch.testing import FakeClock, until
from tests.unit.journal.journal_help import (
    SMALL,
    Everything,
    origin,
    read_everything,
    start_script,
)

PER_SEGMENT = SMALL // 40  # a little less, in truth


def fill(writer: JournalWriter, count: int, start: int = 0) -> None:
    loss = writer.series("loss")
    for i in range(start, start + count):
        writer.point(loss, float(i))


def header(path: Path) -> Header:
    return Header.unpack(path.read_bytes()[:HEADER_LENGTH], path)


def test_headers_count_the_records_before_them(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL)
    for i in range(5):
        writer.series(f"metric {i}")
        fill(writer, PER_SEGMENT, i * PER_SEGMENT)
    writer.close()
    paths = [writer.directory / segment_name(i) for i in segment_indexes(writer.directory)]
    counts = [count_records(path) for path in paths]
    before = [header(path).records_before for path in paths]
    assert before == [sum(counts[:i]) for i in range(len(counts))]
    assert sum(counts) == writer.records == 5 * PER_SEGMENT


@pytest.mark.parametrize("mapped", [True, False])
def test_a_definition_without_room_is_in_the_next_segment(mapped: bool, tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL, mapped=mapped)
    loss = writer.series("loss")
    while writer._offset + 80 <= SMALL:
        writer.point(loss, 0.0)
    writer.point(writer.series("a series whose definition is longer than what is left"), 1.0)
    writer.point(loss, 2.0)
    writer.close()
    assert writer.lost_records == 0
    found = read_everything(writer.directory)
    assert found.values("a series whose definition is longer than what is left") == [1.0]
    assert found.values("loss")[-1] == 2.0 and not found.skipped


def test_a_journal_is_continued_by_another_writer(tmp_path: Path) -> None:
    """As imports do: what is missing in between is still seen."""
    first = JournalWriter(tmp_path, origin())
    fill(first, 10)
    first.close()
    second = JournalWriter(tmp_path, origin(), first_segment=1, records_before=first.records)
    fill(second, 5, 10)
    second.close()
    whole = read_everything(first.directory)
    assert whole.values("loss") == [float(i) for i in range(15)] and not whole.skipped
    (first.directory / segment_name(0)).unlink()
    rest = read_everything(first.directory)
    assert rest.values("loss") == [float(i) for i in range(10, 15)] and rest.skipped == 10


def test_any_later_segment_can_be_read_alone(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL)
    fill(writer, 3 * PER_SEGMENT)
    writer.close()
    indexes = segment_indexes(writer.directory)
    for index in indexes[:-1]:
        (writer.directory / segment_name(index)).unlink()
        found = read_everything(writer.directory)
        kept = found.values("loss")
        assert kept == [float(i) for i in range(3 * PER_SEGMENT - len(kept), 3 * PER_SEGMENT)]
        assert found.skipped == 3 * PER_SEGMENT - len(kept)
        (gap,) = found.bodies("journal_gap")
        assert gap == {"reason": "dropped", "up_to_segment": index + 1, "records": found.skipped}


def test_closing_gives_back_what_was_not_used(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL)
    fill(writer, 10)
    writer.close()
    (path,) = writer.directory.iterdir()
    assert path.stat().st_size == header(path).end < 2000
    writer.close()  # a second time does nothing
    fill(writer, 3)
    assert writer.lost_records == 3


def test_the_directory_is_private(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    writer = JournalWriter(root, origin(), segment_bytes=SMALL)
    writer.close()
    for path in (root, root / "journals", writer.directory):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((writer.directory / segment_name(0)).stat().st_mode) == 0o600
    assert journal_directories(root) == [writer.directory]


def test_a_place_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "journals").write_text("a file, not a folder")
    with pytest.raises(OSError):
        JournalWriter(tmp_path, origin(), segment_bytes=SMALL)


def test_beyond_the_budget_the_oldest_goes_and_is_counted(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL, budget_bytes=4 * SMALL)
    total = 12 * PER_SEGMENT
    for start in range(0, total, PER_SEGMENT):
        fill(writer, PER_SEGMENT, start)
        writer.keep()
        size = sum(p.stat().st_size for p in writer.directory.iterdir())
        assert size <= 4 * SMALL + SMALL  # a segment may have been begun since
    writer.keep()
    writer.close()
    found = read_everything(writer.directory)
    kept = found.values("loss")
    assert kept == [float(i) for i in range(total - len(kept), total)]
    assert writer.dropped_records == found.skipped > 5 * PER_SEGMENT
    told = found.kinds().count("journal_loss")  # some of these were dropped, too
    assert len(kept) + told + writer.dropped_records == writer.records
    assert writer.lost_records == 0
    assert found.bodies("journal_loss")[-1] == {
        "dropped_records": writer.dropped_records,
        "lost_records": 0,
    }


@pytest.mark.parametrize("part", [0.25, 0.5, 1.0])
def test_only_what_no_head_had_is_a_loss(tmp_path: Path, part: float) -> None:
    """One that was sent back to a place that has gone knows how much is missing from there."""
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL, budget_bytes=4 * SMALL)
    reader, had = JournalReader(writer.directory), Everything()
    fill(writer, PER_SEGMENT + int(part * PER_SEGMENT))
    while (batch := reader.read(max_bytes=SMALL // 8)) is not None:
        had.add(batch)
        if reader.position >> 32 == 1:
            writer.acknowledged = reader.position
            stored = len(had.values("loss"))
    assert stored >= PER_SEGMENT
    for _ in range(8):
        fill(writer, PER_SEGMENT)
        writer.keep()
    writer.close()
    reader.seek(writer.acknowledged)
    later = Everything(names=had.names)
    while (batch := reader.read()) is not None:
        later.add(batch)
    reader.close()
    left = len(later.values("loss")) + later.kinds().count("journal_loss")
    assert later.skipped == writer.dropped_records == writer.records - stored - left > 0
    [gap] = later.bodies("journal_gap")
    assert (gap["reason"], gap["records"]) == ("dropped", writer.dropped_records)


def test_a_segment_that_its_reader_removed_is_not_a_loss(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL, budget_bytes=4 * SMALL)
    reader = JournalReader(writer.directory)
    found = Everything()
    for start in range(0, 12 * PER_SEGMENT, PER_SEGMENT // 2):
        fill(writer, PER_SEGMENT // 2, start)
        while (batch := reader.read()) is not None:
            found.add(batch)
        for index in segment_indexes(writer.directory):
            if index < reader.position >> 32:
                (writer.directory / segment_name(index)).unlink(missing_ok=True)
        writer.keep()
    writer.close()
    while (batch := reader.read()) is not None:
        found.add(batch)
    reader.close()
    assert found.values("loss") == [float(i) for i in range(12 * PER_SEGMENT)]
    assert found.skipped == writer.dropped_records == 0
    assert "journal_loss" not in found.kinds()


def test_a_live_reader_that_falls_behind_hears_how_much_it_missed(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL, budget_bytes=4 * SMALL)
    reader = JournalReader(writer.directory)
    found = Everything()
    fill(writer, 100)
    first = reader.read()
    assert first is not None
    found.add(first)
    for start in range(100, 8 * PER_SEGMENT + 100, PER_SEGMENT):
        fill(writer, PER_SEGMENT, start)
        writer.keep()
    # One reader is still in the first segment; the other was started anew at the same place.
    resumed = read_everything(writer.directory, start=first.end, names=found.names)
    while (batch := reader.read()) is not None:
        found.add(batch)
    reader.close()
    writer.close()
    assert found.skipped > 0
    told = found.kinds().count("journal_loss")
    assert len(found.values("loss")) + told + found.skipped == writer.records
    assert resumed.skipped >= 1  # how many of its first segment it had seen is not known
    assert resumed.bodies("journal_gap")[0]["reason"] == "dropped"


def _removed(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def test_unlinked_segments_and_a_removed_directory_do_not_hurt_the_writer(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL)
    fill(writer, 10)
    for index in segment_indexes(writer.directory):
        (writer.directory / segment_name(index)).unlink()
    fill(writer, 2 * PER_SEGMENT, 10)
    until(lambda: _removed(writer.directory))  # while the keeper makes the next segment there
    fill(writer, 2 * PER_SEGMENT, 2 * PER_SEGMENT + 10)  # what cannot be kept is counted
    writer.keep()
    writer.keep()
    fill(writer, 2 * PER_SEGMENT, 4 * PER_SEGMENT + 10)
    writer.close()
    found = read_everything(writer.directory)
    kept = found.values("loss")
    assert len(kept) >= PER_SEGMENT
    assert kept == [float(i) for i in range(6 * PER_SEGMENT + 10 - len(kept), 6 * PER_SEGMENT + 10)]


def test_a_clock_that_jumps_is_recorded_and_reorders_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL, clock=clock)
    loss = writer.series("loss")
    for jump in (3600, -7200, 0.5, 3600):
        writer.point(loss, 1.0)
        clock.wall += int(jump * 1e9)
        clock.advance(1.0)
        writer.keep()
    writer.point(loss, 1.0)
    writer.close()
    found = read_everything(writer.directory)
    seconds = [body["seconds"] for body in found.bodies("clock_jump")]
    assert seconds == [3600.0, -7200.0, 3600.5]  # half a second is not a jump, but adds up
    times = [time_ns for _, _, _, time_ns in found.points]
    assert times == sorted(times)
    assert times[-1] - times[0] == 4 * 10**9


def test_the_heart_beats(tmp_path: Path) -> None:
    clock = FakeClock()
    writer = JournalWriter(tmp_path, origin(), segment_bytes=SMALL, clock=clock)
    clock.advance(30)
    writer.keep()
    reader = JournalReader(writer.directory, clock=clock)
    while reader.read() is not None:
        pass
    assert reader.heartbeat_ns == clock.wall
    reader.close()
    writer.close()


def test_keeper_tells_its_owner(tmp_path: Path) -> None:
    rounds: list[int] = []
    writer = JournalWriter(
        tmp_path, origin(), segment_bytes=SMALL, on_keep=lambda: rounds.append(1)
    )
    fill(writer, 3 * PER_SEGMENT)
    until(lambda: rounds, what="a round of the keeper's")
    writer.close()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/run", True),
        ("/data/local/run", False),
        ("/database", False),
        ("/home/me", False),
        ("/with space/x", True),
        ("/fuse/bucket", True),
    ],
)
def test_network_file_systems_are_known(tmp_path: Path, path: str, expected: bool) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/vda / ext4 rw 0 0\nserver:/x /data nfs4 rw 0 0\n/dev/vdb /data/local xfs rw 0 0\n"
        "server:/y /with\\040space lustre rw 0 0\nbucket /fuse/bucket fuse.gcsfuse rw 0 0\nodd\n"
    )
    assert is_network_file_system(Path(path), mounts) is expected


def test_without_mounts_it_is_local(tmp_path: Path) -> None:
    assert is_network_file_system(tmp_path, tmp_path / "none") is False


# ── a full disk ───────────────────────────────────────────────────────────────────────────────

FULL_DISK = """
import json, os, sys
from pathlib import Path
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin

events = 0

class Counting(JournalWriter):
    __slots__ = ()
    def event(self, *arguments, **named):
        global events
        events += 1
        super().event(*arguments, **named)

root = Path(sys.argv[1])
origin = Origin(JournalId("6553f100-node-7-a1"), "node", 7, 0)
writer = Counting(root, origin, segment_bytes=1 << 20)
loss = writer.series("loss")
writer.keep()
said = 0

def say(count):
    global said
    for _ in range(count):
        writer.point(loss, float(said))
        said += 1

def fill_the_disk():
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass

say(1000)
filler = (root / "filler").open("wb", buffering=0)
while writer.lost_records < 50_000 and said < 5_000_000:
    fill_the_disk()              # takes what the writer gives up, too
    say(10_000)
filler.close()
os.unlink(root / "filler")
writer.keep()
writer.keep()
say(30_000)
writer.keep()
writer.close()
told = dict(said=said, events=events, records=writer.records)
print(json.dumps(told | dict(lost=writer.lost_records, dropped=writer.dropped_records)))
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small file system can be mounted only by root with CAP_SYS_ADMIN")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_kills_nothing_and_every_loss_is_counted(
    small_disk: Path, tmp_path: Path
) -> None:
    script = tmp_path / "full.py"
    script.write_text(FULL_DISK)
    process = start_script(script, small_disk, stdout=subprocess.PIPE)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0  # no SIGBUS
    told = json.loads(output)
    assert told["lost"] >= 50_000
    found = read_everything(small_disk / "journals" / origin().journal)
    kept = found.values("loss")
    assert kept == sorted(set(kept))
    assert told["records"] + told["lost"] == told["said"] + told["events"]
    assert len(kept) + len(found.bodies("journal_loss")) + told["dropped"] == told["records"]
    assert kept[-30_000:] == [float(i) for i in range(told["said"] - 30_000, told["said"])]
    assert found.bodies("journal_loss")[-1] == {
        "dropped_records": told["dropped"],
        "lost_records": told["lost"],
    }
