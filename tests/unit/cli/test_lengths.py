"""Lengths of time on a command line."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from runwatch.cli.times import milliseconds


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("500", 500),
        ("500ms", 500),
        ("1s", 1000),
        ("1.5s", 1500),
        ("2m", 120_000),
        ("1s500ms", 1500),
    ],
)
def test_milliseconds_unless_a_unit_is_given(text: str, found: int) -> None:
    assert milliseconds(text) == found


@pytest.mark.parametrize("text", ["", "s", "-1s", "+1s", "1 s", "1e3", "1.5", "one"])
def test_what_is_no_length_is_named(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is no length of time"):
        milliseconds(text)
