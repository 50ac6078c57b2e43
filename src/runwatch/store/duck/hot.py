"""The hot database: schema and its migrations, generations of fact tables, bulk inserts.

Fact tables are append-only and have no key, index or upsert.  They come in generations: the writer
fills the newest; compaction turns an older one into blocks and then drops its tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt

from runwatch.errors import StoreDamaged
from runwatch.record import NO_STEP
from runwatch.store.duck.blocks import Block
from runwatch.store.duck.catalog import TABLES, Row
from runwatch.store.duck.latest import Floats
from runwatch.store.entries import Integers

Connection = duckdb.DuckDBPyConnection
Columns = Mapping[str, npt.NDArray[Any]]

GENERATION_TABLES: Final = {
    "points": "series BIGINT, time_ns BIGINT, step BIGINT, value DOUBLE",
    "spans": "run BIGINT, journal BIGINT, name BIGINT, span BIGINT, edge BIGINT, time_ns BIGINT, "
    "step BIGINT, place BIGINT",
    "events": "run BIGINT, journal BIGINT, scope BIGINT, time_ns BIGINT, step BIGINT, "
    "kind VARCHAR, body VARCHAR, place BIGINT",
    "cursors": "journal BIGINT, position BIGINT, last_ns BIGINT, seed BOOLEAN",
    "latest": "slot BIGINT, time_ns BIGINT, step BIGINT, value DOUBLE",
}
FACTS: Final = ("points", "spans", "events")
_IS_OF_GENERATION: Final = "regexp_matches(table_name, '^[a-z]+_[0-9]+$')"
_HAS_FACTS: Final = f"regexp_matches(table_name, '^({'|'.join(FACTS)})_[0-9]+$')"

# Step is the only column that may be absent: NULL in the tables, NO_STEP in the arrays.
# The engine reads a NaN in an array as NULL, but a value is never NULL.
_FROM_ARRAYS: Final = {
    "step": f"nullif(step, {NO_STEP})",
    "value": "coalesce(value, 'nan'::DOUBLE)",
}


def _names(table: str) -> list[str]:
    return [column.split()[0] for column in GENERATION_TABLES[table].split(", ")]


BODY: Final = _names("events").index("body")
"""The index of `body` in a row of events."""
_COLUMNS: Final = {
    table: ", ".join(_FROM_ARRAYS.get(name, name) for name in _names(table))
    for table in GENERATION_TABLES
}


@dataclass(frozen=True, slots=True)
class Seed:
    """The state at the beginning of a generation: what was stored before its first row."""

    generation: int
    created_ns: int
    cursors: list[tuple[int, int, int]]
    """Journal number, position, last_ns."""
    latest: tuple[Integers, Integers, Integers, Floats]
    """Slot, time, step, value."""


def connect(path: Path | None, config: Mapping[str, str | int]) -> Connection:
    connection = duckdb.connect(":memory:" if path is None else str(path), config=dict(config))
    connection.execute("SET parquet_metadata_cache = true")
    return connection


# ── schema ─────────────────────────────────────────────────────────────────────────────────────


def migrations() -> list[tuple[int, str]]:
    """Every `schema/NNNN_*.sql`, in order."""
    folder = resources.files("runwatch.store.duck") / "schema"
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [(int(name.split("_")[0]), (folder / name).read_text("utf-8")) for name in files]


def migrate(connection: Connection, steps: Sequence[tuple[int, str]], *, now_ns: int) -> int:
    """Bring the schema up to the newest step; each step is one transaction."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER, applied_ns BIGINT)"
    )
    have = schema_version(connection)
    newest = steps[-1][0]
    if have > newest:
        raise StoreDamaged(
            f"this store has schema version {have}, written by a newer Runwatch; "
            f"this one knows version {newest}. Upgrade Runwatch, or use another directory"
        )
    for version, sql in steps:
        if version > have:
            with transaction(connection):
                connection.execute(sql)
                connection.execute("INSERT INTO schema_version VALUES (?, ?)", [version, now_ns])
    return newest


def schema_version(connection: Connection) -> int:
    row = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    return int(row[0] or 0) if row else 0


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    connection.begin()
    try:
        yield
        connection.commit()
    except duckdb.Error:
        # After a fatal error there is no transaction left, and no engine.
        with suppress(duckdb.Error):
            connection.rollback()
        raise


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """All reads inside see one moment; nothing is written."""
    connection.begin()
    try:
        yield
    finally:
        with suppress(duckdb.Error):
            connection.rollback()


