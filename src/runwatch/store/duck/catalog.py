"""The meaning of the numbers in the fact tables: journals, runs, metrics, series, span names.

Small and append-only, so it is kept in memory as a whole.  `pending` gives the rows that the next
transaction must persist.  A series has two numbers: the store's id (metric number << 32 | n, so
that one metric over all devices is one contiguous range of keys) and a dense slot, which indexes
the arrays of latest values.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields, replace
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from runwatch.record import Definition, JournalId, Origin, RunId, RunScope, Series, SpanName
from runwatch.rows import EventRow, ProcessRow, SeriesRow, SpanRow
from runwatch.store.asking import heeded
from runwatch.store.deletion import AGENT, Deletion, Deletions
from runwatch.store.entries import Integers, Journal, SeriesEntry, SpanNameEntry

Row = tuple[Any, ...]
Shape = TypeVar("Shape", Origin, RunScope, Series, SpanName)

TABLES: Final = ("journals", "runs", "scopes", "metrics", "series", "span_names", "deletions")
UNKNOWN: Final = "unknown"
_UNKNOWN_LOCAL: Final = -1
_FOR_EVER: Final = 2**63 - 1


class Catalog:
    def __init__(self) -> None:
        self.journals: list[Journal] = []
        self.series: list[SeriesEntry] = []
        self.span_names: list[SpanNameEntry] = []
        # Run 0 is 'no run'; metric 0 is not used, so that no series has the id 0.
        self.metrics: list[str] = [""]
        self.runs: list[str] = [""]
        self.ids: Integers = np.zeros(1024, np.int64)
        """Slot -> store id; the array is longer than needed."""
        self._by_journal: dict[str, Journal] = {}
        self._by_run: dict[str, int] = {"": 0}
        self._in_run: dict[str, dict[int, Journal]] = defaultdict(dict)
        """Run -> the journals, by number, that ever had a scope in it."""
        self._by_metric: dict[str, int] = {}
        self._in_metric: list[list[int]] = [[]]
        self.deletions = Deletions()
        self.hidden: set[int] = set()
        """Slots whose rows belong to deleted runs."""
        self.series_in: Counter[str] = Counter()
        """Run -> how many series it has."""
        self._scopes = 0
        self._pending: dict[str, list[Row]] = defaultdict(list)

    # ── growing ────────────────────────────────────────────────────────────────────────────────

    def journal(self, origin: Origin) -> Journal:
        origin = cleaned(origin)
        entry = self._by_journal.get(origin.journal)
        if entry is None:
            entry = self._add_journal(origin)
            self._pending["journals"].append((entry.number, *_kept(origin)))
        return entry

    def define(self, journal: Journal, definitions: Iterable[Definition]) -> None:
        """Journals repeat their definitions in each segment; a repeat changes nothing."""
        for definition in definitions:
            if isinstance(definition, Series):
                slot = journal.series.get(definition.id)
                if slot is not None and self.series[slot].definition == definition:
                    continue
                self._define_series(journal, definition.id, cleaned(definition))
            elif isinstance(definition, RunScope):
                self._define_scope(journal, cleaned(definition))
            else:
                self._define_span_name(journal, cleaned(definition))

    def slots_of(self, journal: Journal, local: npt.NDArray[np.uint32]) -> Integers:
        """Slots of a column of local ids.  Undefined ones go to the journal's `unknown` series."""
        inside = local < len(journal.slots)
        if inside.all():
            slots = journal.slots[local]
        else:
            slots = np.full(len(local), -1, np.int64)
            slots[inside] = journal.slots[local[inside]]
            for value in np.unique(local[~inside]):
                slots[local == value] = journal.series.get(int(value), -1)
        lost = slots < 0
        if lost.any() and journal.parted:
            for value in np.unique(local[lost]):
                if (series := journal.parted.pop(int(value), None)) is not None:
                    self._define_series(journal, series.id, series)
                    slots[local == value] = journal.series[series.id]
            lost = slots < 0
        if lost.any():
            slots[lost] = self._unknown(journal)
        return slots

    def run_number(self, run: str) -> int:
        number = self._by_run.get(run)
        if number is None:
            number = self._add_run(run)
            self._pending["runs"].append((number, run))
        return number

    def span_name_number(self, journal: Journal, local: int) -> int:
        number = journal.span_names.get(local)
        if number is None:
            self._define_span_name(journal, SpanName(local, UNKNOWN))
            number = journal.span_names[local]
        return number

    def _define_scope(self, journal: Journal, scope: RunScope) -> None:
        if journal.scopes.get(scope.id) == scope:
            return
        self._add_scope(journal, scope)
        if scope.id not in journal.gone and scope.id not in journal.gone_until:
            self.run_number(scope.run)
        self._pending["scopes"].append((journal.number, *astuple(scope)))

    def _define_series(self, journal: Journal, local: int, series: Series) -> None:
        slot = journal.series.get(local)
        if slot is not None and self.series[slot].definition == series:
            return
        metric = self._by_metric.get(series.metric)
        if metric is None:
            metric = self._add_metric(series.metric)
            self._pending["metrics"].append((metric, series.metric))
        entry = self._add_series(
            journal, local, metric << 32 | len(self._in_metric[metric]), series
        )
        self._pending["series"].append(
            (
                entry.id,
                journal.number,
                local,
                series.scope,
                series.unit,
                series.device,
                json.dumps(dict(series.labels)),
            )
        )

    def _define_span_name(self, journal: Journal, name: SpanName) -> None:
        number = journal.span_names.get(name.id)
        if number is not None and self.span_names[number].definition == name:
            return
        entry = self._add_span_name(journal, name)
        self._pending["span_names"].append(
            (entry.number, journal.number, name.id, name.scope, name.name)
        )

    def _unknown(self, journal: Journal) -> int:
        if _UNKNOWN_LOCAL not in journal.series:
            self._define_series(journal, _UNKNOWN_LOCAL, Series(_UNKNOWN_LOCAL, UNKNOWN))
        return journal.series[_UNKNOWN_LOCAL]

    def _add_journal(self, origin: Origin) -> Journal:
        journal = Journal(len(self.journals), origin)
        self.journals.append(journal)
        self._by_journal[origin.journal] = journal
        return journal

    def _add_scope(self, journal: Journal, scope: RunScope) -> None:
        before = journal.scopes.get(scope.id)
        if before is None or before.run != scope.run:
            journal.scope_at[scope.id] = self._scopes
        self._scopes += 1
        journal.scope(scope)
        self._in_run[scope.run][journal.number] = journal
        self._bury_scope(journal, scope)

    def _add_run(self, run: str) -> int:
        self._by_run[run] = len(self.runs)
        self.runs.append(run)
        return self._by_run[run]

    def _add_metric(self, metric: str) -> int:
        number = len(self.metrics)
        self._by_metric[metric] = number
        self.metrics.append(metric)
        self._in_metric.append([])
        return number

    def _add_series(self, journal: Journal, local: int, id: int, series: Series) -> SeriesEntry:
        entry = SeriesEntry(id, journal.number, series)
        slot = len(self.series)
        if slot >= len(self.ids):
            self.ids = np.concatenate([self.ids, np.zeros(len(self.ids), np.int64)])
        self.ids[slot] = id
        self._in_metric[id >> 32].append(slot)
        self.series.append(entry)
        journal.place(local, slot)
        journal.parted.pop(local, None)
        if series.scope in journal.gone:
            self.hidden.add(slot)
        else:
            self.series_in[journal.run_of(series.scope)] += 1
        return entry

    def _add_span_name(self, journal: Journal, name: SpanName) -> SpanNameEntry:
        entry = SpanNameEntry(len(self.span_names), journal.number, name)
        self.span_names.append(entry)
        journal.span_names[name.id] = entry.number
        return entry

    # ── deleting ───────────────────────────────────────────────────────────────────────────────

    def deletion(self, run: RunId, *, at_ns: int, purge_ns: int) -> Deletion | None:
        """A deletion of the run as it is now, not yet in force; None if there is no such run."""
        number = self._by_run.get(run)
        if not number:
            return None
        names = {s.name for journal in self._journals(run) for s in _parts_in(journal, run)}
        return Deletion(
            number,
            run,
            min(names, default=str(run)),
            "deleted",
            at_ns,
            purge_ns,
            len(self.journals),
            self._scopes,
            len(self.series),
        )

    def bury(self, deletion: Deletion) -> None:
        """Apply a deletion, or its new state, that was stored."""
        self.deletions.take(deletion)
        run = deletion.run
        numbers = [n for n, id in enumerate(self.runs) if id == run and not self.deletions.has(n)]
        if numbers:
            self._by_run[run] = numbers[-1]
        else:
            self._by_run.pop(run, None)
        for journal in self._journals(run):
            for scope in _parts_in(journal, run):
                self._bury_scope(journal, scope)
            self._bury_series(journal, run)

    def buried(self, deletion: Deletion) -> Integers:
        """The store's ids of the series whose rows the deletion covers."""
        first = self.deletions.first_series(deletion)
        slots = [
            slot
            for journal in self._journals(deletion.run)
            for slot in journal.defined
            if first <= slot < deletion.series
            and slot in self.hidden
            and journal.run_of(self.series[slot].definition.scope) == deletion.run
        ]
        return self.ids[np.array(sorted(slots), np.int64)]

    def buried_journals(self, deletion: Deletion) -> list[JournalId]:
        """The journals that have no part in anything but deleted runs."""
        return [
            journal.origin.journal
            for journal in self._journals(deletion.run)
            if journal.gone and journal.gone >= journal.scopes.keys()
        ]

    def buried_rows(self, deletion: Deletion) -> list[ProcessRow]:
        """The deleted run's processes, without those of another run of the same id."""
        return [
            _process_row(journal, scope)
            for journal in self._journals(deletion.run)
            for scope in _parts_in(journal, deletion.run)
            if deletion.means(journal.origin, journal.number, journal.scope_at[scope.id])
        ]

    def gone_until_ns(self, journal: Journal, scope: int | None) -> int | None:
        """Up to which time a journal's records with this scope belong to a deleted run, if any."""
        if scope in journal.gone:
            return _FOR_EVER
        if scope not in journal.gone_until:
            return None
        return journal.gone_until[scope] if journal.run_of(scope) in self._by_run else _FOR_EVER

    def _bury_scope(self, journal: Journal, scope: RunScope) -> None:
        deletions, origin = self.deletions.of(scope.run) if self.deletions else [], journal.origin
        journal.gone.discard(scope.id)
        journal.gone_until.pop(scope.id, None)
        if origin.role == AGENT:
            if deletions:
                journal.gone_until[scope.id] = max(deletion.at_ns for deletion in deletions)
        elif any(d.means(origin, journal.number, journal.scope_at[scope.id]) for d in deletions):
            journal.gone.add(scope.id)

    def _bury_series(self, journal: Journal, run: str) -> None:
        """Hide the series of deleted runs.  An agent's later points belong to a new run of that id:
        its series is unlinked, and defined anew."""
        hidden = len(self.hidden)
        until = max((deletion.series for deletion in self.deletions.of(run)), default=0)
        is_agent = journal.origin.role == AGENT
        for slot in journal.defined:
            definition = self.series[slot].definition
            if journal.run_of(definition.scope) != run:
                continue
            if slot < until if is_agent else definition.scope in journal.gone:
                self.hidden.add(slot)
            else:
                self.hidden.discard(slot)
                if journal.parted.pop(definition.id, None) is not None:
                    journal.point(definition.id, slot)
            if is_agent and slot in self.hidden and journal.series.get(definition.id) == slot:
                journal.part(definition.id, definition)
        self.series_in[run] -= len(self.hidden) - hidden

    # ── keeping ────────────────────────────────────────────────────────────────────────────────

    def pending(self) -> Mapping[str, Sequence[Row]]:
        return self._pending

    def persisted(self) -> None:
        self._pending.clear()

    @classmethod
    def load(cls, rows: Mapping[str, Iterable[Row]]) -> Catalog:
        """Rebuild from the rows of TABLES, each in the order in which it was written."""
        catalog = cls()
        for number, journal, host, pid, start_ns, boot, ticks, role, version in rows["journals"]:
            assert number == len(catalog.journals)
            catalog._add_journal(
                Origin(JournalId(journal), host, pid, start_ns, boot, ticks, role, version)
            )
        for _, run in rows["runs"]:
            catalog._add_run(run)
        for _, metric in rows["metrics"]:
            catalog._add_metric(metric)
        catalog.deletions = Deletions.of_rows(rows["deletions"])
        for number, scope, run, name, rank, world_size, attempt_key, group in rows["scopes"]:
            catalog._add_scope(
                catalog.journals[number],
                RunScope(scope, RunId(run), name, rank, world_size, attempt_key, group),
            )
        for id, number, local, scope, unit, device, labels in rows["series"]:
            series = Series(
                local, catalog.metrics[id >> 32], scope, unit, device, json.loads(labels)
            )
            catalog._add_series(catalog.journals[number], local, id, series)
        for _, number, local, scope, name in rows["span_names"]:
            catalog._add_span_name(catalog.journals[number], SpanName(local, name, scope))
        for deletion in catalog.deletions.all():
            catalog.bury(deletion)
        return catalog

    # ── asking ─────────────────────────────────────────────────────────────────────────────────

    def find_journal(self, journal: str) -> Journal | None:
        return self._by_journal.get(journal)

    def find_run(self, run: str) -> int | None:
        return self._by_run.get(run)

    def find_slot(self, series: int) -> int | None:
        metric, index = series >> 32, series & 0xFFFFFFFF
        if not 0 <= metric < len(self._in_metric) or index >= len(self._in_metric[metric]):
            return None
        slot = self._in_metric[metric][index]
        return None if slot in self.hidden else slot

    def find_slots(self, series: Iterable[int]) -> list[int | None]:
        """`find_slot` for many ids, faster."""
        in_metric, find = self._in_metric, self.find_slot
        if self.hidden:
            return [find(id) for id in series]
        try:  # a negative id would index from the end
            return [in_metric[id >> 32][id & 0xFFFFFFFF] if id >= 0 else None for id in series]
        except IndexError:
            return [find(id) for id in series]

    def process_rows(self, run: RunId | None) -> list[ProcessRow]:
        rows = []
        for journal in self._journals(run):
            scopes = tuple(journal.scopes.values()) or (RunScope(0, RunId(""), ""),)
            rows += [
                _process_row(journal, scope)
                for scope in scopes
                if (run is None or scope.run == run)
                and scope.id not in journal.gone
                and self._is_there(scope.run)
            ]
        return rows

    def series_rows(
        self, run: RunId | None, metric: str | None, journal: JournalId | None
    ) -> list[SeriesRow]:
        """By slot, which is the order in which they were first defined."""
        rows = map(self._series_row, heeded(self._slots(run, metric, journal)))
        return [
            row
            for row in rows
            if (run is None or row.run == run)
            and (metric is None or row.metric == metric)
            and (journal is None or row.journal == journal)
            and self._is_there(row.run)
        ]

    def _is_there(self, run: str) -> bool:
        """Agents go on reporting about a run that was deleted."""
        return not self.deletions or run in self._by_run

    def _slots(
        self, run: RunId | None, metric: str | None, journal: JournalId | None
    ) -> Iterable[int]:
        """The slots of the shortest list that holds all that match."""
        slots: Sequence[int] = range(len(self.series))
        if metric is not None:
            number = self._by_metric.get(metric)
            slots = () if number is None else self._in_metric[number]
        if journal is not None:
            entry = self._by_journal.get(journal)
            slots = min(slots, () if entry is None else entry.defined, key=len)
        if run:
            lists = [holder.defined for holder in self._journals(run)]
            if sum(map(len, lists)) < len(slots):
                slots = sorted(chain.from_iterable(lists))
        hidden = self.hidden
        return [slot for slot in slots if slot not in hidden] if hidden else tuple(slots)

    def _journals(self, run: RunId | None) -> Sequence[Journal]:
        """The journals that may have records of the run, by number."""
        if not run:
            return tuple(self.journals)
        journals = tuple(self._in_run[run].values()) if run in self._in_run else ()
        return sorted(journals, key=lambda journal: journal.number)

    def _series_row(self, slot: int) -> SeriesRow:
        entry = self.series[slot]
        journal, definition = self.journals[entry.journal], entry.definition
        cached = journal.rows
        row = cached.get(slot)
        if row is None:
            row = cached[slot] = SeriesRow(
                entry.id,
                journal.origin.journal,
                journal.run_of(definition.scope),
                journal.origin.host,
                _rank(definition, journal),
                definition.device,
                definition.metric,
                definition.unit,
                definition.labels,
                definition.id,
            )
        return row

    def event_row(
        self,
        run: int,
        journal: int,
        scope: int,
        time_ns: int,
        step: int | None,
        kind: str,
        body: str,
        place: int,
    ) -> EventRow:
        """From a row of the fact table, in its order of columns."""
        entry = self.journals[journal]
        return EventRow(
            entry.origin.journal,
            RunId(self.runs[run]),
            entry.origin.host,
            entry.rank_of(scope),
            time_ns,
            step,
            kind,
            json.loads(body),
        )

    def span_row(
        self,
        run: int,
        journal: int,
        name: int,
        span: int,
        edge: int,
        time_ns: int,
        step: int | None,
        place: int,
    ) -> SpanRow:
        """From a row of the fact table, in its order of columns."""
        entry = self.journals[journal]
        definition = self.span_names[name].definition
        return SpanRow(
            entry.origin.journal,
            RunId(self.runs[run]),
            entry.origin.host,
            entry.rank_of(definition.scope),
            definition.name,
            span,
            edge,
            time_ns,
            step,
        )


