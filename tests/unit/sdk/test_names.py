"""More names than a journal can define."""

from __future__ import annotations

import sys
from collections.abc import Callable

from runwatch.sdk.guard import tally
from runwatch.sdk.run import Run
from runwatch.testing import Story

REFUSED = "record a value: SegmentError"


def calls(function: Callable[[], None]) -> int:
    """How many functions it calls, in Python and in C: what it costs, on any machine."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def test_names_beyond_what_can_be_defined_are_counted_and_cost_little(
    begin: Callable[..., Run], story: Callable[[], Story]
) -> None:
    run = begin("names")
    run.log(first=1.0)
    taken = calls(lambda: run.log({"x" * 200: 1.0}))
    number = 0
    while REFUSED not in tally.counts:
        number += 1
        run.log({f"{number} {'x' * 900}": 1.0})
    for extra in range(50):
        assert calls(lambda extra=extra: run.log({f"more {extra}": 1.0})) < taken  # type: ignore[misc]
    run.log(first=2.0)
    told = story()
    assert told.values("first") == [1.0, 2.0]
    assert told.warnings == {REFUSED: 51}
    assert len({point.metric for point in told.numbers}) == number + 1
