"""Replays a run: its stored rows as the batches of its journals, in order of time.

The run's time is cut into stretches with a limited number of rows.  So memory is bounded, and the
journals advance together.  Rows go from the engine's columns to a batch's columns; only events
become objects.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any, Final

import duckdb
import numpy as np

from runwatch.buckets import HIGHEST, LOWEST
from runwatch.record import (
    NO_STEP,
    START,
    Batch,
    Definition,
    Event,
    JournalId,
    Points,
    RunId,
    Spans,
)
from runwatch.store.duck import pieces
from runwatch.store.duck.blocks import Kind
from runwatch.store.duck.catalog import Catalog
from runwatch.store.duck.pages import Keys, Part, cut, floored
from runwatch.store.duck.reading import Reader
from runwatch.store.duck.reduction import Columns
from runwatch.store.entries import Integers, Journal, SeriesEntry
from runwatch.store.store import Tally, Wanted

_CELLS: Final = 4096
"""Into how many cells a stretch of time is divided to find where to cut it."""

_STEP: Final = f"coalesce(step, {NO_STEP}) AS step"
_COLUMNS: Final[Mapping[Kind, str]] = {
    "spans": f"journal, name, span, edge, time_ns, {_STEP}, place",
    "points": f"series, time_ns, {_STEP}, value",
    "events": f"journal, scope, time_ns, {_STEP}, kind, body, place",
}


class DuckReplay:
    """The `Replay` of the embedded engine.  Holds its lease on the data until it is over."""

    def __init__(
        self,
        lease: AbstractContextManager[Reader],
        catalog: Catalog,
        run: RunId,
        wanted: Wanted,
        failed: Callable[[duckdb.Error], Exception],
    ) -> None:
        self._catalog = catalog
        self._run = run
        self._wanted = wanted
        self._failed = failed
        self._journals = chosen_journals(catalog, run, wanted)
        self._series = chosen_series(catalog, self._journals, run, wanted)
        self._parts = list(self._chosen_parts()) if self._journals else []
        self._introductions = [
            Batch(journal.origin, START, START, definitions(catalog, journal, mine, run, wanted))
            for journal, mine in by_journal(self._journals, self._series)
        ]
        with ExitStack() as opening:
            self._reader = opening.enter_context(lease)
            self.records, self._low, self._high = self._reader.extent(self._parts)
            bulk = sum(self._reader.bulk(part) for part in self._parts if part.kind == "events")
            self._weight = self.records + bulk
            self._held = opening.pop_all()

    def __enter__(self) -> DuckReplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def __iter__(self) -> Iterator[list[Batch]]:
        try:
            with self._held:
                yield from self._stretches()
        except duckdb.Error as error:
            raise self._failed(error) from error

    def _stretches(self) -> Iterator[list[Batch]]:
        yield self._introductions
        if self.records:
            for start_ns, end_ns, weight in self._windows(self._low, self._high + 1, self._weight):
                if weight > self._wanted.rows:
                    yield from self._instant(start_ns)
                else:
                    yield self._stretch(start_ns, end_ns, self._parts)

    def tally(self, until: Mapping[JournalId, int] | None = None) -> dict[JournalId, Tally]:
        tallies = {number: Tally() for number in self._journals}
        try:
            for part in self._parts:
                self._count(part, until, tallies)
        except duckdb.Error as error:
            raise self._failed(error) from error
        return {self._journals[number].origin.journal: tally for number, tally in tallies.items()}

    def _count(
        self, part: Part, until: Mapping[JournalId, int] | None, tallies: dict[int, Tally]
    ) -> None:
        if part.kind == "points":
            column, journals = "series", {id: s.journal for id, s in self._series.items()}
        else:
            column, journals = "journal", {number: number for number in self._journals}
        limits: dict[int, int] | None = None
        if until is not None:
            names = {number: journal.origin.journal for number, journal in self._journals.items()}
            limits = {key: until[names[journal]] for key, journal in journals.items()}
        for key, rows, newest_ns, total_ns in self._reader.tally(part, column, limits):
            tally = tallies[journals[key]]
            tallies[journals[key]] = Tally(
                tally.rows + rows, max(tally.newest_ns, newest_ns), tally.total_ns + total_ns
            )

    # ── the selection ─────────────────────────────────────────────────────────────────────────

    def _chosen_parts(self) -> Iterator[Part]:
        number, wanted = self._catalog.find_run(self._run), self._wanted
        of_run = f"run = {number}" + self._since("journal", {n: n for n in self._journals})
        if wanted.spans:
            yield Part("spans", of_run, number)
        if wanted.kinds:
            kinds = ", ".join("'" + kind.replace("'", "''") + "'" for kind in wanted.kinds)
            yield Part("events", f"{of_run} AND kind IN ({kinds})", number)
        keys = Keys.of(self._series)
        if keys is not None:
            journals = {id: entry.journal for id, entry in self._series.items()}
            yield Part("points", keys.condition + self._since("series", journals), keys=keys)

    def _since(self, column: str, journals: Mapping[int, int]) -> str:
        """SQL: rows with these numbers in the column, each from its journal's time on."""
        since = self._wanted.since
        if since is None:
            return ""
        by_time: dict[int, list[str]] = {}
        for number, journal in journals.items():
            at = since[self._journals[journal].origin.journal]
            by_time.setdefault(at, []).append(str(number))
        ranges = (
            f"{column} IN ({', '.join(numbers)}) AND time_ns >= {max(at, LOWEST)}"
            for at, numbers in by_time.items()
        )
        return f" AND (({') OR ('.join(ranges)}))"

    # ── stretches of time ─────────────────────────────────────────────────────────────────────

    def _windows(self, start_ns: int, end_ns: int, weight: int) -> Iterator[tuple[int, int, int]]:
        """Windows with their weight: at most the wanted rows, unless it is a single instant."""
        if weight <= self._wanted.rows or end_ns - start_ns <= 1:
            yield start_ns, end_ns, weight
            return
        width = -(-(end_ns - start_ns) // _CELLS)
        # Recorded times may be anything: their span may exceed a 64-bit integer.
        wide = "::HUGEINT" if end_ns - start_ns > HIGHEST else ""
        cell = floored(f"(time_ns{wide} - {start_ns})", width)
        counts = self._reader.counts(self._parts, start_ns, end_ns, cell)
        for (first, last), count in cut(counts, self._wanted.rows):
            until_ns = min(start_ns + (last + 1) * width, end_ns)
            yield from self._windows(start_ns + first * width, until_ns, count)

    def _instant(self, time_ns: int) -> Iterator[list[Batch]]:
        """One instant with very many rows: its events come first, journal by journal."""
        end_ns = time_ns + 1
        for part in self._parts:
            if part.kind == "events":
                for some in self._pieces(part, time_ns, end_ns):
                    yield self._stretch(time_ns, end_ns, [some])
        others = [part for part in self._parts if part.kind != "events"]
        yield self._stretch(time_ns, end_ns, others)

    def _pieces(self, events: Part, start_ns: int, end_ns: int) -> Iterator[Part]:
        for journal, _ in self._reader.counts([events], start_ns, end_ns, "journal"):
            mine = replace(events, where=f"{events.where} AND journal = {journal}")
            places = self._reader.counts([mine], start_ns, end_ns, "place")
            for (first, last), _ in cut(places, self._wanted.rows):
                yield replace(mine, where=f"{mine.where} AND place BETWEEN {first} AND {last}")

    def _stretch(self, start_ns: int, end_ns: int, parts: Sequence[Part]) -> list[Batch]:
        batches: dict[int, Batch] = {}
        for part in parts:
            columns = self._reader.stretch(part, _COLUMNS[part.kind], start_ns, end_ns)
            if len(columns["time_ns"]):
                self._fill(batches, part.kind, columns)
        return [batches[number] for number in sorted(batches)]

    def _fill(self, batches: dict[int, Batch], kind: Kind, columns: Columns) -> None:
        parts = self._by_journal(kind, columns)
        for number, part in parts.items():
            batch = batches.get(number)
            if batch is None:
                origin = self._journals[number].origin
                batch = batches[number] = Batch(origin, START, START)
            if kind == "spans":
                batch.spans = self._spans(columns, part)
            elif kind == "points":
                batch.points = self._points(columns, part)
            else:
                batch.events = _events(columns, part)

    def _by_journal(self, kind: Kind, columns: Columns) -> dict[int, slice]:
        """Sorts the rows by journal, and each journal's as written; returns each journal's rows."""
        if kind == "points":
            ids, inverse = np.unique(columns["series"], return_inverse=True)
            journals = np.array([self._series[int(id)].journal for id in ids], np.int64)
            columns["journal"] = journals[inverse]
            # The engine keeps no order among points of one instant.  Values break the tie.
            order = in_order(columns["journal"], columns["time_ns"], columns["value"])
        else:
            order = in_order(columns["journal"], columns["place"])
        if order is not None:
            for name, column in columns.items():
                columns[name] = column[order]
        numbers, firsts = np.unique(columns["journal"], return_index=True)
        ends = [*firsts[1:].tolist(), len(columns["journal"])]
        return {
            int(number): slice(int(first), end)
            for number, first, end in zip(numbers, firsts, ends, strict=True)
        }

    def _spans(self, columns: Columns, part: slice) -> Spans:
        spans = Spans()
        spans.name = self._local_names(columns["name"][part])
        spans.span = _column("I", columns["span"][part], np.uint32)
        spans.edge = _column("B", columns["edge"][part], np.uint8)
        spans.time_ns = _column("q", columns["time_ns"][part], np.int64)
        spans.step = _column("q", columns["step"][part], np.int64)
        return spans

    def _local_names(self, names: Integers) -> array[int]:
        entries = self._catalog.span_names
        return _translated(names, lambda number: entries[number].definition.id)

    def _points(self, columns: Columns, part: slice) -> Points:
        return Points(
            _translated(columns["series"][part], lambda id: self._series[id].definition.id),
            _column("q", columns["time_ns"][part], np.int64),
            _column("q", columns["step"][part], np.int64),
            _column("d", columns["value"][part], np.float64),
        )


def in_order(journals: Integers, *keys: Any) -> Integers | None:
    """An order by journal, then by the keys; None if the rows are in that order already.

    A journal's rows mostly are in order as stored.  Then sorting by journal is enough, and faster.
    """
    order = None
    if (journals[1:] < journals[:-1]).any():
        order = np.argsort(journals, kind="stable")
        journals, keys = journals[order], tuple(key[order] for key in keys)
    same = journals[1:] == journals[:-1]
    for key in keys:
        if (same & (key[1:] < key[:-1])).any():
            again = np.lexsort((*reversed(keys), journals))
            return again if order is None else order[again]
        same &= key[1:] == key[:-1]
    return order


def chosen_journals(catalog: Catalog, run: RunId, wanted: Wanted) -> dict[int, Journal]:
    names = {row.journal for row in catalog.process_rows(run)}
    names &= names if wanted.since is None else wanted.since.keys()
    entries = (catalog.find_journal(name) for name in names)
    return {journal.number: journal for journal in entries if journal is not None}


def chosen_series(
    catalog: Catalog, journals: Mapping[int, Journal], run: RunId, wanted: Wanted
) -> dict[int, SeriesEntry]:
    """Series by the store's id."""
    slots = (slot for journal in journals.values() for slot in tuple(journal.defined))
    entries = (catalog.series[slot] for slot in slots if slot not in catalog.hidden)
    return {
        entry.id: entry
        for entry in entries
        if wanted.metric(entry.definition.metric)
        and wanted.labels.items() <= entry.definition.labels.items()
        and journals[entry.journal].run_of(entry.definition.scope) == run
    }


def by_journal(
    journals: Mapping[int, Journal], series: Mapping[int, SeriesEntry]
) -> Iterator[tuple[Journal, list[SeriesEntry]]]:
    mine: dict[int, list[SeriesEntry]] = {number: [] for number in journals}
    for entry in series.values():
        mine[entry.journal].append(entry)
    for number, journal in journals.items():
        yield journal, mine[number]


def definitions(
    catalog: Catalog, journal: Journal, series: Iterable[SeriesEntry], run: RunId, wanted: Wanted
) -> list[Definition]:
    """The journal's definitions for the run, as far as they are wanted."""
    mine = tuple(journal.scopes.values())
    scopes = {s.id: s for s in mine if s.run == run and s.id not in journal.gone}
    chosen: list[Definition] = list(scopes.values())
    names = (catalog.span_names[number] for number in tuple(journal.span_names.values()))
    if wanted.spans:
        chosen += [name.definition for name in names if name.definition.scope in scopes]
    return chosen + [entry.definition for entry in series]


def _translated(numbers: Integers, local: Callable[[int], int]) -> array[int]:
    """The journal's own ids for the store's numbers; there are few distinct ones."""
    if (numbers == numbers[0]).all():
        return array("I", [local(int(numbers[0]))]) * len(numbers)
    distinct, inverse = np.unique(numbers, return_inverse=True)
    return _column("I", np.array([local(int(number)) for number in distinct])[inverse], np.uint32)


def _column(code: str, values: Any, kind: Any) -> array[Any]:
    column: array[Any] = array(code)
    column.frombytes(np.ascontiguousarray(values, kind).tobytes())
    return column


def _events(columns: Columns, part: slice) -> list[Event]:
    names = ("journal", "place", "time_ns", "kind", "body", "step", "scope")
    rows = zip(*(columns[name][part].tolist() for name in names), strict=True)
    return [
        Event(time_ns, kind, json.loads(body), step, scope)
        for _, _, time_ns, kind, body, step, scope in pieces.whole(rows, names)
    ]
