"""How a calculator reads a job's log: what is new, and what came late.

A log may show an entry only after later ones were read.  So the last minute is asked for again
each time; what is known is not taken twice, and what is not goes to its place in the log.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from runwatch.goodput.codes import ORDER_FREE, Item, entry_of, item_of
from runwatch.goodput.entries import Columns
from runwatch.goodput.history import History

STRETCH: Final = 50_000
OVERLAP: Final = timedelta(seconds=60)

Entry = Mapping[str, Any]


class CloudLogger(Protocol):
    """Where a job's log lies.  The first generation takes no cursor and gives entries alone."""

    @property
    def read_cloud_logging_entries(self) -> Callable[..., Any]: ...


class Reader:
    """Follows a log, from its beginning."""

    def __init__(self, logger: CloudLogger) -> None:
        self._logger = logger
        self._takes_cursor = _takes_cursor(logger)
        # Its class is asked: a stand-in that has every attribute gives no columns.
        has_columns = hasattr(type(logger), "read_columns")
        self._read_columns = _column_reader(logger) if has_columns else None
        self.cursor: Any = None

    def read_into(self, history: History) -> bool:
        """Add what is new; whether something also went in between older entries."""
        if self._read_columns is not None:
            for columns in self._read_columns():
                history.add_columns(columns)
            return False
        return take(history, [self._new_entries(history)])

    def read_behind(self, cursor: Any) -> tuple[Sequence[Entry], Any]:
        """Entries behind a cursor, all of them without one; no cursor from a log without them."""
        if not self._takes_cursor:
            return _answer(self._logger.read_cloud_logging_entries())[0], None
        return _answer(self._logger.read_cloud_logging_entries(last_entry_info=cursor))

    def read_window(self, start: datetime, end: datetime) -> Sequence[Entry]:
        """What was recorded between two moments, read afresh."""
        return _answer(self._logger.read_cloud_logging_entries(start_time=start, end_time=end))[0]

    def _new_entries(self, history: History) -> Sequence[Entry]:
        read = self._logger.read_cloud_logging_entries
        if self._takes_cursor:
            entries, cursor = _answer(read(last_entry_info=_before(self.cursor)))
            if cursor not in (None, (None, None)):
                self.cursor = cursor
            return entries
        if not history:
            return _answer(read())[0]
        newest = datetime.fromtimestamp(history.newest, UTC)
        return _answer(read(start_time=newest - OVERLAP))[0]


def _column_reader(logger: Any) -> Callable[[], Iterable[Columns]]:
    """Our own logs give entries without an object for each."""
    reader: Callable[[], Iterable[Columns]] = logger.read_columns
    return reader


def _takes_cursor(logger: CloudLogger) -> bool:
    parameters = inspect.signature(logger.read_cloud_logging_entries).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return takes_any or "last_entry_info" in parameters


def _answer(answer: Any) -> tuple[Sequence[Entry], Any]:
    entries, cursor = answer if isinstance(answer, tuple) else (answer, None)
    return entries if isinstance(entries, Sequence) else list(entries or ()), cursor


def _before(cursor: Any) -> Any:
    """A little earlier, if the cursor says what time it is."""
    if isinstance(cursor, tuple) and len(cursor) == 2 and isinstance(cursor[0], datetime):
        return cursor[0] - OVERLAP, cursor[1]
    return cursor


def take(history: History, held: list[Sequence[Entry]]) -> bool:
    """Add what is not there yet of the entries that are `held`'s only item; whether something went
    in between older entries."""
    again = _count_old(history, held[0])
    if not again:
        for stretch in stretches(held, STRETCH):
            history.add(stretch)
        return False
    entries = held.pop()
    places: dict[int, list[Item]] = {}
    place: int | None = None
    without: list[Entry] = []
    for entry in reversed(entries[:again]):
        item = item_of(entry)
        known = None if item is None else history.find(item)
        if known is not None:
            place = known
        elif item is not None and place is not None and item.code not in ORDER_FREE:
            places.setdefault(place, []).append(item)
        else:
            without.append(entry)
    for at in sorted(places, reverse=True):
        history.insert(at, reversed(places[at]))
    history.add((*reversed(without), *entries[again:]))
    return bool(places)


def stretches(held: list[Sequence[Entry]], size: int) -> Iterator[Sequence[Entry]]:
    """The entries that are `held`'s only item, so many at a time.

    A list that nobody else holds (its maker's copy) is let go as it is read: of millions of entries
    it would be half of what we take.  `held` holds it, and the call that counts: that is two.  A
    name's reference would be counted or not as the version of Python has it; an item's always is.
    """
    is_ours = isinstance(held[0], list) and sys.getrefcount(held[0]) <= 2
    entries = held.pop()
    if is_ours and isinstance(entries, list):
        entries.reverse()
        while entries:
            yield entries[: -size - 1 : -1]
            del entries[-size:]
    else:
        for start in range(0, len(entries), size):
            yield entries[start : start + size]


def _count_old(history: History, entries: Sequence[Entry]) -> int:
    """How many there are up to the last that is known."""
    first = next(filter(None, map(item_of, entries)), None)
    if first is None or first.time > history.newest:
        return 0
    for count in range(len(entries), 0, -1):
        item = item_of(entries[count - 1])
        if item is not None and item.time <= history.newest and history.find(item) is not None:
            return count
    return 0


def entries_of(history: History, job_name: str) -> Iterator[dict[str, Any]]:
    """The log as entries again; of checkpoints and foreign entries only what the rules use."""
    for item in history.items():
        yield {"job_name": job_name, **entry_of(item)}
