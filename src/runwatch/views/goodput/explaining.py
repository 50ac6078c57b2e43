"""Why an instant of a run is in its class: the rule, and the figures that it went by.

What is said comes from the account itself and not from the records, so it is about this very
judgement: the step that the instant lies in, what steps took around it, what stopped the attempt.
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
    """The whole stretch of it."""
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
        said = f"From its begin to the next one's it took {_length(until - self.begun_ns)}"
        return f"{said}; a step usually takes {_length(usual)}." if usual else f"{said}."


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
        yield "Its devices were seen at work as before, though the program told nothing."
        return
    yield (
        "What a step took is productive unless a span claims it, unless it is far out of line with "
        "the steps around it, and also between steps while the device was still busy with what it "
        "had been handed."
    )


def _recorded(what: str) -> Callable[[_Instant], Iterator[str]]:
    def rule(at: _Instant) -> Iterator[str]:
        yield f"It was recorded: {what}."
        yield f"The instant is {at.where}."
        if at.step is not None:
            yield "The rank that the others waited for tells what the time went into."

    return rule


def _startup(at: _Instant) -> Iterator[str]:
    yield "The program was starting: a compile was recorded, or the first step took longer."
    yield at.took
    yield "What a first step takes longer than those after it is its compiling and loading."


def _preparation(at: _Instant) -> Iterator[str]:
    yield f"Attempt {at.attempt.attempt} had not begun its first step, and nothing else claims it."


def _stall(at: _Instant) -> Iterator[str]:
    yield f"The run stood still, {at.where}."
    yield at.took
    limit = at.attempt.stall_limit_ns
    if limit is not None:
        yield (
            f"A pause of more than {_length(limit)} is a stall in this attempt: ten seconds, five "
            "times a long step, or half as much again as the longest pause that went well."
        )
    yield "The usual time of a step is not counted as stall."


def _slow(at: _Instant) -> Iterator[str]:
    yield f"A step took far longer than those around it, but went on: {at.where}."
    yield at.took
    yield (
        "It is out of line by more than three times and a second, does not recur every so many "
        "steps, and was too short for a stall. Only what it took beyond the usual is counted here."
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


def _stopped(at: _Instant) -> Iterator[str]:
    for disruption in at.goodput.disruptions:
        if disruption.attempt == at.attempt.attempt:
            yield f"It was stopped at {_at(disruption.time_ns)}: {disruption.cause}."


def _degraded(at: _Instant) -> Iterator[str]:
    yield f"Ranks that had been there were missing: {at.where}."
    yield "The share of the working time that they would have had is counted here."


def _excluded(at: _Instant) -> Iterator[str]:
    yield "It is not counted: it lies between two complete goes, or you said so."


def _unattributed(at: _Instant) -> Iterator[str]:
    if at.begun_ns is not None and at.end_ns - at.begun_ns <= HAND_OVER_NS:
        yield f"The GPU had nothing to do yet: the instant is {at.where}."
        yield (
            "A GPU that was waited for idles until the next step is handed over to it. How long is "
            "not recorded: half a millisecond is taken for it, or a twentieth of a short step."
        )
        return
    yield f"Nothing that was recorded says what it was: {at.where}."
    yield "It is between steps, or after the last, and too short or too ordinary for a stall."


_CUSTOM: Final = _recorded("a span with a name of the program's own was open")
_RULES: Final[Mapping[str, Callable[[_Instant], Iterator[str]]]] = {
    **{look.name: _recorded(look.recorded) for look in LOOKS if look.recorded},
    "productive": _productive,
    "program_startup": _startup,
    "training_preparation": _preparation,
    "wasted_progress": _wasted,
    "infrastructure_recovery": _recovery,
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
