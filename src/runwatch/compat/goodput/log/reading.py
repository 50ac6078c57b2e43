"""How a calculator reads a job's log: what is new, and what came late.

A log may show an entry only after later ones were read.  So the last minute is asked for again
each time; what is known is not taken twice, and what is not goes to its place in the log.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, overload

from runwatch.clock import Clock, system_clock
from runwatch.compat.goodput.calculator.codes import ORDER_FREE, Item, entry_of, item_of
from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.log.entries import Columns

STRETCH: Final = 50_000
OVERLAP: Final = timedelta(seconds=60)

Entry = Mapping[str, Any]


class CloudLogger(Protocol):
    """Where a job's log lies.  The first generation takes no cursor and gives entries alone."""

    @property
    def read_cloud_logging_entries(self) -> Callable[..., Any]: ...


class Reader:
    """Follows a log, from its beginning.

    The log is asked as the original asks it: for everything at first, then from the time of the
    last entry until now, and with the cursor.  Some logs go by the times only.
    """

    def __init__(self, logger: CloudLogger, clock: Clock = system_clock) -> None:
        self._logger = logger
        self._clock = clock
        self._accepted = _accepted(logger)
        # The class is looked at: a mock has every attribute, but gives no columns.
        has_columns = hasattr(type(logger), "read_columns")
        self._read_columns = _column_reader(logger) if has_columns else None
        self._last = _Answer()
        self.cursor: Any = None

    def read_into(self, history: History) -> bool:
        """Add what is new.  Returns whether any entry was inserted between older ones."""
        if self._read_columns is not None:
            for columns in self._read_columns():
                history.add_columns(columns)
            return False
        return take(history, [self._new_entries(history)])

    def read_window(self, start: datetime, end: datetime) -> Sequence[Entry]:
        """What was recorded between two moments, read afresh."""
        return self._ask(start_time=start, end_time=end)[0]

    def _new_entries(self, history: History) -> Sequence[Entry]:
        entries, cursor = self._ask(**self._since(history)) if history else self._ask()
        if cursor not in (None, (None, None)):
            self.cursor = cursor
        return self._last.followed_by(entries)

    def _since(self, history: History) -> dict[str, Any]:
        """The arguments for a log that was read before."""
        last, cursor = _moment(self.cursor), _before(self.cursor)
        if cursor is None:
            last = datetime.fromtimestamp(history.newest, UTC)
        asked = {} if cursor is None else {"last_entry_info": cursor}
        if last is not None:
            asked["start_time"] = last - OVERLAP
            now = datetime.fromtimestamp(self._clock.wall_ns() / 1e9, UTC)
            # If the log's clock is ahead of ours, it has entries that are later than now.
            if last.tzinfo is not None and last < now:
                asked["end_time"] = now
        return asked

    def _ask(self, **asked: Any) -> tuple[Sequence[Entry], Any]:
        if self._accepted is not None:
            asked = {name: value for name, value in asked.items() if name in self._accepted}
        entries, cursor = _answer(self._logger.read_cloud_logging_entries(**asked))
        return entries, _no_later(cursor, asked.get("end_time"))


class _Answer:
    """The log's last answer.  If the next one begins with it, only the rest is looked at."""

    def __init__(self) -> None:
        self._count = 0
        self._edges: tuple[Entry, Entry] | None = None

    def followed_by(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The new part of the next answer: all of it, unless it begins with this one."""
        count, edges = self._count, self._edges
        self._count = len(entries)
        self._edges = (entries[0], entries[-1]) if entries else None
        if edges is None or len(entries) < count or (entries[0], entries[count - 1]) != edges:
            return entries
        return entries[count:]


def _column_reader(logger: Any) -> Callable[[], Iterable[Columns]]:
    """Our own logs give entries without an object for each."""
    reader: Callable[[], Iterable[Columns]] = logger.read_columns
    return reader


def _accepted(logger: CloudLogger) -> frozenset[str] | None:
    """The parameters that the log's reader takes; None if it takes any."""
    parameters = inspect.signature(logger.read_cloud_logging_entries).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return None if takes_any else frozenset(parameters)


def _answer(answer: Any) -> tuple[Sequence[Entry], Any]:
    entries, cursor = answer if isinstance(answer, tuple) else (answer, None)
    return entries if isinstance(entries, Sequence) else list(entries or ()), cursor


def _moment(cursor: Any) -> datetime | None:
    """The time in a cursor, if it has one."""
    is_pair = isinstance(cursor, tuple) and len(cursor) == 2
    return cursor[0] if is_pair and isinstance(cursor[0], datetime) else None


def _before(cursor: Any) -> Any:
    """The cursor, moved back by `OVERLAP`."""
    moment = _moment(cursor)
    return cursor if moment is None else (moment - OVERLAP, cursor[1])


def _no_later(cursor: Any, end: datetime | None) -> Any:
    """A log may answer with its very last entry's cursor, though it gave only those until `end`."""
    moment = _moment(cursor)
    if moment is None or end is None or moment.tzinfo is None or moment <= end:
        return cursor
    return end, cursor[1]


class HistoryEntries(Sequence[Entry]):
    """The entries of a history from a place on, each built when it is looked at.

    A slice must be a plain stretch, without a step.
    """

    def __init__(self, history: History, start: int = 0) -> None:
        self._history = history
        self._range = range(start, len(history))

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        if isinstance(index, int):
            return entry_of(self._history.item(self._range[index]))
        chosen = self._range[index]
        return [entry_of(item) for item in self._history.items(chosen.start, chosen.stop)]

    def __iter__(self) -> Iterator[Entry]:
        return map(entry_of, self._history.items(self._range.start, self._range.stop))


def take(history: History, held: list[Sequence[Entry]]) -> bool:
    """Add the entries that are new; they are `held`'s only item.  Returns whether any was inserted
    between older ones."""
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
    """How many entries there are up to the last one that is known already."""
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
