"""What the embedded engine promises beyond the Protocol: locks, crashes, damage, a full disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import BinaryIO

import duckdb
import pytest

from runwatch.errors import StoreBusy, StoreDamaged, StoreFull
from runwatch.record import Batch, Event, JournalId
from runwatch.store.duck import engine, hot
from runwatch.store.duck.blocks import CLOSED, Block
from runwatch.store.duck.clustering import plan_merges
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.duck.leases import Leases
from runwatch.store.store import Retention
from runwatch.testing import EPOCH, SECOND, BatchWriter, FakeClock, definitions, ramp
from tests.unit.store.batches import DAY
from tests.unit.store.children import CONTEXT

JOURNAL = JournalId("journal-a")
SMALL = DuckSettings(threads=1, merge_parts=3, reserve_bytes=0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


def steps(store: DuckStore) -> list[int | None]:
    ids = [row.series for row in store.series()]
    return [step for part in store.points(ids) for step in part.step]


def consecutive(count: int, rows: int = 10) -> list[Batch]:
    writer = BatchWriter()
    return [writer.batch(ramp(rows, first=rows * i)) for i in range(count)]


def send_rest(store: DuckStore, batches: list[Batch]) -> None:
    """As a shipper does: from wherever the store says."""
    for batch in batches:
        if batch.start >= store.cursor(JOURNAL):
            assert store.write([batch])[0].accepted


def crash_image(directory: Path) -> Path:
    """What a power cut would leave: a copy of the files while the store is open."""
    image = directory.with_name("image")
    shutil.copytree(directory, image)
    return image


@pytest.mark.parametrize("unclosed", [1, 2])
def test_a_generation_that_is_in_no_block_is_asked_for_again(
    unclosed: int, directory: Path
) -> None:
    """Killed between the switch and the close, opened again, and then the database is damaged."""
    batches = consecutive(6)

    def stop(place: str) -> None:
        if place == "switched":
            raise OSError("killed here")

    store = DuckStore.open(directory, settings=SMALL)
    store.write(batches[:2])
    store.compact(force=True)
    store.close()
    for number in range(unclosed):
        store = DuckStore.open(directory, settings=replace(SMALL, reached=stop))
        store.write(batches[2 + number : 3 + number])
        with pytest.raises(StoreDamaged, match="killed here"):
            store.compact(force=True)
        store.close()
    DuckStore.open(directory, settings=SMALL).close()
    (directory / "hot.duckdb").write_bytes(b"not a database")
    store = DuckStore.open(directory, settings=SMALL)
    assert store.cursor(JOURNAL) == batches[1].end  # what the blocks hold, and nothing more
    send_rest(store, batches)
    assert steps(store) == list(range(60))
    store.close()


# ── one process at a time ──────────────────────────────────────────────────────────────────────


def test_a_second_opener_is_told_who_has_it(directory: Path) -> None:
    store = DuckStore.open(directory, settings=SMALL)
    with pytest.raises(StoreBusy, match=f"process {os.getpid()}"):
        DuckStore.open(directory)
    store.close()
    DuckStore.open(directory).close()


def test_the_directory_is_private(directory: Path) -> None:
    store = DuckStore.open(directory, settings=SMALL)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert json.loads((directory / "lock").read_text())["pid"] == os.getpid()
    store.close()


def test_a_directory_that_cannot_be_opened_stays_unlocked(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    DuckStore.open(directory, settings=SMALL).close()
    _set_version(directory, 99)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=rf"version 99.*version {len(hot.migrations())}"):
            DuckStore.open(directory)
    assert not list(directory.glob("damaged-*"))


# ── killed ─────────────────────────────────────────────────────────────────────────────────────


def _write_until(directory: Path, place: str, output: Connection) -> None:
    """Writes and compacts for ever, or until it reaches the place."""

    def reached(here: str) -> None:
        if here == place:
            os.kill(os.getpid(), signal.SIGKILL)

    store = DuckStore.open(directory, settings=replace(SMALL, reached=reached))
    writer = BatchWriter()
    for i in range(10_000):
        store.write([writer.batch(ramp(50, first=50 * i))])
        os.write(output.fileno(), b"%d\n" % (50 * (i + 1)))
        if i % 4 == 3:
            store.compact(force=True)


@contextmanager
def _writer(directory: Path, place: str) -> Iterator[tuple[BaseProcess, BinaryIO]]:
    """A process that writes, and what it says was acknowledged."""
    receiving, sending = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_write_until, args=(directory, place, sending))
    process.start()
    sending.close()
    with receiving, open(os.dup(receiving.fileno()), "rb") as output:
        yield process, output
    process.join(60)


def _acknowledged(output: bytes) -> int:
    whole = output[: output.rfind(b"\n") + 1].split()
    return int(whole[-1]) if whole else 0


@pytest.mark.parametrize("lines", [1, 7, 30])
def test_sigkill_of_the_writer_loses_nothing_acknowledged(directory: Path, lines: int) -> None:
    with _writer(directory, "nowhere") as (process, output):
        said = b"".join(output.readline() for _ in range(lines))
        process.kill()
        said += output.read()
    _check_after_kill(directory, _acknowledged(said))


@pytest.mark.parametrize(
    "place", ["switched", "written", "registered", "manifest", "merged", "replaced"]
)
def test_killed_while_compacting(directory: Path, place: str) -> None:
    with _writer(directory, place) as (process, output):
        said = output.read()
    assert process.exitcode == -signal.SIGKILL
    _check_after_kill(directory, _acknowledged(said))


def _check_after_kill(directory: Path, acknowledged: int) -> None:
    store = DuckStore.open(directory, settings=SMALL)
    found = steps(store)
    assert len(found) >= acknowledged
    assert found == list(range(len(found)))
    assert store.cursor(JOURNAL) == 10 * len(found)
    ids = [row.series for row in store.series()]
    for _ in range(2):
        assert sum(store.curves(ids)[0].count) == len(found)
        store.compact(force=True)
    assert steps(store) == found
    store.close()
    files = {path.name for path in (directory / "blocks").iterdir()}
    store = DuckStore.open(directory, settings=SMALL)
    assert {block.file for block in store.closed_blocks()} == files
    assert list(store.health().notes) == []
    store.close()


# ── damaged ────────────────────────────────────────────────────────────────────────────────────


def _half_compacted(directory: Path, batches: list[Batch]) -> DuckStore:
    store = DuckStore.open(directory, settings=SMALL)
    store.write(batches[:3])
    store.compact(force=True)
    store.write(batches[3:6])
    return store


@pytest.mark.parametrize("keep", [0, 100, 5000, 13_000])
def test_a_truncated_database_begins_again_from_the_manifest(directory: Path, keep: int) -> None:
    batches = consecutive(8)
    _half_compacted(directory, batches).close()
    os.truncate(directory / "hot.duckdb", keep)
    store = DuckStore.open(directory, settings=SMALL)
    if keep:  # an empty file is a valid, empty database: then only the manifest knows better
        assert "hot.duckdb" in store.health().notes[0]
    assert store.cursor(JOURNAL) == batches[2].end
    assert steps(store) == list(range(30))
    assert [row.value for row in store.latest([store.series()[0].series])] == [29.0]
    send_rest(store, batches)
    assert steps(store) == list(range(80))
    store.close()
    store = DuckStore.open(directory, settings=SMALL)
    assert steps(store) == list(range(80))
    assert any("damaged-" in note for note in store.health().notes)
    store.close()


@pytest.mark.parametrize("damage", ["cut", "half", "zero", "flip", "empty"])
def test_a_damaged_log_costs_at_most_what_is_sent_again(directory: Path, damage: str) -> None:
    batches = consecutive(8)
    store = _half_compacted(directory, batches)
    image = crash_image(directory)
    store.close()
    log = image / "hot.duckdb.wal"
    content = bytearray(log.read_bytes())
    middle = len(content) // 2
    if damage == "cut":
        del content[-7:]
    elif damage == "half":
        del content[middle:]
    elif damage == "zero":
        content[middle : middle + 200] = bytes(200)
    elif damage == "flip":
        content[middle] ^= 0xFF
    else:
        content.clear()
    log.write_bytes(content)
    store = DuckStore.open(image, settings=SMALL)
    found = steps(store)
    assert found == list(range(len(found)))
    assert store.cursor(JOURNAL) == 10 * len(found)
    send_rest(store, batches)
    assert steps(store) == list(range(80))
    store.close()


def test_neither_database_nor_manifest(directory: Path) -> None:
    batches = consecutive(4)
    _half_compacted(directory, batches).close()
    (directory / "hot.duckdb").write_bytes(b"x" * 50_000)
    (directory / "manifest.log").write_text("{not a log")
    store = DuckStore.open(directory, settings=SMALL)
    assert "blocks that no list names" in " ".join(store.health().notes)
    send_rest(store, batches)
    assert steps(store) == list(range(40))
    store.close()
    assert list(directory.glob("damaged-*/points-*.parquet")), "set aside, never deleted"


@pytest.mark.parametrize("when", ["closed", "open"])
@pytest.mark.parametrize("damage", ["truncated", "garbage", "inside", "missing"])
def test_a_damaged_block_is_set_aside_and_the_rest_served(
    directory: Path, damage: str, when: str
) -> None:
    store = DuckStore.open(directory, settings=DuckSettings(threads=1, reserve_bytes=0))
    writer = BatchWriter()
    for day in range(3):
        store.write([writer.batch(ramp(1000, start=EPOCH + day * DAY, first=1000 * day))])
        store.compact(force=True)
    bad = next(b for b in store.closed_blocks() if b.kind == "points" and b.day == EPOCH // DAY + 1)
    if when == "closed":
        store.close()
    _damage(directory / "blocks" / bad.file, damage)
    if when == "closed":
        store = DuckStore.open(directory, settings=SMALL)
    ids = [row.series for row in store.series(metric="metric")]
    curve = store.curves(ids, start=EPOCH - 1, end=EPOCH + 4 * DAY + 1, buckets=3)[0]
    assert sum(curve.count) == 3000, "the roll-up of the lost part still serves curves"
    narrow = store.curves(ids, start=EPOCH + DAY + 1, end=EPOCH + DAY + 10**12, buckets=9)
    assert narrow == [] or sum(narrow[0].count) > 0
    try:
        served = steps(store)
    except StoreDamaged:  # half-way through an answer it cannot be hidden; asked again it is well
        served = steps(store)
    assert len(served) == 2000
    assert any(bad.file in note for note in store.health().notes)
    store.close()


def _damage(path: Path, damage: str) -> None:
    size = path.stat().st_size
    if damage == "truncated":
        os.truncate(path, size // 2)
    elif damage == "garbage":
        path.write_bytes(b"?" * size)
    elif damage == "missing":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[4 : size // 2] = bytes(size // 2 - 4)
        path.write_bytes(content)


def _set_version(directory: Path, version: int) -> None:
    connection = duckdb.connect(str(directory / "hot.duckdb"))
    connection.execute("INSERT INTO schema_version VALUES (?, 0)", [version])
    connection.close()


# ── schema ─────────────────────────────────────────────────────────────────────────────────────


def test_migrations_run_once_each_and_in_order() -> None:
    connection = duckdb.connect()
    chain = [(1, "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)")]
    assert hot.migrate(connection, chain, now_ns=1) == 1
    chain += [(2, "ALTER TABLE t ADD COLUMN b INTEGER"), (3, "UPDATE t SET b = a + 1")]
    for _ in range(2):
        assert hot.migrate(connection, chain, now_ns=2) == 3
    assert connection.execute("SELECT * FROM t").fetchall() == [(1, 2)]
    applied = connection.execute("SELECT * FROM schema_version").fetchall()
    assert applied == [(1, 1), (2, 2), (3, 2)]
    connection.close()


def test_a_migration_that_fails_leaves_the_version_before_it() -> None:
    connection = duckdb.connect()
    chain = [(1, "CREATE TABLE t (a INTEGER)"), (2, "INSERT INTO t VALUES (1); SELECT nothing")]
    with pytest.raises(duckdb.Error):
        hot.migrate(connection, chain, now_ns=1)
    assert hot.schema_version(connection) == 1
    assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
    connection.close()


def test_the_shipped_migrations_are_numbered_from_one() -> None:
    versions = [version for version, _ in hot.migrations()]
    assert versions == list(range(1, len(versions) + 1))


# ── no space ───────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_taken_below_the_reserve(directory: Path) -> None:
    DuckStore.open(directory, settings=SMALL).close()
    store = DuckStore.open(directory, settings=DuckSettings(threads=1, reserve_bytes=2**62))
    batch = consecutive(1)[0]
    with pytest.raises(StoreFull, match="bytes free"):
        store.write([batch])
    assert "no space left" in store.health().problem
    assert store.cursor(JOURNAL) == 0
    store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_stops_and_resumes(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(12 << 20))
    store = DuckStore.open(small_disk / "store", settings=SMALL)
    batches = consecutive(60, rows=5000)
    with pytest.raises(StoreFull, match="bytes free"):
        store.write([_noisy(batch) for batch in batches])
        for batch in batches:
            store.write([batch])
    stored = store.cursor(JOURNAL) // 10
    assert stored < 300_000
    filler.unlink()
    send_rest(store, batches)
    assert steps(store) == list(range(300_000))
    assert store.health().problem == ""
    store.close()


def test_compaction_on_a_full_disk_leaves_nothing_behind(small_disk: Path) -> None:
    directory = small_disk / "store"
    store = DuckStore.open(directory, settings=SMALL)
    random = Random(1)
    rows = [(1, EPOCH + i * SECOND, i, random.random()) for i in range(100_000)]
    store.write([BatchWriter().batch(rows)])
    free = shutil.disk_usage(small_disk).free
    filler = small_disk / "filler"
    filler.write_bytes(bytes(free - (400 << 10)))
    with pytest.raises(StoreFull):
        store.compact(force=True)
    assert list((directory / "blocks").iterdir()) == []
    filler.unlink()
    assert steps(store) == list(range(100_000))
    assert store.compact(force=True) == 100_000
    assert steps(store) == list(range(100_000))
    store.close()


def _noisy(batch: Batch) -> Batch:
    """A ballast event, too large for the disk, in the same transaction."""
    text = os.urandom(400_000).hex()
    return Batch(
        batch.origin,
        batch.start,
        batch.end,
        batch.definitions,
        batch.points,
        events=[Event(EPOCH, "log", {"text": text})],
    )


# ── compaction ─────────────────────────────────────────────────────────────────────────────────


def test_ripe_by_rows_and_by_age(directory: Path) -> None:
    clock = FakeClock(EPOCH)
    settings = DuckSettings(threads=1, compact_rows=25, compact_seconds=100, reserve_bytes=0)
    store = DuckStore.open(directory, clock=clock, settings=settings)
    first, second, third, fourth = consecutive(4)
    store.write([first, second])
    assert store.compact() == 0
    store.write([third])
    assert store.compact() == 30
    store.write([fourth])
    assert store.compact() == 0
    clock.now_ns += 100 * SECOND
    assert store.compact() == 10
    clock.now_ns += 100 * SECOND
    assert store.compact() == 0, "nothing new, however old"
    store.close()


def test_parts_of_a_day_are_merged_and_a_closed_day_is_one(directory: Path) -> None:
    clock = FakeClock(EPOCH + 3600 * SECOND)
    store = DuckStore.open(directory, clock=clock, settings=SMALL)
    for batch in consecutive(7):
        store.write([batch])
        store.compact(force=True)
    levels = sorted(b.level for b in store.closed_blocks() if b.kind == "points")
    assert levels == [0, 1, 1]
    clock.now_ns = EPOCH + 2 * DAY
    store.compact()
    assert [b.level for b in store.closed_blocks() if b.kind == "points"] == [CLOSED]
    assert steps(store) == list(range(70))
    store.close()
    assert len(list((directory / "blocks").iterdir())) == 2


def test_a_large_merge_is_cut_by_series(directory: Path) -> None:
    settings = DuckSettings(threads=1, merge_parts=2, merge_rows=25, reserve_bytes=0)
    store = DuckStore.open(directory, clock=FakeClock(EPOCH + DAY // 2), settings=settings)
    writer = BatchWriter(definitions=definitions(series=5))
    for part in range(2):
        rows = [row for s in range(1, 6) for row in ramp(5, series=s, first=5 * part)]
        store.write([writer.batch(rows)])
        store.compact(force=True)
    merged = [b for b in store.closed_blocks() if b.kind == "points"]
    assert sorted(b.rows for b in merged) == [10, 20, 20]
    ranges = sorted((b.key_min, b.key_max) for b in merged)
    assert all(a[1] < b[0] for a, b in zip(ranges, ranges[1:], strict=False))
    assert sorted(step or 0 for step in steps(store)) == sorted(list(range(10)) * 5)
    store.close()


def test_rows_of_very_many_days_share_a_file(directory: Path) -> None:
    store = DuckStore.open(directory, settings=SMALL)
    rows = [(1, day * DAY, day, 1.0) for day in range(-20, 40)]
    store.write([BatchWriter().batch(rows)])
    store.compact(force=True)
    assert len([b for b in store.closed_blocks() if b.kind == "points"]) == 17
    assert steps(store) == list(range(-20, 40))
    store.close()


def _block(level: int, rows: int, *, day: int = 5, part: int = 1) -> Block:
    return Block(
        f"points-{part}", "points", part, part, day, level, rows, 1, 0, 9, day * DAY, day * DAY
    )


@pytest.mark.parametrize(
    ("rows_by_level", "now_day", "expected"),
    [
        ([(0, 9), (0, 9)], 5, []),
        ([(0, 9), (0, 9), (0, 9)], 5, [1]),
        ([(0, 9), (1, 9), (1, 9)], 5, []),
        ([(0, 9)], 8, []),
        ([(0, 9), (1, 9)], 8, [CLOSED]),
        ([(CLOSED, 100), (0, 9)], 8, []),
        ([(CLOSED, 100), (0, 60)], 8, [CLOSED]),
        ([(CLOSED, 100), (0, 1), (0, 1), (0, 1)], 8, [CLOSED]),
        ([(CLOSED, 100), (CLOSED, 100)], 8, []),
    ],
)
def test_which_parts_are_merged(
    rows_by_level: list[tuple[int, int]], now_day: int, expected: list[int]
) -> None:
    blocks = [_block(level, rows, part=i) for i, (level, rows) in enumerate(rows_by_level)]
    merges = plan_merges(blocks, now_ns=now_day * DAY, parts=3, close_seconds=60)
    assert [merge.level for merge in merges] == expected


def test_what_a_slow_clock_wrote_is_kept_as_long_as_the_rest(directory: Path) -> None:
    """A node's clock is 200 days behind: its points are old when they come, and came just now."""
    clock = FakeClock(EPOCH + 200 * DAY)
    store = DuckStore.open(directory, settings=SMALL, clock=clock)
    batches = consecutive(4)
    for batch in batches:  # each a file, which become one
        store.write([batch])
        store.compact(force=True)
    clock.now_ns += 89 * DAY
    store.compact()
    assert store.retain(Retention(), now_ns=clock.now_ns)["points"] == 0
    assert len(steps(store)) == 40
    clock.now_ns += 2 * DAY
    assert store.retain(Retention(), now_ns=clock.now_ns)["points"] == 40
    store.close()


