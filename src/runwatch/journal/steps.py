"""Expands STEP records into the spans and points that they stand for; `segment.py` has their bytes.

A loop that records nothing else leaves alternating begins and ends, 64 bytes a step.  Such runs are
read column by column, with numpy if it is installed (`vectors.py`).
"""

from __future__ import annotations

import sys
from array import array
from itertools import repeat
from operator import sub, truediv
from typing import TYPE_CHECKING, Any, Final

from runwatch.journal.lanes import ROWS, shifted
from runwatch.journal.segment import (
    PUT_40,
    SPAN,
    SPAN_BODY,
    SPAN_LENGTH,
    STEP_BEGIN_HEAD,
    STEP_BEGIN_WORDS,
    STEP_END_HEAD,
    STEP_END_WORDS,
    WORD,
    Header,
    step_span,
)
from runwatch.record import BEGIN, END, Points, Spans
from runwatch.vectors import numpy

if TYPE_CHECKING:
    from runwatch.vectors import Column

STEP_LENGTH: Final = STEP_BEGIN_WORDS.size + STEP_END_WORDS.size
_WORDS: Final = STEP_LENGTH // 8
_LEAST: Final = 4
_MOST: Final = 1 << 14
"""More steps at a time would not make numpy faster."""
_SANE: Final = 1 << 61
"""Times beyond this are decoded one by one."""
_BEGINS: Final = WORD.pack(STEP_BEGIN_HEAD)
_ENDS: Final = WORD.pack(STEP_END_HEAD)


