"""A run told again: everything that was stored, in each journal's order, as of one moment."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from runwatch.errors import StoreDamaged
from runwatch.record import (
    BEGIN,
    END,
    NO_STEP,
    Batch,
    Definition,
    Event,
    JournalId,
    RunId,
    RunScope,
    Series,
    SpanName,
)
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.store import Store, Wanted
from runwatch.testing import EPOCH, SECOND, BatchWriter, origin
from tests.unit.store.conftest import Engine

RUN = RunId("run-a")
ALL = Wanted(metric=lambda metric: metric.startswith("wait"), kinds=("told", "it's told"))

Edge = tuple[int, int, int, int, int]


def journal(name: str, *, rank: int = 0, run: str = RUN) -> BatchWriter:
    known: list[Definition] = [
        RunScope(1, RunId(run), "a", rank=rank),
        RunScope(2, RunId("other"), "b"),
        SpanName(7, "step", 1),
        SpanName(8, "checkpoint_save", 1),
        SpanName(9, "step", 2),
        Series(4, "wait_seconds", 1, labels={"logger": "x"}),
        Series(5, "loss", 1),
        Series(6, "wait_seconds", 2),
    ]
    return BatchWriter(origin(name), known)


def write(store: Store, writer: BatchWriter, first: int, steps: int, *, rank: int = 0) -> None:
    """`steps` steps of half a second each: two edges, a wait, a loss; an event every tenth."""
    edges: list[tuple[int, int, int, int, int | None]] = []
    rows = []
    events = []
    for step in range(first, first + steps):
        begin = EPOCH + step * SECOND + rank
        edges += [(7, step, BEGIN, begin, step), (7, step, END, begin + SECOND // 2, step)]
        edges += [(9, step, BEGIN, begin, step)]  # of another run
        rows += [(4, begin + SECOND // 2, step, 0.25), (5, begin + SECOND // 2, step, 1.0)]
        rows += [(6, begin, step, 9.0)]
        if step % 10 == 0:
            events += [Event(begin, "told", {"step": step}, step, 1), Event(begin, "else", {})]
            events += [Event(begin, "told", {}, scope=2)]
    (verdict,) = store.write([writer.batch(rows, edges=edges, events=events)])
    assert verdict.accepted


def edges_of(stretches: Iterable[list[Batch]], name: str) -> list[Edge]:
    found: list[Edge] = []
    for batch in (batch for stretch in stretches for batch in stretch):
        if batch.origin.journal == name:
            s = batch.spans
            found += zip(s.name, s.span, s.edge, s.time_ns, s.step, strict=True)
    return found


def expected_edges(first: int, steps: int, rank: int = 0) -> list[Edge]:
    found: list[Edge] = []
    for step in range(first, first + steps):
        begin = EPOCH + step * SECOND + rank
        found += [(7, step, BEGIN, begin, step), (7, step, END, begin + SECOND // 2, step)]
    return found


def test_all_of_the_run_is_told_wherever_it_lies(engine: Engine) -> None:
    store = engine.fresh()
    writers = [journal("j-0"), journal("j-1", rank=1)]
    for first in (0, 100, 200):
        for rank, writer in enumerate(writers):
            write(store, writer, first, 100, rank=rank)
        if first < 200:
            store.compact(force=True)  # the rest stays hot
    with store.replay(RUN, ALL) as told:
        stretches = list(told)
        assert told.records == 2 * (600 + 300 + 30)
    for rank in (0, 1):
        assert edges_of(stretches, f"j-{rank}") == expected_edges(0, 300, rank)
    batches = [batch for stretch in stretches for batch in stretch]
    mine = [batch for batch in batches if batch.origin.journal == "j-0"]
    assert [step for batch in mine for step in batch.points.step] == list(range(300))
    assert {(s, v) for b in mine for s, v in zip(b.points.series, b.points.value, strict=True)} == {
        (4, 0.25)
    }
    events = [event for batch in mine for event in batch.events]
    assert [(e.kind, e.body["step"], e.scope) for e in events] == [
        ("told", step, 1) for step in range(0, 300, 10)
    ]


def test_definitions_come_first_and_only_the_runs(store: Store) -> None:
    write(store, journal("j-0"), 0, 1)
    silent = journal("j-silent", rank=3)
    silent.definitions = [RunScope(1, RUN, "a", rank=3), SpanName(2, "eval", 1)]
    store.write([silent.batch([])])
    with store.replay(RUN, ALL) as told:
        introductions = next(iter(told))
    by_journal = {batch.origin.journal: batch for batch in introductions}
    assert by_journal[JournalId("j-silent")].definitions == silent.definitions
    assert by_journal[JournalId("j-0")].definitions == [
        RunScope(1, RUN, "a"),
        SpanName(7, "step", 1),
        SpanName(8, "checkpoint_save", 1),
        Series(4, "wait_seconds", 1, labels={"logger": "x"}),
    ]
    assert all(not batch.records for batch in introductions)


def test_stretches_are_bounded_and_journals_come_forward_together(store: Store) -> None:
    for rank in (0, 1):
        write(store, journal(f"j-{rank}", rank=rank), 0, 400, rank=rank)
    with store.replay(RUN, Wanted(ALL.metric, kinds=ALL.kinds, rows=50)) as told:
        stretches = list(told)[1:]
    sizes = [sum(batch.records for batch in stretch) for stretch in stretches]
    assert max(sizes) <= 60
    assert len(stretches) > 40
    edges = [[edge[3] for edge in edges_of([stretch], "j-0")] for stretch in stretches]
    others = [[edge[3] for edge in edges_of([stretch], "j-1")] for stretch in stretches]
    for mine, theirs, later in zip(edges, others, edges[1:], strict=False):
        if mine and theirs and later:
            assert max(mine + theirs) < min(later)
    assert edges_of(stretches, "j-1") == expected_edges(0, 400, 1)


def test_a_burst_in_one_moment_is_cut_as_far_as_time_can_be(store: Store) -> None:
    writer = journal("j")
    rows = [(4, EPOCH + i % 3, i, float(i)) for i in range(300)]
    rows += [(4, EPOCH + 10**6 * SECOND, 999, 1.0)]
    store.write([writer.batch(rows)])
    with store.replay(RUN, Wanted(ALL.metric, rows=50)) as told:
        sizes = [sum(batch.records for batch in stretch) for stretch in told]
    assert sizes == [0, 100, 100, 100, 1]


def test_times_of_any_size_are_told(store: Store) -> None:
    writer = journal("j")
    far = [-(2**63) + 1, -5, 0, EPOCH, 2**63 - 2]
    store.write([writer.batch([(4, time_ns, None, 1.0) for time_ns in far])])
    with store.replay(RUN, Wanted(ALL.metric, rows=1)) as told:
        batches = [batch for stretch in told for batch in stretch]
    assert [t for batch in batches for t in batch.points.time_ns] == far
    assert {s for batch in batches for s in batch.points.step} == {NO_STEP}


def test_only_some_journals_each_from_its_own_time(engine: Engine) -> None:
    store = engine.fresh()
    for rank in range(3):
        write(store, journal(f"j-{rank}", rank=rank), 0, 20, rank=rank)
    store.compact(force=True)
    since = {JournalId("j-0"): EPOCH + 10 * SECOND, JournalId("j-2"): -(2**63)}
    with store.replay(RUN, Wanted(ALL.metric, kinds=ALL.kinds, since=since)) as told:
        stretches = list(told)
    assert edges_of(stretches, "j-0") == expected_edges(10, 10)
    assert edges_of(stretches, "j-1") == []
    assert edges_of(stretches, "j-2") == expected_edges(0, 20, 2)
    events = [e for stretch in stretches for b in stretch for e in b.events]
    assert sorted(event.body["step"] for event in events) == [0, 10, 10]
    with store.replay(RUN, Wanted(ALL.metric, since={})) as told:
        assert (told.records, list(told)) == (0, [[]])


def test_labels_and_spans_are_chosen(store: Store) -> None:
    write(store, journal("j"), 0, 5)
    with store.replay(RUN, Wanted(ALL.metric, {"logger": "y"}, spans=False)) as told:
        assert told.records == 0
    with store.replay(RUN, Wanted(ALL.metric, {"logger": "x"}, spans=False)) as told:
        [introductions, stretch] = list(told)
    assert not any(isinstance(d, SpanName) for d in introductions[0].definitions)
    assert [(len(b.spans), len(b.points)) for b in stretch] == [(0, 5)]


def test_no_run_no_records(store: Store) -> None:
    with store.replay(RunId("nobody's"), ALL) as told:
        assert (told.records, list(told)) == (0, [[]])


def test_what_is_told_is_what_was_there_when_it_was_asked_for(engine: Engine) -> None:
    store, writer = engine.fresh(), journal("j")
    write(store, writer, 0, 50)
    with store.replay(RUN, Wanted(ALL.metric, rows=10)) as told:
        write(store, writer, 50, 50)
        store.compact(force=True)
        stretches = list(told)
    assert edges_of(stretches, "j") == expected_edges(0, 50)
    with store.replay(RUN, ALL) as told:
        assert edges_of(told, "j") == expected_edges(0, 100)


def test_a_replay_that_is_not_read_lets_go(tmp_path: Path) -> None:
    store = DuckStore.open(tmp_path, settings=DuckSettings(threads=1, reserve_bytes=0))
    write(store, journal("j"), 0, 50)
    with store.replay(RUN, ALL):
        pass
    with store.replay(RUN, Wanted(ALL.metric, rows=10)) as told:
        for stretch in told:
            if stretch and stretch[0].records:
                break
    closing = threading.Thread(target=store.close)  # it waits for whoever still reads
    closing.start()
    closing.join(100)
    assert not closing.is_alive()


def test_a_damaged_file_is_said_and_set_aside(tmp_path: Path) -> None:
    store = DuckStore.open(tmp_path, settings=DuckSettings(threads=1, reserve_bytes=0))
    write(store, journal("j"), 0, 50)
    store.compact(force=True)
    [block] = [b for b in store.closed_blocks() if b.kind == "spans"]
    path = tmp_path / "blocks" / block.file
    with store.replay(RUN, ALL) as told:
        content = bytearray(path.read_bytes())
        content[4:-200] = b"\xff" * (len(content) - 204)
        path.write_bytes(content)
        with pytest.raises(StoreDamaged):
            list(told)
    with store.replay(RUN, ALL) as told:
        assert edges_of(told, "j") == []
    assert any("spans" in note for note in store.health().notes)
    store.close()