def test_health_knows_when_the_newest_block_was_written(directory: Path) -> None:
    clock = FakeClock(EPOCH + 200 * DAY)
    store = DuckStore.open(directory, settings=SMALL, clock=clock)
    assert store.health().newest_block_ns is None
    for batch in consecutive(2):
        clock.now_ns += DAY
        store.write([batch])
        store.compact(force=True)
        assert store.health().newest_block_ns == clock.now_ns
    store.close()


def test_roll_ups_outlive_their_points(directory: Path) -> None:
    store = DuckStore.open(directory, settings=SMALL, clock=FakeClock(EPOCH))
    store.write([BatchWriter().batch(ramp(1000))])
    store.compact(force=True)
    store.retain(Retention(points_days=1), now_ns=EPOCH + 5 * DAY)
    ids = [row.series for row in store.series()]
    assert steps(store) == []
    assert sum(store.curves(ids)[0].count) == 1000
    assert store.curves(ids, axis="step") == []
    store.retain(Retention(rollup_days=1), now_ns=EPOCH + 5 * DAY)
    assert store.curves(ids) == []
    store.close()
    assert list((directory / "blocks").iterdir()) == []


# ── readers beside the writer ──────────────────────────────────────────────────────────────────


def test_readers_see_every_row_once_while_others_write_and_compact(directory: Path) -> None:
    store = DuckStore.open(directory, settings=SMALL)
    batches = consecutive(150)
    store.write(batches[:1])
    series = store.series()[0].series
    done = threading.Event()
    failures: list[str] = []

    def read(ask: Callable[[], list[int | None]]) -> None:
        while not done.is_set():
            low = store.cursor(JOURNAL) // 10
            found = ask()
            high = store.cursor(JOURNAL) // 10
            # A commit is visible to a query a moment before the cursor says so.
            if len(set(found)) != len(found) or not low <= len(found) <= high + 10:
                failures.append(f"{low} <= {len(found)} <= {high}")

    def whole() -> list[int | None]:
        return [step for part in store.points([series], rows=37) for step in part.step]

    def by_step() -> list[int | None]:
        curve = store.curves([series], axis="step", start=0, end=1500, buckets=1500)[0]
        return [place for place, n in zip(curve.position, curve.count, strict=True) if n == 1]

    def compact() -> None:
        while not done.is_set():
            store.compact(force=True)

    jobs: list[Callable[[], None]] = [lambda: read(whole), lambda: read(by_step), compact]
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for batch in batches[1:]:
        store.write([batch])
    done.set()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert steps(store) == list(range(1500))
    store.close()


