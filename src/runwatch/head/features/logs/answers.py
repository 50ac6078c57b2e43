"""Pages of a run's log: a few records at a time, from the end or from a cursor on.

Pages are made of whole records.  One record has lines of about a second of one process, so that
lines of several ranks are in order within a page, and those at its edge may be a moment off.

Of a text that is sought, the store says which records may hold it, and only those are read.  They
come with all others of their time: a cursor counts the same records, whoever asks for what.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from runwatch.errors import UsageError
from runwatch.head.features.logs.types import LogEntry, LogException, LogPage
from runwatch.head.http.parameters import Given
from runwatch.head.http.types import plain
from runwatch.head.reading import Reading
from runwatch.record import JournalId, RunId
from runwatch.record.console import Console, ExceptionTold
from runwatch.rows import EventRow
from runwatch.store.asking import look
from runwatch.store.store import Sought
from runwatch.views.logs import KINDS, Entry, Page, Wanted
from runwatch.views.series import AttemptOf

ROWS: Final = 500
MOST_ROWS: Final = 8_000
MORE: Final = 4
"""Each time so many times as many as before."""
ROWS_BYTES: Final = 8 << 20
LOOK_NS: Final = 1_500_000_000
MOST_LOOKED_AT: Final = 20_000
"""An answer looks no longer, and reads no more records, if few of them are what is sought."""
SEARCHED: Final = 32_000
MOST_SEARCHED: Final = 512_000
"""So many records does the store search for a text at a time: at first, and when few hold it."""
QUICK_NS: Final = LOOK_NS // 3
"""It searches more at a time while that takes no longer; records may be large."""
GAPS: Final = ("left_out_lines", "left_out_bytes")
"""An answer tells of all that was left out where it looked."""
LONGEST_RECORD_NS: Final = 60_000_000_000
"""A record's lines are no further from its time."""
CURSOR: Final = r"^[0-9]{1,19}\.[0-9]{1,9}$"


class Cursor(NamedTuple):
    """After so many records of this time; a time may be that of several."""

    time_ns: int
    passed: int

    @classmethod
    def of(cls, text: str) -> Cursor:
        time_ns, _, passed = text.partition(".")
        return cls(int(time_ns), int(passed))

    def beyond(self, event: EventRow) -> Cursor:
        passed = self.passed if event.time_ns == self.time_ns else 0
        return Cursor(event.time_ns, passed + 1)

    def __str__(self) -> str:
        return f"{self.time_ns}.{self.passed}"


def page(reading: Reading, given: Given) -> LogPage:
    run = reading.run(given["run"])
    if given["before"] and given["after"]:
        raise UsageError("before and after together mean nothing; give one of them")
    attempts = reading.attempts(run)
    processes = reading.store.processes(run)
    ranks = {row.rank for row in processes if row.role != "launcher"}
    wanted = replace(_wanted(given, run, attempts), apart=len(ranks) > 1)
    walk = _Walk(reading, run, wanted, _sought(given["grep"]), onward=bool(given["after"]))
    cursor = given["before"] or given["after"]
    found = walk.take(Cursor.of(cursor) if cursor else None, given["limit"])
    newest, oldest = (walk.last, walk.first) if walk.onward else (walk.first, walk.last)
    older = None if walk.is_over and not walk.onward else oldest
    return LogPage(
        run=run,
        entries=[_info(each, run, attempts) for each in found.in_order()],
        older=None if older is None else str(older),
        newer=str(newest) if newest is not None else (given["after"] or None),
        searched_ns=walk.last.time_ns if walk.last is not None else None,
        left_out_lines=found.left_out_lines,
        left_out_bytes=found.left_out_bytes,
        ranks=sorted(rank for rank in ranks or {row.rank for row in processes} if rank >= 0),
    )


def _wanted(given: Given, run: RunId, attempts: AttemptOf) -> Wanted:
    start, end = given["since"], given["until"]
    if start is not None and end is not None and start > end:
        raise UsageError(f"since={start} is after until={end}; give a start before the end")
    journals: set[JournalId] | None = None
    if given["attempt"] is not None:
        journals = {
            journal
            for (journal, of_run), number in attempts.items()
            if of_run == run and number == given["attempt"]
        }
    # The text itself and no regular expression: some of these take for ever.
    sought = given["grep"]
    case = re.IGNORECASE if _any_case(sought) else 0
    pattern = re.compile(re.escape(sought), case) if sought else None
    return Wanted(given["rank"], given["stream"], pattern, start, end, journals)