def run_length(data: bytes, at: int) -> int:
    """How many whole, unsealed steps follow each other from `at` on; 0 if there are only a few."""
    np = numpy()
    fitting = min((len(data) - at) // STEP_LENGTH, ROWS if np is None else _MOST)
    if sys.byteorder != "little" or fitting < _LEAST or not _is_step(data, at, _LEAST - 1):
        return 0
    count = _LEAST
    while count < fitting and _is_step(data, at, count - 1):
        count *= 2  # a short run needs only a short look
    count = min(count, fitting)
    count = _count_words(data, at, count) if np is None else _count_rows(_table(data, at, count))
    return count if count >= _LEAST else 0


def _count_rows(table: Column) -> int:
    """How many rows come before the first one that is not a step."""
    whole = (table[:, 0] == STEP_BEGIN_HEAD) & (table[:, 3] == STEP_END_HEAD)
    whole &= (table[:, 2] != 0) & (table[:, 7] != 0)  # the words that are stored last
    return len(table) if whole.all() else int(whole.argmin())


def _table(data: bytes, at: int, count: int) -> Column:
    """Steps as a table: one row of words per step."""
    np = numpy()
    table: Column = np.frombuffer(data, np.int64, count * _WORDS, at).reshape(count, _WORDS)
    return table


def _count_words(data: bytes, at: int, count: int) -> int:
    words = array("q", data[at : at + count * STEP_LENGTH])
    for offset, head in ((0, STEP_BEGIN_HEAD), (3, STEP_END_HEAD)):
        heads = words[offset::_WORDS]
        if heads.count(head) < len(heads):
            count = min(count, next(i for i, word in enumerate(heads) if word != head))
    for offset in (2, 7):  # the words that are stored last
        last = words[offset::_WORDS]
        count = min(count, last.index(0)) if 0 in last else count
    return count


def _is_step(data: bytes, at: int, which: int) -> bool:
    at += which * STEP_LENGTH
    return data.startswith(_BEGINS, at) and data.startswith(_ENDS, at + STEP_BEGIN_WORDS.size)


class Expander:
    """For the records of one segment."""

    __slots__ = ("_name", "_seconds", "_shift", "_wait")

    def __init__(self, header: Header) -> None:
        self._name, self._seconds, self._wait = header.step_ids
        self._shift = header.tick_shift

    def begin(self, data: bytes, at: int) -> bytes:
        """The bytes of the span's begin."""
        _, step, begin = STEP_BEGIN_WORDS.unpack_from(data, at)
        return self._edge(begin, step, begin, BEGIN)

    def end(self, data: bytes, at: int, shift: int, points: Points) -> bytes:
        """The bytes of the span's end.  Appends points for the step's time and its data wait."""
        _, step, begin, asked, end = STEP_END_WORDS.unpack_from(data, at)
        time_ns = end + self._shift + shift
        points.append(self._seconds, time_ns, step, (end - begin) / 1e9)
        if asked and self._wait:
            # The wait ends where the step begins, so the step's begin locates the wait too.
            points.append(self._wait, time_ns, step, (begin - asked) / 1e9)
        return self._edge(end, step, begin, END)

    def run(self, run: bytes, shift: int, points: Points, spans: Spans) -> None:
        """Expand as many begins and ends as `run_length` counted."""
        if numpy() is not None and self._run_of_columns(run, shift, points, spans):
            return
        words = array("q", run)
        self._edges(words, shift, spans)
        steps, begins, asked, ends = (words[at::_WORDS] for at in (4, 5, 6, 7))
        times = shifted(ends, self._shift + shift)
        seconds = _seconds(begins, ends)
        if not self._wait or not any(asked):
            _append(points, [self._seconds], times, steps, seconds)
        elif 0 not in asked:
            waits = _seconds(asked, begins)
            series = [self._seconds, self._wait]
            _append(points, series, _twice(times), _twice(steps), _in_turn(seconds, waits))
        else:
            for at in range(STEP_BEGIN_WORDS.size, len(run), STEP_LENGTH):
                self.end(run, at, shift, points)

    def _run_of_columns(self, run: bytes, shift: int, points: Points, spans: Spans) -> bool:
        """`run` with numpy; False if the times are out of range and need the other way."""
        np = numpy()
        table = _table(run, 0, len(run) // STEP_LENGTH)
        count, shift, ticks = len(table), self._shift + shift, table[:, (2, 5, 6, 7)]
        if abs(shift) >= _SANE or ticks.max() >= _SANE or ticks.min() <= -_SANE:
            return False
        edges = table[:, (2, 7)] + shift
        spans.name.extend(array("I", [self._name]) * (2 * count))
        spans.edge.extend(array("B", [BEGIN, END]) * count)
        spans.time_ns.frombytes(edges.tobytes())
        spans.step.frombytes(table[:, (1, 4)].tobytes())
        numbers = table[:, (2, 5)].astype(np.uint32) | np.uint32(1 << 31)  # `step_span` of each
        spans.span.frombytes(numbers.tobytes())
        begins, asked, ends = table[:, 5], table[:, 6], table[:, 7]
        present = np.ones((count, 2), bool)
        present[:, 1] = (asked != 0) & bool(self._wait)
        seconds = np.empty((count, 2))
        seconds[:, 0], seconds[:, 1] = ends - begins, begins - asked
        seconds /= 1e9
        series = array("I", (self._seconds, self._wait)) * count
        columns = (np.frombuffer(series, np.uint32), edges[:, 1].repeat(2), table[:, 4].repeat(2))
        targets: list[array[Any]] = [points.series, points.time_ns, points.step, points.value]
        everything = bool(present.all())
        for into, column in zip(targets, (*columns, seconds.reshape(-1)), strict=True):
            into.frombytes((column if everything else column[present.reshape(-1)]).tobytes())
        return True

    def _edges(self, words: array[int], shift: int, spans: Spans) -> None:
        first, begins, last = words[2::_WORDS], words[5::_WORDS], words[7::_WORDS]
        edges = len(first) * 2
        spans.name.extend(array("I", [self._name]) * edges)
        spans.edge.extend(array("B", [BEGIN, END]) * (edges // 2))
        spans.time_ns.extend(shifted(_in_turn(first, last), self._shift + shift))
        spans.step.extend(_in_turn(words[1::_WORDS], words[4::_WORDS]))
        spans.span.extend(_in_turn(_numbers(first), _numbers(begins)))

    def _edge(self, tick: int, step: int, begin: int, edge: int) -> bytes:
        time_ns, span = tick + self._shift, step_span(begin)
        body = SPAN_BODY.pack(SPAN_LENGTH // 8, SPAN, time_ns, step, self._name, span, edge)
        return PUT_40.pack(0, body)


def _append(
    points: Points,
    series: list[int],
    times: array[int],
    steps: array[int],
    values: array[float],
) -> None:
    points.series.extend(array("I", series) * (len(times) // len(series)))
    points.time_ns.extend(times)
    points.step.extend(steps)
    points.value.extend(values)


def _seconds(begins: array[int], ends: array[int]) -> array[float]:
    return array("d", map(truediv, map(sub, ends, begins), repeat(1e9)))


def _numbers(begins: array[int]) -> array[int]:
    """`step_span` of each."""
    halves = array("I", begins.tobytes())[0::2]
    tops = array("I", [1 << 31]) * len(halves)
    numbers = int.from_bytes(halves, "little") | int.from_bytes(tops, "little")
    return array("I", numbers.to_bytes(4 * len(halves), "little"))


def _twice(column: array[Any]) -> array[Any]:
    """Each row twice."""
    return _in_turn(column, column)


def _in_turn(first: array[Any], second: array[Any]) -> array[Any]:
    """Rows of `first` and `second`, alternating."""
    rows = first + second
    rows[0::2], rows[1::2] = first, second
    return rows