def test_what_a_reader_may_need_waits_for_it() -> None:
    leases = Leases()
    gone: list[str] = []
    with leases.shared():
        leases.later(lambda: gone.append("file"))
        leases.sweep()
        assert gone == []
        with leases.shared():
            pass
    with leases.shared():
        leases.sweep()
        assert gone == ["file"], "a reader that came later does not need it"


def test_who_holds_a_lease_does_not_wait_for_itself() -> None:
    leases = Leases()
    with leases.shared():
        with leases.exclusive(0.01) as is_alone:
            assert not is_alone
        with leases.shared():
            pass  # nobody waits any more
    with leases.exclusive(0.01) as is_alone:
        assert is_alone


def test_a_reading_that_stands_still_does_not_block_a_store_that_must_be_reopened(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "REOPEN_SECONDS", 0.01)
    store = DuckStore.open(directory, settings=SMALL)
    first, second = consecutive(2)
    store.write([first])
    reading = store.points([store.series()[0].series], rows=5)
    next(reading)
    assert not store._repaired(duckdb.FatalException("the engine refuses everything"))
    with pytest.raises(StoreDamaged):
        store.write([second])
    assert list(reading)
    assert store.write([second])[0].accepted
    store.close()


def test_a_reading_begun_before_a_merge_goes_on_after_it(directory: Path) -> None:
    store = DuckStore.open(directory, settings=SMALL)
    batches = consecutive(6)
    for batch in batches[:2]:
        store.write([batch])
        store.compact(force=True)
    series = store.series()[0].series
    reading = store.points([series], rows=5)
    first = next(reading)
    for batch in batches[2:]:
        store.write([batch])
        store.compact(force=True)
    rest = [step for part in reading for step in part.step]
    assert [*first.step, *rest] == list(range(20))
    assert steps(store) == list(range(60))
    store.compact(force=True)
    store.close()
