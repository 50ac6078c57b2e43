"""How long each step took, and how far that was from the ideal."""

from __future__ import annotations

from itertools import pairwise
from operator import sub

from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.calculator.stretch import jumps
from runwatch.compat.goodput.goodput_utils import StepInfo, compute_ideal_step_time


def step_times(history: History) -> dict[int, float]:
    """Step → seconds from its start to that of the next; of a step that was redone, the last.

    A step that no other followed directly has no time.
    """
    seconds: dict[int, float] = {}
    starts, numbers = history.steps.times, history.numbers
    for low, high in pairwise((0, *jumps(numbers), len(numbers))):
        times = map(sub, starts[low + 1 : high], starts[low:high])
        seconds.update(zip(numbers[low : high - 1], times, strict=False))
    return seconds


def step_info(history: History, ideal: float | None = None) -> StepInfo:
    """`ideal` is how long a step should take, if the caller knows.

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
            "every step took 0 s by the clock that recorded them, so no ideal can be computed: "
            "pass configured_ideal_step_time"
        )
    for step, time in times.items():  # in place: of a long job another dict would be 80 MB
        times[step] = abs(time - expected)
    return StepInfo(expected, times)