def _sought(text: str) -> Sought | None:
    """Of an exception, type and message are one line but two fields: the store passes over none."""
    return Sought(text, _any_case(text), (Console.KIND,), GAPS, SEARCHED) if text else None


def _any_case(text: str) -> bool:
    """Small letters stand for both kinds, as in many a search box."""
    return bool(text == text.lower())


class _Walk:
    """Goes through the records of a run, from the newest back or from a cursor on."""

    def __init__(
        self, reading: Reading, run: RunId, wanted: Wanted, sought: Sought | None, *, onward: bool
    ) -> None:
        self.onward = onward
        self.is_over = False
        """Whether there is nothing more in this direction."""
        self.first: Cursor | None = None
        self.last: Cursor | None = None
        self._store, self._clock = reading.store, reading.clock
        self._run = run
        self._wanted = wanted
        self._sought = sought
        self._until_ns = self._clock.mono_ns() + LOOK_NS

    def take(self, cursor: Cursor | None, limit: int) -> Page:
        """About so many entries: the last record is whole."""
        found = Page()
        for number, event in enumerate(self._records(cursor, limit, found), 1):
            found.add((event,), self._wanted)
            self.last = (self.last or cursor or Cursor(0, 0)).beyond(event)
            if self.first is None or event.time_ns == self.first.time_ns:
                self.first = (self.first or Cursor(0, 0)).beyond(event)
            if len(found.entries) >= limit or number >= MOST_LOOKED_AT:
                break
            if not number % 100 and self._is_late():
                break
        return found

    def _is_late(self) -> bool:
        return self._clock.mono_ns() > self._until_ns

    def _records(self, cursor: Cursor | None, limit: int, found: Page) -> Iterator[EventRow]:
        """What the next ones are depends on how much was found in those before."""
        wanted, rows = self._wanted, min(ROWS, limit + 1)
        start = None if wanted.start_ns is None else wanted.start_ns - LONGEST_RECORD_NS
        end = wanted.end_ns
        sought: Sought | None = None  # it may be common: the first records are just read
        while True:
            look()
            if cursor is not None and self.onward:
                start = max(cursor.time_ns, start or 0)
            elif cursor is not None:
                end = cursor.time_ns + 1 if end is None else min(cursor.time_ns + 1, end)
            passed = cursor.passed if cursor is not None else 0
            asked_ns = self._clock.mono_ns()
            events = self._store.events(
                self._run,
                kinds=list(KINDS),
                start_ns=start,
                end_ns=end,
                limit=rows + passed,
                newest_first=not self.onward,
                most_bytes=ROWS_BYTES,
                sought=sought,
            )
            was_quick = self._clock.mono_ns() - asked_ns < QUICK_NS
            at = cursor.time_ns if cursor is not None else None
            skipped = 0
            fresh = 0
            for event in events:
                if event.time_ns == at and skipped < passed:
                    skipped += 1
                    continue
                fresh += 1
                cursor = (cursor or Cursor(0, 0)).beyond(event)
                yield event
            if not fresh:
                self.is_over = True
                return
            if sought is not None and self._is_late():
                return
            rows = min(max(MORE * rows, ROWS), MOST_ROWS)
            if sought is not None and was_quick:
                sought = replace(sought, most=min(MORE * sought.most, MOST_SEARCHED))
            elif sought is None and len(found.entries) * (1 + MORE) < limit:
                sought = self._sought


def _info(entry: Entry, run: RunId, attempts: AttemptOf) -> LogEntry:
    return LogEntry(
        id=plain(entry.id),
        time_ns=entry.time_ns,
        rank=entry.rank,
        host=plain(entry.host),
        attempt=attempts.get((entry.journal, run)),
        step=entry.step,
        source=entry.source,
        text=plain(entry.text),
        left_out_lines=entry.left_out_lines,
        left_out_bytes=entry.left_out_bytes,
        exception=None if entry.exception is None else _exception(entry.exception),
    )


def _exception(told: ExceptionTold) -> LogException:
    return LogException(
        type=plain(told.type),
        message=plain(told.message),
        text=plain(told.text),
        thread=plain(told.thread),
        frames=[plain(frame) for frame in told.frames],
        left_out_frames=told.left_out_frames,
        local_variables=[
            {plain(str(name)): plain(str(value)) for name, value in each.items()}
            for each in told.local_variables
        ],
    )
