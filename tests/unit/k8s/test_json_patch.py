"""The steps from one value to another, applied by somebody else's library."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.k8s.json_patch import steps

KEYS = st.sampled_from(["a", "b", "a/b", "~", "~1", "", "runwatch.dev/x"])
VALUES = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["", "x", "y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300)
@given(before=VALUES, after=VALUES)
def test_applied_they_lead_there(before: Any, after: Any) -> None:
    patch = list(steps(before, after))
    assert jsonpatch.JsonPatch(patch).apply(copy.deepcopy(before)) == after
    assert bool(patch) is (before != after)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {"a/b~": 1}, [{"op": "add", "path": "/a~1b~0", "value": 1}]),
        ({"a": [1]}, {"a": [1, 2]}, [{"op": "add", "path": "/a/-", "value": 2}]),
        ({"a": [{"x": 1}]}, {"a": [{"x": 2}]}, [{"op": "replace", "path": "/a/0/x", "value": 2}]),
        ({"a": None}, {"a": []}, [{"op": "replace", "path": "/a", "value": []}]),
        ({"a": [1, 2]}, {"a": [2]}, [{"op": "replace", "path": "/a", "value": [2]}]),
        ({"a": 1, "b": 2}, {"b": 2}, [{"op": "remove", "path": "/a"}]),
    ],
)
def test_they_say_no_more_than_they_must(before: Any, after: Any, expected: Any) -> None:
    assert list(steps(before, after)) == expected
