"""Stores a request of OTLP once, and says so when the store has it.

Requests are read and turned into records by one thread of its own, so that neither the event loop
nor the agents' streams wait for it.  A request that finds too much waiting is turned away at once,
to be sent again: agents always find room.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from runwatch.clock import Clock
from runwatch.errors import RunwatchError, StoreBusy
from runwatch.head.features.otlp.book import SCOPE, Book, Books, Page, Peer
from runwatch.head.features.otlp.numbers import numbers
from runwatch.head.features.otlp.seen import Seen, digest
from runwatch.head.features.otlp.who import Sender, sender_of
from runwatch.head.features.otlp.words import lines, spans
from runwatch.head.ingest import Ingest
from runwatch.record import NO_STEP, Event, JournalId, RunId, Verdict
from runwatch.record.otlp import OtlpReceived
from runwatch.wire.otlp_values import PROTOBUF, Signal, attributes

PATIENCE_SECONDS: Final = 8.0
"""OpenTelemetry's exporters wait ten."""
RETRY_SECONDS: Final = 5
MOST_WAITING_BYTES: Final = 32 << 20
MOST_REASONS: Final = 5
READ_ONLY: Final = "this store can only be read here; send to the head that serves it"
T = TypeVar("T")


class Busy(RunwatchError):
    """Nothing is wrong with the request; it is to be sent again."""


class Refused(RunwatchError):
    """The sender may not add to that run, or has reached a limit."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A request, and who sent it."""

    signal: Signal
    body: bytes
    kind: str = PROTOBUF
    peer: Peer = field(default_factory=lambda: Peer(""))
    projects: tuple[str, ...] = ()
    """That its token is for; empty: all."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was set aside."""

    rejected: int = 0
    why: str = ""


@dataclass(slots=True)
class _Part:
    """One resource's part of a request, on its way."""

    total: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    stored: Future[Verdict] | None = None
    """None: it was stored before, or there is nothing to store."""
    refusal: str = ""

    def reject(self, why: str) -> None:
        self.reasons[why] += 1


class Receiver:
    """`receive` is for the event loop; `call` runs something in the thread that owns the books."""

    def __init__(self, ingest: Ingest | None, clock: Clock) -> None:
        self.clock = clock
        self._ingest = ingest
        self._books = None if ingest is None else Books(ingest.store, clock)
        self._seen: Seen | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._waiting_bytes = 0

    @property
    def ingest(self) -> Ingest:
        if self._ingest is None:
            raise StoreBusy(READ_ONLY)
        return self._ingest

    @property
    def books(self) -> Books:
        if self._books is None:
            raise StoreBusy(READ_ONLY)
        return self._books

    def alive(self) -> set[JournalId]:
        return set() if self._books is None else self._books.alive()

    def gone(self) -> set[JournalId]:
        return set() if self._books is None else self._books.gone()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()

    async def call(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="runwatch-otlp")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def group(self, run: RunId, projects: Sequence[str]) -> str:
        """Of a process that names none, with a token of these projects."""
        if not projects or self.ingest.projects.of(run) in projects:
            return ""
        return projects[0]

    # ── a request ─────────────────────────────────────────────────────────────────────────────

    async def receive(self, envelope: Envelope) -> Answer:
        """Returns when everything is stored.  Raises Busy, Refused, WireError or StoreBusy."""
        ingest, size = self.ingest, len(envelope.body)
        if not ingest.has_room or self._waiting_bytes + size > MOST_WAITING_BYTES:
            raise Busy(ingest.problem or "the store has much to do; send it again")
        self._waiting_bytes += size
        try:
            parts = await self.call(lambda: self._take(envelope))
            await self._stored([part.stored for part in parts if part.stored is not None])
        finally:
            self._waiting_bytes -= size
        return _answer(parts)

    async def _stored(self, futures: Sequence[Future[Verdict]]) -> None:
        if not futures:
            return
        # `wait` cancels nobody: a batch that was given up would leave a gap before the next one.
        waiting = {asyncio.ensure_future(asyncio.wrap_future(each)) for each in futures}
        _, late = await asyncio.wait(waiting, timeout=PATIENCE_SECONDS)
        if late or any(failed(each) for each in futures):
            raise Busy(self.ingest.problem or "the store has not confirmed it; send it again")

    # ── in the thread that owns the books ─────────────────────────────────────────────────────

    def _take(self, envelope: Envelope) -> list[_Part]:
        from runwatch.wire.otlp import parts_of  # nobody pays for it who sends nothing

        messages = parts_of(envelope.signal, envelope.body, envelope.kind)
        each = len(envelope.body) // max(1, len(messages))
        return [self._take_part(envelope, message, each) for message in messages]

    def _take_part(self, envelope: Envelope, message: Any, size: int) -> _Part:
        if self._seen is None:
            self._seen = Seen(self.ingest.store, self.clock)
        part, mark = _Part(), digest(envelope.signal, message)
        known = self._seen.known(mark)
        if known is True:
            return part
        if isinstance(known, Future):
            part.stored = known
            return part
        sender = sender_of(attributes(message.resource.attributes), envelope.peer.host)
        group, now_ns = self.group(sender.run, envelope.projects), self.clock.wall_ns()
        book = self.books.of(sender, envelope.peer, group)
        page = book.page(now_ns)
        is_timed = _FILL[envelope.signal](page, message, sender, part, now_ns)
        if not page.batch.records:
            return part
        if is_timed:  # else nothing tells a repetition from a second message of the same words
            refused = sum(part.reasons.values())
            told = OtlpReceived(mark, envelope.signal, refused, _words(part.reasons)[:1000])
            page.event(Event(now_ns, told.KIND, told.body(), NO_STEP, SCOPE))
        future = self.submit(book, page, envelope.peer, envelope.projects, size)
        part.refusal = refusal(future)
        if not part.refusal:
            part.stored = future
            if is_timed:
                self._seen.begin(mark, future)
        return part

    def submit(
        self, book: Book, page: Page, peer: Peer, projects: Sequence[str], size: int
    ) -> Future[Verdict]:
        """A page that was refused at once is undone: its series are not defined."""
        batch = page.close()
        future = self.ingest.submit(batch, peer.address or "127.0.0.1", size, projects)
        if future.done() and failed(future):
            page.undo()
            return future
        book.sent(future)
        return future


