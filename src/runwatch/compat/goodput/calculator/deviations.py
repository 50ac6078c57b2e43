"""How long each step took, and how far that was from the ideal."""

from __future__ import annotations

from array import array
from itertools import compress, pairwise
from operator import not_, sub

from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.figures import compute_ideal_step_time
from runwatch.compat.goodput.kinds import StepInfo


def step_times(history: History) -> dict[int, float]:
    """Step → seconds from its start to that of the next; of a step that was redone, the last.

    A step that no other followed directly has no time.
    """
    found: dict[int, float] = {}
    ends = (*history.break_at, len(history))
    for (low, high), number in zip(pairwise(ends), history.break_number, strict=True):
        is_step = map(not_, history.codes[low:high])
        starts = array("d", compress(history.times[low:high], is_step))
        times = map(sub, starts[1:], starts)
        found.update(zip(range(number, number + len(starts) - 1), times, strict=True))
    return found


def step_info(history: History, ideal: float | None = None) -> StepInfo:
    """`ideal` is what a step ought to take, if the caller knows.

    ValueError if no step has a time.
    """
    if ideal is not None and not ideal > 0:
        raise ValueError(
            f"configured_ideal_step_time is {ideal!r}: pass seconds above 0, or None to compute it"
        )
    times = step_times(history)
    if not times:
        raise ValueError(
            "no step has a time yet: it takes two consecutive steps "
            "(record_step_start_time of n and of n + 1)"
        )
    expected = ideal or compute_ideal_step_time(list(times.values()))
    if expected is None:
        raise ValueError(
            "no step took any time by the clock that recorded them, so there is no ideal to "
            "compute: pass configured_ideal_step_time"
        )
    for step, time in times.items():  # in place: of a long job another dict would be 80 MB
        times[step] = abs(time - expected)
    return StepInfo(expected, times)
