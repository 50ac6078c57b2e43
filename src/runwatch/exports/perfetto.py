"""A run as a trace that Perfetto and chrome://tracing open: what every rank did, and when.

One track (a "process") per rank over all attempts, and one per host for what its agent tells.  On
it steps and spans lie as they nest; spans beside the training thread, or that do not nest, have a
line each.  Metrics are counters, events instants with what they carry.  Times count from the run's
first record, which `otherData` names: as microseconds since the epoch a double has no room for ns.
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
from runwatch.views.times import rfc3339

MEDIA_TYPE: Final = "application/vnd.chrome-trace"
MAIN: Final = 0
PAGE: Final = 50_000
PAGE_BYTES: Final = 4 << 20
"""Of events' bodies, which may be large."""
MOST_PAGES: Final = 16
"""So many times a page may be told of one instant.  Only who means no good has more."""
MAX_TEXT: Final = 2_000
_HOSTS: Final = 1_000_000
"""Numbers of hosts' tracks begin here, those of ranks at 0."""

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
    """The trace in pieces; `batches` are the points that become counters."""
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
    for happened in _pages(events, start_ns):
        yield [_event(tracks, row) for row in happened]
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
        """A line of its own on a track, by what it shows."""
        return self._lines.setdefault((track, name), len(self._lines) + 1)

    def names(self) -> list[Item]:
        """Told last: only then is it known which there are."""
        ranks = {rank: f"rank {rank} ({', '.join(sorted(hosts))})"
                 for rank, hosts in self._ranks.items()}  # fmt: skip
        hosts = {_HOSTS + number: f"host {host}" for host, number in self._hosts.items()}
        told = []
        for track, name in sorted((ranks | hosts).items()):
            told.append(_metadata("process_name", track, MAIN, name=name))
            told.append(_metadata("process_sort_index", track, MAIN, sort_index=track))
            told.append(_metadata("thread_name", track, MAIN, name="training"))
        for (track, name), line in self._lines.items():
            told.append(_metadata("thread_name", track, line, name=name))
        return told


def _metadata(kind: str, track: int, line: int, **values: Any) -> Item:
    return {"ph": "M", "name": kind, "pid": track, "tid": line, "args": values}


# ── spans ──────────────────────────────────────────────────────────────────────────────────────


class _Nesting:
    """Pairs of edges; what ends last is what began first, or else it gets a line of its own."""

    def __init__(self, tracks: _Tracks) -> None:
        self._tracks = tracks
        self._open: dict[JournalId, list[SpanRow]] = {}

    def edge(self, row: SpanRow) -> list[Item]:
        stack = self._open.setdefault(row.journal, [])
        if row.edge == BEGIN:
            stack.append(row)
            return []
        found = next((one for one in reversed(stack) if one.span == row.span), None)
        if found is None:
            return []
        place = stack.index(found)
        # What begins at the moment when another ends comes after it.
        is_nested = all(later.time_ns >= row.time_ns for later in stack[place + 1 :])
        del stack[place]
        return [self._item(found, row.time_ns, row.step, is_nested=is_nested)]

    def rest(self) -> list[Item]:
        """What never ended lasts as long as its process was heard of."""
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
    """Pages end between two moments, never within one, so that nothing is told twice.

    `read` gives as many rows from a time on as fit into a page, or into so many times a page.
    """
    while page := read(start_ns, 1):
        last_ns = page[-1].time_ns
        whole = [row for row in page if row.time_ns < last_ns]
        if whole:
            yield whole
            start_ns = last_ns
        else:
            of_one = read(start_ns, MOST_PAGES)
            yield [row for row in of_one if row.time_ns == last_ns]
            start_ns = last_ns + 1


# ── events and numbers ─────────────────────────────────────────────────────────────────────────


def _event(tracks: _Tracks, row: EventRow) -> Item:
    track = tracks.of(row.journal, row.host, row.rank)
    at = tracks.microseconds(row.time_ns)
    item: Item = {
        "ph": "i", "s": "t", "name": _title(row), "cat": row.kind, "pid": track,
        "tid": tracks.line(track, "events"), "ts": at, "args": _said(row),
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
    """What was logged is its own title."""
    if row.kind != LogText.KIND:
        return row.kind
    logged = LogText.of(row.body)
    value = "" if logged.value is None else str(logged.value)
    return f"{logged.name or row.kind}: {value[:200]}"


def _said(row: EventRow) -> Mapping[str, Any]:
    said: dict[str, Any] = {} if row.step is None else {"step": row.step}
    for key, value in row.body.items():
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        said[key] = value if isinstance(value, bool | int) else text[:MAX_TEXT]
    return said


def _counters(tracks: _Tracks, batch: ExportBatch) -> list[Item]:
    """Of a device on its host's track, of a process on its rank's; what is not finite is a gap."""
    made: list[Item] = []
    at = 0
    for (_, _, host, rank, device, metric), count in batch.stretches():
        track = tracks.of_host(host) if device else tracks.of_rank(rank, host)
        name = f"{metric} {device}" if device else metric
        for index in range(at, at + count):
            value = batch.value[index]
            if math.isfinite(value):
                made.append(
                    {"ph": "C", "name": name, "pid": track, "tid": MAIN,
                     "ts": tracks.microseconds(batch.time_ns[index]), "args": {"value": value}}
                )  # fmt: skip
        at += count
    return made
