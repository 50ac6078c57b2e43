"""A run as a trace for Perfetto and chrome://tracing: what every rank did, and when.

The run has a track (the format calls it a process) with its goodput, attempts and incidents.  Each
rank has one track over all attempts, and each host has one for its agent's records.  Steps and
spans nest on a track.  Spans beside the training thread, or that do not nest, have their own line.
Metrics are counters; events, lines of the console, exceptions and stacks are instants.  Times count
from the run's first record, which `otherData` names: a double that holds microseconds since the
epoch is too coarse for nanoseconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, TypeVar

from runwatch.exports.collapsed import label
from runwatch.exports.lifeline import Lifeline
from runwatch.exports.rows import ExportBatch
from runwatch.record import BEGIN, JournalId, RunId
from runwatch.record.life import Elapsed, LogText
from runwatch.record.stacks import Frame, Incident, Stacks, Thread
from runwatch.rows import EventRow, ProcessRow, SpanRow
from runwatch.store.store import Store
from runwatch.views.incidents import incidents_of
from runwatch.views.logs import KINDS as LOG_KINDS
from runwatch.views.logs import entries_of
from runwatch.views.times import rfc3339

MEDIA_TYPE: Final = "application/vnd.chrome-trace"
MAIN: Final = 0
PAGE: Final = 50_000
PAGE_BYTES: Final = 4 << 20
"""The most bytes of event bodies on a page: bodies may be large."""
MOST_PAGES: Final = 16
"""At most this many pages of rows with the same time.  Only an attack has more."""
MAX_TEXT: Final = 2_000
LONG_TEXT: Final = 20_000
"""Of a traceback, or of the stack of one thread."""
MOST_THREADS: Final = 100
SLICES: Final = 20_000
"""So many intervals of the account are written at a time."""
_RUN: Final = 2_000_000
"""The run's own track; it is shown first."""
_HOSTS: Final = 1_000_000
"""Track numbers of hosts start here; those of ranks start at 0."""

Item = dict[str, Any]
Row = TypeVar("Row", SpanRow, EventRow)


def perfetto_text(
    store: Store,
    run: RunId,
    batches: Iterable[ExportBatch],
    *,
    lifeline: Callable[[], Lifeline | None] = lambda: None,
    logs: bool = True,
    start_ns: int | None = None,
    end_ns: int | None = None,
    page_rows: int = PAGE,
) -> Iterator[str]:
    """The trace in chunks; the points in `batches` become counters, the run's `lifeline` its own
    track.  Without `logs` there are no lines of the console and no exceptions."""
    processes = store.processes(run)
    begin_ns = min((row.start_ns for row in processes), default=0)
    tracks = _Tracks(processes, begin_ns)
    tracks.run_name = next((row.run_name for row in processes if row.run_name), run)
    about = {"run": run, "start": rfc3339(begin_ns), "start_ns": begin_ns}
    yield f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n'
    separator = ""
    items = chain(
        _life(tracks, lifeline()) if processes else (),
        _items(store, run, tracks, batches, logs, start_ns, end_ns, page_rows),
    )
    for page in items:
        if page:
            yield separator + ",\n".join(json.dumps(item, allow_nan=False) for item in page)
            separator = ",\n"
    yield "\n]}\n"


