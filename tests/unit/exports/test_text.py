"""Whole columns of text say what one cell at a time would."""

from __future__ import annotations

import json
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.exports.text import integers, numbers, times
from runwatch.views.times import rfc3339

few = settings(max_examples=200, deadline=None, derandomize=True, database=None)
int64 = st.integers(-(2**63), 2**63 - 1)


@few
@given(st.lists(int64, min_size=1, max_size=20))
def test_times(drawn: list[int]) -> None:
    found = times(np.array(drawn, np.int64), "<", ">")
    assert found == [f"<{rfc3339(time_ns)}>" for time_ns in drawn]


@few
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=20))
def test_numbers(drawn: list[float]) -> None:
    plain = numbers(drawn, exponents=True)
    quoted = numbers(drawn, exponents=False, quote='"')
    for value, text, in_json in zip(drawn, plain, quoted, strict=True):
        if math.isfinite(value):
            assert text == repr(value)
            assert repr(json.loads(in_json)) == repr(value)
        else:
            assert in_json == f'"{text}"'
            assert repr(float(text.replace("Infinity", "inf"))) == repr(value)


@few
@given(st.lists(st.one_of(st.none(), int64), min_size=1, max_size=20))
def test_integers(drawn: list[int | None]) -> None:
    found = integers(drawn, absent="-")
    assert found == ["-" if number is None else str(number) for number in drawn]
