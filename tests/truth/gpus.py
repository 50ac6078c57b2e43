"""Families whose device is a GPU, and whose program has to hand each step over to it.

While it does, the GPU idles if it was waited for.  How long that takes nobody records: 0.2 to
1 ms here, as was measured on a real one; so the truth is known here and the account has to guess.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.truth.families import family
from tests.truth.judging import History, history
from tests.truth.loops import Loop, alone
from tests.truth.machine import Process
from tests.truth.passing import Moves
from tests.truth.pieces import about, like, odd, seed

SLOWEST = 0.001


def hands_over(mean: float) -> Callable[[Process, int], Moves]:
    def moves(process: Process, step: int) -> Moves:
        yield from process.sleep(min(SLOWEST, mean * process.rng.lognormvariate(0.0, 0.2)))

    return moves


LOOP = Loop(steps=400, dispatch=0.0, between=0.000003, compile=0.0, init=0.02, prepare=0.01)


def on_gpu(rng: Random, least: float, most: float, **changes: object) -> History:
    """Steps of a length between the two."""
    work = about(rng.uniform(least, most), 0.01)
    loop = like(LOOP, work=work, inside=hands_over(rng.uniform(0.0002, 0.0009)))
    return history(alone(seed(rng), like(loop, **changes), on_gpu=True))


@family("gpu")
def gpu_read_every_step(rng: Random) -> History:
    return on_gpu(rng, 0.04, 0.1, read_in=1)


@family("gpu")
def gpu_read_after_every_step(rng: Random) -> History:
    return on_gpu(rng, 0.04, 0.1, read_out=1)


@family("gpu")
def gpu_read_every_tenth(rng: Random) -> History:
    return on_gpu(rng, 0.02, 0.1, read_in=10)


@family("gpu")
def gpu_read_after_every_tenth(rng: Random) -> History:
    return on_gpu(rng, 0.02, 0.1, read_out=10)


@family("gpu")
def gpu_read_every_100th_and_logged(rng: Random) -> History:
    return on_gpu(rng, 0.02, 0.1, read_in=100, log_later=True, flight=1_000)


@family("gpu")
def gpu_starved(rng: Random) -> History:
    """Its data takes as long as its steps."""
    return on_gpu(rng, 0.04, 0.1, read_in=1, data=rng.uniform(0.04, 0.1))


@family("gpu")
def gpu_long_steps_and_saves(rng: Random) -> History:
    return on_gpu(rng, 0.5, 3.0, read_in=1, save_every=100)


@family("gpu")
def gpu_hangs(rng: Random) -> History:
    work = odd(rng.randrange(100, 300), 0.06, [("compute", 0.06), ("hang", 60.0)])
    return on_gpu(rng, 0.04, 0.1, read_in=1, work=work)


@family("gpu", evidence_missing=True)
def gpu_short_steps(rng: Random) -> History:
    """A millisecond of ten is a tenth: too much to guess, but not more than is said."""
    return on_gpu(rng, 0.01, 0.025, read_in=1)
