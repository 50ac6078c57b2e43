"""Log entries of the original as records of a journal, and back.

An entry that says when something began or ended is one point: the metric is `goodput.` and the
name of its time field, the value that time in seconds since the epoch, the step its step count.
Every other entry (slice counts, checkpoints, what others wrote) is one event with all its fields.
Both carry the name of the log they belong to.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from runwatch.compat.goodput import fields
from runwatch.entries import LOGGER, PREFIX, TYPE
from runwatch.record import NO_STEP
from runwatch.record.life import GoodputEntry

Entry = dict[str, Any]

UNIT: Final = "s"
MAX_TYPE: Final = 200

TIME_FIELDS: Final[Mapping[str, str]] = {
    fields._STEP_START_TIME: fields._STEP_COUNT,
    **fields.TYPE_FIELDS,
    **dict.fromkeys(
        (
            fields._JOB_START_TIME,
            fields._JOB_END_TIME,
            fields._TPU_INIT_START_TIME,
            fields._TPU_INIT_END_TIME,
            fields._TRAINING_PREPARATION_START_TIME,
            fields._TRAINING_PREPARATION_END_TIME,
            fields._DATA_LOADING_START_TIME,
            fields._DATA_LOADING_END_TIME,
            fields._ELASTIC_REINIT_START_TIME,
            fields._ELASTIC_REINIT_END_TIME,
        ),
        "",
    ),
}
"""Time field → the one field that an entry has besides it and the job's name, if any."""

_BY_FIELDS: Final = {
    frozenset((fields._JOB_NAME, time, *((other,) if other else ()))): (time, other)
    for time, other in TIME_FIELDS.items()
}


class Mark(NamedTuple):
    """What a point says: which time field, and for custom and elastic waits of which type."""

    field: str
    type: str = ""


class AsPoint(NamedTuple):
    metric: str
    labels: dict[str, str]
    step: int
    value: float


def to_record(entry: Mapping[str, Any], logger: str = "") -> AsPoint | GoodputEntry:
    """How `entry` of the log `logger` lies in a journal.  Its values are such as JSON has."""
    return _to_point(entry, logger) or to_event(entry, logger)


def to_event(entry: Mapping[str, Any], logger: str = "") -> GoodputEntry:
    """The way that is open to every entry."""
    return GoodputEntry(logger, dict(entry))


def _to_point(entry: Mapping[str, Any], logger: str) -> AsPoint | None:
    known = _BY_FIELDS.get(frozenset(entry))
    if known is None:
        return None
    time, other = known
    seconds, step, kind = entry[time], NO_STEP, ""
    if type(seconds) not in (float, int) or not math.isfinite(seconds):
        return None
    if other == fields._STEP_COUNT:
        step = entry[other]
        if type(step) is not int or not NO_STEP < step < -NO_STEP:
            return None
    elif other:
        kind = entry[other]
        if not is_type(kind):
            return None
    return AsPoint(PREFIX + time, labels(logger, kind), step, float(seconds))


def is_type(kind: object) -> bool:
    """Whether a custom event's type can be a label; any other is kept with its entry."""
    return isinstance(kind, str) and 0 < len(kind) <= MAX_TYPE


def labels(logger: str, kind: str = "") -> dict[str, str]:
    return {LOGGER: logger, TYPE: kind} if kind else {LOGGER: logger}


def mark_of(metric: str, labels: Mapping[str, str]) -> Mark | None:
    """What points of a series say; None for a series of something else."""
    time = metric.removeprefix(PREFIX)
    if time == metric or time not in TIME_FIELDS:
        return None
    return Mark(time, labels.get(TYPE, ""))


def from_mark(mark: Mark, step: int, seconds: float, job_name: str) -> Entry:
    other = TIME_FIELDS[mark.field]
    if not other:
        return {fields._JOB_NAME: job_name, mark.field: seconds}
    value = step if other == fields._STEP_COUNT else mark.type
    return {fields._JOB_NAME: job_name, other: value, mark.field: seconds}


