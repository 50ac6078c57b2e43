"""Batches in, columns out: which batches are taken, and their rows in the store's numbers.

Nothing here touches the engine.  Cursors and latest values move only after the commit.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from runwatch.record import NO_STEP, Batch, Event, Points, Position, Spans, Verdict
from runwatch.record.losses import RecordsSkipped
from runwatch.store.duck import pieces
from runwatch.store.duck.catalog import Catalog
from runwatch.store.duck.latest import Floats
from runwatch.store.duck.pieces import Row
from runwatch.store.entries import Integers, Journal

Columns = dict[str, npt.NDArray[Any]]
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Plan:
    verdicts: list[Verdict] = field(default_factory=list)
    moved: dict[int, tuple[Journal, int, int]] = field(default_factory=dict)
    """Journal number -> journal, its new cursor, its new last_ns."""
    slots: list[Integers] = field(default_factory=list)
    points: list[tuple[Integers, Integers, Floats]] = field(default_factory=list)
    spans: list[Columns] = field(default_factory=list)
    events: list[tuple[Any, ...]] = field(default_factory=list)
    dropped: int = 0
    """Records of deleted runs."""

    def merged_points(self) -> tuple[Integers, Integers, Integers, Floats]:
        """Slot, time, step, value."""
        if len(self.slots) == 1:
            return self.slots[0], *self.points[0]
        time_ns, step, value = zip(*self.points, strict=True)
        return (
            np.concatenate(self.slots),
            np.concatenate(time_ns),
            np.concatenate(step),
            np.concatenate(value),
        )

    def merged_spans(self) -> Columns:
        return {name: np.concatenate([part[name] for part in self.spans]) for name in self.spans[0]}


def plan(catalog: Catalog, batches: Sequence[Batch]) -> Plan:
    result = Plan()
    for batch in batches:
        _place(catalog, batch, result)
    return result


def _place(catalog: Catalog, batch: Batch, result: Plan) -> None:
    name = batch.origin.journal
    entry = catalog.find_journal(name)
    cursor = 0 if entry is None else entry.cursor
    if entry is not None and entry.number in result.moved:
        cursor = result.moved[entry.number][1]
    if batch.end <= cursor or batch.start != cursor:
        result.verdicts.append(Verdict(name, Position(cursor), accepted=False))
        return
    journal = catalog.journal(batch.origin)
    catalog.define(journal, batch.definitions)
    left = batch
    if journal.gone or journal.gone_until:
        left = _without_deleted(catalog, journal, batch)
        result.dropped += batch.records - left.records
    newest = _add_rows(catalog, journal, left, result)
    before = result.moved[journal.number][2] if journal.number in result.moved else journal.last_ns
    result.moved[journal.number] = (journal, batch.end, max(before, newest))
    result.verdicts.append(Verdict(name, batch.end, accepted=True))


def _add_rows(catalog: Catalog, journal: Journal, batch: Batch, result: Plan) -> int:
    """Returns the newest time among the rows."""
    newest = [0]
    if len(batch.points):
        slots, columns = _points(catalog, journal, batch.points)
        result.slots.append(slots)
        result.points.append(columns)
        newest.append(int(columns[0].max()))
    if len(batch.spans):
        spans = _spans(catalog, journal, batch.spans, batch.start)
        result.spans.append(spans)
        newest.append(int(spans["time_ns"].max()))
    if batch.events:
        for index, event in enumerate(batch.events):
            result.events += _event(catalog, journal, event, batch.start + index)
        newest.append(max(event.time_ns for event in batch.events))
    if batch.skipped_records:
        result.events += _skipped(catalog, journal, batch, max(newest))
    return max(newest)


def _points(
    catalog: Catalog, journal: Journal, points: Points
) -> tuple[Integers, tuple[Integers, Integers, Floats]]:
    slots = catalog.slots_of(journal, np.frombuffer(points.series, np.uint32))
    return slots, (
        np.frombuffer(points.time_ns, np.int64),
        np.frombuffer(points.step, np.int64),
        np.frombuffer(points.value, np.float64),
    )


def _spans(catalog: Catalog, journal: Journal, spans: Spans, start: int) -> Columns:
    local, inverse = np.unique(np.frombuffer(spans.name, np.uint32), return_inverse=True)
    names = [catalog.span_name_number(journal, int(id)) for id in local]
    scopes = [catalog.span_names[name].definition.scope for name in names]
    runs = [catalog.run_number(journal.run_of(scope)) for scope in scopes]
    count = len(spans)
    return {
        "run": np.array(runs, np.int64)[inverse],
        "journal": np.full(count, journal.number, np.int64),
        "name": np.array(names, np.int64)[inverse],
        "span": np.frombuffer(spans.span, np.uint32).astype(np.int64),
        "edge": np.frombuffer(spans.edge, np.uint8).astype(np.int64),
        "time_ns": np.frombuffer(spans.time_ns, np.int64),
        "step": np.frombuffer(spans.step, np.int64),
        "place": _places(start, count),
    }


def _places(start: int, count: int) -> Integers:
    # A record takes more than one byte of its journal, so start + index stays below the next
    # batch's start: sorting by place restores the order in which a journal's rows were written.
    return np.arange(start, start + count, dtype=np.int64)


def _event(catalog: Catalog, journal: Journal, event: Event, place: int) -> list[Row]:
    """One row, or several if the body is large."""
    run, kind = catalog.run_number(journal.run_of(event.scope)), event.kind
    kind = kind.encode("utf-8", "replace").decode()
    columns = (run, journal.number, event.scope, event.time_ns, event.step, kind)
    body = json.dumps(dict(event.body), default=str)
    return [(*columns, piece, place) for piece in pieces.cut(body)]


def _skipped(catalog: Catalog, journal: Journal, batch: Batch, newest: int) -> list[Row]:
    skipped = RecordsSkipped(batch.skipped_records, batch.start, batch.end)
    time_ns = newest or journal.last_ns or batch.origin.start_ns
    event = Event(time_ns, skipped.KIND, skipped.body(), NO_STEP)
    return _event(catalog, journal, event, batch.end - 1)


# ── deleted runs ───────────────────────────────────────────────────────────────────────────────


def _without_deleted(catalog: Catalog, journal: Journal, batch: Batch) -> Batch:
    """The batch without the records of deleted runs."""

    def is_left(event: Event) -> bool:
        until_ns = catalog.gone_until_ns(journal, event.scope)
        return until_ns is None or event.time_ns > until_ns

    def kept(ids: array[int], times: array[int], scopes: Mapping[int, int | None]) -> Mask:
        local, when = np.frombuffer(ids, np.uint32), np.frombuffer(times, np.int64)
        keep = np.ones(len(local), np.bool_)
        for id, scope in scopes.items():
            until_ns = catalog.gone_until_ns(journal, scope)
            if until_ns is not None:
                keep &= (local != id) | (when > until_ns)
        return keep

    points, spans, names = batch.points, batch.spans, catalog.span_names
    numbers = {id: journal.span_names.get(id) for id in set(spans.name)}
    of_points = kept(
        points.series,
        points.time_ns,
        {id: journal.scope_of(id, catalog.series) for id in set(points.series)},
    )
    of_spans = kept(
        spans.name,
        spans.time_ns,
        {id: names[n].definition.scope for id, n in numbers.items() if n is not None},
    )
    left = Spans()
    left.name, left.span, left.edge, left.time_ns, left.step = (
        _chosen(column, of_spans)
        for column in (spans.name, spans.span, spans.edge, spans.time_ns, spans.step)
    )
    columns = (points.series, points.time_ns, points.step, points.value)
    return replace(
        batch,
        points=Points(*(_chosen(column, of_points) for column in columns)),
        spans=left,
        events=[event for event in batch.events if is_left(event)],
    )


def _chosen(column: array[Any], keep: Mask) -> array[Any]:
    if keep.all():
        return column
    chosen: array[Any] = array(column.typecode)
    chosen.frombytes(np.frombuffer(column, column.typecode)[keep].tobytes())
    return chosen
