"""Clocks told by steps: what is always so is a clock, what varies is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from runwatch.views.goodput.skew import FEWEST_STEPS, FIRST_STEPS, LEAST_NS, MOST_STEPS, Skew
from runwatch.views.goodput.steps.track import Track

SECOND = 1_000_000_000
ENOUGH = FIRST_STEPS + FEWEST_STEPS


def tracks(hosts: Sequence[str]) -> dict[str, Track]:
    found = {}
    for rank, host in enumerate(hosts):
        track = Track(f"rank {rank}", rank, 0, lambda track, stride: None)
        track.host = host
        found[track.key] = track
    return found


def seen(ahead: Mapping[int, Callable[[int], int]], steps: int = ENOUGH) -> Skew:
    """Steps of a second each that ranks end together, by clocks that are so far ahead."""
    skew = Skew()
    for step in range(steps):
        for rank, by in ahead.items():
            skew.saw(f"rank {rank}", 0, step, (step + 1) * SECOND + by(step))
    return skew


def always(nanoseconds: int) -> Callable[[int], int]:
    return lambda step: nanoseconds


def test_of_two_hosts_that_of_the_lower_rank_is_believed() -> None:
    skew = seen({0: always(0), 1: always(3 * SECOND)})
    assert skew.ahead_ns(tracks(["a", "b"])) == {"b": 3 * SECOND}
    assert seen({0: always(SECOND), 1: always(0)}).ahead_ns(tracks("ab")) == {"b": -SECOND}


def test_of_several_hosts_the_middle_is_believed() -> None:
    skew = seen({0: always(3 * SECOND), 1: always(0), 2: always(0)})
    assert skew.ahead_ns(tracks(["a", "b", "c"])) == {"a": 3 * SECOND}


@pytest.mark.parametrize("ahead, found", [(LEAST_NS - 1, {}), (LEAST_NS, {"b": LEAST_NS})])
def test_less_is_the_way_of_a_message(ahead: int, found: dict[str, int]) -> None:
    assert seen({0: always(0), 1: always(ahead)}).ahead_ns(tracks(["a", "b"])) == found


def test_what_varies_from_step_to_step_is_no_clock() -> None:
    skew = seen({0: always(0), 1: lambda step: step % 3 * SECOND})
    assert skew.ahead_ns(tracks(["a", "b"])) == {}


def test_a_step_now_and_then_that_is_late_says_nothing_against_a_clock() -> None:
    skew = seen({0: always(0), 1: lambda step: SECOND + 9 * SECOND * (step == 5)})
    assert skew.ahead_ns(tracks(["a", "b"])) == {"b": SECOND}


@pytest.mark.parametrize("steps, known", [(ENOUGH - 1, False), (ENOUGH, True)])
def test_a_few_steps_tell_nothing(steps: int, known: bool) -> None:
    skew = seen({0: always(0), 1: always(SECOND)}, steps)
    assert bool(skew.ahead_ns(tracks(["a", "b"]))) is known


def test_ranks_of_one_host_have_one_clock_and_the_last_of_them_counts() -> None:
    skew = seen({0: always(0), 1: always(-SECOND), 2: always(2 * SECOND), 3: always(SECOND)})
    assert skew.ahead_ns(tracks(["a", "a", "b", "b"])) == {"b": 2 * SECOND}
    assert skew.ahead_ns(tracks(["a", "a", "a", "a"])) == {}


def test_the_first_steps_say_nothing_nor_do_later_laps_and_late_ones() -> None:
    skew = seen({0: always(0), 1: lambda step: 60 * SECOND if step < FIRST_STEPS else SECOND})
    assert skew.ahead_ns(tracks(["a", "b"])) == {"b": SECOND}
    before = skew.state()
    skew.saw("rank 0", 1, 500, 0)
    skew.saw("rank 0", 0, 3, 0)
    assert skew.state() == before
    assert len(seen({0: always(0)}, 500).ends["rank 0"]) == MOST_STEPS + FIRST_STEPS


def test_what_was_seen_is_saved() -> None:
    skew = seen({0: always(0), 1: always(SECOND)}, 500)
    assert Skew.of_state(skew.state()) == skew


def test_of_clocks_that_go_apart_the_bound_tells() -> None:
    steps = 10_000
    drifts = seen({0: always(0), 1: lambda step: step * SECOND // 1000}, steps)
    most = drifts.drifted_ns(tracks(["a", "b"]), steps)
    assert most >= sum(step * SECOND // 1000 for step in range(steps))
    for steady in (always(SECOND), lambda step: step % 3 * SECOND):
        skew = seen({0: always(0), 1: steady}, steps)
        assert skew.drifted_ns(tracks(["a", "b"]), steps) == 0
    assert drifts.drifted_ns(tracks(["a", "a"]), steps) == 0
    assert seen({0: always(0)}, 5).drifted_ns(tracks(["a", "b"]), 5) == 0


def test_late_steps_are_few_and_the_same_for_all_ranks() -> None:
    skew = seen({0: always(0), 1: always(SECOND)}, 10_000)
    first, second = skew.later["rank 0"], skew.later["rank 1"]
    assert list(first.ends) == list(second.ends)
    assert len(first.ends) <= 2 * MOST_STEPS
    assert max(first.ends) >= 9_000
