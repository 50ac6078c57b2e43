"""When values had come from the device, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from runwatch.record import Points
from runwatch.views.goodput.arrivals import (
    DEVICE_LAG,
    KNOWN_NS,
    SEEN_NS,
    Arrivals,
    Arrived,
    is_behind,
    long_on_device,
    longest_silence,
    usual_distance,
)
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.queueing import busy_until
from tests.unit.views.goodput.story import SECOND, Notebook, Point, spent, told

MS = 1_000_000
ENDS = [10, 20, 30]


def said(*facts: tuple[int, int, float], series: int = 7) -> Points:
    """Of which step, when it was logged, seconds until it was there."""
    points = Points()
    for step, logged, seconds in facts:
        points.append(series, logged, step, seconds)
    return points


def arrivals(*facts: tuple[int, int, float]) -> Arrivals:
    found = Arrivals()
    found.tell("a", said(*facts), {7})
    return found


# ── what is told ───────────────────────────────────────────────────────────────────────────────


def test_a_value_is_of_the_step_in_which_it_was_logged() -> None:
    found = arrivals((0, 5, 20e-9), (1, 12, 30e-9), (1, 13, 10e-9))
    assert found.of([0, 1, 2], [0, 10, 20], ENDS, alone=True).values == [25, 42, 0]


@pytest.mark.parametrize("logged, whole", [((7, 18, 25), False), ((7, 18, 28), True)])
def test_of_steps_whose_value_is_logged_early_it_is_not_known_when_they_were_done(
    logged: Sequence[int], whole: bool
) -> None:
    """What holds for most of them holds for all: a step now and then is slow to hand over."""
    found = arrivals(*((step, at, 20e-9) for step, at in enumerate(logged)))
    told = found.of([0, 1, 2], [0, 10, 20], ENDS, alone=True)
    assert told.values == [at + 20 for at in logged]
    assert told.steps == (told.values if whole else [0, 0, 0])


@pytest.mark.parametrize(
    "logged, there, alone, believed",
    [
        (15, 40, True, True),
        (25, 40, True, False),  # the next step had begun: these are numbers of another kind
        (5, 40, True, False),  # it had not begun
        (5, 40, False, True),  # … on the last of the ranks; this is another
        (5, 8, False, False),
    ],
)
def test_other_ways_to_count_say_nothing(
    logged: int, there: int, alone: bool, believed: bool
) -> None:
    found = arrivals((1, logged, (there - logged) / 1e9))
    expected = there if believed else 0
    assert found.of([0, 1, 2], [0, 10, 20], ENDS, alone).values == [0, expected, 0]


def test_other_series_and_numbers_beyond_reason_are_left_out() -> None:
    found = Arrivals()
    found.tell("a", said((0, 5, 1.0), series=8), {7})
    found.tell("a", said((0, 5, -1.0), (0, 5, float("nan")), (0, 5, 1e300)), {7})
    assert not found
    assert found.of([0], [0], [10], alone=True).values == [0]


def test_what_is_booked_is_forgotten_and_a_copy_is_not() -> None:
    found = arrivals((0, 5, 1e-9), (1, 15, 1e-9))
    copy = found.copy()
    found.forget(10)
    assert found.of([0, 1], [0, 10], [10, 20], alone=True).values == [0, 16]
    assert copy.of([0, 1], [0, 10], [10, 20], alone=True).values == [6, 16]
    again = Arrivals.of_state(copy.state())
    assert again.of([0, 1], [0, 10], [10, 20], alone=True).values == [6, 16]


# ── what follows ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("late_ns, behind", [(KNOWN_NS, False), (KNOWN_NS + 1, True)])
def test_a_device_is_behind_if_values_were_not_there_when_steps_ended(
    late_ns: int, behind: bool
) -> None:
    assert is_behind([100 + late_ns, 200 + late_ns, 0], [100, 200, 300]) is behind
    assert not is_behind([100 + late_ns, 0, 0], [100, 200, 300])  # once is not enough


def test_silence_is_between_arrivals_and_at_the_edges() -> None:
    assert longest_silence([10, 14, 30], 12, 33) == 16
    assert longest_silence([10, 50], 12, 33) == 21
    assert usual_distance([10, 12, 15, 30]) == 3
    assert usual_distance([10]) == 0


def test_a_step_that_the_device_takes_long_for_is_out_of_line() -> None:
    there = [(at + 1) * SECOND + 60 * SECOND * (at >= 20) for at in range(40)]
    (row,) = found = long_on_device(range(40), [0] * 40, there)
    assert row == 20
    assert found[row].own_ns == 60 * SECOND
    assert found[row].spent == Spent.STALL
    # That nothing was handed over meanwhile is no fault of the device.
    begins = [0] * 20 + [there[20] - SECOND] * 20
    assert long_on_device(range(40), begins, there) == {}


def test_the_device_was_done_shortly_before_its_value_was_seen() -> None:
    handed, there = [0, 0, 0], [100 * MS, 200 * MS, 300 * MS]
    found = busy_until(handed, [1 * MS] * 3, [1 * MS] * 3, (), 0, Arrived(there, there))
    assert found.until == [ns - SEEN_NS for ns in there]
    assert found.at_least == [ns - KNOWN_NS for ns in there]
    assert found.at_most == there
    assert found.is_known


def test_a_wait_is_known_better_than_an_arrival_that_does_not_contradict_it() -> None:
    waited, there = [98 * MS, 300 * MS], [100 * MS, 400 * MS]
    found = busy_until([0, 200 * MS], waited, [98 * MS] * 2, (), 0, Arrived(there, there))
    assert found.until == [98 * MS, 400 * MS - SEEN_NS]


def test_a_value_that_is_logged_early_tells_how_long_the_device_worked_at_least() -> None:
    there = Arrived([0, 150 * MS], [0, 0])
    found = busy_until([0, 0], [1 * MS, 100 * MS], [1 * MS, 100 * MS], (), 0, there)
    assert found.until == [50 * MS, 150 * MS - KNOWN_NS]
    there = Arrived([0, 80 * MS], [0, 0])
    found = busy_until([0, 0], [1 * MS, 100 * MS], [1 * MS, 100 * MS], (), 0, there)
    assert found.until == [50 * MS, 100 * MS]


def test_between_arrivals_steps_are_equally_long() -> None:
    there = [0, 205 * MS, 0, 405 * MS]
    found = busy_until([0] * 4, [1 * MS] * 4, [1 * MS] * 4, (), 0, Arrived(there, there))
    assert found.until == [100 * MS, 200 * MS, 300 * MS, 400 * MS]


# ── in an account ──────────────────────────────────────────────────────────────────────────────


def far_ahead(lags: Mapping[int, int], reads: Sequence[int]) -> Notebook:
    """200 steps of 1 ms, handed to a device that takes 50 ms for each; milliseconds.  After some
    of them the program waits for all of it."""
    book = Notebook(unit_ns=MS)
    now = done = 0
    for step in range(200):
        book.step(step, now, now + 1)
        now, done = now + 1, max(done, now) + 50
        if step in lags:
            seconds = (done + lags[step] - now) / 1000
            book.records.append(Point(DEVICE_LAG, "", now * MS, step, seconds))
        if step in reads:
            now = done
    return book.exits(now)


def test_what_looks_like_a_pause_is_work_if_values_kept_arriving() -> None:
    untold = spent(told(far_ahead({}, [99, 199])))
    assert untold.get("productive", 0) < 1  # 200 steps of a millisecond, and two pauses
    lags = dict.fromkeys(range(200), 4)
    found = spent(told(far_ahead(lags, [99, 199])))
    assert found["productive"] == pytest.approx(10.0, abs=0.1)


def test_the_bound_is_narrower_where_it_is_known() -> None:
    reads = list(range(9, 200, 10))
    untold = told(far_ahead({}, reads))
    known = told(far_ahead(dict.fromkeys(range(200), 4), reads))
    assert spent(known)["productive"] == pytest.approx(spent(untold)["productive"], abs=0.1)
    assert known.inferred_ns < untold.inferred_ns / 5


def test_a_pause_in_which_nothing_arrives_is_none_of_the_devices() -> None:
    """All was done before it."""
    book = Notebook(unit_ns=MS)
    now = 0
    for step in range(100):
        book.step(step, now, now + 100)
        book.records.append(Point(DEVICE_LAG, "", (now + 99) * MS, step, 0.004))
        now += 100 + 30_000 * (step == 50)
    found = spent(told(book.exits(now)))
    assert found["stall"] == pytest.approx(30, abs=0.2)
