"""The journals of senders: each continues where the store has got to, after a restart too."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final
from zlib import crc32

from starlette.requests import Request

from runwatch.clock import Clock
from runwatch.head.features.otlp.numbers import Labels, Number
from runwatch.head.features.otlp.who import QUIET_SECONDS, Sender
from runwatch.head.features.otlp.words import Span
from runwatch.journal.liveness import boot_id, is_alive, start_ticks, this_host
from runwatch.peers import is_loopback
from runwatch.record import (
    BEGIN,
    END,
    Batch,
    Event,
    JournalId,
    Origin,
    Position,
    RunId,
    RunScope,
    Series,
    SpanName,
    Verdict,
)
from runwatch.record.base import NO_STEP
from runwatch.record.door import definition_problem, event_problem
from runwatch.record.life import RunStart
from runwatch.record.otlp import ML_RUN, is_foreign
from runwatch.rows import ProcessRow
from runwatch.store.store import Store

MOST_SERIES: Final = 20_000
"""Of one sender."""
MOST_BOOKS: Final = 20_000
SCOPE: Final = 1


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection."""

    address: str
    port: int = 0
    is_direct: bool = True
    """No proxy says that it is in between."""

    @property
    def host(self) -> str:
        return this_host() if not self.address or is_loopback(self.address) else self.address


def peer_of(request: Request) -> Peer:
    address, port = request.scope.get("client") or ("", 0)
    is_direct = not any(name in request.headers for name in ("via", "x-forwarded-for", "forwarded"))
    return Peer(address, port, is_direct)


class Book:
    """The journal of one process.  Used by one thread."""

    def __init__(self, store: Store, origin: Origin, scope: RunScope, start: RunStart) -> None:
        self.origin = origin
        self.scope = scope
        self.start = start
        self.place = int(store.cursor(origin.journal))
        self.address = ""
        """Who sends the data of a run made by PATCH; empty: nobody yet."""
        self.waiting = 0
        """Pages on their way into the store."""
        self.is_stale = False
        """A page was lost: where the journal is in the store is to be asked again."""
        self.heard_ns = 0
        self.series: dict[tuple[str, str, Labels], int] = {}
        self.spans: dict[str, int] = {}
        if self.place:
            for row in store.series(journal=origin.journal):
                key = row.metric, row.unit, tuple(sorted(row.labels.items()))
                self.series[key] = row.local

    @property
    def is_new(self) -> bool:
        return self.place == 0

    def page(self, now_ns: int) -> Page:
        self.heard_ns = now_ns
        return Page(self, now_ns)

    def sent(self, future: Future[Verdict]) -> None:
        self.waiting += 1
        future.add_done_callback(self._done)

    def _done(self, done: Future[Verdict]) -> None:
        self.waiting -= 1
        if done.cancelled() or done.exception() is not None or not done.result().accepted:
            self.is_stale = True


