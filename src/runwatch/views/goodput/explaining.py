"""Why an instant of a run is in its class: the rule, and the figures that it went by.

The sentences come from the account itself, not from the records, so they explain this very
judgement: the step of the instant, the steps around it, the cause that stopped the attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from runwatch.views.goodput.account import AttemptAccount, Goodput
from runwatch.views.goodput.hand_over import HAND_OVER_NS
from runwatch.views.goodput.looks import LOOKS
from runwatch.views.times import to_the_second


@dataclass(frozen=True, slots=True)
class Explanation:
    time_ns: int
    name: str
    """The class."""
    start_ns: int
    end_ns: int
    """The whole interval of this class."""
    attempt: int
    step: int | None
    """The step that had begun last."""
    why: tuple[str, ...]
    """Sentences, the rule first."""


@dataclass(frozen=True, slots=True)
class _Instant:
    goodput: Goodput
    time_ns: int
    start_ns: int
    end_ns: int
    attempt: AttemptAccount
    step: int | None
    begun_ns: int | None
    next_ns: int | None

    @property
    def where(self) -> str:
        if self.step is None or self.begun_ns is None:
            return f"before the first step of attempt {self.attempt.attempt}"
        return f"in step {self.step}, which began at {_at(self.begun_ns)}, or right after it"

    @property
    def took(self) -> str:
        """How long the step lasted, beside the usual."""
        usual = self.attempt.ideal_step_ns
        if self.begun_ns is None:
            return ""
        until = self.attempt.stop_ns if self.next_ns is None else self.next_ns
        words = (
            f"From its begin to the begin of the next step it took {_length(until - self.begun_ns)}"
        )
        return f"{words}; a step usually takes {_length(usual)}." if usual else f"{words}."


def explain(goodput: Goodput, time_ns: int) -> Explanation | None:
    """None if the run does not cover this time."""
    if not goodput.start_ns <= time_ns < max(goodput.end_ns, goodput.start_ns + 1):
        return None
    stretch = next(iter(goodput.intervals(time_ns, time_ns + 1)), None)
    if stretch is None:
        return None
    name = stretch[2]
    start, end = goodput.stretch_around(time_ns)
    begun = [a for a in goodput.attempts if a.start_ns <= time_ns] or list(goodput.attempts[:1])
    step, begun_ns, next_ns = goodput.step_at(time_ns)
    instant = _Instant(goodput, time_ns, start, end, begun[-1], step, begun_ns, next_ns)
    rule = _CUSTOM if name.startswith("custom:") else _RULES[name]
    why = tuple(sentence for sentence in rule(instant) if sentence)
    return Explanation(time_ns, name, start, end, begun[-1].attempt, step, why)


# ── one rule each ──────────────────────────────────────────────────────────────────────────────


def _productive(at: _Instant) -> Iterator[str]:
    yield f"The run worked on a step whose work was kept: it is {at.where}."
    yield at.took
    if any(start <= at.time_ns < end for start, end in at.goodput.worked):
        yield "The program recorded nothing, but its devices were seen at work as before."
        return
    yield (
        "The time of a step is productive, unless a span claims it or the step took far longer "
        "than the steps around it. Time between steps is productive while the device still works "
        "on earlier steps."
    )


def _recorded(what: str) -> Callable[[_Instant], Iterator[str]]:
    def rule(at: _Instant) -> Iterator[str]:
        yield f"It was recorded: {what}."
        yield f"The instant is {at.where}."
        if at.step is not None:
            yield "The rank that the others waited for decides the class."

    return rule


def _startup(at: _Instant) -> Iterator[str]:
    yield "The program was starting: a compile was recorded, or the first step took longer."
    yield at.took
    yield "The first step's extra time counts as compiling and loading."


def _preparation(at: _Instant) -> Iterator[str]:
    yield f"Attempt {at.attempt.attempt} had not begun its first step, and no span claims it."


def _stall(at: _Instant) -> Iterator[str]:
    yield f"The run stood still, {at.where}."
    yield at.took
    limit = at.attempt.stall_limit_ns
    if limit is not None:
        yield (
            f"A pause of more than {_length(limit)} is a stall in this attempt: ten seconds, five "
            "times a long step, or half as much again as the longest pause that went well."
        )
    yield "The usual time of a step does not count as a stall."


def _slow(at: _Instant) -> Iterator[str]:
    yield f"A step took far longer than those around it, but went on: {at.where}."
    yield at.took
    yield (
        "It took more than three times the usual and at least a second more, does not recur at a "
        "fixed distance, and was too short for a stall. Only its extra time is counted here."
    )


def _wasted(at: _Instant) -> Iterator[str]:
    yield f"The work was lost and had to be done again: {at.where}."
    for turn in at.goodput.turns:
        if turn.start_ns <= at.time_ns < turn.end_ns:
            yield f"At {_at(turn.back_ns)} the run went back to step {turn.step}."
            return
    yield "The step was cut short when the attempt was stopped."
    yield from _stopped(at)


def _recovery(at: _Instant) -> Iterator[str]:
    yield f"Attempt {at.attempt.attempt} had been stopped, and the next had not begun."
    yield from _stopped(at)
    after = [a.start_ns for a in at.goodput.attempts if a.start_ns > at.time_ns]
    yield f"The next began at {_at(after[0])}." if after else "There is no next one yet."


def _waiting(rule: str) -> Callable[[_Instant], Iterator[str]]:
    def told(at: _Instant) -> Iterator[str]:
        wait = next((w for w in at.goodput.waits if w.start_ns <= at.time_ns < w.end_ns), None)
        who = wait.who if wait is not None and wait.who else "the job, in its scheduler's queue"
        yield f"{rule}: {who}."
        if wait is not None and wait.said:
            yield f"The cluster said: {wait.said.rstrip('.')}."
        if at.time_ns >= at.attempt.stop_ns:
            yield from _recovery(at)

    return told


def _stopped(at: _Instant) -> Iterator[str]:
    for disruption in at.goodput.disruptions:
        if disruption.attempt == at.attempt.attempt:
            yield f"It was stopped at {_at(disruption.time_ns)}: {disruption.cause}."


def _degraded(at: _Instant) -> Iterator[str]:
    yield f"Ranks that had been there were missing: {at.where}."
    yield "Their share of the working time is counted here."


def _excluded(at: _Instant) -> Iterator[str]:
    yield "This time is not counted: it lies between two complete jobs, or you excluded it."


def _unattributed(at: _Instant) -> Iterator[str]:
    if at.begun_ns is not None and at.end_ns - at.begun_ns <= HAND_OVER_NS:
        yield f"The GPU had nothing to do yet: the instant is {at.where}."
        yield (
            "The program waited for the GPU, which then idles until the next step reaches it. How "
            "long is not recorded: half a millisecond is assumed, or a twentieth of a short step."
        )
        return
    yield f"No record says what this time went into: {at.where}."
    yield "It is between steps, or after the last, and too short or too ordinary for a stall."


_CUSTOM: Final = _recorded("a span with a name of the program's own was open")
_RULES: Final[Mapping[str, Callable[[_Instant], Iterator[str]]]] = {
    **{look.name: _recorded(look.recorded) for look in LOOKS if look.recorded},
    "productive": _productive,
    "program_startup": _startup,
    "training_preparation": _preparation,
    "wasted_progress": _wasted,
    "infrastructure_recovery": _recovery,
    "scheduling_wait": _waiting("The run waited for machines"),
    "pod_startup": _waiting("All pods had nodes, and one was still being started"),
    "stall": _stall,
    "slow_steps": _slow,
    "degraded_capacity": _degraded,
    "excluded": _excluded,
    "unattributed": _unattributed,
}


def _at(time_ns: int) -> str:
    return to_the_second(time_ns)


def _length(ns: int) -> str:
    if ns < 1_000_000:
        return f"{ns / 1e3:.0f} µs"
    return f"{ns / 1e6:.0f} ms" if ns < 1_000_000_000 else f"{ns / 1e9:.1f} s"
