"""The manifest: what is appended, what a crash leaves of it, and what older versions wrote."""

from __future__ import annotations

import math
import os
import tarfile
from pathlib import Path
from random import Random
from typing import Any

import pytest

from runwatch.clock import Clock, system_clock
from runwatch.record import JournalId, RunId
from runwatch.store.duck import hot, manifest
from runwatch.store.duck.blocks import Block
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.duck.hot import Connection
from runwatch.store.duck.manifest import JSON, LOG, Manifest, ManifestLog
from runwatch.testing import EPOCH, SECOND, BatchWriter, FakeClock, definitions, origin, ramp
from tests.unit.store.batches import DAY
from tests.unit.store.make_old_store import JOURNAL, POINTS, RUN
from tests.unit.store.test_duck import SMALL, consecutive, send_rest, steps

FIXTURES = Path(__file__).parents[2] / "fixtures" / "store"


def said(directory: Path) -> dict[str, Any]:
    found = ManifestLog(directory).load()
    assert found is not None
    return comparable(found)


def comparable(found: Manifest) -> dict[str, Any]:
    slot, time_ns, step, value = (column.tolist() for column in found.latest)
    return {
        "change": found.change,
        "generation": found.generation,
        "blocks": {block.file: block for block in found.blocks},
        "cursors": sorted(found.cursors),
        "catalog": {name: [tuple(row) for row in rows] for name, rows in found.catalog.items()},
        "latest": sorted(zip(slot, time_ns, step, map(repr, value), strict=True)),
    }


def should_say(connection: Connection, blocks: list[Block], change: int) -> dict[str, Any]:
    """As the database has it, all read anew."""
    seed = hot.load_seed(connection, *hot.load_generations(connection)[0])
    catalog = hot.load_catalog(connection)
    return comparable(Manifest(change, seed.generation, blocks, seed.cursors, catalog, seed.latest))


def in_store(store: DuckStore) -> dict[str, Any]:
    with store._base.cursor() as cursor:
        return should_say(cursor, list(store.closed_blocks()), store._change)


@pytest.mark.parametrize("spare", [0, manifest.SPARE_BYTES])
@pytest.mark.parametrize("turns", [17, pytest.param(300, marks=pytest.mark.soak)])
def test_what_was_appended_is_what_the_database_has(
    tmp_path: Path, spare: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SPARE_BYTES", spare)
    random, directory = Random(7), tmp_path / "store"
    store = DuckStore.open(directory, settings=SMALL)
    writers = [BatchWriter(origin(f"j{n}"), definitions(f"run-{n}")) for n in range(6)]
    values = [1.5, math.nan, math.inf, -math.inf, -0.0, 5e-324]
    for turn in range(turns):
        for writer in random.sample(writers, random.randint(1, 3)):
            rows = [(random.randint(1, 4), EPOCH + turn * SECOND, turn, random.choice(values))]
            store.write([writer.batch(rows)])
        store.compact(force=True)
        if turn == 12:
            store.delete(RunId("run-3"), at_ns=EPOCH, purge_ns=EPOCH)
        if turn % 8 == 7:
            store.close()
            store = DuckStore.open(directory, settings=SMALL)
        assert said(directory) == in_store(store)
    store.close()


def test_a_change_costs_what_it_changes(tmp_path: Path) -> None:
    grown = {}
    for series in (10, 3_000):
        store = DuckStore.open(tmp_path / str(series), settings=SMALL)
        writer = BatchWriter(definitions=definitions(series=series))
        store.write([writer.batch([(n + 1, EPOCH, 1, 1.0) for n in range(series)])])
        store.compact(force=True)
        log = tmp_path / str(series) / LOG
        before = log.stat()
        store.write([writer.batch([(1, EPOCH + SECOND, 2, 1.0)])])
        store.compact(force=True)
        assert log.stat().st_ino == before.st_ino
        grown[series] = log.stat().st_size - before.st_size
        store.close()
    assert abs(grown[3_000] - grown[10]) < 100


def test_opening_writes_nothing_where_nothing_changed(tmp_path: Path) -> None:
    store = DuckStore.open(tmp_path, settings=SMALL)
    store.write(consecutive(2))
    store.compact(force=True)
    store.close()
    before = (tmp_path / LOG).stat()
    DuckStore.open(tmp_path, settings=SMALL).close()
    after = (tmp_path / LOG).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_states_that_no_longer_hold_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SPARE_BYTES", 2_000)
    store, writer = DuckStore.open(tmp_path, settings=SMALL), BatchWriter()
    sizes = []
    for turn in range(25):
        store.write([writer.batch(ramp(2, first=2 * turn))])
        store.compact(force=True)
        sizes.append((tmp_path / LOG).stat().st_size)
    assert said(tmp_path) == in_store(store)
    store.close()
    assert sizes[-1] < 20_000
    assert any(later < earlier for earlier, later in zip(sizes, sizes[1:], strict=False))


# ── crashes ────────────────────────────────────────────────────────────────────────────────────


def two_states(
    directory: Path, clock: Clock = system_clock
) -> tuple[DuckStore, dict[str, Any], int]:
    """A store, what its manifest said before the last change, and how long it was then."""
    store, batches = DuckStore.open(directory, settings=SMALL, clock=clock), consecutive(4)
    store.write(batches[:2])
    store.compact(force=True)
    before, length = said(directory), (directory / LOG).stat().st_size
    store.write(batches[2:])
    store.write([BatchWriter(origin("late"), definitions("late")).batch(ramp(1))])
    store.compact(force=True)
    return store, before, length


def test_a_torn_append_is_as_if_it_had_not_begun(tmp_path: Path) -> None:
    """Cut off at any byte, or with the rest of the frame as zeros: its length came, it did not."""
    store, before, length = two_states(tmp_path / "store", FakeClock(EPOCH))
    store.close()
    whole = (tmp_path / "store" / LOG).read_bytes()
    ends = [frame.end for frame in manifest._frames(whole) if frame.end > length]
    assert len(ends) == 2  # rows of the catalogue, and the state
    image = tmp_path / "image"
    image.mkdir()
    del before["catalog"]
    for at in range(length, len(whole)):
        end = next(end for end in ends if end > at)
        for rest in (b"", bytes(end - at)):
            (image / LOG).write_bytes(whole[:at] + rest)
            if whole.startswith(whole[:at] + rest) and rest:
                continue  # zeros are what it ends with
            found = said(image)
            journals = found.pop("catalog")["journals"]
            assert len(journals) == (1 if at < ends[0] else 2)  # it may be newer
            assert found == before


def test_after_a_torn_append_the_store_says_it_again(tmp_path: Path) -> None:
    store, _, length = two_states(tmp_path)
    wanted = in_store(store)
    store.close()
    os.truncate(tmp_path / LOG, length + 30)
    store = DuckStore.open(tmp_path, settings=SMALL)
    assert said(tmp_path) == wanted == in_store(store)
    store.close()


def test_one_that_is_bad_in_the_middle_is_not_read(tmp_path: Path) -> None:
    store, _, length = two_states(tmp_path)
    store.close()
    content = bytearray((tmp_path / LOG).read_bytes())
    content[length - 40] ^= 0xFF
    (tmp_path / LOG).write_bytes(content)
    assert ManifestLog(tmp_path).load() is None
    assert ManifestLog(tmp_path).change is None
    store = DuckStore.open(tmp_path, settings=SMALL)
    assert said(tmp_path) == in_store(store)
    store.close()


@pytest.mark.parametrize("merged", [False, True])
def test_with_a_torn_manifest_and_no_database_no_block_is_deleted(
    tmp_path: Path, merged: bool
) -> None:
    """Where the files that it names are gone by then, nothing of it is believed."""
    clock = FakeClock(EPOCH + 3 * DAY if merged else EPOCH)
    store, before, length = two_states(tmp_path, clock)
    there = {block.file for block in store.closed_blocks()}
    aside = there if merged else there - before["blocks"].keys()
    store.close()
    os.truncate(tmp_path / LOG, length + 30)
    (tmp_path / "hot.duckdb").write_bytes(b"not a database")
    store = DuckStore.open(tmp_path, settings=SMALL, clock=clock)
    assert aside
    assert {path.name for path in tmp_path.glob("damaged-*/*.parquet")} == aside
    assert store.cursor(JournalId("journal-a")) == (0 if merged else 200)
    send_rest(store, consecutive(4))
    assert steps(store) == list(range(40))
    store.compact(force=True)
    assert said(tmp_path) == in_store(store)
    store.close()


def test_an_append_that_failed_half_way_is_no_part_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, writer = DuckStore.open(tmp_path, settings=SMALL), BatchWriter()
    store.write([writer.batch(ramp(2))])
    store.compact(force=True)
    with monkeypatch.context() as full, store._base.cursor() as cursor:
        full.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="no space"):
            assert store._manifest is not None
            store._manifest.save(cursor, store.closed_blocks(), store._change)
    store.write([writer.batch(ramp(2, first=2))])
    store.compact(force=True)
    assert said(tmp_path) == in_store(store)
    assert not ManifestLog(tmp_path).is_torn
    store.close()