def _parts_in(journal: Journal, run: str) -> list[RunScope]:
    return [scope for scope in tuple(journal.scopes.values()) if scope.run == run]


def _rank(series: Series, journal: Journal) -> int:
    """An agent reports on other processes: then the label `rank` says whose value it is."""
    try:
        return int(series.labels["rank"])
    except (KeyError, ValueError):
        return journal.rank_of(series.scope)


def _process_row(journal: Journal, scope: RunScope) -> ProcessRow:
    origin = journal.origin
    return ProcessRow(
        journal=origin.journal,
        run=scope.run,
        run_name=scope.name,
        host=origin.host,
        pid=origin.pid,
        rank=scope.rank,
        world_size=scope.world_size,
        attempt_key=scope.attempt_key,
        group=scope.group,
        start_ns=origin.start_ns,
        boot=origin.boot,
        process_start_ticks=origin.process_start_ticks,
        role=origin.role,
        last_ns=journal.last_ns,
    )


def _kept(origin: Origin) -> Row:
    """The origin as it is stored: without the fields that only its own node needs."""
    return (
        origin.journal, origin.host, origin.pid, origin.start_ns, origin.boot,
        origin.process_start_ticks, origin.role, origin.version,
    )  # fmt: skip


def cleaned(shape: Shape) -> Shape:
    """The same with text that any engine can store: lone surrogates become '?'."""
    names = [field.name for field in fields(shape)]
    changed = {n: new for n in names if (new := _clean(old := getattr(shape, n))) is not old}
    return replace(shape, **changed) if changed else shape


def _clean(value: Any) -> Any:
    if isinstance(value, Mapping):
        new = {_clean(key): _clean(item) for key, item in value.items()}
        return value if new == value else new
    if not isinstance(value, str) or value.isascii():
        return value
    new_text = value.encode("utf-8", "replace").decode()
    return value if new_text == value else new_text
