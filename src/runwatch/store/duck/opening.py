"""From a directory to a working store, whatever state a crash or a bad disk left it in.

The database is the authority.  If it cannot be read, only its write-ahead log is set aside first:
the last checkpoint is a consistent prefix.  If that is not enough, the whole database is set aside,
and a new one is built from the manifest.  In both cases the cursors are as old as the rows, so
producers send exactly what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import duckdb
import numpy as np

from runwatch.clock import Clock
from runwatch.errors import StoreDamaged, StoreFull
from runwatch.files import FULL
from runwatch.store.duck import hot
from runwatch.store.duck.blocks import Block, BlockFiles, set_aside
from runwatch.store.duck.catalog import Catalog
from runwatch.store.duck.hot import Connection, Seed
from runwatch.store.duck.latest import LatestValues
from runwatch.store.duck.manifest import Manifest, ManifestLog

DATABASE: Final = "hot.duckdb"

# Failures that are not the database's: setting its files aside would not help.
_NOT_DAMAGE: Final = (
    "Permission denied",
    "Read-only file system",
    "Too many open files",
    "Could not set lock",
    "Cannot allocate memory",
    "version number",
)
_NO_SPACE: Final = ("No space left", "Disk quota exceeded", "no space")


@dataclass(slots=True)
class Opened:
    connection: Connection
    catalog: Catalog
    latest: LatestValues
    seed: Seed
    """The seed of the newest generation."""
    rows: dict[int, dict[str, int]]
    """Generation -> rows by kind; oldest generation first."""
    blocks: list[Block]
    change: int
    schema_version: int
    notes: list[str] = field(default_factory=list)
    manifest: ManifestLog | None = None
    """None for a store in memory."""


class _LostTail(Exception):
    pass


def no_space(error: Exception) -> bool:
    return any(words in str(error) for words in _NO_SPACE)


def full(directory: Path, error: OSError) -> OSError | StoreFull:
    """The error to raise when a store cannot be created."""
    if error.errno not in FULL:
        return error
    return StoreFull(f"no space left to create a store in {directory}: free some and start again")


def open_memory(config: Mapping[str, str | int], clock: Clock) -> Opened:
    return _load(hot.connect(None, config), clock)


def open_directory(
    directory: Path, files: BlockFiles, config: Mapping[str, str | int], clock: Clock
) -> Opened:
    manifest = ManifestLog(directory)
    notes = [f"set aside earlier: {path.name}" for path in sorted(directory.glob("damaged-*"))]
    opened = _open_or_recover(directory, files, config, clock, manifest, notes)
    opened.notes, opened.manifest = notes, manifest
    _check_blocks(directory, files, opened, clock)
    try:
        if not manifest.is_current(opened.connection, opened.change):
            manifest.save(opened.connection, opened.blocks, opened.change)
    except OSError as error:
        if error.errno not in FULL:
            raise
        # The old manifest stays, with every block that it names; stored data is still served.
        opened.notes.append(f"no space was left in {directory} when the store was opened")
        return opened
    files.delete_others(block.file for block in opened.blocks)
    return opened


def stamp(clock: Clock) -> str:
    return datetime.fromtimestamp(clock.wall_ns() / 1e9, UTC).strftime("%Y%m%dT%H%M%S.%f")


def _open_or_recover(
    directory: Path,
    files: BlockFiles,
    config: Mapping[str, str | int],
    clock: Clock,
    changes: ManifestLog,
    notes: list[str],
) -> Opened:
    path = directory / DATABASE
    log = directory / f"{DATABASE}.wal"
    stages = [[log], [path, log]] if log.exists() else [[path, log]]
    for doomed in stages:
        try:
            return _open(path, config, clock, changes.change)
        except (duckdb.Error, _LostTail) as error:
            _raise_if_not_damage(directory, error)
            aside = set_aside(directory, doomed, stamp(clock))
            names = " and ".join(file.name for file in doomed)
            notes.append(f"{names} could not be read and was set aside in {aside.name}: {error}")
    if changes.is_torn and not _has_its_blocks(files, changes.load()):
        changes.distrust()
    manifest = changes.load()
    if manifest is None or changes.is_torn:
        listed = () if manifest is None else (block.file for block in manifest.blocks)
        _set_blocks_aside(directory, files, set(listed), clock, notes)
    return _begin_again(path, config, clock, manifest)


def _open(
    path: Path, config: Mapping[str, str | int], clock: Clock, known_change: int | None
) -> Opened:
    connection = hot.connect(path, config)
    try:
        opened = _load(connection, clock)
        if known_change is not None and known_change > opened.change:
            raise _LostTail(f"change {opened.change}, but the manifest has {known_change}")
    except (duckdb.Error, _LostTail, StoreDamaged):
        connection.close()
        raise
    return opened


def _load(connection: Connection, clock: Clock) -> Opened:
    version = hot.migrate(connection, hot.migrations(), now_ns=clock.wall_ns())
    generations = hot.load_generations(connection)
    if not generations:
        _first_generation(connection, clock)
        generations = hot.load_generations(connection)
    else:
        hot.drop_unlisted(connection, [generation for generation, _ in generations])
    newest, created_ns = generations[-1]
    catalog = Catalog.load(hot.load_catalog(connection))
    for number, position, last_ns in hot.load_cursors(connection, newest):
        journal = catalog.journals[number]
        journal.cursor, journal.last_ns = position, last_ns
    seed = hot.load_seed(connection, newest, created_ns)
    return Opened(
        connection,
        catalog,
        _latest(connection, catalog, seed),
        seed,
        {generation: hot.count_rows(connection, generation) for generation, _ in generations},
        hot.load_blocks(connection),
        hot.load_change(connection),
        version,
    )


def _latest(connection: Connection, catalog: Catalog, seed: Seed) -> LatestValues:
    """Bounded work: the seed has a row per series, and only the newest generation is read."""
    latest = LatestValues()
    latest.update(*seed.latest)
    series, time_ns, step, value = hot.newest_in(connection, seed.generation)
    slots = catalog.find_slots(series.tolist())
    has_slot = np.array([slot is not None for slot in slots], np.bool_)
    at = np.array([slot for slot in slots if slot is not None], np.int64)
    latest.update(at, time_ns[has_slot], step[has_slot], value[has_slot])
    return latest


def _first_generation(connection: Connection, clock: Clock) -> None:
    connection.begin()
    hot.create_generation(connection, empty_seed(clock))
    connection.commit()


def empty_seed(clock: Clock) -> Seed:
    none = np.zeros(0, np.int64)
    return Seed(1, clock.wall_ns(), [], (none, none, none, np.zeros(0)))


def _begin_again(
    path: Path, config: Mapping[str, str | int], clock: Clock, manifest: Manifest | None
) -> Opened:
    connection = hot.connect(path, config)
    hot.migrate(connection, hot.migrations(), now_ns=clock.wall_ns())
    if manifest is not None:
        connection.begin()
        for table, rows in manifest.catalog.items():
            hot.insert_rows(connection, table, [tuple(row) for row in rows])
        hot.create_generation(connection, _seed_of(manifest, clock))
        hot.change_blocks(connection, add=manifest.blocks, remove=(), change=manifest.change)
        connection.commit()
    return _load(connection, clock)


def _seed_of(manifest: Manifest, clock: Clock) -> Seed:
    return Seed(manifest.generation, clock.wall_ns(), manifest.cursors, manifest.latest)


def _raise_if_not_damage(directory: Path, error: Exception) -> None:
    if no_space(error):
        raise StoreFull(f"no space left to open the store in {directory}: {error}") from error
    if any(words in str(error) for words in _NOT_DAMAGE):
        raise StoreDamaged(f"cannot open the store in {directory}: {error}") from error


def _has_its_blocks(files: BlockFiles, manifest: Manifest | None) -> bool:
    """Files are deleted after the manifest has stopped naming them.  So a missing file shows that
    the change that was lost had been made."""
    return manifest is not None and all(files.intact(block) for block in manifest.blocks)


def _set_blocks_aside(
    directory: Path, files: BlockFiles, listed: Collection[str], clock: Clock, notes: list[str]
) -> None:
    """Nobody knows which rows they hold: there is neither a database nor a manifest, or the
    manifest has lost its last change."""
    unlisted = [
        p for p in files.directory.iterdir() if p.suffix == ".parquet" and p.name not in listed
    ]
    if unlisted:
        aside = set_aside(directory, unlisted, stamp(clock))
        notes.append(f"{len(unlisted)} blocks that no list names were set aside in {aside.name}")


def _check_blocks(directory: Path, files: BlockFiles, opened: Opened, clock: Clock) -> None:
    bad = [block for block in opened.blocks if not files.intact(block)]
    if bad:
        opened.notes += remove_bad(directory, files, bad, clock)
        gone = {block.file for block in bad}
        opened.change += 1
        opened.connection.begin()
        hot.change_blocks(opened.connection, add=(), remove=gone, change=opened.change)
        opened.connection.commit()
        opened.blocks = [block for block in opened.blocks if block.file not in gone]


def remove_bad(directory: Path, files: BlockFiles, bad: list[Block], clock: Clock) -> list[str]:
    aside = set_aside(directory, (files.path(block.file) for block in bad), stamp(clock))
    return [
        f"{block.file} ({block.rows} rows) is damaged or missing and was set aside in {aside.name}"
        for block in bad
    ]
