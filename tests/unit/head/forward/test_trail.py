"""Records of chosen runs, each once, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from runwatch.head.forward.cursor import CursorFile
from runwatch.head.forward.trail import Told, Trail
from runwatch.record import Batch, Definition, Event, RunId, RunScope, Series
from runwatch.rows import ProcessRow
from runwatch.store.engines import USUAL, open_store
from runwatch.store.store import Store, Wanted
from runwatch.testing import EPOCH, SECOND, BatchWriter, FakeClock, origin

WANTED = Wanted(metric=lambda metric: metric == "wanted", kinds=("note",))
SCOPE = RunScope(1, RunId("run-a"), "name of run-a")
SERIES = Series(1, "wanted", scope=1)


@dataclass
class World:
    """A store, and a trail through it that can be lost and found again."""

    store: Store
    file: Path
    clock: FakeClock = field(default_factory=lambda: FakeClock(EPOCH + 3600 * SECOND))
    names: tuple[str, ...] = ("name of run-a",)
    backfill_seconds: float = 86_400.0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """As a head that begins."""
        self.trail = Trail(
            self.store,
            CursorFile(self.file),
            WANTED,
            self.is_chosen,
            backfill_seconds=self.backfill_seconds,
            clock=self.clock,
        )

    def is_chosen(self, row: ProcessRow) -> bool:
        return row.run_name in self.names

    def keep(self, *batches: Batch) -> None:
        self.store.write(batches)
        self.trail.stored(batches)

    def sent(self, most: int = 100) -> list[float]:
        """Everything that there is to send, sent."""
        values = []
        while told := self.trail.take(most):
            values += [value_of(each) for each in told]
            self.trail.sent(told)
        return values


def value_of(told: Told) -> float:
    return told.value if told.event is None else float(told.event.body["value"])


def note(seconds: float, value: float) -> Event:
    return Event(EPOCH + int(seconds * SECOND), "note", {"value": value}, scope=1)


def at(seconds: float, value: float) -> tuple[int, int, int | None, float]:
    return 1, EPOCH + int(seconds * SECOND), None, value


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    store = open_store(USUAL, None)
    try:
        yield World(store, tmp_path / "cursors" / "trail.json")
    finally:
        store.close()


def writer(name: str = "journal-a") -> BatchWriter:
    return BatchWriter(origin(name), [SCOPE, SERIES, Series(2, "other", scope=1)])


def test_events_and_points_come_once_in_order_of_time(world: World) -> None:
    mine = writer()
    world.keep(mine.batch([at(1, 1.0), at(3, 3.0)], events=[note(2, 2.0), note(4, 4.0)]))
    assert world.sent() == [1.0, 2.0, 3.0, 4.0]
    assert world.sent() == []
    world.keep(mine.batch([at(5, 5.0)]))
    assert world.sent() == [5.0]


def test_what_was_not_sent_comes_again_and_so_does_the_rest_of_a_part(world: World) -> None:
    world.keep(writer().batch([at(n, float(n)) for n in range(6)]))
    first = world.trail.take(4)
    assert [value_of(each) for each in first] == [0.0, 1.0, 2.0, 3.0]
    assert world.trail.take(4) == first
    world.trail.sent(first[:1])
    assert world.trail.waiting() == 5
    assert world.sent(2) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert world.trail.waiting() == 0


def test_a_part_of_the_last_ones_is_not_all_of_them(world: World) -> None:
    world.keep(writer().batch([at(n, float(n)) for n in range(6)]))
    all_of_them = world.trail.take(100)
    world.trail.sent(all_of_them[:2])
    assert world.sent() == [2.0, 3.0, 4.0, 5.0]


def test_many_records_of_one_instant_are_all_sent(world: World) -> None:
    world.keep(writer().batch([at(1, float(n)) for n in range(20)]))
    assert sorted(world.sent(3)) == [float(n) for n in range(20)]


def test_records_that_come_late_are_not_missed(world: World) -> None:
    mine, other = writer(), writer("journal-b")
    world.keep(mine.batch([at(100, 1.0)]))
    assert world.sent() == [1.0]
    world.keep(other.batch([at(50, 2.0)]))  # of another process, whose agent was away
    assert world.sent() == [2.0]
    world.keep(mine.batch([at(20, 3.0)]))  # of another thread, that was held up
    sent = world.sent()
    assert sent[0] == 3.0 and set(sent) <= {3.0, 1.0}  # the service knows the other by its id


def test_a_new_head_goes_on_where_the_last_one_was(world: World) -> None:
    mine = writer()
    world.keep(mine.batch([at(1, 1.0), at(100, 2.0)]))
    assert world.sent() == [1.0, 2.0]
    world.trail.counts["sent"] = 2
    world.trail.save(now=True)
    world.store.write([mine.batch([at(101, 3.0)])])  # nobody tells the trail
    world.start()
    assert world.trail.counts == {"sent": 2}
    assert world.sent() in ([3.0], [2.0, 3.0])
    world.trail.save(now=True)
    world.start()
    assert world.sent() == []


def test_a_kill_before_the_cursor_is_written_repeats_the_same_ids(world: World) -> None:
    world.keep(writer().batch([at(n, float(n)) for n in range(5)], events=[note(9, 9.0)]))
    world.trail.save(now=True)
    first = world.trail.take(100)
    world.trail.sent(first[:3])
    world.start()  # as if the last cursor had not been written
    again = world.trail.take(100)
    assert {each.id for each in first} == {each.id for each in again}
    assert len({each.id for each in again}) == 6


def test_a_late_record_is_not_forgotten_by_a_kill(world: World) -> None:
    mine = writer()
    world.keep(mine.batch([at(1000, 1.0)]))
    assert world.sent() == [1.0]
    world.keep(mine.batch([at(20, 2.0)]))
    world.trail.save(now=True)  # heard of, and not sent
    world.start()
    assert 2.0 in world.sent()


def test_runs_that_are_not_chosen_and_other_metrics_stay_here(world: World) -> None:
    other: list[Definition] = [RunScope(1, RunId("run-b"), "another"), SERIES]
    world.keep(
        BatchWriter(origin("journal-b"), other).batch([at(1, 1.0)], events=[note(1, 2.0)]),
        writer().batch([(2, EPOCH + SECOND, None, 3.0)], events=[Event(EPOCH, "log", {}, scope=1)]),
    )
    assert world.sent() == []
    world.start()
    assert world.sent() == []


def test_a_series_that_is_defined_later_is_noticed(world: World) -> None:
    mine = BatchWriter(definitions=[SCOPE, Series(2, "other", scope=1)])
    world.keep(mine.batch([(2, EPOCH + SECOND, None, 1.0)]))
    assert world.sent() == []
    mine.definitions = [SERIES]
    world.keep(mine.batch([at(2, 2.0)]))
    assert world.sent() == [2.0]


def test_only_so_much_of_the_past_is_sent_at_the_first_start(world: World) -> None:
    world.backfill_seconds = 600.0
    world.store.write([writer().batch([at(10, 1.0), at(3590, 2.0)])])
    world.file.unlink(missing_ok=True)
    world.start()
    assert world.sent() == [2.0]
    world.clock.advance(86_400)
    world.trail.save(now=True)
    world.start()  # the first start counts, not this one
    world.keep(writer("journal-c").batch([at(3595, 3.0)]))
    assert world.sent() == [3.0]


@pytest.mark.parametrize("text", ["", "{", '{"version": 99}', "[1]"])
def test_a_cursor_that_cannot_be_read_begins_anew(
    world: World, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.keep(writer().batch([at(1, 1.0)]))
    assert world.sent() == [1.0]
    world.file.write_text(text)
    world.start()
    assert world.sent() == [1.0]
    assert "is begun anew" in caplog.text


@pytest.mark.parametrize(
    "more", ['"marks": 7', '"marks": {"run-a": {"journal-a": ["x"]}}', '"late": [], "counts": 0']
)
def test_a_cursor_with_odd_fields_is_read_as_far_as_it_goes(world: World, more: str) -> None:
    world.keep(writer().batch([at(1, 1.0)]))
    world.file.parent.mkdir(exist_ok=True)
    world.file.write_text(f'{{"version": 1, "floor_ns": "x", {more}}}')
    world.start()
    assert world.sent() == [1.0]


def test_the_cursor_is_not_written_while_nothing_happens(world: World) -> None:
    world.keep(writer().batch([at(1, 1.0)]))
    assert world.sent() == [1.0]
    world.clock.advance(5)
    world.trail.take(1)
    written = world.file.stat().st_mtime_ns, world.file.stat().st_ino
    for _ in range(3):
        world.clock.advance(5)
        assert world.trail.take(1) == []
    assert (world.file.stat().st_mtime_ns, world.file.stat().st_ino) == written


def test_a_deleted_run_is_not_sent_any_more(world: World) -> None:
    world.keep(writer().batch([at(1, 1.0)]))
    now_ns = world.clock.wall_ns()
    world.store.delete(RunId("run-a"), at_ns=now_ns, purge_ns=now_ns + SECOND)
    assert world.sent() == []


def test_marks_of_forgotten_runs_are_not_kept_for_ever(world: World) -> None:
    world.keep(writer().batch([at(1, 1.0)]))
    assert world.sent() == [1.0]
    world.trail.save(now=True)
    assert "run-a" in json.loads(world.file.read_text())["marks"]
    world.clock.advance(40 * 86_400)
    world.start()
    world.trail.save(now=True)
    assert json.loads(world.file.read_text())["marks"] == {}
