"""How the embedded engine deletes a run: it stores the deletion, removes the rows, marks it done.

Storing the deletion is one transaction; from then on the run is gone whatever happens.  Rows are
removed from the hot tables, and files that hold some are rewritten without them.  Each step can be
repeated: if the process is killed between two steps, the next call does the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import duckdb
import numpy as np

from runwatch.errors import NotFound, UsageError
from runwatch.record import RunId
from runwatch.store.deletion import Deletion, Weight
from runwatch.store.duck import hot
from runwatch.store.duck.blocks import Block, Kind
from runwatch.store.duck.pages import Keys, Part
from runwatch.store.duck.reading import Reader
from runwatch.store.entries import Integers

if TYPE_CHECKING:
    from runwatch.store.duck.engine import DuckStore

_HOT_BYTES: Final = 32
"""Estimated size of a row that is not in a file yet."""


class Deleter:
    """A part of `DuckStore` that uses its locks: `_maintaining` first, then `_writing`."""

    def __init__(self, store: DuckStore) -> None:
        self._store = store

    # ── the deletion ──────────────────────────────────────────────────────────────────────────

    def delete(self, run: RunId, at_ns: int, purge_ns: int) -> Deletion:
        store = self._store
        with store._maintaining:
            with store._writing:
                store._mend()
                deletion = store._catalog.deletion(run, at_ns=at_ns, purge_ns=purge_ns)
                if deletion is None:
                    raise NotFound(f"there is no run {run!r} in the store")
                self._say(deletion)
            self._keep()
        store._settings.reached("deleted")
        return deletion

    def restore(self, run: RunId) -> Deletion:
        store = self._store
        with store._maintaining:
            with store._writing:
                store._mend()
                restored = self._restorable(run).now("restored")
                self._say(restored)
            self._keep()
        return restored

    def _restorable(self, run: RunId) -> Deletion:
        catalog = self._store._catalog
        deletions = catalog.deletions.of(run)
        if not deletions:
            raise NotFound(f"no deleted run {run!r} in the store")
        if catalog.find_run(run) is not None:
            raise UsageError(f"run {run!r} was recorded again since then: delete the new run first")
        if deletions[-1].state == "purged":
            raise UsageError(f"cannot restore run {run!r}: its records are deleted for good")
        return deletions[-1]

    def _say(self, deletion: Deletion) -> None:
        """Store a deletion in its own transaction.  The caller holds `_writing`."""
        store = self._store
        writer = store._writer
        try:
            writer.begin()
            for table, rows in store._catalog.pending().items():
                hot.insert_rows(writer, table, rows)
            hot.insert_rows(writer, "deletions", [deletion.row()])
            hot.change_blocks(writer, add=(), remove=(), change=store._change + 1)
            writer.commit()
        except duckdb.Error as error:
            store._undo(error)
        store._change += 1
        store._catalog.persisted()
        store._catalog.bury(deletion)

    def _keep(self) -> None:
        """A store that is rebuilt from the manifest must know the deletion too."""
        if self._store._directory is not None:
            self._store._save_manifest()

    # ── the rows ──────────────────────────────────────────────────────────────────────────────

    def purge(self, deletion: Deletion) -> None:
        store = self._store
        with store._maintaining:
            try:
                series = np.sort(store._catalog.buried(deletion))
                of_run = np.array([deletion.number], np.int64)
                self._purge_hot(series, of_run)
                store._settings.reached("purged hot")
                if store._files is not None:
                    self._purge_blocks(
                        {"points": series, "rollup": series, "spans": of_run, "events": of_run}
                    )
                with store._writing:
                    store._mend()
                    self._say(deletion.now("purged"))
                self._keep()
                store._leases.sweep()
            except (duckdb.Error, OSError) as error:
                raise store._translated(error) from error
        store._settings.reached("purged")

    def _purge_hot(self, series: Integers, of_run: Integers) -> None:
        store = self._store
        with store._writing:
            store._mend()
            try:
                store._writer.begin()
                gone = {
                    generation: {
                        "points": hot.delete_rows(store._writer, f"points_{generation}", series),
                        "spans": hot.delete_rows(store._writer, f"spans_{generation}", of_run),
                        "events": hot.delete_rows(store._writer, f"events_{generation}", of_run),
                    }
                    for generation in store._rows
                }
                store._writer.commit()
            except duckdb.Error as error:
                store._undo(error)
            for generation, counts in gone.items():
                for kind, count in counts.items():
                    store._rows[generation][kind] -= count

    def _purge_blocks(self, gone: dict[Kind, Integers]) -> None:
        """Part by part: points and their roll-up are replaced together."""
        store = self._store
        parts: dict[int, list[Block]] = {}
        for block in store._view.blocks:
            parts.setdefault(block.part, []).append(block)
        for blocks in parts.values():
            with store._clustering() as clusterer:
                if not any(clusterer.holds(block, gone[block.kind]) for block in blocks):
                    continue
                rewritten = clusterer.without(blocks, gone)
            store._settings.reached("rewritten")
            store._replace(rewritten, blocks)

    # ── its size ──────────────────────────────────────────────────────────────────────────────

    def weigh(self, run: RunId, reader: Reader) -> Weight:
        catalog = self._store._catalog
        number = catalog.find_run(run)
        if number is None:
            return Weight()
        keys = Keys.of(row.series for row in catalog.series_rows(run, None, None))
        of_run = f"run = {number}"
        counts = {
            "points": 0
            if keys is None
            else reader.extent([Part("points", keys.condition, keys=keys)])[0],
            "spans": reader.extent([Part("spans", of_run, number)])[0],
            "events": reader.extent([Part("events", of_run, number)])[0],
        }
        size = sum(int(count * self._row_bytes(kind)) for kind, count in counts.items())
        return Weight(counts["points"], counts["spans"], counts["events"], size)

    def _row_bytes(self, kind: str) -> float:
        """What a row of the kind takes in files, including roll-ups."""
        kinds = ("points", "rollup") if kind == "points" else (kind,)
        blocks = [block for block in self._store._view.blocks if block.kind in kinds]
        rows = sum(block.rows for block in blocks if block.kind == kind)
        return sum(block.bytes for block in blocks) / rows if rows else _HOT_BYTES
