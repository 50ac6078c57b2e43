"""What the hot database gives back to the disk when its rows are in files."""

from __future__ import annotations

import os
import signal
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runwatch.record import Origin, Points
from runwatch.store.duck import hot
from runwatch.store.duck.catalog import TABLES
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.testing import EPOCH, BatchWriter, definitions, origin, ramp
from tests.unit.store.children import exit_code_of

SETTINGS = DuckSettings(threads=1, reserve_bytes=0, spare_bytes=1 << 20)
RUNS, ROWS = 16, 100_000
SMALL = 7 << 20
"""Every table takes a quarter of a megabyte at least."""


def burst(store: DuckStore, first: int = 0) -> None:
    """Runs that come one after the other: the catalogue grows while the file does."""
    steps = np.arange(ROWS)
    for number in range(first, first + RUNS):
        writer = BatchWriter(origin(f"j{number}"), definitions(f"run-{number}"))
        batch = writer.batch()
        batch.points = Points(
            array("I", np.ones(ROWS, np.uint32).tobytes()),
            array("q", (EPOCH + steps * 1_000_003).tobytes()),
            array("q", steps.tobytes()),
            array("d", np.random.default_rng(number).random(ROWS).tobytes()),
        )
        store.write([batch])


def size(directory: Path) -> int:
    return (directory / "hot.duckdb").stat().st_size


def test_the_file_is_small_again_when_a_burst_is_in_blocks(tmp_path: Path) -> None:
    store = DuckStore.open(tmp_path, settings=SETTINGS)
    burst(store)
    full = size(tmp_path)
    assert full > 2 * SMALL
    store.compact(force=True)
    assert size(tmp_path) < SMALL
    series = [row.series for row in store.series()]
    assert sum(len(part) for part in store.points(series)) == RUNS * ROWS
    store.close()
    store = DuckStore.open(tmp_path, settings=SETTINGS)
    assert [row.series for row in store.series()] == series
    store.close()


def test_the_file_does_not_grow_with_what_was_stored(tmp_path: Path) -> None:
    store, sizes = DuckStore.open(tmp_path, settings=SETTINGS), []
    for turn in range(3):
        burst(store, first=turn * RUNS)
        store.compact(force=True)
        sizes.append(size(tmp_path))
    store.close()
    assert max(sizes) < SMALL


def test_what_a_store_of_before_left_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(DuckStore, "_give_back", lambda self: None)
        store = DuckStore.open(tmp_path, settings=SETTINGS)
        burst(store)
        store.compact(force=True)
        full = size(tmp_path)
        store.close()
    store = DuckStore.open(tmp_path, settings=SETTINGS)
    store.compact()
    assert size(tmp_path) < full / 2
    store.close()


def test_who_reads_meanwhile_reads_on_and_the_space_comes_later(tmp_path: Path) -> None:
    store = DuckStore.open(tmp_path, settings=SETTINGS)
    burst(store)
    full = size(tmp_path)
    store._leases.sweep()
    with store._base.cursor() as reader:  # began before the tables went, without a lease
        reader.begin()
        known = reader.execute("SELECT count(*) FROM series").fetchall()
        store.compact(force=True)
        assert size(tmp_path) > full / 2
        assert reader.execute("SELECT count(*) FROM series").fetchall() == known
        writer = BatchWriter(origin("later"), definitions("later"))
        assert store.write([writer.batch(ramp(3))])[0].accepted
        reader.rollback()
    store.compact()
    assert size(tmp_path) < full / 2
    store.close()


def test_the_writers_connection_is_used_by_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine refuses a call on a connection that is busy, and the writer's batch with it."""
    store, held = DuckStore.open(tmp_path, settings=SETTINGS), []
    for name in ("checkpoint", "space", "movable_tables", "write_anew"):
        real = getattr(hot, name)

        def noted(*given: Any, _real: Callable[..., Any] = real, **named: Any) -> Any:
            held.append(store._writing._is_owned())  # type: ignore[attr-defined]
            return _real(*given, **named)

        monkeypatch.setattr(hot, name, noted)
    burst(store)
    store.compact(force=True)
    assert len(held) >= 6 and all(held)
    store.close()


def test_tables_that_are_written_anew_have_the_same_rows_in_order(tmp_path: Path) -> None:
    store = DuckStore.open(tmp_path, settings=SETTINGS)
    for number in range(100):
        writer = BatchWriter(origin(f"j{number}"), definitions(f"run-{number}"))
        store.write([writer.batch(ramp(50))])
        if number == 50:
            store.compact(force=True)
    tables = [name for (name,) in _ask(store, "SELECT table_name FROM duckdb_tables()")]
    described = {name: _ask(store, f"DESCRIBE {name}") for name in tables}
    # Of the catalogue the places are known to others, too.
    columns = {name: "rowid, *" if name in TABLES else "*" for name in tables}
    ask = {name: f"SELECT {columns[name]} FROM {name} ORDER BY rowid" for name in tables}
    rows = {name: _ask(store, query) for name, query in ask.items()}
    with store._writing, hot.transaction(store._writer):
        hot.write_anew(store._writer, [str(name) for name in tables])
    assert {name: _ask(store, f"DESCRIBE {name}") for name in tables} == described
    for name in tables:
        assert _ask(store, ask[name]) == rows[name]
    store.close()


def _ask(store: DuckStore, query: str) -> list[tuple[object, ...]]:
    with store._base.cursor() as cursor:
        return cursor.execute(query).fetchall()


def compact_until(directory: Path, place: str) -> None:
    def reached(here: str) -> None:
        if here == place:
            os.kill(os.getpid(), signal.SIGKILL)

    store = DuckStore.open(directory, settings=replace(SETTINGS, reached=reached))
    burst(store)
    store.compact(force=True)


@pytest.mark.parametrize("place", ["checkpointed", "moved"])
def test_killed_while_space_is_given_back(tmp_path: Path, place: str) -> None:
    assert exit_code_of(compact_until, tmp_path, place) == -signal.SIGKILL
    store = DuckStore.open(tmp_path, settings=SETTINGS)
    assert list(store.health().notes) == []
    rows = store.series()
    assert [row.run for row in rows] == [f"run-{n}" for n in range(RUNS) for _ in range(3)]
    counts = [sum(len(part) for part in store.points([row.series])) for row in rows]
    assert counts == [ROWS, 0, 0] * RUNS
    store.compact()
    assert size(tmp_path) < SMALL
    for number in (0, RUNS):
        made: Origin = origin(f"j{number}")
        cursor = store.cursor(made.journal)
        batch = BatchWriter(made, definitions(f"run-{number}"), at=cursor).batch(ramp(1))
        assert store.write([batch])[0].accepted
    store.close()
