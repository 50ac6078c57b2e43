"""A run as a trace for Perfetto and chrome://tracing: what every rank did, and when.

Each rank has one track over all attempts (the format calls it a process), and each host has one for
its agent's records.  Steps and spans nest on a track.  Spans beside the training thread, or that do
not nest, have their own line.  Metrics are counters; events are instants with their bodies.  Times
count from the run's first record, which `otherData` names: a double that holds microseconds since
the epoch is too coarse for nanoseconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from runwatch.exports.rows import ExportBatch
from runwatch.record import BEGIN, JournalId, RunId
from runwatch.record.life import Elapsed, LogText
from runwatch.rows import EventRow, ProcessRow, SpanRow
from runwatch.store.store import Store
from runwatch.views.logs import KINDS as LOG_KINDS
from runwatch.views.times import rfc3339

MEDIA_TYPE: Final = "application/vnd.chrome-trace"
MAIN: Final = 0
PAGE: Final = 50_000
PAGE_BYTES: Final = 4 << 20
"""The most bytes of event bodies on a page: bodies may be large."""
MOST_PAGES: Final = 16
"""At most this many pages of rows with the same time.  Only an attack has more."""
MAX_TEXT: Final = 2_000
_HOSTS: Final = 1_000_000
"""Track numbers of hosts start here; those of ranks start at 0."""

Item = dict[str, Any]
Row = TypeVar("Row", SpanRow, EventRow)


def perfetto_text(
    store: Store,
    run: RunId,
    batches: Iterable[ExportBatch],
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    page_rows: int = PAGE,
) -> Iterator[str]:
    """The trace in chunks; the points in `batches` become counters."""
    processes = store.processes(run)
    begin_ns = min((row.start_ns for row in processes), default=0)
    tracks = _Tracks(processes, begin_ns)
    about = {"run": run, "start": rfc3339(begin_ns), "start_ns": begin_ns}
    yield f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n'
    separator = ""
    for page in _items(store, run, tracks, batches, start_ns, end_ns, page_rows):
        if page:
            yield separator + ",\n".join(json.dumps(item, allow_nan=False) for item in page)
            separator = ",\n"
    yield "\n]}\n"


def _items(
    store: Store,
    run: RunId,
    tracks: _Tracks,
    batches: Iterable[ExportBatch],
    start_ns: int | None,
    end_ns: int | None,
    page_rows: int,
) -> Iterator[list[Item]]:
    def spans(start_ns: int | None, times: int) -> list[SpanRow]:
        return store.spans(run, start_ns=start_ns, end_ns=end_ns, limit=times * page_rows)

    def events(start_ns: int | None, times: int) -> list[EventRow]:
        return store.events(
            run,
            start_ns=start_ns,
            end_ns=end_ns,
            limit=times * max(1, page_rows // 10),
            most_bytes=times * PAGE_BYTES,
        )

    nesting = _Nesting(tracks)
    for edges in _pages(spans, start_ns):
        yield [item for row in edges for item in nesting.edge(row)]
    yield nesting.rest()
    for page in _pages(events, start_ns):
        yield [_event(tracks, row) for row in page if row.kind not in LOG_KINDS]
    for batch in batches:
        yield _counters(tracks, batch)
    yield tracks.names()


# ── tracks ─────────────────────────────────────────────────────────────────────────────────────


class _Tracks:
    def __init__(self, processes: Sequence[ProcessRow], begin_ns: int) -> None:
        self._begin_ns = begin_ns
        self.last_ns = {row.journal: row.last_ns for row in processes}
        self._agents = {row.journal for row in processes if row.role == "agent"}
        self._hosts: dict[str, int] = {}
        self._ranks: dict[int, set[str]] = {}
        self._lines: dict[tuple[int, str], int] = {}

    def microseconds(self, time_ns: int) -> float:
        return round((time_ns - self._begin_ns) / 1e3, 3)

    def of(self, journal: JournalId, host: str, rank: int) -> int:
        return self.of_host(host) if journal in self._agents else self.of_rank(rank, host)

    def of_rank(self, rank: int, host: str) -> int:
        self._ranks.setdefault(rank, set()).add(host)
        return rank

    def of_host(self, host: str) -> int:
        return _HOSTS + self._hosts.setdefault(host, len(self._hosts))

    def line(self, track: int, name: str) -> int:
        """The number of the line `name` on a track."""
        return self._lines.setdefault((track, name), len(self._lines) + 1)

    def names(self) -> list[Item]:
        """The names of all tracks and lines.  Call it last, when all are known."""
        ranks = {rank: f"rank {rank} ({', '.join(sorted(hosts))})"
                 for rank, hosts in self._ranks.items()}  # fmt: skip
        hosts = {_HOSTS + number: f"host {host}" for host, number in self._hosts.items()}
        items = []
        for track, name in sorted((ranks | hosts).items()):
            items.append(_metadata("process_name", track, MAIN, name=name))
            items.append(_metadata("process_sort_index", track, MAIN, sort_index=track))
            items.append(_metadata("thread_name", track, MAIN, name="training"))
        for (track, name), line in self._lines.items():
            items.append(_metadata("thread_name", track, line, name=name))
        return items


def _metadata(kind: str, track: int, line: int, **values: Any) -> Item:
    return {"ph": "M", "name": kind, "pid": track, "tid": line, "args": values}


# ── spans ──────────────────────────────────────────────────────────────────────────────────────


class _Nesting:
    """Pairs begins with ends.  A span that does not nest in another gets its own line."""

    def __init__(self, tracks: _Tracks) -> None:
        self._tracks = tracks
        self._open: dict[JournalId, list[SpanRow]] = {}

    def edge(self, row: SpanRow) -> list[Item]:
        stack = self._open.setdefault(row.journal, [])
        if row.edge == BEGIN:
            stack.append(row)
            return []
        begin = next((one for one in reversed(stack) if one.span == row.span), None)
        if begin is None:
            return []
        place = stack.index(begin)
        # A span that begins at the moment when another ends comes after it.
        is_nested = all(later.time_ns >= row.time_ns for later in stack[place + 1 :])
        del stack[place]
        return [self._item(begin, row.time_ns, row.step, is_nested=is_nested)]

    def rest(self) -> list[Item]:
        """Spans without an end last until their process's last record."""
        return [
            self._item(row, max(row.time_ns, self._tracks.last_ns.get(row.journal, 0)), None,
                       is_nested=True, cut_short=True)
            for stack in self._open.values() for row in stack
        ]  # fmt: skip

    def _item(
        self, begin: SpanRow, end_ns: int, end_step: int | None, *, is_nested: bool,
        cut_short: bool = False,
    ) -> Item:  # fmt: skip
        track = self._tracks.of(begin.journal, begin.host, begin.rank)
        step = begin.step if begin.step is not None else end_step
        beside = not is_nested or begin.name.endswith("/background")
        name = begin.name.removesuffix("/useful")
        useful = name != begin.name or None
        known = {"step": step, "cut_short": cut_short or None, "useful": useful}
        return {
            "ph": "X",
            "name": name if step is None else f"{name} {step}",
            "cat": name,
            "pid": track,
            "tid": self._tracks.line(track, name) if beside else MAIN,
            "ts": self._tracks.microseconds(begin.time_ns),
            "dur": round((end_ns - begin.time_ns) / 1e3, 3),
            "args": {key: value for key, value in known.items() if value is not None},
        }


