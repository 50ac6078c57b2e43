"""STEP records as the spans and points that they stand for; `segment.py` has their bytes."""

from __future__ import annotations

from runwatch.journal.segment import (
    PUT_40,
    SPAN,
    SPAN_BODY,
    SPAN_LENGTH,
    STEP_BEGIN_WORDS,
    STEP_END_WORDS,
    Header,
    step_span,
)
from runwatch.record import BEGIN, END, Points


class Expander:
    """For the records of one segment."""

    __slots__ = ("_name", "_seconds", "_shift", "_wait")

    def __init__(self, header: Header) -> None:
        self._name, self._seconds, self._wait = header.step_ids
        self._shift = header.tick_shift

    def begin(self, data: bytes, at: int) -> bytes:
        """As the bytes of a span's begin."""
        _, step, begin = STEP_BEGIN_WORDS.unpack_from(data, at)
        return self._edge(begin, step, begin, BEGIN)

    def end(self, data: bytes, at: int, shift: int, points: Points) -> bytes:
        """As the bytes of a span's end; how long it took and was waited for are points."""
        _, step, begin, asked, end = STEP_END_WORDS.unpack_from(data, at)
        time_ns = end + self._shift + shift
        points.append(self._seconds, time_ns, step, (end - begin) / 1e9)
        if asked and self._wait:
            # The wait ends where the step begins: who knows the step's begin knows the wait's, too.
            points.append(self._wait, time_ns, step, (begin - asked) / 1e9)
        return self._edge(end, step, begin, END)

    def _edge(self, tick: int, step: int, begin: int, edge: int) -> bytes:
        time_ns, span = tick + self._shift, step_span(begin)
        body = SPAN_BODY.pack(SPAN_LENGTH // 8, SPAN, time_ns, step, self._name, span, edge)
        return PUT_40.pack(0, body)
