"""What every engine must do, asked through the Protocol alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runwatch.buckets import Axis
from runwatch.clock import system_clock
from runwatch.errors import UsageError
from runwatch.record import (
    BEGIN,
    END,
    NO_STEP,
    Batch,
    Event,
    JournalId,
    Position,
    RunId,
    RunScope,
    Series,
)
from runwatch.store.store import Retention, Store
from runwatch.testing import EPOCH, SECOND, BatchWriter, Point, definitions, origin, ramp
from tests.unit.store.batches import DAY, as_rows, reduced
from tests.unit.store.conftest import Engine

RUN = RunId("run-a")

few = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
    database=None,
)


def ids(store: Store) -> list[int]:
    return sorted(row.series for row in store.series())


def stored(store: Store) -> list[tuple[int, int, int | None, float]]:
    found: list[tuple[int, int, int | None, float]] = []
    for part in store.points(ids(store)):
        found += zip(part.series, part.time_ns, part.step, part.value, strict=True)
    return found


# ── exactly once ───────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_taken_once(store: Store) -> None:
    batch = BatchWriter().batch(ramp(5))
    first = store.write([batch])
    again = store.write([batch])
    assert [(v.accepted, v.position) for v in first + again] == [(True, 50), (False, 50)]
    assert [row[3] for row in stored(store)] == [0, 1, 2, 3, 4]


def test_a_gap_is_refused_and_told_where_to_send_from(store: Store) -> None:
    writer = BatchWriter()
    first, second, third = (writer.batch(ramp(2, first=2 * i)) for i in range(3))
    assert not store.write([second])[0].accepted
    assert store.cursor(writer.origin.journal) == 0
    store.write([first])
    verdict = store.write([third])[0]
    assert (verdict.accepted, verdict.position) == (False, first.end)
    assert len(stored(store)) == 2


def test_an_overlap_is_refused(store: Store) -> None:
    batch = BatchWriter().batch(ramp(4))
    store.write([batch])
    overlap = Batch(batch.origin, Position(10), Position(90), [], batch.points)
    verdict = store.write([overlap])[0]
    assert (verdict.accepted, verdict.position) == (False, 40)
    assert len(stored(store)) == 4


def test_a_chain_of_batches_in_one_call(store: Store) -> None:
    a, b = BatchWriter(), BatchWriter(origin("journal-b"))
    calls = [a.batch(ramp(2)), b.batch(ramp(3)), a.batch(ramp(2, first=2)), b.batch()]
    assert all(verdict.accepted for verdict in store.write(calls))
    assert len(stored(store)) == 7
    assert store.cursor(JournalId("journal-a")) == a.at
    assert store.cursor(JournalId("journal-b")) == b.at
    assert store.cursor(JournalId("never seen")) == 0


@few
@given(data=st.data())
def test_exactly_once_whatever_is_sent(engine: Engine, data: st.DataObject) -> None:
    """Reordered, repeated, overlapping, in calls of any size, with restarts between."""
    store = engine.fresh()
    writers = [BatchWriter(origin(f"journal-{i}"), definitions(series=1)) for i in range(2)]
    rows = [ramp(12, start=EPOCH + i * 1000) for i in range(2)]
    whole = [_cuts(writers[i], rows[i], data) for i in range(2)]
    pool = whole[0] + whole[1]
    for _ in range(data.draw(st.integers(0, 6))):
        call = data.draw(st.lists(st.sampled_from(pool), max_size=6))
        _check_verdicts(store, call)
        if data.draw(st.booleans()):
            store.compact(force=True)
        if engine.keeps and data.draw(st.integers(0, 3)) == 0:
            store = engine.reopen()
    for batches in whole:
        _send_all(store, batches)
    by_journal = {row.series: row.journal for row in store.series()}
    for i in range(2):
        mine = [row[1:] for row in stored(store) if by_journal[row[0]] == f"journal-{i}"]
        assert mine == [row[1:] for row in rows[i]]


def _cuts(writer: BatchWriter, rows: Sequence[Point], data: st.DataObject) -> list[Batch]:
    """All stretches [a, b) between drawn cut points, long ones included."""
    cuts = sorted(data.draw(st.sets(st.integers(1, len(rows) - 1), max_size=3)) | {0, len(rows)})
    made = []
    for a in cuts:
        for b in cuts:
            if a < b:
                writer.at = 10 * a
                made.append(writer.batch(rows[a:b]))
    return made


def _check_verdicts(store: Store, call: list[Batch]) -> None:
    cursors = {batch.origin.journal: store.cursor(batch.origin.journal) for batch in call}
    for batch, verdict in zip(call, store.write(call), strict=True):
        journal = batch.origin.journal
        taken = batch.start == cursors[journal] and batch.end > cursors[journal]
        cursors[journal] = batch.end if taken else cursors[journal]
        assert (verdict.accepted, verdict.position) == (taken, cursors[journal])


def _send_all(store: Store, batches: list[Batch]) -> None:
    end = max(batch.end for batch in batches)
    while (at := store.cursor(batches[0].origin.journal)) < end:
        store.write([next(batch for batch in batches if batch.start == at)])


# ── definitions ────────────────────────────────────────────────────────────────────────────────


def test_definitions_sent_again_change_nothing(engine: Engine) -> None:
    store = engine.fresh()
    writer = BatchWriter()
    for part in range(3):
        store.write([writer.batch(ramp(2, first=2 * part))])
        if engine.keeps:
            store = engine.reopen()
    assert len(store.series()) == 3
    assert len(store.processes()) == 1
    assert len(stored(store)) == 6


def test_series_and_processes_say_whose_they_are(store: Store) -> None:
    store.write([BatchWriter(definitions=definitions(rank=2)).batch(ramp(3))])
    agent = BatchWriter(
        origin("agent", host="host-b", pid=7),
        [
            RunScope(1, RUN, "name of run-a", rank=0),
            Series(1, "gpu_power_watts", 1, "W", "gpu0", {"rank": "5"}),
            Series(2, "load", 0),
        ],
    )
    store.write([agent.batch([(1, EPOCH, None, 1.0)])])
    power = store.series(RUN, metric="gpu_power_watts")[0]
    assert (power.rank, power.host, power.device, power.unit) == (5, "host-b", "gpu0", "W")
    assert power.labels == {"rank": "5"}
    assert [row.run for row in store.series(metric="load")] == [""]
    assert {row.rank for row in store.series(RUN, journal=JournalId("journal-a"))} == {2}
    assert len(store.series(journal=JournalId("agent"))) == 2
    assert store.series(RunId("no such run")) == []
    process = store.processes(RUN)[0]
    assert (process.rank, process.world_size, process.run_name) == (2, 4, "name of run-a")
    assert (process.pid, process.last_ns) == (100, EPOCH + 2 * SECOND)


def test_a_journal_without_a_run(store: Store) -> None:
    store.write([BatchWriter(definitions=[Series(1, "load")]).batch([(1, EPOCH, None, 0.5)])])
    assert [(row.run, row.role, row.last_ns) for row in store.processes()] == [
        ("", "process", EPOCH)
    ]


def test_a_point_of_an_undefined_series_is_not_lost(store: Store) -> None:
    writer = BatchWriter(definitions=definitions(series=1))
    rows = [(1, EPOCH, None, 1.0), (77, EPOCH + 1, None, 2.0), (4_000_000_000, EPOCH + 2, 1, 3.0)]
    store.write([writer.batch(rows)])
    unknown = store.series(metric="unknown")
    assert len(unknown) == 1
    assert unknown[0].journal == "journal-a"
    assert sorted(row[3] for row in stored(store)) == [1.0, 2.0, 3.0]


def test_a_changed_definition_starts_a_new_series(store: Store) -> None:
    writer = BatchWriter(definitions=[Series(1, "before")])
    store.write([writer.batch(ramp(1))])
    writer.definitions = [Series(1, "after")]
    store.write([writer.batch(ramp(1, first=1))])
    metric = {row.series: row.metric for row in store.series()}
    assert [(metric[row[0]], row[3]) for row in stored(store)] == [("before", 0.0), ("after", 1.0)]


def test_series_follow_their_scope_to_another_run(engine: Engine) -> None:
    store = engine.fresh()
    writer = BatchWriter(definitions=definitions(rank=1))
    store.write([writer.batch(ramp(1)), BatchWriter(origin("other"), definitions("run-c")).batch()])
    assert [(row.device, row.rank) for row in store.series(RUN)] == [("1", 1), ("2", 1), ("3", 1)]
    assert [row.device for row in store.series(RUN, metric="metric")] == ["1", "2", "3"]
    writer.definitions = definitions("run-b", rank=2)
    store.write([writer.batch(ramp(1, first=1))])
    for _ in range(2):
        assert (store.series(RUN), store.processes(RUN)) == ([], [])
        moved = store.series(RunId("run-b"))
        assert [(row.device, row.rank, row.journal) for row in moved] == [
            (str(i), 2, "journal-a") for i in (1, 2, 3)
        ]
        assert store.series(RunId("run-b"), journal=JournalId("other")) == []
        assert [row.rank for row in store.processes(RunId("run-b"))] == [2]
        assert len(store.series(RunId("run-c"))) == 3
        if engine.keeps:
            store = engine.reopen()


def test_text_of_any_kind_comes_back(engine: Engine) -> None:
    store = engine.fresh()
    odd = "é'\";--\\ \n 世界 \U0001f600"
    writer = BatchWriter(definitions=[RunScope(1, RunId(odd), odd), Series(1, odd, 1, odd, odd)])
    event = Event(EPOCH, "log", {odd: [odd, None, 1.5, {"nul": "\0"}]}, scope=1)
    store.write([writer.batch(ramp(1), events=[event])])
    lone = BatchWriter(origin("lone"), [Series(1, "half \ud800")])
    store.write([lone.batch(ramp(1), events=[Event(EPOCH, "k\udfff", {"x": "\ud800"})])])
    if engine.keeps:
        store = engine.reopen()
    row = store.series(RunId(odd))[0]
    assert (row.metric, row.unit, row.device) == (odd, odd, odd)
    assert store.events(RunId(odd), kinds=["log"])[0].body == event.body
    assert len(store.events(kinds=["k?"])) == 1


# ── latest ─────────────────────────────────────────────────────────────────────────────────────


def test_latest_is_newest_by_time_and_survives(engine: Engine) -> None:
    store = engine.fresh()
    writer = BatchWriter()
    store.write([writer.batch([(1, EPOCH + 5, 5, 5.0), (1, EPOCH + 9, None, 9.0), (2, 1, 1, 1.0)])])
    store.write([writer.batch([(1, EPOCH + 7, 7, 7.0)])])
    for again in (False, True, True):
        found = store.latest([*ids(store), 2**40])
        assert [(row.time_ns, row.step, row.value) for row in found] == [
            (EPOCH + 9, None, 9.0),
            (1, 1, 1.0),
        ]
        store.compact(force=again)
        if engine.keeps:
            store = engine.reopen()


# ── curves ─────────────────────────────────────────────────────────────────────────────────────

_values = st.one_of(
    st.floats(-1e6, 1e6).map(lambda value: round(value, 3)),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -1.0]),
)
_scales = st.sampled_from([1, 1000, SECOND, 977 * SECOND, 3 * DAY // 40])


@few
@given(data=st.data(), scale=_scales, axis=st.sampled_from(["time", "step"]))
def test_curves_equal_a_plain_reduction(
    engine: Engine, data: st.DataObject, scale: int, axis: Axis
) -> None:
    store = engine.fresh()
    rows = data.draw(_rows(scale))
    writer = BatchWriter()
    half = len(rows) // 2
    store.write([writer.batch(rows[:half])])
    _compare(store, rows[:half], axis, data)
    store.compact(force=True)
    store.write([writer.batch(rows[half:])])
    _compare(store, rows, axis, data)
    store.compact(force=True)
    if engine.keeps:
        store = engine.reopen()
    _compare(store, rows, axis, data)


@st.composite
def _rows(draw: st.DrawFn, scale: int) -> list[tuple[int, int, int | None, float]]:
    times = draw(st.lists(st.integers(-3, 60), min_size=2, max_size=40, unique=True))
    return [
        (
            draw(st.integers(1, 3)),
            EPOCH + time * scale,
            draw(st.one_of(st.none(), st.integers(-5, 50))),
            draw(_values),
        )
        for time in times
    ]


def _compare(
    store: Store, rows: list[tuple[int, int, int | None, float]], axis: Axis, data: st.DataObject
) -> None:
    places = [row[1] if axis == "time" else row[2] for row in rows]
    known = [place for place in places if place is not None]
    start = data.draw(st.one_of(st.none(), st.sampled_from(known or [0])))
    end = data.draw(st.one_of(st.none(), st.sampled_from(known or [0])))
    buckets = data.draw(st.sampled_from([1, 2, 7, 50]))
    by_device = {row.series: int(row.device) for row in store.series()}
    curves = store.curves(list(by_device), axis=axis, start=start, end=end, buckets=buckets)
    low, high, width = _expected_grid(known, axis, start, end, buckets)
    expected = {}
    for series, device in by_device.items():
        mine = [row[1:] for row in rows if row[0] == device]
        if width and (reduction := reduced(mine, axis, low, high, width)):
            expected[series] = reduction
    assert {curve.series: as_rows(curve) for curve in curves} == expected
    assert all((curve.width, curve.axis) == (width, axis) for curve in curves)
    assert all(len(curve.position) <= buckets for curve in curves)
    assert all(list(curve.position) == sorted(curve.position) for curve in curves)


def _expected_grid(
    known: list[int], axis: Axis, start: int | None, end: int | None, buckets: int
) -> tuple[int, int, int]:
    if not known:
        return 0, 0, 0
    low = min(known) if start is None else start
    high = max(known) + 1 if end is None else end
    if high <= low:
        return 0, 0, 0
    width = -(-(high - low) // buckets)
    minute = 60 * SECOND
    if axis == "time" and high - low > DAY and width >= minute:
        low, high = low // minute * minute, -(-high // minute) * minute
        width = -(-(high - low) // buckets // minute) * minute
    return low, high, width


def test_curves_asked_for_together_share_their_buckets(store: Store) -> None:
    rows = ramp(10) + ramp(30, series=2, first=5)
    store.write([BatchWriter().batch(rows)])
    one, two = store.curves(ids(store), buckets=4)
    assert one.width == two.width
    assert set(one.position) <= {EPOCH + i * one.width for i in range(4)}
    assert set(two.position) <= {EPOCH + i * two.width for i in range(4)}


def test_curves_of_nothing(store: Store) -> None:
    assert store.curves([]) == []
    assert store.curves([12345]) == []
    store.write([BatchWriter().batch([(1, EPOCH, None, 1.0)])])
    assert store.curves(ids(store), axis="step") == []
    assert store.curves(ids(store), start=EPOCH, end=EPOCH) == []
    assert store.curves(ids(store), start=EPOCH + 1, end=EPOCH + 2) == []


def test_extreme_ranges_and_wrong_buckets(store: Store) -> None:
    store.write([BatchWriter().batch(ramp(3))])
    for buckets in (1, 10):
        curve = store.curves(ids(store), start=-(2**70), end=2**70, buckets=buckets)[0]
        assert list(curve.count) == [3]
        assert 0 <= EPOCH - curve.position[0] < curve.width
    for buckets in (0, -1, 10**9):
        with pytest.raises(UsageError, match="buckets"):
            store.curves(ids(store), buckets=buckets)


def test_a_long_range_after_compaction_counts_every_point_once(store: Store) -> None:
    writer = BatchWriter()
    rows = [(1, EPOCH + i * 160 * SECOND, i, float(i % 17)) for i in range(2000)]
    for part in range(4):
        store.write([writer.batch(rows[part * 500 : (part + 1) * 500])])
        store.compact(force=part < 3)
    curve = store.curves(ids(store), buckets=50)[0]
    assert sum(curve.count) == 2000
    mine = [row[1:] for row in rows]
    end = curve.position[-1] + curve.width
    assert as_rows(curve) == reduced(mine, "time", EPOCH, end, curve.width)
    late = writer.batch([(1, EPOCH + 1, 0, 99.0)])
    store.write([late])
    store.compact(force=True)
    assert store.curves(ids(store), buckets=50)[0].maximum[0] == 99.0


# ── points, events, spans ──────────────────────────────────────────────────────────────────────


def test_points_come_in_order_and_a_few_at_a_time(store: Store) -> None:
    writer = BatchWriter()
    store.write([writer.batch(ramp(7, series=2))])
    store.compact(force=True)
    store.write([writer.batch(ramp(7, series=1) + ramp(3, series=2, first=7))])
    parts = list(store.points(ids(store), rows=4))
    assert [len(part.value) for part in parts] == [4, 4, 4, 4, 1]
    rows = stored(store)
    assert rows == sorted(rows, key=lambda row: row[:2])
    window = list(store.points(ids(store)[1:2], start_ns=EPOCH + SECOND, end_ns=EPOCH + 9 * SECOND))
    assert [value for part in window for value in part.value] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert list(store.points([])) == []


def test_an_abandoned_reading_holds_nothing_up(store: Store) -> None:
    store.write([BatchWriter().batch(ramp(50))])
    reading = store.points(ids(store), rows=10)
    assert len(next(iter(reading)).value) == 10
    store.compact(force=True)
    del reading
    assert len(stored(store)) == 50


def test_events_filtered_and_ordered(store: Store) -> None:
    a, b = BatchWriter(), BatchWriter(origin("journal-b"), definitions("run-b"))
    kinds = ["start", "log", "log", "end"]
    happened = [Event(EPOCH + 5, kind, {"n": i}, scope=1) for i, kind in enumerate(kinds)]
    store.write([a.batch(events=happened[:2])])
    store.compact(force=True)
    store.write([a.batch(events=[*happened[2:], Event(EPOCH, "log", {}, step=4)])])
    store.write([b.batch(events=[Event(EPOCH + 1, "start", {}, scope=1)])])
    assert [row.body["n"] for row in store.events(RUN)] == [0, 1, 2, 3]
    assert [row.body["n"] for row in store.events(RUN, newest_first=True, limit=3)] == [3, 2, 1]
    assert [row.body["n"] for row in store.events(RUN, kinds=["log", "end"])] == [1, 2, 3]
    assert store.events(RUN, kinds=[]) == []
    assert [row.run for row in store.events()] == ["", "run-b", *["run-a"] * 4]
    assert len(store.events(start_ns=EPOCH + 1, end_ns=EPOCH + 5)) == 1
    assert [(row.step, row.rank) for row in store.events(RunId(""))] == [(4, 0)]
    assert store.events(RunId("nobody")) == []


@pytest.mark.parametrize("of_each", [None, 1])
def test_events_about_journals(store: Store, of_each: int | None) -> None:
    agent = BatchWriter(origin("agent"))
    said: list[dict[str, Any]] = [
        {"journal": "a"}, {"journal": "b", "n": 1}, {"journal": 7}, {}, {"journal": "b'c"},
    ]  # fmt: skip
    store.write([agent.batch(events=[Event(EPOCH + i, "end", b) for i, b in enumerate(said[:3])])])
    store.compact(force=True)
    store.write(
        [agent.batch(events=[Event(EPOCH + 9 + i, "end", b) for i, b in enumerate(said[3:])])]
    )

    def about(*journals: str) -> list[Any]:
        names = [JournalId(journal) for journal in journals]
        rows = store.events(None, kinds=["end"], about=names, of_each=of_each)
        return [row.body for row in rows]

    assert about("b", "c") == [{"journal": "b", "n": 1}]
    assert about("b'c") == [{"journal": "b'c"}]
    assert about() == []
    assert about("a", "b")[-1] == {"journal": "b", "n": 1}


def test_a_body_that_is_no_text_to_the_engine_hides_no_other(store: Store) -> None:
    """Half a character is JSON to Python alone."""
    agent = BatchWriter(origin("agent"))
    bodies: list[dict[str, Any]] = [
        {"journal": "a", "signal": "\ud800"},
        {"journal": "a", "x": math.nan},
        {"journal": "b"},
    ]
    store.write([agent.batch(events=[Event(EPOCH, "end", body) for body in bodies])])
    assert [row.body for row in store.events(None, kinds=["end"], about=[JournalId("b")])] == [
        {"journal": "b"}
    ]


def test_spans_in_time_order(store: Store) -> None:
    writer = BatchWriter(definitions=definitions(rank=3))
    store.write([writer.batch(edges=[(1, 1, BEGIN, EPOCH + 1, 7), (1, 2, BEGIN, EPOCH + 3, None)])])
    store.compact(force=True)
    store.write([writer.batch(edges=[(1, 1, END, EPOCH + 2, 7), (9, 3, BEGIN, EPOCH, None)])])
    found = store.spans(RUN)
    assert [(row.span, row.edge, row.step) for row in found] == [
        (1, BEGIN, 7),
        (1, END, 7),
        (2, BEGIN, None),
    ]
    assert {(row.name, row.rank, row.host) for row in found} == {("checkpoint_save", 3, "host-a")}
    assert len(store.spans(RUN, start_ns=EPOCH + 2, end_ns=EPOCH + 3)) == 1
    assert len(store.spans(RUN, limit=2)) == 2
    assert [row.name for row in store.spans(RunId(""))] == ["unknown"]


def test_a_gap_is_stated(store: Store) -> None:
    store.write([BatchWriter().batch(ramp(1), skipped=12)])
    assert [row.body["records"] for row in store.events(kinds=["records_skipped"])] == [12]


# ── keeping and forgetting ─────────────────────────────────────────────────────────────────────


def test_everything_is_there_after_reopening(engine: Engine) -> None:
    if not engine.keeps:
        pytest.skip("this engine keeps nothing")
    store = engine.fresh()
    writer = BatchWriter()
    event = Event(EPOCH, "start", {"a": [1, 2]}, scope=1)
    store.write([writer.batch(ramp(10), events=[event], edges=[(1, 1, BEGIN, EPOCH, None)])])
    before = (store.series(), store.processes(), store.events(), store.spans(RUN), stored(store))
    for _ in range(2):
        store = engine.reopen()
        assert store.cursor(writer.origin.journal) == writer.at
        after = (store.series(), store.processes(), store.events(), store.spans(RUN), stored(store))
        assert after == before
        store.compact(force=True)


def test_retention_forgets_by_kind(store: Store) -> None:
    writer = BatchWriter()
    old = Event(EPOCH, "old", {}, NO_STEP)
    store.write([writer.batch(ramp(100), events=[old])])
    taken_ns = system_clock.wall_ns()
    store.write([writer.batch(ramp(5, start=taken_ns + 30 * DAY, first=100))])
    store.compact(force=True)
    nothing = store.retain(Retention(None, None, None, None), now_ns=taken_ns + 3000 * DAY)
    assert not any(nothing.values())
    counts = store.retain(Retention(points_days=10), now_ns=taken_ns + 9 * DAY)
    assert not any(counts.values())  # old as they are, they came nine days ago
    counts = store.retain(Retention(points_days=10), now_ns=taken_ns + 31 * DAY)
    assert (counts["points"], counts["events"]) == (100, 0)
    assert [row[3] for row in stored(store)] == [100, 101, 102, 103, 104]
    assert len(store.events()) == 1
    store.retain(Retention(events_days=1), now_ns=taken_ns + 31 * DAY)
    assert store.events() == []


def test_compacting_nothing_is_nothing(store: Store) -> None:
    assert store.compact() == 0
    assert store.compact(force=True) == 0
    store.write([BatchWriter().batch(ramp(3))])
    assert store.compact() == 0, "three fresh points are not ripe"


def test_health_counts(store: Store) -> None:
    store.write([BatchWriter().batch(ramp(3))])
    health = store.health()
    assert health.problem == ""
    assert list(health.notes) == []
    assert health.hot_points == 3
    assert health.schema_version >= 1
