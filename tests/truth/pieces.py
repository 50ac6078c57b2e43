"""What the families are put together from, beside the loops."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.truth.judging import History, history
from tests.truth.loops import Loop, Parts, alone
from tests.truth.machine import HUNG, Process
from tests.truth.passing import Moves


def seed(rng: Random) -> int:
    return rng.getrandbits(32)


def told(rng: Random, loop: Loop) -> History:
    return history(alone(seed(rng), loop))


def about(mean: float, spread: float = 0.03) -> Callable[[Process, int], float]:
    """Steps that take about as long as each other."""

    def work(process: Process, step: int) -> float:
        return mean * process.rng.uniform(1 - spread, 1 + spread)

    return work


def at(step: int, moves: Callable[[Process], Moves]) -> Callable[[Process, int], Moves]:
    def hook(process: Process, number: int) -> Moves:
        if number == step:
            yield from moves(process)

    return hook


def hangs(seconds: float) -> Callable[[Process], Moves]:
    def moves(process: Process) -> Moves:
        with process.doing(HUNG):
            yield from process.sleep(seconds)

    return moves


def odd(step: int, usual: float, parts: Parts) -> Callable[[Process, int], float | Parts]:
    """One step's device work is another."""
    plain = about(usual)
    return lambda process, number: parts if number == step else plain(process, number)


def by_number(seconds: Callable[[int], float]) -> Callable[[Process, int], float]:
    def work(process: Process, step: int) -> float:
        return seconds(step) * process.rng.uniform(0.98, 1.02)

    return work


ASYNC = Loop(steps=300, work=about(1.0), dispatch=0.004)


def like(loop: Loop, **changes: object) -> Loop:
    return Loop(**{**vars(loop), **changes})
