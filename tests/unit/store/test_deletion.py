"""A run that was deleted is gone, stays gone, and leaves all others as they were."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from runwatch.errors import NotFound, UsageError
from runwatch.record import Batch, Event, JournalId, Role, RunId, RunScope, Series
from runwatch.store.deletion import Weight
from runwatch.store.duck import hot
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.store import Store, Wanted
from runwatch.testing import EPOCH, SECOND, BatchWriter, definitions, origin, ramp
from tests.unit.store.children import exit_code_of
from tests.unit.store.conftest import Engine, crossed

A, B = RunId("run-a"), RunId("run-b")
NOW: Final = EPOCH + 1000 * SECOND
SMALL = DuckSettings(threads=1, merge_parts=3, reserve_bytes=0)


def writer(
    run: str, name: str = "", *, start_ns: int = EPOCH, role: Role = "process"
) -> BatchWriter:
    about = replace(origin(name or f"journal-of-{run}"), start_ns=start_ns, role=role)
    return BatchWriter(about, definitions(run))


def batch(journal: BatchWriter, first: int = 0, count: int = 50) -> Batch:
    at = EPOCH + first * SECOND
    return journal.batch(
        ramp(count, first=first),
        events=[Event(at, "log", {"text": f"{first}"}, scope=1)],
        edges=[(1, first, 0, at, first), (1, first, 1, at + 1, first)],
    )


def steps(store: Store, run: RunId) -> list[float]:
    ids = [row.series for row in store.series(run)]
    return [value for part in store.points(ids) for value in part.value]


def is_whole(store: Store, run: RunId, points: int, events: int) -> bool:
    return (
        steps(store, run) == [float(n) for n in range(points)]
        and len(store.events(run)) == events
        and len(store.spans(run)) == 2 * events
        and len(store.processes(run)) == 1
    )


def is_gone(store: Store, run: RunId) -> bool:
    with store.replay(run, Wanted(lambda _: True, kinds=["log"])) as replay:
        told = replay.records
    everything = (
        store.processes(run), store.series(run), store.events(run), store.spans(run), told,
        [row for row in store.processes() if row.run == run],
        [row for row in store.series() if row.run == run],
        [row for row in store.events() if row.run == run],
    )  # fmt: skip
    return not any(everything)


def filled(store: Store) -> tuple[BatchWriter, BatchWriter]:
    """Two runs, in files and hot."""
    of_a, of_b = writer(A), writer(B)
    for first in (0, 50, 100):
        store.write([batch(of_a, first), batch(of_b, first)])
        if first < 100:
            store.compact(force=True)
    return of_a, of_b


def purge(store: Store) -> None:
    for deletion in store.deletions():
        store.purge(deletion)


# ── what is gone and what is not ───────────────────────────────────────────────────────────────


@crossed("for_good", [False, True])
def test_a_deleted_run_is_gone_and_the_other_is_whole(engine: Engine, for_good: bool) -> None:
    store = engine.fresh()
    filled(store)
    assert is_whole(store, A, 150, 3) and is_whole(store, B, 150, 3)
    weight = store.weigh(A)
    assert (weight.points, weight.spans, weight.events) == (150, 6, 3) and weight.bytes > 0
    store.delete(A, at_ns=NOW, purge_ns=NOW)
    if for_good:
        purge(store)
        assert [each.state for each in store.deletions()] == ["purged"]
    assert is_gone(store, A) and is_whole(store, B, 150, 3)
    assert store.weigh(A) == Weight()
    if engine.keeps:
        store = engine.reopen()
        assert is_gone(store, A) and is_whole(store, B, 150, 3)
        store.compact(force=True)
        assert is_gone(store, A) and is_whole(store, B, 150, 3)


def test_rows_are_really_removed(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    store = DuckStore.open(directory, settings=SMALL)
    filled(store)
    before = {block.file for block in store.closed_blocks()}
    store.delete(A, at_ns=NOW, purge_ns=NOW)
    purge(store)
    assert not before & {path.name for path in (directory / "blocks").iterdir()}
    rows = sum(block.rows for block in store.closed_blocks() if block.kind == "points")
    assert rows + store.health().hot_points == 150
    store.close()
    connection = hot.connect(directory / "hot.duckdb", {})
    [(events,)] = connection.execute("SELECT count(*) FROM events_3").fetchall()
    connection.close()
    assert events == 1


def test_what_comes_of_it_later_is_acknowledged_and_dropped(engine: Engine) -> None:
    store = engine.fresh()
    of_a, _ = filled(store)
    store.delete(A, at_ns=NOW, purge_ns=NOW)
    late = batch(of_a, 150)
    [verdict] = store.write([late])
    assert verdict.accepted and store.cursor(late.origin.journal) == late.end
    assert is_gone(store, A)
    assert store.health().records_dropped == late.records == 53
    if engine.keeps:
        store = engine.reopen()
    [verdict] = store.write([batch(of_a, 200)])
    assert verdict.accepted and is_gone(store, A)
    # A node that was away brings a journal that nobody had heard of.
    unheard = writer(A, "journal-of-another-rank")
    assert store.write([batch(unheard)])[0].accepted
    assert is_gone(store, A)


@crossed("for_good", [False, True])
def test_a_run_of_the_same_name_is_another(engine: Engine, for_good: bool) -> None:
    store = engine.fresh()
    filled(store)
    store.delete(A, at_ns=NOW, purge_ns=NOW)
    again = writer(A, "journal-again", start_ns=NOW + SECOND)
    store.write([batch(again, count=20)])
    if for_good:
        purge(store)
    assert is_whole(store, A, 20, 1)
    if engine.keeps:
        store = engine.reopen()
    assert is_whole(store, A, 20, 1)
    with pytest.raises(UsageError, match="recorded again"):
        store.restore(A)
    # And it can be deleted as well.
    store.delete(A, at_ns=NOW + 100 * SECOND, purge_ns=NOW)
    assert is_gone(store, A)
    purge(store)
    assert is_gone(store, A) and is_whole(store, B, 150, 3)


def test_a_process_that_begins_the_same_run_again_is_heard(engine: Engine) -> None:
    store = engine.fresh()
    of_a, _ = filled(store)
    store.delete(A, at_ns=NOW, purge_ns=NOW)
    of_a.definitions = [RunScope(2, A, "again"), Series(9, "loss", scope=2)]
    store.write([of_a.batch(ramp(5, series=9))])
    assert [row.run_name for row in store.processes(A)] == ["again"]
    assert steps(store, A) == [0, 1, 2, 3, 4]
    if engine.keeps:
        store = engine.reopen()
        assert steps(store, A) == [0, 1, 2, 3, 4]


def test_an_agent_goes_on_with_other_runs(engine: Engine) -> None:
    store = engine.fresh()
    agent = writer(A, "agent", role="agent")
    agent.definitions = [
        RunScope(1, A, "a"), RunScope(2, B, "b"),
        Series(1, "gpu", scope=1), Series(2, "gpu", scope=2),
    ]  # fmt: skip
    filled(store)

    def told(first: int) -> Batch:
        return agent.batch([*ramp(5, first=first), *ramp(5, first=first, series=2)])

    def gpu(run: RunId) -> list[float]:
        ids = [row.series for row in store.series(run, metric="gpu")]
        return [value for part in store.points(ids) for value in part.value]

    store.write([told(0)])
    store.delete(A, at_ns=NOW, purge_ns=NOW)
    store.write([told(5)])
    assert gpu(A) == [] and gpu(B) == list(range(10))
    # No process has begun such a run anew: what the agent says of it is of the old one.
    store.write([told(2000)])
    assert gpu(A) == []
    store.write([batch(writer(A, "journal-again", start_ns=NOW + SECOND))])
    store.write([told(3000), told(10)])
    assert gpu(A) == list(range(3000, 3005))
    purge(store)
    assert gpu(A) == list(range(3000, 3005))
    if engine.keeps:
        store = engine.reopen()
        store.write([told(4000)])
        assert gpu(A) == [*range(3000, 3005), *range(4000, 4005)]


# ── undoing ────────────────────────────────────────────────────────────────────────────────────


def test_a_deletion_can_be_undone_while_its_rows_are_there(engine: Engine) -> None:
    store = engine.fresh()
    of_a, _ = filled(store)
    store.delete(A, at_ns=NOW, purge_ns=NOW + SECOND)
    store.write([batch(of_a, 150)])
    if engine.keeps:
        store = engine.reopen()
    assert store.restore(A).state == "restored"
    assert is_whole(store, A, 150, 3) and store.deletions() == []
    store.write([batch(of_a, 200)])
    assert steps(store, A)[-1] == 249
    if engine.keeps:
        store = engine.reopen()
        assert len(store.events(A)) == 4


def test_what_cannot_be_undone_says_why(store: Store) -> None:
    filled(store)
    with pytest.raises(NotFound, match="no deleted run 'run-a'"):
        store.restore(A)
    with pytest.raises(NotFound, match="no run 'nobody'"):
        store.delete(RunId("nobody"), at_ns=NOW, purge_ns=NOW)
    store.delete(A, at_ns=NOW, purge_ns=NOW)
    with pytest.raises(NotFound, match="no run 'run-a'"):
        store.delete(A, at_ns=NOW, purge_ns=NOW)
    purge(store)
    with pytest.raises(UsageError, match="for good"):
        store.restore(A)


# ── killed ─────────────────────────────────────────────────────────────────────────────────────


def delete_until(directory: Path, place: str, times: int) -> None:
    """Deletes a run, and dies where it reaches the place for the nth time."""
    left, deleting = times, False

    def reached(here: str) -> None:
        nonlocal left
        if here == place and deleting:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    store = DuckStore.open(directory, settings=replace(SMALL, reached=reached))
    filled(store)
    deleting = True
    store.delete(A, at_ns=NOW, purge_ns=NOW)
    purge(store)


@pytest.mark.parametrize(
    ("place", "times"),
    [
        ("manifest", 0), ("deleted", 0), ("purged hot", 0), ("rewritten", 0), ("replaced", 0),
        ("manifest", 2), ("rewritten", 2), ("purged", 0),
    ],
)  # fmt: skip
def test_killed_while_deleting(tmp_path: Path, place: str, times: int) -> None:
    directory = tmp_path / "store"
    assert exit_code_of(delete_until, directory, place, times) == -signal.SIGKILL
    store = DuckStore.open(directory, settings=SMALL)
    assert is_gone(store, A) and is_whole(store, B, 150, 3)
    purge(store)
    assert is_gone(store, A) and is_whole(store, B, 150, 3)
    store.compact(force=True)
    assert is_gone(store, A) and is_whole(store, B, 150, 3)
    store.close()
    (directory / "hot.duckdb").write_bytes(b"not a database")
    store = DuckStore.open(directory, settings=SMALL)
    assert is_gone(store, A)
    assert store.cursor(JournalId("journal-of-run-b")) > 0
    store.close()