def from_event(body: Mapping[str, Any]) -> Entry:
    """The entry in an event's body; ValueError if there is none (a body cut for its length)."""
    entry = GoodputEntry.of(body).entry
    if entry is None:
        raise ValueError(f"an event {GoodputEntry.KIND!r} without an entry: {list(body)[:5]}")
    return dict(entry)


def time_ns_of(entry: Mapping[str, Any], default: int = 0) -> int:
    """The first time that an entry names, for one that does not say when it was recorded."""
    for name, value in entry.items():
        if "time" in name and isinstance(value, (float, int)) and math.isfinite(value):
            return round(value * 1e9)
    return default


class Marks(list[Mark]):
    """What codes mean: the same all through a log, and only growing."""

    def __init__(self) -> None:
        super().__init__()
        self._codes: dict[Mark, int] = {}

    def code(self, mark: Mark) -> int:
        known = self._codes.setdefault(mark, len(self))
        if known == len(self):
            self.append(mark)
        return known


def logger_of(holder: Mapping[str, Any]) -> str:
    """The log that a series (by its labels) or an event (by its body) belongs to."""
    return str(holder.get(LOGGER, ""))


@dataclass(slots=True)
class Columns:
    """Entries in their order, without an object for each.

    Row i says `marks[code[i]]` (codes may be bytes), with the time `seconds[i]` and the step
    `step[i]` (`NO_STEP` if it has none), and was recorded at `time_ns[i]`.  `others` are the
    entries that are more than a time: (row before which it comes, when it was recorded, entry).
    """

    marks: Sequence[Mark]
    code: array[int] = field(default_factory=lambda: array("I"))
    step: array[int] = field(default_factory=lambda: array("q"))
    seconds: array[float] = field(default_factory=lambda: array("d"))
    time_ns: array[int] = field(default_factory=lambda: array("q"))
    others: list[tuple[int, int, Entry]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.code) + len(self.others)

    @property
    def first_ns(self) -> int:
        """Of columns that are not empty."""
        return min([*self.time_ns[:1], *(moment for _, moment, _ in self.others[:1])])

    @property
    def last_ns(self) -> int:
        """Not before `first_ns`, though two threads may have recorded a little out of order."""
        last = [*self.time_ns[-1:], *(moment for _, moment, _ in self.others[-1:])]
        return max(self.first_ns, *last)

    def add(self, code: int, step: int, seconds: float, time_ns: int) -> None:
        self.code.append(code)
        self.step.append(step)
        self.seconds.append(seconds)
        self.time_ns.append(time_ns)

    def split(self, time_ns: int) -> tuple[Columns, Columns]:
        """What was recorded up to then, and the rest."""
        if not self or self.last_ns <= time_ns:
            return self, Columns(self.marks)
        rows = bisect_right(self.time_ns, time_ns)
        others = bisect_right(self.others, time_ns, key=lambda other: other[1])
        return self._cut(rows, others)

    def _cut(self, rows: int, others: int) -> tuple[Columns, Columns]:
        code, step, seconds, time_ns = self.code, self.step, self.seconds, self.time_ns
        rest = [(row - rows, moment, entry) for row, moment, entry in self.others[others:]]
        return (
            Columns(self.marks, code[:rows], step[:rows], seconds[:rows], time_ns[:rows],
                    self.others[:others]),
            Columns(self.marks, code[rows:], step[rows:], seconds[rows:], time_ns[rows:], rest),
        )  # fmt: skip

    def timed(self, job_name: str) -> Iterator[tuple[int, Entry]]:
        """(when it was recorded, entry) of each, in order."""
        marks, others = self.marks, iter(self.others)
        due, moment, other = next(others, (-1, 0, {}))
        rows = zip(self.code, self.step, self.seconds, self.time_ns, strict=True)
        for row, (code, step, seconds, time_ns) in enumerate(rows):
            while due == row:
                yield moment, other
                due, moment, other = next(others, (-1, 0, {}))
            yield time_ns, from_mark(marks[code], step, seconds, job_name)
        while due >= 0:
            yield moment, other
            due, moment, other = next(others, (-1, 0, {}))

    def entries(self, job_name: str) -> Iterator[Entry]:
        return (entry for _, entry in self.timed(job_name))