# ── inserting ──────────────────────────────────────────────────────────────────────────────────


def insert_columns(connection: Connection, table: str, select: str, incoming: Columns) -> None:
    # The engine finds `incoming` by its name in this frame: the fastest way to insert (5.8 M rows/s
    # at 100,000 rows a call; `register` 5.3, lists as parameters 0.6).
    connection.execute(f"INSERT INTO {table} SELECT {select} FROM incoming")


def insert_facts(connection: Connection, table: str, generation: int, incoming: Columns) -> None:
    insert_columns(connection, f"{table}_{generation}", _COLUMNS[table], incoming)


def insert_events(connection: Connection, generation: int, rows: Sequence[Row]) -> None:
    columns = dict(zip(_names("events"), map(_column, zip(*rows, strict=True)), strict=True))
    insert_facts(connection, "events", generation, columns)


def insert_rows(connection: Connection, table: str, rows: Sequence[Row]) -> None:
    if rows:
        columns = {f"c{i}": _column(values) for i, values in enumerate(zip(*rows, strict=True))}
        insert_columns(connection, table, ", ".join(columns), columns)


def _column(values: Sequence[Any]) -> npt.NDArray[Any]:
    if isinstance(values[0], bool | int | float):
        return np.array(values)
    return np.array(values, dtype=object)


def delete_rows(connection: Connection, table: str, keys: Integers) -> int:
    """Delete rows whose first column (series or run) is one of the keys; returns how many."""
    if not len(keys):
        return 0
    key, incoming = _names(table.rpartition("_")[0])[0], {"key": keys}
    # As in `insert_columns`, the engine finds `incoming` by its name.
    row = connection.execute(
        f"DELETE FROM {table} WHERE {key} IN (SELECT key FROM incoming)"
    ).fetchone()
    return int(row[0]) if row and incoming else 0


# ── generations ────────────────────────────────────────────────────────────────────────────────


def create_generation(connection: Connection, seed: Seed) -> None:
    for table, columns in GENERATION_TABLES.items():
        connection.execute(f"CREATE TABLE {table}_{seed.generation} ({columns})")
    insert_rows(connection, "generations", [(seed.generation, seed.created_ns)])
    cursors = [(*cursor, True) for cursor in seed.cursors]
    insert_rows(connection, f"cursors_{seed.generation}", cursors)
    slot, time_ns, step, value = seed.latest
    columns_of_latest = {"slot": slot, "time_ns": time_ns, "step": step, "value": value}
    insert_facts(connection, "latest", seed.generation, columns_of_latest)


def drop_generation(connection: Connection, generation: int) -> None:
    for table in GENERATION_TABLES:
        connection.execute(f"DROP TABLE IF EXISTS {table}_{generation}")


def drop_unlisted(connection: Connection, listed: Sequence[int]) -> None:
    keep = {f"{table}_{generation}" for table in GENERATION_TABLES for generation in listed}
    names = connection.execute(
        f"SELECT table_name FROM duckdb_tables() WHERE {_IS_OF_GENERATION}"
    ).fetchall()
    for (name,) in names:
        if name not in keep:
            connection.execute(f"DROP TABLE {name}")


def load_generations(connection: Connection) -> list[tuple[int, int]]:
    """(generation, created_ns), oldest first."""
    return connection.execute(
        "SELECT generation, created_ns FROM generations ORDER BY generation"
    ).fetchall()


def load_seed(connection: Connection, generation: int, created_ns: int) -> Seed:
    cursors = connection.execute(
        f"SELECT journal, position, last_ns FROM cursors_{generation} WHERE seed"
    ).fetchall()
    columns = connection.execute(
        f"SELECT slot, time_ns, coalesce(step, {NO_STEP}) AS step, value FROM latest_{generation}"
    ).fetchnumpy()
    return Seed(generation, created_ns, cursors, _latest_columns(columns))


def load_cursors(connection: Connection, generation: int) -> list[tuple[int, int, int]]:
    return connection.execute(
        f"SELECT journal, max(position), max(last_ns) FROM cursors_{generation} GROUP BY journal"
    ).fetchall()


def newest_in(
    connection: Connection, generation: int
) -> tuple[Integers, Integers, Integers, Floats]:
    """Series (not slot), time, step and value of each series' newest point in a generation."""
    columns = connection.execute(
        f"""SELECT series AS slot, max(time_ns) AS time_ns,
                   arg_max(coalesce(step, {NO_STEP}), time_ns) AS step,
                   arg_max(value, time_ns) AS value
            FROM points_{generation} GROUP BY series"""
    ).fetchnumpy()
    return _latest_columns(columns)


