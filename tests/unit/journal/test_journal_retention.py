from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from runwatch.journal import retention
from runwatch.journal.reader import JournalReader, count_records, read_origin
from runwatch.journal.retention import SILENT_SECONDS, Memory, Report, enforce
from runwatch.journal.segment import Header, segment_indexes, segment_name
from runwatch.journal.stored import STORED
from runwatch.journal.writer import JournalWriter
from runwatch.record import JournalId, Origin, Position, position
from runwatch.testing import FakeClock
from tests.unit.journal.journal_help import (
    SECOND,
    SMALL,
    origin,
    read_everything,
)

KEEP = 3600.0
PLENTY = 1 << 40
NOW = 1_700_000_000


def dead(_: Origin) -> bool | None:
    return False


def fill(writer: JournalWriter, series: int, index: int) -> None:
    """Numbers, until segment `index` is begun."""
    # The directory is not asked after each: a million such questions took longer than all else.
    while writer.records == 0 or (segment := writer._segment) is None or segment.index < index:
        writer.point(series, float(writer.records))
    assert segment_indexes(writer.directory)[-1] == index


class Directory:
    """A Runwatch directory with journals of known size and age."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock(NOW * SECOND)
        self.memory = Memory()

    def journal(self, name: str, *, segments: int, hours_old: float = 2.0) -> JournalId:
        """Segment i was last written `hours_old` hours ago, plus i seconds; the last is partial."""
        writer = JournalWriter(self.root, origin(name), segment_bytes=SMALL)
        loss = writer.series("loss")
        fill(writer, loss, segments - 1)
        for _ in range(100):
            writer.point(loss, float(writer.records))
        writer.close()
        for index in range(segments):
            written = NOW - hours_old * 3600 + index
            os.utime(writer.directory / segment_name(index), (written, written))
        os.utime(writer.directory, (NOW - hours_old * 3600,) * 2)
        return JournalId(name)

    def path(self, name: str) -> Path:
        return self.root / "journals" / name

    def left(self, name: str) -> list[int]:
        return segment_indexes(self.path(name))

    def size(self, pattern: str = "*") -> int:
        return sum(p.stat().st_size for p in self.root.rglob(pattern) if p.is_file())

    def end(self, name: str) -> Position:
        reader = JournalReader(self.path(name))
        while reader.read(final=True) is not None:
            pass
        reader.close()
        return reader.position

    def tidy(
        self,
        acknowledged: Mapping[JournalId, Position] | None = None,
        *,
        live: Collection[JournalId] = (),
        budget: int = PLENTY,
    ) -> Report:
        before = self.size() - self.size(STORED)
        report = enforce(
            self.root,
            acknowledged=acknowledged or {},
            live=live,
            budget_bytes=budget,
            keep_acknowledged_seconds=KEEP,
            clock=self.clock,
            alive=dead,
            memory=self.memory,
        )
        assert report.bytes_left == self.size()
        assert report.bytes_freed == before - self.size() + self.size(STORED)
        return report


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def test_nothing_to_do(directory: Directory, tmp_path: Path) -> None:
    assert Directory(tmp_path / "none").tidy() == Report()
    directory.journal("a", segments=3)
    report = directory.tidy()  # no head: nothing is acknowledged, and there is room
    assert directory.left("a") == [0, 1, 2]
    assert (report.segments, report.records_dropped) == (0, 0)


def test_stored_segments_go_after_a_while(directory: Directory) -> None:
    old = directory.journal("old", segments=4)
    new = directory.journal("new", segments=4, hours_old=0.5)
    reached = position(2, 500)
    report = directory.tidy({old: reached, new: reached}, live=[old, new])
    assert directory.left("old") == [2, 3]
    assert directory.left("new") == [0, 1, 2, 3]
    assert (report.segments, report.records_dropped, report.journals) == (2, 0, 0)


def test_a_dead_journal_goes_when_it_is_stored_to_its_end(directory: Directory) -> None:
    whole = directory.journal("whole", segments=2)
    recent = directory.journal("recent", segments=2, hours_old=0.5)
    partly = directory.journal("partly", segments=2)
    (directory.path("whole") / "ended.json").write_text("{}")
    os.utime(directory.path("whole"), (NOW - 7200,) * 2)
    report = directory.tidy(
        {
            whole: directory.end("whole"),
            recent: directory.end("recent"),
            partly: position(1, 1000),
        }
    )
    assert not directory.path("whole").exists()
    assert directory.left("recent") == [0, 1]
    assert directory.left("partly") == [1]
    assert (report.journals, report.segments, report.records_dropped) == (1, 3, 0)


def test_a_killed_writers_torn_tail_does_not_keep_its_journal(directory: Directory) -> None:
    name = directory.journal("torn", segments=1)
    end = directory.end("torn")
    path = directory.path("torn") / segment_name(0)
    data = bytearray(path.read_bytes())
    data[64:72] = bytes(8)  # no end: it was killed
    path.write_bytes(data + b"\x11\x22\x33\x44\x05\x00\x01\x00" + bytes(64))
    os.utime(path, (NOW - 7200,) * 2)
    directory.tidy({name: position(0, len(data))})
    assert end == position(1, 0)
    assert not directory.path("torn").exists()


def test_over_budget_stored_segments_go_whatever_their_age(directory: Directory) -> None:
    first = directory.journal("first", segments=3, hours_old=0.9)
    second = directory.journal("second", segments=3, hours_old=0.5)
    reached = {first: position(2, 200), second: position(2, 200)}
    budget = directory.size() - SMALL + 100  # what writers are told takes a little, too
    report = directory.tidy(reached, live=[first, second], budget=budget)
    assert directory.left("first") == [1, 2]  # one was enough, and the oldest
    assert directory.left("second") == [0, 1, 2]
    assert (report.segments, report.records_dropped) == (1, 0)
    # All that is stored, and still not enough: a live journal loses nothing else.
    report = directory.tidy(reached, live=[first, second], budget=0)
    assert directory.left("first") == directory.left("second") == [2]
    assert report.records_dropped == 0
    assert report.bytes_left > 0


def test_over_budget_the_dead_lose_what_nobody_saw_and_it_is_counted(directory: Directory) -> None:
    directory.journal("older", segments=3, hours_old=9)
    newer = directory.journal("newer", segments=3, hours_old=5)
    live = directory.journal("live", segments=2, hours_old=20)
    counts = [count_records(directory.path("older") / segment_name(i)) for i in range(3)]

    report = directory.tidy(live=[live], budget=directory.size() - SMALL)
    assert directory.left("older") == [1, 2]
    assert report.records_dropped == counts[0]
    found = read_everything(directory.path("older"))
    assert found.skipped == counts[0]  # its reader comes to the same number

    report = directory.tidy(live=[live], budget=directory.size() - SMALL - 1)
    assert not directory.path("older").exists()  # with its last segment the journal goes
    assert report.records_dropped == counts[1] + counts[2]
    assert directory.left("newer") == [0, 1, 2]

    reader = JournalReader(directory.path("newer"), start=position(1, 0))
    seen = reader.read(max_bytes=1000)
    reader.close()
    assert seen is not None
    report = directory.tidy({newer: seen.end}, live=[live], budget=0)
    assert not directory.path("newer").exists()
    assert 0 < len(seen.points) < 30
    assert report.records_dropped == counts[1] + counts[2] - len(seen.points)
    assert directory.left("live") == [0, 1]


def test_segments_made_ready_by_the_dead_are_removed(directory: Directory) -> None:
    gone = directory.journal("gone", segments=1, hours_old=0.1)
    live = directory.journal("live", segments=1, hours_old=0.1)
    for name in (gone, live):
        (directory.path(name) / "next.tmp").write_bytes(bytes(5000))
        (directory.path(name) / "turn.tmp").write_bytes(bytes(5000))
    report = directory.tidy(live=[live])
    assert report.bytes_freed == 10_000
    assert [p.name for p in directory.path("gone").iterdir()] == [segment_name(0)]
    assert len(list(directory.path("live").iterdir())) == 3


def test_a_live_writer_is_not_hurt(tmp_path: Path) -> None:
    """The newest segment of a running process stays, whatever the budget and the caller say."""
    here = Origin(JournalId("here"), os.uname().nodename, os.getpid(), 0)
    writer = JournalWriter(tmp_path, here, segment_bytes=SMALL)
    loss = writer.series("loss")
    for i in range(60_000):
        writer.point(loss, float(i))
    last = segment_indexes(writer.directory)[-1]
    report = enforce(
        tmp_path,
        acknowledged={here.journal: position(last, 0)},
        live=(),  # it began after the caller looked
        budget_bytes=0,
        keep_acknowledged_seconds=0,
    )
    assert segment_indexes(writer.directory) == [last]
    assert report.records_dropped == 0
    for i in range(60_000, 120_000):
        writer.point(loss, float(i))
    writer.close()
    values = read_everything(writer.directory, start=position(last, 0)).values("loss")
    assert values[-60_000:] == [float(i) for i in range(60_000, 120_000)]
    assert writer.lost_records == writer.dropped_records == 0


@pytest.mark.parametrize("stored", [0, 1, 3, 99])
def test_a_live_writer_drops_without_a_word_what_a_head_has(tmp_path: Path, stored: int) -> None:
    """Stored segments are kept for an hour, and its own budget may be full before."""
    here = Origin(JournalId("here"), os.uname().nodename, os.getpid(), 0)
    writer = JournalWriter(tmp_path, here, segment_bytes=SMALL, budget_bytes=4 * SMALL)
    loss, before = writer.series("loss"), [0]
    for index in range(1, 9):
        fill(writer, loss, index)
        before.append(header_of(writer.directory, index).records_before)
        reached = position(min(index, stored), 0)
        enforce(
            tmp_path,
            acknowledged={here.journal: reached} if stored else {},
            live={here.journal},
            budget_bytes=PLENTY,
            keep_acknowledged_seconds=KEEP,
        )
        writer.keep()
    [first, *_] = segment_indexes(writer.directory)
    writer.close()
    assert 3 < first < 8
    assert writer.dropped_records == before[first] - before[min(first, stored)]
    told = read_everything(writer.directory).bodies("journal_loss")
    assert [body["dropped_records"] for body in told[-1:]] == [writer.dropped_records] * (
        stored < 9
    )


def header_of(directory: Path, index: int) -> Header:
    return Header.unpack((directory / segment_name(index)).read_bytes(), directory)


def test_the_long_dead_are_looked_at_once(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def look(path: Path) -> Origin | None:
        looked.append(path.name)
        return read_origin(path)

    monkeypatch.setattr(retention, "read_origin", look)
    names = [directory.journal(f"dead-{i}", segments=2, hours_old=0.5) for i in range(3)]
    live = directory.journal("live", segments=2, hours_old=0.5)
    directory.tidy(live=[live])
    assert looked == [*names, live]
    directory.tidy(live=[live])
    assert looked[4:] == [live]
    (directory.path("dead-1") / "dump").write_bytes(bytes(1000))
    directory.tidy(live=[live])  # which checks what they all take
    assert looked[5:] == ["dead-1", live]
    # What is known of them serves as well as a new look: first the stored ones go, then the oldest.
    report = directory.tidy({names[2]: directory.end("dead-2")}, live=[live], budget=0)
    assert looked[7:] == [live] and report.journals == 3 and report.records_dropped > 0
    assert not any(directory.path(name).exists() for name in names)
    directory.journal("dead-1", segments=1)
    directory.tidy(live=[live])
    assert looked[8:] == ["dead-1", live]


def test_who_cannot_be_asked_is_dead_after_a_day_of_silence(directory: Directory) -> None:
    directory.journal("elsewhere", segments=2, hours_old=1)

    def tidy() -> None:
        enforce(
            directory.root,
            acknowledged={},
            live=(),
            budget_bytes=0,
            keep_acknowledged_seconds=KEEP,
            clock=directory.clock,
            alive=lambda _: None,
        )

    # Its heart beat, as the segments' headers have it, in the real time of this test.
    header_time = JournalWriter(directory.root / "x", origin("x"), segment_bytes=SMALL)
    directory.clock.wall = header_time._wall_ns
    header_time.close()
    tidy()
    assert directory.left("elsewhere") == [0, 1]
    directory.clock.advance(SILENT_SECONDS + 60)
    tidy()
    assert not directory.path("elsewhere").exists()


def test_an_empty_directory_goes_when_old(directory: Directory) -> None:
    directory.path("empty").mkdir(parents=True)
    directory.path("new").mkdir()
    os.utime(directory.path("empty"), (NOW - 7200,) * 2)
    os.utime(directory.path("new"), (NOW, NOW))
    assert directory.tidy().journals == 1
    assert [p.name for p in (directory.root / "journals").iterdir()] == ["new"]