def _pages(
    read: Callable[[int | None, int], list[Row]], start_ns: int | None
) -> Iterator[list[Row]]:
    """Rows in pages.  All rows of one time are on one page, so that no row comes twice.

    `read(start_ns, pages)` returns the rows from a time on that fit into that many pages.
    """
    while page := read(start_ns, 1):
        last_ns = page[-1].time_ns
        whole = [row for row in page if row.time_ns < last_ns]
        if whole:
            yield whole
            start_ns = last_ns
        else:
            same_time = read(start_ns, MOST_PAGES)
            yield [row for row in same_time if row.time_ns == last_ns]
            start_ns = last_ns + 1


# ── events and numbers ─────────────────────────────────────────────────────────────────────────


def _event(tracks: _Tracks, row: EventRow) -> Item:
    track = tracks.of(row.journal, row.host, row.rank)
    at = tracks.microseconds(row.time_ns)
    item: Item = {
        "ph": "i", "s": "t", "name": _title(row), "cat": row.kind, "pid": track,
        "tid": tracks.line(track, "events"), "ts": at, "args": _body(row),
    }  # fmt: skip
    if row.kind != Elapsed.KIND:
        return item
    stretch = Elapsed.of(row.body)
    if (seconds := stretch.seconds) is not None:
        name = stretch.name or row.kind
        del item["s"]
        item |= {"ph": "X", "name": name, "tid": tracks.line(track, name),
                 "ts": round(at - seconds * 1e6, 3), "dur": round(seconds * 1e6, 3)}  # fmt: skip
    return item


def _title(row: EventRow) -> str:
    """The event's kind; for a log line its text."""
    if row.kind != LogText.KIND:
        return row.kind
    logged = LogText.of(row.body)
    value = "" if logged.value is None else str(logged.value)
    return f"{logged.name or row.kind}: {value[:200]}"


def _body(row: EventRow) -> Mapping[str, Any]:
    body: dict[str, Any] = {} if row.step is None else {"step": row.step}
    for key, value in row.body.items():
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        body[key] = value if isinstance(value, bool | int) else text[:MAX_TEXT]
    return body


def _counters(tracks: _Tracks, batch: ExportBatch) -> list[Item]:
    """A device's numbers are on its host's track, others on the rank's.  NaN leaves a gap."""
    counters: list[Item] = []
    at = 0
    for (_, _, host, rank, device, metric), count in batch.stretches():
        track = tracks.of_host(host) if device else tracks.of_rank(rank, host)
        name = f"{metric} {device}" if device else metric
        for index in range(at, at + count):
            value = batch.value[index]
            if math.isfinite(value):
                counters.append(
                    {"ph": "C", "name": name, "pid": track, "tid": MAIN,
                     "ts": tracks.microseconds(batch.time_ns[index]), "args": {"value": value}}
                )  # fmt: skip
        at += count
    return counters
