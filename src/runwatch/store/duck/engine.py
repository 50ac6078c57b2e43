"""The embedded engine: DuckDB for hot rows, sorted Parquet files for closed ones.

    DIR/lock            held by the one process that has the store open
    DIR/hot.duckdb      catalogue, cursors, newest rows, list of blocks
    DIR/blocks/         closed, clustered files (see `blocks.py`)
    DIR/manifest.log    what to rebuild from when hot.duckdb is lost
    DIR/damaged-TIME/   files that were found damaged and set aside
    DIR/folds/          a head's saved folds, which took long to compute (see `folds.py`)

One writer connection, a cursor per reader.  Two locks, always taken in this order:
`_maintaining` (compaction and retention, long) and `_writing` (one transaction, short).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import duckdb
import numpy as np
import numpy.typing as npt

from runwatch.buckets import LOWEST, Axis, grid
from runwatch.clock import Clock, system_clock
from runwatch.errors import Abandoned, RunwatchError, StoreDamaged, StoreFull, UsageError
from runwatch.record import Batch, JournalId, Position, RunId, Verdict
from runwatch.rows import Curve, EventRow, Latest, ProcessRow, SeriesRow, SpanRow
from runwatch.store.asking import heeded, question, working
from runwatch.store.crowds import Crowds
from runwatch.store.deletion import Deletion, Weight
from runwatch.store.duck import hot, ingest, opening
from runwatch.store.duck.blocks import Block, BlockFiles, Kind
from runwatch.store.duck.clustering import Clusterer, Merge, plan_merges
from runwatch.store.duck.deleting import Deleter
from runwatch.store.duck.hot import Seed
from runwatch.store.duck.leases import Leases
from runwatch.store.duck.lock import DirectoryLock
from runwatch.store.duck.manifest import LOG
from runwatch.store.duck.named import Named
from runwatch.store.duck.pages import Keys, RowGroups, View
from runwatch.store.duck.reading import EVENT_COLUMNS, SPAN_COLUMNS, Reader
from runwatch.store.duck.tuning import DuckSettings
from runwatch.store.replay import DuckReplay
from runwatch.store.store import (
    PointColumns,
    Replay,
    Retention,
    Sought,
    Statistic,
    StoreHealth,
    Wanted,
)

__all__ = ["DuckSettings", "DuckStore"]

Answer = TypeVar("Answer")

REOPEN_SECONDS: Final = 5.0
"""After a fatal error, for readers to notice it."""
_NOT_A_FILE = (
    duckdb.OutOfMemoryException,
    duckdb.InterruptException,
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ConnectionException,
)
"""Errors that a damaged file never causes.  Any other error may come from one."""

_MOVES = 2
"""How often to move tables to shrink the file, before leaving that to the next time."""
_FEW_ROWS = 200_000
"""A hot table with at most this many rows may be rewritten while the writer waits."""
_BYTES_PER_ROW = 64
"""Generous: what a row may take in the log before we check the free space again."""


class DuckStore:
    """The `Store` for one machine.  `write`, `compact` and `retain` may run in two threads."""

    def __init__(
        self,
        directory: Path | None,
        lock: DirectoryLock | None,
        clock: Clock,
        settings: DuckSettings,
    ) -> None:
        self._directory = directory
        self._lock = lock
        self._clock = clock
        self._settings = settings
        self._files = None if directory is None else BlockFiles(directory / "blocks")
        self._writing = threading.RLock()
        self._maintaining = threading.Lock()
        self._leases = Leases()
        self._row_groups = RowGroups(self._files)
        self._crowds = Crowds()
        self._broken: duckdb.Error | None = None
        self._opened_ns = clock.wall_ns()
        self._dropped = 0
        self._has_room = True  # the process that had the store before may have left some
        """Whether the database file still holds the space of dropped tables."""
        self._deleter = Deleter(self)
        self._adopt(self._open_files())
        self._part = max((block.part for block in self._view.blocks), default=0)

    @classmethod
    def open(
        cls,
        directory: Path | None,
        *,
        clock: Clock = system_clock,
        settings: DuckSettings | None = None,
    ) -> DuckStore:
        """Open or create; `None` keeps all in memory.  Raises `StoreBusy`, naming the pid."""
        settings = settings or DuckSettings()
        if directory is None:
            return cls(None, None, clock, settings)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = DirectoryLock(directory, clock=clock)
        except OSError as error:
            raise opening.full(directory, error) from error
        try:
            return cls(directory, lock, clock, settings)
        except OSError as error:
            lock.release()
            raise opening.full(directory, error) from error
        except BaseException:
            lock.release()
            raise

    def _open_files(self) -> opening.Opened:
        if self._directory is None or self._files is None:
            return opening.open_memory(self._settings.engine_config(None), self._clock)
        config = self._settings.engine_config(self._directory)
        return opening.open_directory(self._directory, self._files, config, self._clock)

    def _adopt(self, opened: opening.Opened) -> None:
        self._base = opened.connection
        self._writer = self._base.cursor()
        self._catalog = opened.catalog
        self._named = Named()
        self._latest = opened.latest
        self._seed = opened.seed
        self._rows = opened.rows
        self._change = opened.change
        self._schema_version = opened.schema_version
        self._notes = opened.notes
        self._manifest = opened.manifest
        self._view = View(tuple(opened.rows), tuple(opened.blocks))

    # ── writing ────────────────────────────────────────────────────────────────────────────────

    def write(self, batches: Sequence[Batch]) -> list[Verdict]:
        with self._writing:
            self._mend()
            self._need_room(sum(batch.records for batch in batches))
            plan = ingest.plan(self._catalog, batches)
            if plan.moved:
                try:
                    self._commit(plan)
                except duckdb.Error as error:
                    self._undo(error)
            return plan.verdicts

    def _commit(self, plan: ingest.Plan) -> None:
        connection, generation = self._writer, self._seed.generation
        connection.begin()
        for table, rows in self._catalog.pending().items():
            hot.insert_rows(connection, table, rows)
        if plan.points:
            slots, time_ns, step, value = plan.merged_points()
            columns: hot.Columns = {
                "series": self._catalog.ids[slots],
                "time_ns": time_ns,
                "step": step,
                "value": value,
            }
            hot.insert_facts(connection, "points", generation, columns)
        if plan.spans:
            hot.insert_facts(connection, "spans", generation, plan.merged_spans())
        if plan.events:
            hot.insert_events(connection, generation, plan.events)
        cursors = [(number, to, last, False) for number, (_, to, last) in plan.moved.items()]
        hot.insert_rows(connection, f"cursors_{generation}", cursors)
        connection.commit()
        self._catalog.persisted()
        for journal, position, last_ns in plan.moved.values():
            journal.cursor, journal.last_ns = position, last_ns
        if plan.points:
            self._latest.update(slots, time_ns, step, value)
        self._count(plan)

    def _count(self, plan: ingest.Plan) -> None:
        rows = self._rows[self._seed.generation]
        rows["points"] += sum(map(len, plan.slots))
        rows["spans"] += sum(len(part["span"]) for part in plan.spans)
        rows["events"] += len(plan.events)
        self._crowds.took(len(plan.events), sum(len(row[hot.BODY]) for row in plan.events))
        self._named.took(plan.events)
        self._dropped += plan.dropped

    def cursor(self, journal: JournalId) -> Position:
        entry = self._catalog.find_journal(journal)
        return Position(0 if entry is None else entry.cursor)

    # ── when the disk or the engine fails ──────────────────────────────────────────────────────

    def _need_room(self, rows: int) -> None:
        shortage = self._shortage(rows * _BYTES_PER_ROW)
        if shortage:
            raise StoreFull(shortage)

    def _shortage(self, needed: int = 0) -> str:
        if self._directory is None or not self._settings.reserve_bytes:
            return ""
        free = self._free_bytes()
        if free >= self._settings.reserve_bytes + needed:
            return ""
        return f"no space left for {self._directory}: {free} bytes free"

    def _free_bytes(self) -> int:
        assert self._directory is not None
        status = os.statvfs(self._directory)
        return status.f_bavail * status.f_frsize

    def _undo(self, error: duckdb.Error) -> NoReturn:
        """Roll the failed transaction back.  The caller holds `_writing`."""
        try:
            self._writer.rollback()
        except duckdb.Error:
            self._broken = error
            self._reopen_if_possible()
        raise self._translated(error) from error

    def _translated(self, error: duckdb.Error | OSError) -> RunwatchError:
        if isinstance(error, duckdb.InterruptException) and (current := question()) is not None:
            return Abandoned(current.why or "the question was interrupted")
        if opening.no_space(error):
            free = self._free_bytes() if self._directory else 0
            return StoreFull(f"no space left for {self._directory}: {free} bytes free ({error})")
        if isinstance(error, duckdb.OutOfMemoryException):
            most = self._settings.memory_limit
            return StoreDamaged(f"this query needs more than the store's {most} of memory")
        return StoreDamaged(f"the store in {self._directory} failed: {error}")

    def _mend(self) -> None:
        """After a fatal error the engine refuses everything until it is reopened."""
        if self._broken is not None:
            self._reopen_if_possible()
        if self._broken is not None:
            raise self._translated(self._broken) from self._broken

    def _reopen_if_possible(self) -> None:
        with self._leases.exclusive(REOPEN_SECONDS) as is_alone:
            if not is_alone:
                return  # the readers fail at their next query, and whoever comes then tries again
            self._writer.close()
            self._base.close()
            try:
                opened = self._open_files()
            except (duckdb.Error, StoreFull, OSError):
                return
            opened.notes += [note for note in self._notes if note not in opened.notes]
            self._adopt(opened)
            self._broken = None

    # ── asking ─────────────────────────────────────────────────────────────────────────────────

    def processes(self, run: RunId | None = None) -> list[ProcessRow]:
        return self._catalog.process_rows(run)

    def series(
        self,
        run: RunId | None = None,
        *,
        metric: str | None = None,
        journal: JournalId | None = None,
    ) -> list[SeriesRow]:
        return self._catalog.series_rows(run, metric, journal)

    def count_series(self, run: RunId) -> int:
        return self._catalog.series_in[run]

    def unknown_series(self, journal: JournalId, local: Sequence[int]) -> int:
        entry = self._catalog.find_journal(journal)
        return len(local) if entry is None else sum(1 for id in local if id not in entry.series)

    def knows_run(self, run: RunId) -> bool:
        return self._catalog.find_run(run) is not None

    def runs_of(self, journal: JournalId) -> frozenset[RunId]:
        entry = self._catalog.find_journal(journal)
        scopes = () if entry is None else tuple(entry.scopes.values())
        return frozenset(scope.run for scope in scopes)

    def latest(self, series: Sequence[int]) -> list[Latest]:
        slots = self._catalog.find_slots(series)
        if None in slots:
            series = [id for id, slot in zip(series, slots, strict=True) if slot is not None]
        return self._latest.of([slot for slot in slots if slot is not None], series)

    def curves(
        self,
        series: Sequence[int],
        *,
        axis: Axis = "time",
        start: int | None = None,
        end: int | None = None,
        buckets: int = 1000,
    ) -> list[Curve]:
        keys = self._keys(series)
        if keys is None:
            return []
        return self._ask(lambda reader: reader.curves(keys, axis, start, end, buckets))

    def matrix(
        self,
        rows: Mapping[int, int],
        *,
        start: int,
        end: int,
        buckets: int,
        statistic: Statistic = "mean",
    ) -> npt.NDArray[np.float64]:
        height, cells = max(rows.values(), default=-1) + 1, grid("time", start, end, buckets)
        keys = self._keys(list(rows))
        if cells is None or not cells.fits_int64:
            raise UsageError(f"[{start}, {end}) is not a time range that can be drawn")
        if keys is None:
            return np.full((height, cells.buckets), np.nan)
        places = np.array([rows[id] for id in keys.ids.tolist()], np.int64)
        return self._ask(lambda reader: reader.matrix(keys, places, height, cells, statistic))

    def points(
        self,
        series: Sequence[int],
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        rows: int = 100_000,
    ) -> Iterator[PointColumns]:
        keys = self._keys(series)
        if keys is None:
            return
        begun = False
        try:
            with self._lease() as reader:
                for part in reader.points(keys, start_ns, end_ns, rows):
                    begun = True
                    yield part
            return
        except duckdb.Error as error:
            # Rows already yielded cannot be taken back.  The bad file is set aside, so
            # asking again helps.
            if not self._repaired(error) or begun:
                raise self._translated(error) from error
        yield from self.points(series, start_ns=start_ns, end_ns=end_ns, rows=rows)

    def events(
        self,
        run: RunId | None = None,
        *,
        kinds: Sequence[str] | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
        most_bytes: int | None = None,
        of_each: int | None = None,
        about: Sequence[JournalId] | None = None,
        sought: Sought | None = None,
    ) -> list[EventRow]:
        number = None if run is None else self._catalog.find_run(run)
        if (run is not None and number is None) or kinds == []:
            return []
        if about is not None and kinds:
            self._find_mentions(kinds)
        rows = self._ask(
            lambda reader: reader.rows(
                "events",
                EVENT_COLUMNS,
                run=number,
                kinds=kinds,
                start_ns=start_ns,
                end_ns=end_ns,
                limit=limit,
                newest_first=newest_first,
                most_bytes=most_bytes,
                of_each=of_each,
                about=about,
                mentions=self._named.about(kinds, about) if about is not None and kinds else None,
                without=self._catalog.deletions.hidden() if run is None else (),
                sought=sought,
            )
        )
        return [self._catalog.event_row(*row) for row in heeded(rows)]

    def _find_mentions(self, kinds: Sequence[str]) -> None:
        """Read which events of these kinds name a journal, the first time that somebody asks."""
        named = self._named
        if missing := named.begin(kinds):
            named.read(missing, self._ask(lambda reader: reader.named(missing)))

    def spans(
        self,
        run: RunId,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        limit: int | None = None,
    ) -> list[SpanRow]:
        number = self._catalog.find_run(run)
        if number is None:
            return []
        rows = self._ask(
            lambda reader: reader.rows(
                "spans", SPAN_COLUMNS, run=number, start_ns=start_ns, end_ns=end_ns, limit=limit
            )
        )
        return [self._catalog.span_row(*row) for row in heeded(rows)]

    def replay(self, run: RunId, wanted: Wanted, *, attempts: int = 4) -> Replay:
        try:
            return DuckReplay(self._lease(), self._catalog, run, wanted, self._replay_failed)
        except duckdb.Error as error:
            if attempts == 1 or not self._repaired(error):
                raise self._translated(error) from error
        return self.replay(run, wanted, attempts=attempts - 1)

    def _replay_failed(self, error: duckdb.Error) -> Exception:
        # Batches already yielded cannot be taken back.  The bad file is set aside, so
        # asking again helps.
        self._repaired(error)
        return self._translated(error)

    def _keys(self, series: Sequence[int]) -> Keys | None:
        return Keys.of(id for id in series if self._catalog.find_slot(id) is not None)

    @contextmanager
    def _lease(self) -> Iterator[Reader]:
        with self._leases.shared():
            if self._broken is not None:
                raise self._translated(self._broken) from self._broken
            reader = Reader(
                self._base.cursor(),
                self._view,
                self._files,
                row_groups=self._row_groups,
                crowds=self._crowds,
                hot_points=self._hot_points(),
                page_rows=self._settings.page_rows,
            )
            try:
                with working(reader.interrupt):
                    yield reader
            finally:
                reader.close()

    def _ask(self, question: Callable[[Reader], Answer], *, attempts: int = 4) -> Answer:
        try:
            with self._lease() as reader:
                return question(reader)
        except duckdb.Error as error:
            if attempts == 1 or not self._repaired(error):
                raise self._translated(error) from error
        return self._ask(question, attempts=attempts - 1)

    def _repaired(self, error: duckdb.Error) -> bool:
        """Whether asking again can help: the engine was reopened or a bad file set aside."""
        if isinstance(error, duckdb.FatalException):
            with self._writing:
                self._broken = self._broken or error
                self._reopen_if_possible()
                return self._broken is None
        return not isinstance(error, _NOT_A_FILE) and self._set_bad_blocks_aside(str(error))

    def _set_bad_blocks_aside(self, complaint: str) -> bool:
        if self._directory is None or self._files is None:
            return False
        with self._maintaining:
            with self._clustering() as clusterer:
                blocks = self._view.blocks
                named = [block for block in blocks if block.file in complaint]
                bad = [block for block in named or blocks if not clusterer.readable(block)]
            if not bad:
                return False
            self._register(add=(), remove=bad)
            self._notes += opening.remove_bad(self._directory, self._files, bad, self._clock)
            self._save_manifest()
            return True

    # ── compaction and retention ───────────────────────────────────────────────────────────────

    def compact(self, *, force: bool = False) -> int:
        if self._files is None:
            return 0
        with self._maintaining:
            try:
                self._leases.sweep()
                self._switch_if_ripe(force)
                moved = sum(self._close_generation(g) for g in self._view.generations[:-1])
                self._merge_ripe()
                self._leases.sweep()
                self._give_back()
            except (duckdb.Error, OSError) as error:
                raise self._translated(error) from error
            return moved

    def _switch_if_ripe(self, force: bool) -> None:
        with self._writing:
            self._mend()
            rows = self._rows[self._seed.generation]
            age = (self._clock.wall_ns() - self._seed.created_ns) / 1e9
            ripe = force or not 0 <= age < self._settings.compact_seconds
            if not (rows["points"] > self._settings.compact_rows or (ripe and any(rows.values()))):
                return
            seed = self._next_seed()
            try:
                self._writer.begin()
                hot.create_generation(self._writer, seed)
                self._writer.commit()
            except duckdb.Error as error:
                self._undo(error)
            self._seed = seed
            self._rows[seed.generation] = {"points": 0, "spans": 0, "events": 0}
            self._view = View(tuple(self._rows), self._view.blocks)
        self._settings.reached("switched")

    def _next_seed(self) -> Seed:
        cursors = [(j.number, j.cursor, j.last_ns) for j in self._catalog.journals if j.cursor]
        return Seed(
            self._seed.generation + 1, self._clock.wall_ns(), cursors, self._latest.columns()
        )

    def _close_generation(self, generation: int) -> int:
        with self._clustering() as clusterer:
            blocks = clusterer.close_generation(generation, taken_ns=self._clock.wall_ns())
        self._settings.reached("written")
        points = self._rows[generation]["points"]
        self._register(add=blocks, remove=(), generation=generation)
        self._settings.reached("registered")
        self._save_manifest()
        self._leases.later(lambda: self._drop(generation))
        return points

    def _merge_ripe(self) -> None:
        while merges := plan_merges(
            self._view.blocks,
            now_ns=self._clock.wall_ns(),
            parts=self._settings.merge_parts,
            close_seconds=self._settings.close_seconds,
        ):
            for merge in merges:
                self._merge(merge)

    def _merge(self, merge: Merge) -> None:
        with self._clustering() as clusterer:
            merged = clusterer.merge(merge, rows=self._settings.merge_rows)
        self._settings.reached("merged")
        parts = {block.part for block in merge.inputs}
        self._replace(merged, [block for block in self._view.blocks if block.part in parts])

    def retain(self, retention: Retention, *, now_ns: int) -> dict[str, Any]:
        days: dict[Kind, float | None] = {
            "points": retention.points_days,
            "rollup": retention.rollup_days,
            "spans": retention.spans_days,
            "events": retention.events_days,
        }
        before = {k: now_ns - int(d * 86_400e9) for k, d in days.items() if d is not None}
        if self._files is None:
            return self._delete_hot(before)
        with self._maintaining:
            view = self._view.blocks
            old = [b for b in view if b.kind in before and self._is_old(b, before[b.kind])]
            try:
                if old:
                    self._replace([], old)
                self._leases.sweep()
            except (duckdb.Error, OSError) as error:
                raise self._translated(error) from error
        return {kind: sum(block.rows for block in old if block.kind == kind) for kind in days}

    def _is_old(self, block: Block, before_ns: int) -> bool:
        """By its rows' times and by when we took them: a node's clock may be years behind."""
        assert self._files is not None
        return block.time_max < before_ns and self._files.taken_ns(block.file) < before_ns

    def _delete_hot(self, before: dict[Kind, int]) -> dict[str, Any]:
        counts: dict[str, Any] = {"points": 0, "rollup": 0, "spans": 0, "events": 0}
        generation = self._seed.generation
        with self._writing:
            # Everything in memory was taken after we began.
            for kind in {k for k in hot.FACTS if before.get(k, LOWEST) > self._opened_ns}:
                row = self._writer.execute(
                    f"DELETE FROM {kind}_{generation} WHERE time_ns < {before[kind]}"
                ).fetchone()
                counts[kind] = int(row[0]) if row else 0
                self._rows[generation][kind] -= counts[kind]
        return counts

    def _replace(self, new: Sequence[Block], old: Sequence[Block]) -> None:
        files = self._files
        assert files is not None
        self._register(add=new, remove=old)
        self._settings.reached("replaced")
        # The old files are deleted only when the manifest no longer names them either.
        self._save_manifest()
        names = [block.file for block in old]
        self._leases.later(lambda: files.delete(names))

    def _register(
        self, *, add: Sequence[Block], remove: Sequence[Block], generation: int | None = None
    ) -> None:
        gone = {block.file for block in remove}
        with self._writing:
            try:
                self._writer.begin()
                hot.change_blocks(self._writer, add=add, remove=gone, change=self._change + 1)
                if generation is not None:
                    self._writer.execute(
                        "DELETE FROM generations WHERE generation = ?", [generation]
                    )
                self._writer.commit()
            except duckdb.Error as error:
                self._undo(error)
            self._change += 1
            if generation is not None:
                del self._rows[generation]
            self._row_groups.forget(gone)
            remaining = tuple(block for block in self._view.blocks if block.file not in gone)
            self._view = View(tuple(self._rows), remaining + tuple(add))

    def _save_manifest(self) -> None:
        assert self._manifest is not None
        with self._leases.shared(), closing(self._base.cursor()) as cursor:
            self._manifest.save(cursor, self._view.blocks, self._change)
        self._settings.reached("manifest")

    def _drop(self, generation: int) -> None:
        with self._writing:
            hot.drop_generation(self._writer, generation)
            self._has_room = True

    def _give_back(self) -> None:
        """Return the space of dropped generations to the disk.  The writer waits for a moment.

        A file shrinks only at its end.  So if most of it is free space in front of tables that
        stay, we rewrite those tables, which moves them to the front.
        """
        for _ in range(_MOVES):
            if not self._has_room or (space := self._checkpointed()) is None:
                return
            self._has_room = space.free > max(self._settings.spare_bytes, space.used)
            if self._has_room:
                self._move_tables()
        self._has_room = self._checkpointed() is None

    def _move_tables(self) -> None:
        with self._writing:
            self._mend()
            try:
                self._writer.begin()
                tables = hot.movable_tables(self._writer, most_rows=_FEW_ROWS)
                hot.write_anew(self._writer, tables)
                self._writer.commit()
            except duckdb.Error as error:
                self._undo(error)
        self._settings.reached("moved")

    def _checkpointed(self) -> hot.Space | None:
        """The space after a checkpoint; None if somebody still reads dropped tables."""
        with self._writing:
            self._mend()
            space = hot.space(self._writer) if hot.checkpoint(self._writer) else None
        self._settings.reached("checkpointed")
        return space

    @contextmanager
    def _clustering(self) -> Iterator[Clusterer]:
        assert self._files is not None
        with self._leases.shared():
            clusterer = Clusterer(
                self._base.cursor(),
                self._files,
                self._next_part,
                slice_bytes=self._settings.slice_bytes,
            )
            try:
                yield clusterer
            except (duckdb.Error, OSError):
                clusterer.discard()
                raise
            finally:
                clusterer.close()

    def _next_part(self) -> int:
        self._part += 1
        return self._part

    # ── deleting runs ──────────────────────────────────────────────────────────────────────────

    def weigh(self, run: RunId) -> Weight:
        return self._ask(lambda reader: self._deleter.weigh(run, reader))

    def delete(self, run: RunId, *, at_ns: int, purge_ns: int) -> Deletion:
        return self._deleter.delete(run, at_ns, purge_ns)

    def restore(self, run: RunId) -> Deletion:
        return self._deleter.restore(run)

    def deletions(self) -> list[Deletion]:
        return self._catalog.deletions.all()

    def buried_journals(self, deletion: Deletion) -> list[JournalId]:
        return self._catalog.buried_journals(deletion)

    def buried_processes(self, deletion: Deletion) -> list[ProcessRow]:
        return self._catalog.buried_rows(deletion)

    def purge(self, deletion: Deletion) -> None:
        self._deleter.purge(deletion)

    # ── health ─────────────────────────────────────────────────────────────────────────────────

    def health(self) -> StoreHealth:
        problem = str(self._broken) if self._broken is not None else self._shortage()
        return StoreHealth(
            engine="duckdb",
            schema_version=self._schema_version,
            hot_points=self._hot_points(),
            blocks=len(self._view.blocks),
            bytes_on_disk=self._bytes_on_disk(),
            problem=problem,
            notes=tuple(self._notes),
            newest_block_ns=self._newest_block_ns(),
            records_dropped=self._dropped,
        )

    def _newest_block_ns(self) -> int | None:
        if self._files is None or not self._view.blocks:
            return None
        newest = max(self._view.blocks, key=lambda block: block.part)
        return self._files.taken_ns(newest.file) or None

    def _hot_points(self) -> int:
        return sum(rows["points"] for rows in tuple(self._rows.values()))

    def closed_blocks(self) -> Sequence[Block]:
        return self._view.blocks

    def _bytes_on_disk(self) -> int:
        if self._directory is None:
            return 0
        hot_bytes = sum(
            path.stat().st_size
            for name in (opening.DATABASE, f"{opening.DATABASE}.wal", LOG)
            if (path := self._directory / name).exists()
        )
        return hot_bytes + sum(block.bytes for block in self._view.blocks)

    def close(self) -> None:
        with self._maintaining, self._writing, self._leases.exclusive():
            self._writer.close()
            self._base.close()
            if self._lock is not None:
                self._lock.release()
