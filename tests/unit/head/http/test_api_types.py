from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.head.http.types import Health, number, numbers, optional_numbers, plain


@pytest.mark.parametrize(
    ("value", "told"),
    [(1.5, 1.5), (math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (0.0, 0.0)],
)
def test_numbers_that_json_has_no_word_for_are_spelled(value: float, told: Any) -> None:
    assert number(value) == told
    assert numbers([value]) == [told]
    assert optional_numbers([value, None]) == [told, None]


def test_what_is_not_known_is_left_out() -> None:
    assert msgspec.json.encode(Health(status="ok")) == b'{"status":"ok"}'


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(anything)
def test_whatever_was_recorded_becomes_json(value: Any) -> None:
    encoded = msgspec.json.encode(plain(value))
    assert json.loads(encoded, parse_constant=pytest.fail) == json.loads(json.dumps(plain(value)))


def test_broken_text_and_bottomless_depth() -> None:
    deep: Any = "end"
    for _ in range(1000):
        deep = [deep]
    assert plain({"a\ud800": "b\udfff"}) == {"a?": "b?"}
    assert msgspec.json.encode(plain(deep)).count(b"[") == 32
