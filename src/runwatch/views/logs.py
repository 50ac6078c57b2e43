"""The log of a run: lines of its console and exceptions, of all ranks, in order of time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from runwatch.record import JournalId
from runwatch.record.console import Console, ExceptionTold, Stream
from runwatch.rows import EventRow

KINDS: Final = (Console.KIND, ExceptionTold.KIND)
COMMAND: Final = -1
Source = Stream | Literal["exception"]
SOURCES: Final[tuple[Source, ...]] = ("out", "err", "both", "exception")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line, or an exception with its whole traceback."""

    id: str
    """The same in every answer: journal, rank, time and place in its record."""
    time_ns: int
    rank: int
    """-1: the command that started the ranks."""
    host: str
    journal: JournalId
    step: int | None
    source: Source
    text: str
    """Of an exception, its type and message in one line."""
    left_out_lines: int = 0
    """Lines just before this one that the program's budget did not allow."""
    left_out_bytes: int = 0
    exception: ExceptionTold | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries somebody asks for."""

    ranks: Collection[int] = ()
    sources: Collection[Source] = ()
    pattern: re.Pattern[str] | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    journals: Collection[JournalId] | None = None
    """Only these processes; None: all."""
    apart: bool = False
    """There are several ranks: what their command says is no rank's."""

    def has(self, entry: Entry) -> bool:
        if self.start_ns is not None and entry.time_ns < self.start_ns:
            return False
        if self.end_ns is not None and entry.time_ns >= self.end_ns:
            return False
        if self.sources and entry.source not in self.sources:
            return False
        if self.ranks and entry.rank not in self.ranks:
            return False
        return self.pattern is None or self._speaks_of(entry)

    def _speaks_of(self, entry: Entry) -> bool:
        assert self.pattern is not None
        whole = entry.text if entry.exception is None else entry.exception.text
        return self.pattern.search(whole) is not None or (
            self.pattern.search(entry.text) is not None
        )

    def may_be_in(self, console: Console) -> bool:
        """Quicker than to ask of each line: most of a long log is not what is sought."""
        if self.sources and console.stream not in self.sources:
            return False
        return self.pattern is None or bool(self.pattern.search("\n".join(console.lines)))

    def is_about(self, event: EventRow) -> bool:
        """Whether the event may hold such an entry, by who told it."""
        if self.ranks and event.rank not in self.ranks and COMMAND not in self.ranks:
            return False
        return self.journals is None or event.journal in self.journals


@dataclass(slots=True)
class Page:
    """Entries in order of time, and what could not be shown."""

    entries: list[Entry] = field(default_factory=list)
    left_out_lines: int = 0
    """Lines that the programs' budgets did not allow, in the stretch that was looked at."""
    left_out_bytes: int = 0

    def add(self, events: Iterable[EventRow], wanted: Wanted) -> None:
        for event in events:
            if not wanted.is_about(event):
                continue
            if event.kind == Console.KIND:
                console = Console.of(event.body)
                self.left_out_lines += console.left_out_lines
                self.left_out_bytes += console.left_out_bytes
                if not wanted.may_be_in(console):
                    continue
            self.entries += filter(wanted.has, entries_of(event, apart=wanted.apart))

    def in_order(self) -> Sequence[Entry]:
        self.entries.sort(key=lambda entry: (entry.time_ns, entry.rank))
        return self.entries


def entries_of(event: EventRow, *, apart: bool = False) -> Iterator[Entry]:
    """The entries of a record.  A gap at the end of a console is an entry without text."""
    if event.kind == ExceptionTold.KIND:
        told = ExceptionTold.of(event.body)
        yield _entry(event, "exception", 0, event.time_ns, told.line, exception=told)
        return
    console = Console.of(event.body)
    if apart and console.of_command:
        event = replace(event, rank=COMMAND)
    gap = console.left_out_lines, console.left_out_bytes
    if not console.lines and any(gap):
        yield _entry(event, console.stream, 0, event.time_ns, "", *gap)
    for number, (line, time_ns) in enumerate(
        zip(console.lines, console.times_ns(event.time_ns), strict=True)
    ):
        yield _entry(event, console.stream, number, time_ns, line, *(() if number else gap))


def _entry(
    event: EventRow,
    source: Source,
    number: int,
    time_ns: int,
    text: str,
    left_out_lines: int = 0,
    left_out_bytes: int = 0,
    exception: ExceptionTold | None = None,
) -> Entry:
    return Entry(
        f"{event.journal}:{event.rank}:{event.time_ns}:{source}:{number}",
        time_ns,
        event.rank,
        event.host,
        event.journal,
        event.step,
        source,
        text,
        left_out_lines,
        left_out_bytes,
        exception,
    )