class Page:
    """One batch in the making.  `undo` it if it was refused."""

    def __init__(self, book: Book, now_ns: int) -> None:
        self._book = book
        self._now_ns = now_ns
        self._start = book.place
        self._earliest_ns = now_ns
        self._new: list[tuple[str, str, Labels]] = []
        self._new_spans: list[str] = []
        self.batch = Batch(book.origin, Position(book.place), Position(book.place))

    def numbers(self, rows: Sequence[Number]) -> str:
        """All rows of a point, or none.  Why they cannot be taken; empty: they are."""
        series = []
        for row in rows:
            id, wrong = self._series(row)
            if wrong:
                return wrong
            series.append(id)
        for id, row in zip(series, rows, strict=True):
            self.batch.points.append(id, row.time_ns, row.step, row.value)
            self._earliest_ns = min(self._earliest_ns, row.time_ns)
        return ""

    def _series(self, row: Number) -> tuple[int, str]:
        known, key = self._book.series, row[:3]
        id = known.get(key)
        if id is not None:
            return id, ""
        if len(known) >= MOST_SERIES:
            return 0, f"this sender has {MOST_SERIES} series already; fewer labels make fewer"
        defined = Series(len(known) + 1, row.metric, SCOPE, row.unit, "", dict(row.labels))
        if wrong := definition_problem(defined):
            return 0, f"a series of {row.metric[:80]!r}: {wrong}"
        known[key] = defined.id
        self._new.append(key)
        self.batch.definitions.append(defined)
        return defined.id, ""

    def event(self, event: Event) -> str:
        if wrong := event_problem(event):
            return wrong
        self._earliest_ns = min(self._earliest_ns, event.time_ns)
        self.batch.events.append(event)
        return ""

    def span(self, span: Span) -> str:
        told = Event(span.start_ns, span.told.KIND, span.told.body(), span.step, SCOPE)
        if wrong := self.event(told):
            return wrong
        name = self._book.spans.get(span.name)
        if name is None:
            # Made of the name, so that it is the same after a restart.
            name = crc32(span.name.encode())
            self._book.spans[span.name] = name
            self._new_spans.append(span.name)
            self.batch.definitions.append(SpanName(name, span.name, SCOPE))
        spans = self.batch.spans
        spans.append(name, span.number, BEGIN, span.start_ns, span.step)
        spans.append(name, span.number, END, span.end_ns, span.step)
        return ""

    def close(self) -> Batch:
        """The batch as it is to be stored."""
        book, batch = self._book, self.batch
        if book.is_new:
            book.origin = batch.origin = replace(book.origin, start_ns=self._earliest_ns)
            batch.definitions.insert(0, book.scope)
            began = Event(self._earliest_ns, RunStart.KIND, book.start.body(), NO_STEP, SCOPE)
            batch.events.insert(0, began)
        batch.end = Position(batch.start + max(1, batch.records))
        book.place = batch.end
        return batch

    def undo(self) -> None:
        book = self._book
        book.place = self._start
        for key in self._new:
            book.series.pop(key, None)
        for name in self._new_spans:
            book.spans.pop(name, None)


