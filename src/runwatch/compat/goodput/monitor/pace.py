"""How long each step of a running job takes; each look costs only the new steps.

`calculator.get_step_deviation` answers for every step of the job at each call; a monitor asks
every few seconds, in the training process, and wants the latest.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from runwatch.compat.goodput.goodput_utils import (
    compute_ideal_step_time,
    compute_step_deviation_from_baseline,
)

if TYPE_CHECKING:
    from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
    from runwatch.compat.goodput.calculator.history import History

_SAMPLE: Final = 100_000
"""The ideal is computed from so many steps at least, evenly spaced where there are more."""
_BASELINE: Final = 1_100
_STRETCHES: Final = 8


@dataclass(slots=True)
class _Stretch:
    """Steps one after another, each with the seconds from its start to the next one's."""

    first: int
    seconds: array[float] = field(default_factory=lambda: array("d"))

    def put(self, step: int, seconds: float) -> bool:
        place = step - self.first
        if place == len(self.seconds):
            self.seconds.append(seconds)
        elif 0 <= place < len(self.seconds):
            self.seconds[place] = seconds  # it was done again
        else:
            return False
        return True


class Pace:
    def __init__(self, ideal: float | None = None) -> None:
        """`ideal` is how long a step should take, if it is known."""
        self._given = ideal
        self.ideal: float | None = ideal
        """Seconds; None while no step has a time."""
        self._log: object = None
        self._forget()

    def follow(self, calculator: GoodputCalculator) -> None:
        """Read what the job's log has got since the last time."""
        with calculator._lock:
            calculator._refresh()
            if calculator._fold is not self._log:  # something went in between what was read
                self._log = calculator._fold
                self._forget()
            if self._take(calculator._history) and self._given is None:
                self.ideal = compute_ideal_step_time(self._sample())

    def deviations(self, after: int | None) -> Iterator[tuple[int, float]]:
        """(step, seconds from the ideal) of the steps above `after`."""
        if self.ideal is None:
            return
        for stretch in self._stretches:
            start = 0 if after is None else max(after + 1 - stretch.first, 0)
            for place in range(start, len(stretch.seconds)):
                yield stretch.first + place, abs(stretch.seconds[place] - self.ideal)

    def deviation(self) -> float | None:
        """One number for how far the latest steps are from the ideal."""
        if self.ideal is None or not self._stretches:
            return None
        latest = chain.from_iterable(reversed(s.seconds) for s in reversed(self._stretches))
        times = [abs(seconds - self.ideal) for seconds in islice(latest, _BASELINE)]
        return compute_step_deviation_from_baseline(dict(enumerate(reversed(times))))

    def _forget(self) -> None:
        self._stretches: list[_Stretch] = []
        self._at = 0

    def _take(self, history: History) -> bool:
        """Whether a step has got a time."""
        numbers, times = history.numbers, history.steps.times
        is_new = False
        for step in range(self._at, len(numbers)):
            if step and numbers[step] == numbers[step - 1] + 1:
                self._put(numbers[step - 1], times[step] - times[step - 1])
                is_new = True
        self._at = len(numbers)
        return is_new

    def _put(self, step: int, seconds: float) -> None:
        # Work that is done again follows soon; far back would be looked for in vain.
        latest = islice(reversed(self._stretches), _STRETCHES)
        if not any(stretch.put(step, seconds) for stretch in latest):
            self._stretches.append(_Stretch(step, array("d", (seconds,))))

    def _sample(self) -> list[float]:
        count = sum(len(stretch.seconds) for stretch in self._stretches)
        every = max(count // _SAMPLE, 1)
        return list(chain.from_iterable(s.seconds[::every] for s in self._stretches))