def fails(*_: object) -> None:
    raise OSError("no space")


def test_a_database_that_lost_rows_of_the_catalogue_is_written_down_anew(tmp_path: Path) -> None:
    """Its log was cut off after the last change to blocks: what comes then has their numbers."""
    connection = hot.connect(None, {})
    hot.migrate(connection, hot.migrations(), now_ns=1)
    none = manifest._nothing(1)[:, 0]
    hot.create_generation(connection, hot.Seed(1, 1, [], (none, none, none, none.astype(float))))
    hot.insert_rows(connection, "runs", [(1, "kept"), (2, "lost")])
    ManifestLog(tmp_path).save(connection, [], 1)
    connection.execute("DELETE FROM runs WHERE number = 2")
    log = ManifestLog(tmp_path)
    assert not log.is_current(connection, 1)
    log.save(connection, [], 1)
    hot.insert_rows(connection, "runs", [(2, "other"), (3, "more")])
    log.save(connection, [], 2)
    assert said(tmp_path)["catalog"]["runs"] == [(1, "kept"), (2, "other"), (3, "more")]
    connection.close()


# ── older versions ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ["v1", "v2", "v3", "v4"])
def test_the_manifest_of_each_version_is_begun_from(tmp_path: Path, version: str) -> None:
    with tarfile.open(FIXTURES / f"{version}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    directory = tmp_path / "store"
    assert (directory / JSON).exists() == (version != "v4")
    (directory / "hot.duckdb").write_bytes(b"not a database")
    for _ in range(2):
        store = DuckStore.open(directory, settings=DuckSettings(reserve_bytes=0))
        [process] = store.processes(RunId(RUN))
        assert (process.host, process.rank, process.world_size) == ("gpu-1", 3, 8)
        [loss] = store.series(RunId(RUN), metric="loss")
        assert (loss.unit, loss.labels) == ("1", {"split": "train"})
        assert [row.value for row in store.latest([loss.series])] == [POINTS // 2 - 1]
        assert store.cursor(JournalId(JOURNAL)) == POINTS // 2 * 40
        found = [v for part in store.points([loss.series]) for v in part.value]
        assert found == [float(number) for number in range(POINTS // 2)]
        assert said(directory) == in_store(store)
        store.close()
        assert not (directory / JSON).exists()