def _latest_columns(
    columns: Mapping[str, npt.NDArray[Any]],
) -> tuple[Integers, Integers, Integers, Floats]:
    return (
        np.asarray(columns["slot"], np.int64),
        np.asarray(columns["time_ns"], np.int64),
        np.asarray(columns["step"], np.int64),
        np.asarray(columns["value"], np.float64),
    )


def count_rows(connection: Connection, generation: int) -> dict[str, int]:
    """Rows by kind.  Reads every column, so that damage shows now and not in a month."""
    columns = {"points": "value", "spans": "place", "events": "body"}
    counts = {}
    for table, column in columns.items():
        row = connection.execute(
            f"SELECT count(*), count(step), max(time_ns), max({column}) FROM {table}_{generation}"
        ).fetchone()
        counts[table] = int(row[0]) if row else 0
    return counts


# ── space ──────────────────────────────────────────────────────────────────────────────────────


class Space(NamedTuple):
    """Bytes of the database file."""

    used: int
    free: int


def space(connection: Connection) -> Space:
    ((block, used, free),) = connection.execute(
        "SELECT block_size, used_blocks, free_blocks FROM pragma_database_size() "
        "WHERE database_name = current_database()"
    ).fetchall()
    return Space(int(block * used), int(block * free))


def checkpoint(connection: Connection) -> bool:
    """Free the space of dropped tables, and return free space at the file's end to the disk.
    False if it cannot be done yet: a transaction goes on that began before they were dropped.
    """
    try:
        connection.execute("CHECKPOINT")
    except duckdb.TransactionException:
        return False
    return True


def movable_tables(connection: Connection, *, most_rows: int) -> list[str]:
    """All tables except large fact tables, which are dropped with their generation anyway.  A
    nearly empty table can also keep the file long, by what the engine stores about it."""
    tables = connection.execute(
        f"""SELECT table_name FROM duckdb_tables()
            WHERE NOT {_HAS_FACTS} OR estimated_size <= {most_rows} ORDER BY table_name"""
    ).fetchall()
    return [name for (name,) in tables]


def write_anew(connection: Connection, tables: Iterable[str]) -> None:
    """Rewrite the tables, rows in order, into the first free space.  Inside the caller's
    transaction.  The engine never moves a table's data by itself: one row that was written when the
    file was large would keep it large."""
    for table in tables:
        connection.execute(f"CREATE TABLE {table}_anew AS SELECT * FROM {table} ORDER BY rowid")
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"ALTER TABLE {table}_anew RENAME TO {table}")


# ── catalogue and blocks ───────────────────────────────────────────────────────────────────────


def load_catalog(connection: Connection) -> dict[str, list[Row]]:
    return {table: load_rows(connection, table) for table in TABLES}


def load_rows(connection: Connection, table: str, first: int = 0) -> list[Row]:
    """Rows of a table that only grows, in the order in which they were written."""
    return connection.execute(
        f"SELECT * FROM {table} WHERE rowid >= {first} ORDER BY rowid"
    ).fetchall()


def all_rows(connection: Connection, table: str, most: int) -> Iterator[list[Row]]:
    """All rows in that order, `most` at a time."""
    result = connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
    while some := result.fetchmany(most):
        yield some


def count(connection: Connection, table: str) -> int:
    ((rows,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(rows)


def load_blocks(connection: Connection) -> list[Block]:
    return [Block(*row) for row in connection.execute("SELECT * FROM blocks").fetchall()]


def load_change(connection: Connection) -> int:
    row = connection.execute("SELECT max(change) FROM changes").fetchone()
    return int(row[0] or 0) if row else 0


def change_blocks(
    connection: Connection, *, add: Sequence[Block], remove: Iterable[str], change: int
) -> None:
    """Inside the caller's transaction."""
    for file in remove:
        connection.execute("DELETE FROM blocks WHERE file = ?", [file])
    rows: list[Row] = [
        (b.file, b.kind, b.part, b.family, b.day, b.level, b.rows, b.bytes)
        + (b.key_min, b.key_max, b.time_min, b.time_max)
        for b in add
    ]
    insert_rows(connection, "blocks", rows)
    connection.execute("INSERT INTO changes VALUES (?)", [change])
