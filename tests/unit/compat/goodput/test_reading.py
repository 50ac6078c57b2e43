from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.calculator.strict import EntryAccount
from runwatch.compat.goodput.log.reading import STRETCH, stretches
from tests.unit.compat.goodput.support import BEGIN, Entry, Fixed, step, told

BEGIN_NS = int(BEGIN * 10**9)
JOB = [*told("J 0"), *(step(number, 5 + 3 * number) for number in range(30)), *told("j 100")]


class OpenLog:
    """A back end that gives its own list away, not a copy of it."""

    def __init__(self) -> None:
        self.entries = list(JOB)

    def read_cloud_logging_entries(
        self, start_time: Any = None, end_time: Any = None
    ) -> list[Entry]:
        return self.entries


class CopyingLog:
    """A back end whose copies its test can look at."""

    def __init__(self) -> None:
        self.given: list[list[Entry]] = []

    def read_cloud_logging_entries(
        self, start_time: Any = None, end_time: Any = None
    ) -> list[Entry]:
        self.given = [list(JOB)]
        return self.given[0]


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(1, 12), st.booleans())
def test_stretches_are_all_of_it_in_order(count: int, size: int, is_kept: bool) -> None:
    held: list[Any] = [[{"n": number} for number in range(count)]]
    kept = held[0] if is_kept else None
    found = [list(stretch) for stretch in stretches(held, size)]
    assert [entry["n"] for stretch in found for entry in stretch] == list(range(count))
    assert all(len(stretch) == size for stretch in found[:-1])
    assert kept is None or len(kept) == count
    assert held == []


def test_a_list_that_nobody_else_holds_is_let_go_as_it_is_read() -> None:
    """So that a long log is not in memory twice."""

    class Noted(dict[str, int]):
        def __del__(self) -> None:
            gone.append(self["n"])

    gone: list[int] = []
    # Not held by any name: a list behind one is somebody's.
    read = 0
    for stretch in stretches([[Noted(n=n) for n in range(9)]], 3):
        assert sorted(gone) == list(range(read))
        read += len(stretch)
    assert read == 9


@pytest.mark.parametrize("entries", [tuple(JOB), JOB])
def test_a_sequence_that_is_no_list_is_read_all_the_same(entries: Any) -> None:
    before = list(entries)
    assert [entry for some in stretches([entries], 7) for entry in some] == before
    assert list(entries) == before


def test_a_back_ends_own_list_is_left_alone() -> None:
    log = OpenLog()
    asked = GoodputCalculator("job", "log", log, clock=Fixed(BEGIN + 200))
    first = asked.get_job_goodput(True)
    assert asked.get_account().total_ns == 100 * 10**9
    assert log.entries == JOB and len(JOB) < STRETCH
    assert asked.get_job_goodput(True) == first


def test_so_is_a_copy_that_the_back_end_keeps() -> None:
    log = CopyingLog()
    assert GoodputCalculator("job", "log", log, clock=Fixed()).get_job_goodput()[2] == 29
    assert log.given == [JOB]
    assert EntryAccount(lambda _: (log.given[0], None)).goodput(BEGIN_NS) is not None
    assert log.given == [JOB]
