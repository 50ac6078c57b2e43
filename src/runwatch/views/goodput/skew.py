"""How far the clocks of a job's hosts are apart, measured by the job's steps.

Ranks that train together leave a step together: no rank is done before all have done their part. If
one host's ranks always end a step later than the others by the same amount, its clock is ahead. A
difference that varies from step to step is no clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from runwatch.record import Batch, Points, Spans
from runwatch.views.goodput.steps.strides import Strides
from runwatch.views.goodput.steps.track import Track
from runwatch.views.runs import ProcessState

FIRST_STEPS: Final = 2
"""Ranks begin one after the other, and the first steps compile, so these steps are left out."""
MOST_STEPS: Final = 64
FEWEST_STEPS: Final = 8
LEAST_NS: Final = 10_000_000
"""A smaller difference is the time of a message from host to host."""
_SURE: Final = 6
"""A difference of this many times the spread from step to step is no accident."""


@dataclass(slots=True)
class Sample:
    """The ends of a sample of steps: the more steps there are, the further apart the sample."""

    every: int = 1
    ends: dict[int, int] = field(default_factory=dict)

    def add(self, step: int, end_ns: int) -> None:
        self.ends.setdefault(step, end_ns)
        if len(self.ends) > 2 * MOST_STEPS:
            self.every *= 2
            self.ends = {s: ns for s, ns in self.ends.items() if not s % self.every}


@dataclass(slots=True)
class Skew:
    """The ends of an attempt's early steps, by process."""

    ends: dict[str, dict[int, int]] = field(default_factory=dict)
    later: dict[str, Sample] = field(default_factory=dict)

    def saw(self, key: str, lap: int, step: int, end_ns: int) -> None:
        mine = self.ends.get(key)
        if mine is None:
            mine = self.ends[key] = {}
            self.later[key] = Sample()
        if len(mine) < MOST_STEPS + FIRST_STEPS and not lap:
            mine.setdefault(step, end_ns)
        if not lap and not step % self.later[key].every:
            self.later[key].add(step, end_ns)

    def saw_some(self, key: str, strides: Strides) -> None:
        """Takes many steps at once."""
        most = MOST_STEPS + FIRST_STEPS - len(self.ends.get(key, ()))
        if most > 0 and not strides.lap:
            for at, end_ns in enumerate(strides.ends[:most].tolist()):
                self.saw(key, strides.lap, strides.first + at, end_ns)
        if not strides.lap:
            self._sample(key, strides, max(most, 0))

    def _sample(self, key: str, strides: Strides, at: int) -> None:
        """Of those from `at` on."""
        sample = self.later.setdefault(key, Sample())
        while (at := at - (at + strides.first) % -sample.every) < len(strides):
            sample.add(strides.first + at, int(strides.ends[at]))
            at += 1

    def ahead_ns(self, tracks: Mapping[str, Track]) -> dict[str, int]:
        """By host: how far its clock is ahead of the others'.  Hosts without a clear answer are
        left out.  Of two hosts, the one with the lower rank is right."""
        columns = self._columns(tracks)
        steps = _common(list(columns.values()))
        if len(columns) < 2 or len(steps) < FEWEST_STEPS:
            return {}
        believed = list(columns.values())[: 1 if len(columns) == 2 else None]
        middle = {step: _middle([column[step] for column in believed]) for step in steps}
        clearly_ahead: dict[str, int] = {}
        for host, column in columns.items():
            apart = [column[step] - middle[step] for step in steps]
            ahead = _middle(apart)
            spread = _middle([abs(each - ahead) for each in apart])
            if abs(ahead) >= max(LEAST_NS, _SURE * spread):
                clearly_ahead[host] = ahead
            elif spread * _SURE > LEAST_NS and abs(ahead) > LEAST_NS:
                return {}  # they do not train together
        return clearly_ahead

    def drifted_ns(self, tracks: Mapping[str, Track], steps: int) -> int:
        """The most time in this many steps that may be booked wrongly because clocks drifted after
        the first."""
        ends = {key: sample.ends for key, sample in self.later.items()}
        columns = _by_host(ends, tracks)
        common = _common(list(columns.values()))
        some = [common[at : at + FEWEST_STEPS] for at in range(0, len(common), FEWEST_STEPS)]
        if len(columns) < 2 or len(some) < 2 or len(some[-1]) < FEWEST_STEPS:
            some = some[:-1]
        if len(some) < 2:
            return 0
        middle = {step: _middle([column[step] for column in columns.values()]) for step in common}
        most = 0
        for column in columns.values():
            apart = [[column[step] - middle[step] for step in group] for group in some]
            ahead = [_middle(each) for each in apart]
            spread = _middle([abs(ns - ahead[0]) for ns in apart[0]])
            moved = [abs(ns - ahead[0]) for ns in ahead]
            if max(moved) >= max(LEAST_NS, _SURE * spread):
                most = max(most, 2 * sum(moved) * steps // len(moved))
        return most

    def _columns(self, tracks: Mapping[str, Track]) -> dict[str, dict[int, int]]:
        """By host, the last of its ranks to end each step; in the order of ranks."""
        first = {key: sorted(ends)[FIRST_STEPS:] for key, ends in self.ends.items()}
        ends = {key: {step: self.ends[key][step] for step in steps} for key, steps in first.items()}
        return _by_host(ends, tracks)

    def state(self) -> list[list[Any]]:
        later = self.later
        return [
            [key, list(ends.items()), later[key].every, list(later[key].ends.items())]
            for key, ends in self.ends.items()
        ]

    @classmethod
    def of_state(cls, state: Sequence[Sequence[Any]]) -> Skew:
        skew = cls()
        for key, ends, every, later in state:
            skew.ends[key], skew.later[key] = dict(ends), Sample(every, dict(later))
        return skew


def _by_host(
    ends: Mapping[str, Mapping[int, int]], tracks: Mapping[str, Track]
) -> dict[str, dict[int, int]]:
    by_host: dict[str, dict[int, int]] = {}
    for key, track in sorted(tracks.items(), key=lambda item: item[1].rank):
        column = by_host.setdefault(track.host or key, {})
        for step, end_ns in ends.get(key, {}).items():
            column[step] = max(column.get(step, end_ns), end_ns)
    return {host: column for host, column in by_host.items() if column}


def _common(columns: Sequence[Mapping[int, int]]) -> list[int]:
    if not columns:
        return []
    return sorted(set(columns[0]).intersection(*columns[1:]))


def _middle(values: Sequence[int]) -> int:
    return sorted(values)[(len(values) - 1) // 2]


# ── times, set right ───────────────────────────────────────────────────────────────────────────


def by_our_clock(batch: Batch, ahead_ns: int) -> Batch:
    """The batch as its host would have recorded it with a right clock."""
    points, spans = batch.points, Spans()
    spans.name, spans.span, spans.edge = batch.spans.name, batch.spans.span, batch.spans.edge
    spans.step, spans.time_ns = batch.spans.step, shifted(batch.spans.time_ns, ahead_ns)
    times = shifted(points.time_ns, ahead_ns)
    events = [event._replace(time_ns=event.time_ns - ahead_ns) for event in batch.events]
    return replace(
        batch,
        points=Points(points.series, times, points.step, points.value),
        spans=spans,
        events=events,
    )


def shifted(times: array[int], ahead_ns: int) -> array[int]:
    return array("q", (time_ns - ahead_ns for time_ns in times)) if ahead_ns else times


def earlier_life(state: ProcessState, ahead_ns: int) -> ProcessState:
    def earlier(time_ns: int | None) -> int | None:
        return None if time_ns is None else time_ns - ahead_ns

    return replace(
        state,
        started_ns=state.started_ns - ahead_ns,
        last_ns=state.last_ns - ahead_ns,
        ended_ns=earlier(state.ended_ns),
        lived_ns=earlier(state.lived_ns),
    )
