"""Tables of numbers: CSV, and the files that `runwatch export` writes as CSV and JSON.

A *wide* table has a column for each metric, and a step, a time, or both.  A *long* one has a row
for each point: columns `metric` and `value`, and perhaps run, rank, attempt and device.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from runwatch.clock import system_clock
from runwatch.imports.growing import Growing, identity, opened, size
from runwatch.imports.items import (
    MAIN,
    Item,
    Lane,
    LeftOut,
    Mark,
    NotALog,
    Point,
    Reached,
    Source,
    SourceChanged,
    is_time,
)
from runwatch.record import NO_STEP

STREAM: Final = "table"
STEPS: Final = ("step", "global_step", "_step", "steps", "iteration", "iter")
TIMES: Final = (
    "time", "timestamp", "wall_time", "wall time", "_timestamp", "datetime", "date", "time_ns",
)  # fmt: skip
QUIET_NS: Final = 60 * 10**9
"""A file that was not written for so long is complete."""
_DELIMITERS: Final = ",;\t|"
_PEEK: Final = 64 << 10
_MOST_LINES: Final = 1000
"""Of one row, with quotes around line ends."""
_DAYS: Final = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000))
"""From this number on, a time without a unit is in nanoseconds, microseconds, milliseconds; each
with the nanoseconds in one.  A smaller one is in seconds."""
_AS_NULL: Final = ("", "null", "none")
_COMMON: Final = ("metrics", "progress", "history", "log", "results", "data")


@dataclass(frozen=True, slots=True)
class _Form:
    """What the columns of a table are."""

    columns: tuple[str, ...]
    delimiter: str
    step: int | None
    time: int | None
    metric: int | None = None
    value: int | None = None
    run: int | None = None
    rank: int | None = None
    attempt: int | None = None
    device: int | None = None

    @property
    def is_long(self) -> bool:
        return self.metric is not None


def csv_sources(path: Path) -> Iterator[Source]:
    form = form_of(path)
    if form is None:
        raise NotALog(
            f"{path} is no table of metrics: its first line must name the columns, and one of them "
            f"must be a step or a time ({', '.join((*STEPS[:2], *TIMES[:3]))} …)"
        )
    yield from _sources(path, form, "csv")


def json_sources(path: Path) -> Iterator[Source]:
    """What `runwatch export --format json` writes: an array with an object to a line."""
    yield from _sources(path, _JSON, "json")


_COLUMNS: Final = ("run", "attempt", "device", "metric", "step", "time", "value", "rank")
_JSON: Final = _Form(_COLUMNS, "", 4, 5, 3, 6, 0, 7, 1, 2)


def is_our_json(path: Path) -> bool:
    with opened(path, None) as file:
        lines = file.lines()
        if next(lines, b"").strip() != b"[":
            return False
        row = _object(next(lines, b""))
        return row is not None and set(_COLUMNS) <= row.keys()


def _sources(path: Path, form: _Form, kind: Literal["csv", "json"]) -> Iterator[Source]:
    with opened(path, None) as file:
        head = next(file.lines(), b"") + next(file.lines(), b"")
    runs = _runs(path, form) if form.run is not None else [""]
    notes = () if form.time is not None else (_no_time(path),)
    for run in runs:
        yield Source(
            kind,
            path,
            run or _name(path),
            identity("table", path.name, head, run),
            _reader(path, form, run),
            bytes=size(path),
            notes=notes,
        )


def _name(path: Path) -> str:
    """The file's name; the folder's, where every file is called the same."""
    return (path.resolve().parent.name if path.stem.lower() in _COMMON else "") or path.stem


def _no_time(path: Path) -> str:
    return f"{path.name} has no column with a time: each point has the time of the file"


def _reader(path: Path, form: _Form, run: str) -> Any:
    return lambda marks: _Reading(path, form, run).items(marks)


def form_of(path: Path) -> _Form | None:
    """What the first line says; None if it is no table of metrics."""
    with opened(path, None) as file:
        head = next(file.lines(), b"") or file.rest
    try:
        text = head[:_PEEK].decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        return None
    delimiter = max(_DELIMITERS, key=text.count)
    columns = tuple(name.strip() for name in next(csv.reader([text], delimiter=delimiter), []))
    if not text or "\0" in text or any(not name for name in columns[1:]):
        return None
    low = [name.lower() for name in columns]
    step, time = _place(low, STEPS), _place(low, TIMES)
    if step is None and time is None or len(columns) < 2:
        return None
    plain = _Form(columns, delimiter, step, time)
    if "metric" not in low or "value" not in low:
        return plain
    rank = _place(low, ("rank", "process"))
    return _Form(
        columns, delimiter, step, time, low.index("metric"), low.index("value"),
        _place(low, ("run",)), rank, _place(low, ("attempt",)), _place(low, ("device",)),
    )  # fmt: skip


def _place(columns: Sequence[str], names: Sequence[str]) -> int | None:
    return next((columns.index(name) for name in names if name in columns), None)


def _runs(path: Path, form: _Form) -> list[str]:
    """The runs that a long table is of, in the order in which they come."""
    assert form.run is not None
    runs: dict[str, None] = {}
    with opened(path, None) as file:
        for number, (_, row) in enumerate(_rows(file, form)):
            if len(row) == len(form.columns) and (number or not form.delimiter):
                runs[row[form.run]] = None
    return list(runs)


# ── rows ──────────────────────────────────────────────────────────────────────────────────────


def _rows(file: Growing, form: _Form) -> Iterator[tuple[int, list[str]]]:
    """The rows that are complete, the header too, each with how many lines it has.  A row is taken
    before it is yielded."""
    if not form.delimiter:
        yield from _json_rows(file)
        return
    pending: list[bytes] = []

    def lines() -> Iterator[str]:
        for line in file.lines():
            pending.append(line)
            if len(pending) > _MOST_LINES:
                raise NotALog(
                    f"{file.path}: a row of more than {_MOST_LINES:,} lines; is a quote not closed?"
                )
            yield line.decode("utf-8-sig" if not file.offset else "utf-8", "replace")

    rows = csv.reader(lines(), delimiter=form.delimiter)
    while (row := _next(rows, file.path)) is not None:
        count = len(pending)
        for line in pending:
            file.take(line)
        pending.clear()
        yield count, row


def _next(rows: Iterator[list[str]], path: Path) -> list[str] | None:
    try:
        return next(rows, None)
    except csv.Error as error:
        raise NotALog(f"{path} is no CSV: {error}; is a quote not closed?") from error


def _json_rows(file: Growing) -> Iterator[tuple[int, list[str]]]:
    for line in file.lines():
        file.take(line)
        row = _object(line)
        yield 1, [] if row is None else ["" if row[c] is None else str(row[c]) for c in _COLUMNS]


def _object(line: bytes) -> dict[str, Any] | None:
    text = line.strip().rstrip(b",")
    try:
        row = json.loads(text) if text[:1] == b"{" else None
    except ValueError:
        return None
    return row if isinstance(row, dict) and set(_COLUMNS) <= row.keys() else None


class _Reading:
    def __init__(self, path: Path, form: _Form, run: str) -> None:
        self._path, self._form, self._run = path, form, run
        self._line = 0
        self._texts: set[int] | None = None
        """The columns that hold texts; None until the first row is seen."""
        self._file_ns = path.stat().st_mtime_ns
        self._is_quiet = system_clock.wall_ns() - self._file_ns > QUIET_NS

    def items(self, marks: Mapping[str, Mark]) -> Iterator[Item]:
        mark = marks.get(STREAM) or {}
        self._line = int(mark.get("line", 0))
        self._texts = set(mark["texts"]) if "texts" in mark else None
        known: list[str] | None = mark.get("last")
        with opened(self._path, mark) as file:
            for count, row in _rows(file, self._form):
                self._line += count
                if known is not None:
                    self._check_same(known, row)
                    known = None
                elif self._line > 1 or not self._form.delimiter:
                    yield from self._row(row)
                if file.is_due:
                    yield self._reached(file)
            yield from self._last(file, known)

    def _check_same(self, known: list[str], row: list[str]) -> None:
        """The last line had no end when it was read: it must be the same now that it has one."""
        if row != known:
            raise SourceChanged(
                f"{self._path}, line {self._line}: it was imported before it was complete, as "
                f"{','.join(known)!r}. Import the file as another run: --run NAME"
            )

    def _last(self, file: Growing, known: list[str] | None) -> Iterator[Item]:
        """The last line may have no end: because the file ends so, or because it is still being
        written.  It is read if it has all columns and nobody has written for a while."""
        rest = file.rest.decode("utf-8", "replace")
        rows = csv.reader([rest], delimiter=self._form.delimiter or ",")
        row = _next(rows, self._path) or []
        reached = self._reached(file)
        is_whole = len(row) == len(self._form.columns) and self._is_quiet
        if not self._form.delimiter or not self._line or not is_whole:
            if rest and known is None:
                yield LeftOut("last line without an end (for the next import)")
            yield (
                reached if known is None else reached._replace(mark={**reached.mark, "last": known})
            )
            return
        if known is None:
            self._line += 1
            yield from self._row(row)
        else:
            self._check_same(known, row)
        yield reached._replace(mark={**reached.mark, "last": row})

    def _reached(self, file: Growing) -> Reached:
        more = {} if self._texts is None else {"texts": sorted(self._texts)}
        return Reached(STREAM, *file.mark(line=self._line, **more))

    def _row(self, row: list[str]) -> Iterator[Item]:
        form = self._form
        if not any(cell.strip() for cell in row):
            return
        if len(row) != len(form.columns):
            raise NotALog(
                f"{self._path}, line {self._line}: {len(row)} columns, where the first line names "
                f"{len(form.columns)}"
            )
        time_ns = self._time(row)
        step = self._step(row)
        if form.is_long:
            yield from self._long(row, step, time_ns)
            return
        if self._texts is None:
            self._texts = {at for at, cell in enumerate(row) if self._is_text(cell)}
            self._texts -= {form.step, form.time}
            for at in sorted(self._texts):
                yield LeftOut(f"column {form.columns[at]!r}, which holds texts")
        for at, cell in enumerate(row):
            if (
                at in (form.step, form.time)
                or at in self._texts
                or cell.strip().lower() in _AS_NULL
            ):
                continue
            yield Point(form.columns[at], step, time_ns, self._number(cell, at))

    def _long(self, row: list[str], step: int, time_ns: int) -> Iterator[Item]:
        form = self._form
        assert form.metric is not None and form.value is not None
        if form.run is not None and row[form.run] != self._run or row[form.value] == "":
            return
        yield Point(
            row[form.metric],
            step,
            time_ns,
            self._number(row[form.value], form.value),
            self._lane(row),
            row[form.device] if form.device is not None else "",
        )

    def _lane(self, row: list[str]) -> Lane:
        form = self._form
        if form.rank is None:
            return MAIN
        rank = self._number(row[form.rank] or "0", form.rank)
        attempt = row[form.attempt] if form.attempt is not None else ""
        return Lane(int(rank), f"attempt-{attempt}" if attempt else "")

    def _is_text(self, cell: str) -> bool:
        if cell.strip().lower() in _AS_NULL:
            return False
        try:
            float(cell)
        except ValueError:
            return True
        return False

    def _number(self, cell: str, at: int) -> float:
        try:
            return float(cell)
        except ValueError:
            raise self._wrong(cell, at, "no number") from None

    def _step(self, row: list[str]) -> int:
        at = self._form.step
        if at is None or row[at].strip().lower() in _AS_NULL:
            return NO_STEP
        step = self._number(row[at], at)
        if not math.isfinite(step) or step != int(step) or abs(step) >= 1 << 62:
            raise self._wrong(row[at], at, "no whole number")
        return int(step)

    def _time(self, row: list[str]) -> int:
        at = self._form.time
        if at is None:
            return self._file_ns
        time_ns = parsed_time(row[at])
        if time_ns is None:
            raise self._wrong(
                row[at], at, "no time (seconds or milliseconds since 1970, or 2026-01-31T12:00:00Z)"
            )
        return time_ns

    def _wrong(self, cell: str, at: int, what: str) -> NotALog:
        column = self._form.columns[at]
        return NotALog(f"{self._path}, line {self._line}, column {column!r}: {cell!r} is {what}")


def parsed_time(text: str) -> int | None:
    """Seconds, milliseconds, microseconds or nanoseconds since 1970, or a date as ISO 8601 writes
    it (UTC unless it says otherwise); to the nanosecond."""
    text = text.strip()
    try:
        number = float(text)
    except ValueError:
        return _date(text)
    if not math.isfinite(number):
        return None
    unit = next((unit for least, unit in _DAYS if abs(number) >= least), 10**9)
    if text.lstrip("+-").isdecimal():
        time_ns = int(text) * unit
    else:
        time_ns = round(number * unit / 1000) * 1000 if unit > 1000 else round(number * unit)
    return time_ns if is_time(time_ns) else None


def _date(text: str) -> int | None:
    whole, dot, rest = text.replace("Z", "+00:00").replace("z", "+00:00").partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))] if dot else ""
    try:
        moment = datetime.fromisoformat(whole + rest[len(digits) :])
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    time_ns = round(moment.timestamp()) * 10**9 + int(digits.ljust(9, "0")[:9] or 0)
    return time_ns if is_time(time_ns) else None