def _items(
    store: Store,
    run: RunId,
    tracks: _Tracks,
    batches: Iterable[ExportBatch],
    logs: bool,
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
    told: list[EventRow] = []
    for page in _pages(events, start_ns):
        told += [row for row in page if row.kind == Incident.KIND]
        yield [item for row in page for item in _of_event(tracks, row, logs)]
    yield _incidents(tracks, told)
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
        self.run_name = ""
        self.newest_ns = max((row.last_ns for row in processes), default=0)

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
        own = {_RUN: f"run {self.run_name}"} if any(t == _RUN for t, _ in self._lines) else {}
        for track, name in sorted((own | ranks | hosts).items()):
            items.append(_metadata("process_name", track, MAIN, name=name))
            place = -1 if track == _RUN else track
            items.append(_metadata("process_sort_index", track, MAIN, sort_index=place))
            if track in ranks:
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


# ── the run itself ─────────────────────────────────────────────────────────────────────────────


def _life(tracks: _Tracks, life: Lifeline | None) -> Iterator[list[Item]]:
    """Attempts, and the class of every moment: its slices are exactly the account."""
    if life is None:
        return
    line = tracks.line(_RUN, "goodput")
    intervals = life.intervals()
    while page := list(islice(intervals, SLICES)):
        yield [_slice(tracks, line, name, start_ns, end_ns) for start_ns, end_ns, name in page]
    line = tracks.line(_RUN, "attempts")
    yield [
        _slice(tracks, line, f"attempt {number}", start_ns, end_ns, cat="attempt")
        for number, start_ns, end_ns in life.attempts
    ]


def _slice(
    tracks: _Tracks, line: int, name: str, start_ns: int, end_ns: int, cat: str = "goodput",
    **known: Any,
) -> Item:  # fmt: skip
    """The arguments have the exact numbers."""
    args = {"start_ns": start_ns, "ns": end_ns - start_ns, **known}
    return {
        "ph": "X", "name": name, "cat": cat, "pid": _RUN, "tid": line,
        "ts": tracks.microseconds(start_ns), "dur": round((end_ns - start_ns) / 1e3, 3),
        "args": args,
    }  # fmt: skip


def _incidents(tracks: _Tracks, told: Sequence[EventRow]) -> list[Item]:
    """From the last progress on, until it was closed."""
    found = []
    for _, incident in incidents_of(told):
        end_ns = incident.closed_ns or max(tracks.newest_ns, incident.since_ns)
        line = tracks.line(_RUN, "incidents")
        name = f"{incident.kind}: {incident.text[:200]}" if incident.text else incident.kind
        known = {"text": incident.text[:MAX_TEXT], "severity": incident.severity,
                 "ranks": list(incident.ranks), "is_open": incident.is_open}  # fmt: skip
        found.append(_slice(tracks, line, name, incident.since_ns, end_ns, cat="incident", **known))
    return found


# ── events and numbers ─────────────────────────────────────────────────────────────────────────


def _of_event(tracks: _Tracks, row: EventRow, logs: bool) -> list[Item]:
    if row.kind in LOG_KINDS:
        return _said(tracks, row) if logs else []
    if row.kind == Stacks.KIND:
        return [_stacks(tracks, row)]
    return [_event(tracks, row)]


def _said(tracks: _Tracks, row: EventRow) -> list[Item]:
    """Each line of the console; an exception with its traceback."""
    items = []
    track = tracks.of(row.journal, row.host, row.rank)
    for entry in entries_of(row):
        if entry.exception is not None:
            line, title = tracks.line(track, "exceptions"), entry.text[:200]
            known = {"traceback": entry.exception.text[:LONG_TEXT]}
        elif entry.text:
            line, title = tracks.line(track, "console"), entry.text[:200]
            known = {"stream": entry.source, "text": entry.text[:MAX_TEXT]}
        else:
            continue
        items.append(_instant(tracks, row.kind, title, track, line, entry.time_ns, known))
    return items


def _stacks(tracks: _Tracks, row: EventRow) -> Item:
    """Where the threads of a rank were: the main thread's innermost frame, and all of them."""
    stacks = Stacks.of(row.body)
    rank = row.rank if stacks.rank is None else stacks.rank
    track = tracks.of_rank(rank, stacks.host or row.host)
    main = next((thread for thread in stacks.threads if thread.is_main), None)
    place = f": {label(main.frames[0])}" if main is not None and main.frames else ""
    known: dict[str, Any] = {"pid": stacks.pid, "how": stacks.how}
    if stacks.problems:
        known["problems"] = "; ".join(stacks.problems)[:MAX_TEXT]
    for number, thread in enumerate(stacks.threads[:MOST_THREADS]):
        known[f"thread {number} {thread.name}".strip()] = _frames(thread)
    line = tracks.line(track, "stacks")
    return _instant(tracks, row.kind, f"stacks{place}", track, line, row.time_ns, known)


def _frames(thread: Thread) -> str:
    """Innermost first, one in a line."""
    return "\n".join(map(_frame, thread.frames))[:LONG_TEXT]


def _frame(frame: Frame) -> str:
    return f"{frame.function} ({frame.file}:{frame.line})"


def _instant(
    tracks: _Tracks, kind: str, title: str, track: int, line: int, time_ns: int,
    known: Mapping[str, Any],
) -> Item:  # fmt: skip
    return {
        "ph": "i", "s": "t", "name": title, "cat": kind, "pid": track, "tid": line,
        "ts": tracks.microseconds(time_ns), "args": known,
    }  # fmt: skip


def _event(tracks: _Tracks, row: EventRow) -> Item:
    track = tracks.of(row.journal, row.host, row.rank)
    at = tracks.microseconds(row.time_ns)
    line = tracks.line(track, "events")
    item = _instant(tracks, row.kind, _title(row), track, line, row.time_ns, _body(row))
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