class Books:
    """The books of all senders.  Used by one thread, but for `alive` and `gone`."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._books: OrderedDict[JournalId, Book] = OrderedDict()
        self._of_run: dict[RunId, JournalId] = {}
        """The newest journal of a run that was made by PATCH."""
        self._watched: dict[JournalId, Origin] | None = None
        self._gone: set[JournalId] = set()
        self._told_wrong: set[JournalId] = set()
        """Those whose process was not the one that we saw."""

    # ── whose book ────────────────────────────────────────────────────────────────────────────

    def of(self, sender: Sender, peer: Peer, group: str = "") -> Book:
        """The book of a sender of OTLP.  `group`: of its run, if it names none."""
        made = self.made(sender.run) if sender.is_wheel else None
        if made is not None and made.address in ("", peer.address):
            made.address = peer.address
            self._speaks(made.origin.journal)
            return made
        journal = sender.journal
        known = self._books.get(journal)
        if known is None or known.is_stale:
            rows = self._store.processes(sender.run)
            row = next((row for row in rows if row.journal == journal), None)
            known = self._kept(self._opened(sender, row, rows, group or ""))
        self._books.move_to_end(journal)
        return known

    def made(self, run: RunId) -> Book | None:
        """The newest book of a run that was made by PATCH."""
        journal = self._of_run.get(run)
        known = None if journal is None else self._books.get(journal)
        if known is not None and not known.is_stale:
            return known
        rows = [r for r in self._store.processes(run) if r.journal.startswith(ML_RUN)]
        newest = max(rows, key=lambda row: (row.start_ns, row.journal), default=None)
        if newest is None:
            return None
        self._of_run[run] = newest.journal
        return self._kept(Book(self._store, _origin_of(newest), _scope_of(newest), RunStart()))

    def make(self, run: RunId, name: str, group: str, peer: Peer, pid: int | None) -> Book:
        """A process has begun; it says so by PATCH."""
        now_ns = self._clock.wall_ns()
        ticks = start_ticks(pid) if pid else None
        host, seen = peer.host, ticks is not None
        origin = Origin(
            JournalId(f"{ML_RUN}{run[:64]}-{now_ns:x}"),
            host,
            pid if pid and seen else 0,
            now_ns,
            boot_id() if seen else "",
            ticks or 0,
            version="ml-run",
        )
        start = RunStart(run, name, group, rank=0, quiet_seconds=QUIET_SECONDS)
        scope = RunScope(SCOPE, run, name, group=group)
        book = self._kept(Book(self._store, origin, scope, start))
        self._of_run[run] = origin.journal
        return book

    def _opened(
        self, sender: Sender, row: ProcessRow | None, rows: list[ProcessRow], group: str
    ) -> Book:
        if row is not None:
            return Book(self._store, _origin_of(row), _scope_of(row), RunStart())
        rank = self._rank(sender, rows) if sender.rank is None else sender.rank
        named = sender.group or group
        origin = Origin(
            sender.journal, sender.host, sender.pid, self._clock.wall_ns(), version="otlp"
        )
        scope = RunScope(
            SCOPE, sender.run, sender.name, rank, sender.world_size, sender.attempt_key, named
        )
        start = RunStart(
            sender.run,
            sender.name,
            named,
            rank=rank,
            world_size=sender.world_size,
            attempt_key=sender.attempt_key,
            quiet_seconds=sender.quiet_seconds,
        )
        return Book(self._store, origin, scope, start)

    def _rank(self, sender: Sender, rows: list[ProcessRow]) -> int:
        """The lowest that nobody has who was heard of lately."""
        since_ns = self._clock.wall_ns() - int(sender.quiet_seconds * 1e9)
        taken = {row.rank for row in rows if row.role == "process" and row.last_ns >= since_ns}
        taken |= {
            book.scope.rank
            for book in self._books.values()
            if book.scope.run == sender.run and book.heard_ns >= since_ns
        }
        return next(rank for rank in range(len(taken) + 1) if rank not in taken)

    def _kept(self, book: Book) -> Book:
        self._books[book.origin.journal] = book
        self._watch(book.origin)
        while len(self._books) > MOST_BOOKS:
            oldest = next((j for j, each in self._books.items() if not each.waiting), None)
            if oldest is None or oldest == book.origin.journal:
                break
            del self._books[oldest]
        return book

    # ── who lives ─────────────────────────────────────────────────────────────────────────────

    def alive(self) -> set[JournalId]:
        return {journal for journal, lives in self._lives().items() if lives}

    def gone(self) -> set[JournalId]:
        self._gone |= {journal for journal, lives in self._lives().items() if lives is False}
        self._gone -= self._told_wrong
        for journal in self._gone | self._told_wrong:
            self._watching().pop(journal, None)
        return set(self._gone)

    def _speaks(self, journal: JournalId) -> None:
        """Whoever was seen to end was not the sender: a tunnel, or a program that began it."""
        if journal in self._gone:
            self._gone.discard(journal)
            self._told_wrong.add(journal)

    def _lives(self) -> dict[JournalId, bool | None]:
        return {journal: is_alive(origin) for journal, origin in [*self._watching().items()]}

    def _watch(self, origin: Origin) -> None:
        """Only a process whose pid the kernel told us is looked for."""
        known = self._gone | self._told_wrong
        if origin.pid and origin.boot and origin.journal not in known:
            self._watching()[origin.journal] = origin

    def _watching(self) -> dict[JournalId, Origin]:
        if self._watched is None:
            rows = [row for row in self._store.processes() if is_foreign(row.journal)]
            origins = (_origin_of(row) for row in rows if row.pid and row.boot)
            self._watched = {origin.journal: origin for origin in origins}
        return self._watched


def _origin_of(row: ProcessRow) -> Origin:
    ticks = row.process_start_ticks
    return Origin(row.journal, row.host, row.pid, row.start_ns, row.boot, ticks)


def _scope_of(row: ProcessRow) -> RunScope:
    return RunScope(
        SCOPE, row.run, row.run_name, row.rank, row.world_size, row.attempt_key, row.group
    )