def refusal(future: Future[Verdict]) -> str:
    """Why the batch was refused at once; sending it again would not help."""
    is_known = future.done() and not future.cancelled() and future.exception() is None
    return future.result().why if is_known else ""


def failed(future: Future[Verdict]) -> bool:
    if not future.done():
        return False
    return future.cancelled() or future.exception() is not None or not future.result().accepted


# ── what becomes of each signal ────────────────────────────────────────────────────────────────


def _metrics(page: Page, message: Any, sender: Sender, part: _Part, now_ns: int) -> bool:
    for rows in numbers(message, part.reject, of_wheel=sender.is_wheel):
        part.total += 1
        if why := page.numbers(rows):
            part.reject(why)
    return True


def _logs(page: Page, message: Any, sender: Sender, part: _Part, now_ns: int) -> bool:
    is_timed = True
    for line in lines(message, now_ns, part.reject, of_wheel=sender.is_wheel):
        part.total += 1
        is_timed = is_timed and line.is_timed
        if why := page.event(line.event):
            part.reject(f"a log record: {why}")
    return is_timed


def _traces(page: Page, message: Any, sender: Sender, part: _Part, now_ns: int) -> bool:
    for span in spans(message, part.reject):
        part.total += 1
        if why := page.span(span):
            part.reject(f"span {span.name[:80]!r}: {why}")
    return True


_FILL: Final = {"metrics": _metrics, "logs": _logs, "traces": _traces}


# ── the answer ─────────────────────────────────────────────────────────────────────────────────


def _answer(parts: Sequence[_Part]) -> Answer:
    refused = [part for part in parts if part.refusal]
    if refused and len(refused) == len(parts):
        raise Refused(refused[0].refusal)
    reasons: Counter[str] = Counter()
    for part in parts:
        reasons += part.reasons
        if part.refusal:
            reasons[part.refusal] += part.total
    return Answer(sum(reasons.values()), _words(reasons))


def _words(reasons: Counter[str]) -> str:
    told = [f"{count} × {why}" for why, count in reasons.most_common(MOST_REASONS)]
    more = len(reasons) - MOST_REASONS
    return "; ".join(told) + (f"; and {more} other reasons" if more > 0 else "")
