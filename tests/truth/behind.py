"""Families of one rank whose device is behind its program, as real programs were seen to be."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.truth.families import family
from tests.truth.judging import History, history
from tests.truth.loops import Parts, alone
from tests.truth.machine import Process
from tests.truth.passing import Moves
from tests.truth.pieces import ASYNC, about, at, hangs, like, odd, seed, told


def hurried(mean: float) -> Callable[[Process, int], Moves]:
    """Handing over takes now a little, now more: other programs want the processor, too."""

    def moves(process: Process, step: int) -> Moves:
        yield from process.sleep(mean * process.rng.lognormvariate(0.0, 0.8))

    return moves


def varied(mean: float, sigma: float) -> Callable[[Process, int], float]:
    return lambda process, step: mean * process.rng.lognormvariate(0.0, sigma)


# ── compiles ───────────────────────────────────────────────────────────────────────────────────


def compiles(steps: dict[int, float]) -> Callable[[Process, int], Moves]:
    """In these steps, before anything is handed over; told when it is done, as hooks do."""

    def moves(process: Process, step: int) -> Moves:
        seconds = steps.get(step, 0.0)
        if seconds:
            with process.doing("program_startup"):
                yield from process.sleep(seconds)
            process.tell_elapsed("compile", seconds)

    return moves


@family("async")
def async_compile_beside_a_busy_queue(rng: Random) -> History:
    """The batch gets another shape while steps are still to be done: that long it costs nothing."""
    step = rng.randrange(60, 260) // 10 * 10 + rng.randrange(3, 9)
    return told(rng, like(ASYNC, read_in=10, inside=compiles({step: rng.uniform(2.0, 9.0)})))


@family("async")
def async_compile_of_every_length(rng: Random) -> History:
    """Buckets: each length is compiled for when it first comes, most of them in the first steps."""
    lengths = (0.3, 0.6, 1.2, 2.4)
    seen: set[float] = set()

    def work(process: Process, step: int) -> float:
        return process.rng.choice(lengths)

    def compile_new(process: Process, step: int) -> Moves:
        length = Random(f"{process.job.seed} {step}").choice(lengths)
        if length not in seen:
            seen.add(length)
            yield from compiles({step: 4.0})(process, step)

    loop = like(ASYNC, read_in=10, work=work, compile_told=True, compile=4.0, inside=compile_new)
    return told(rng, loop)


@family("async")
def async_compile_in_the_middle_of_the_first_step(rng: Random) -> History:
    """Accumulation: what adds gradients is compiled and handed over, then what applies them."""

    def second(process: Process, step: int) -> Moves:
        """All but the last piece of the step is handed over by now."""
        if step == 1:
            yield from compiles({step: 5.0})(process, step)

    loop = like(ASYNC, read_in=10, compile_told=True, compile=5.0, inside=second)
    return told(rng, loop)


# ── starved ────────────────────────────────────────────────────────────────────────────────────


@family("async")
def async_starved_seldom_read(rng: Random) -> History:
    """The device is busy 15 % of the time, and waited for in every tenth step."""
    work, data = 0.2, 0.2 * rng.uniform(4.5, 6.5)
    loop = like(ASYNC, work=about(work), data=data, read_in=10, inside=hurried(0.004))
    return told(rng, like(loop, steps=400, dispatch=0.001))


@family("async", evidence_missing=True)
def async_starved_seldom_read_varied(rng: Random) -> History:
    """The same with steps that vary: nine of ten of them nobody waits for."""
    work, data = varied(0.2, 0.5), 0.2 * rng.uniform(4.5, 6.5)
    loop = like(ASYNC, work=work, data=data, read_in=10, inside=hurried(0.004))
    return told(rng, like(loop, steps=400, dispatch=0.001))


# ── read seldom, and outside ───────────────────────────────────────────────────────────────────


@family("async")
def async_read_every_100th_outside_and_logged(rng: Random) -> History:
    """Few kernels to a step: the program runs far ahead, is held up there, and waits between two
    steps for what is left."""
    loop = like(ASYNC, steps=rng.choice((200, 300, 600)), work=about(0.042, 0.01), log=True)
    loop = like(loop, dispatch=0.0005, flight=rng.randrange(8, 64), read_out=100, compile=0.0)
    return told(rng, like(loop, init=0.02, prepare=0.01, inside=hurried(0.0006)))


@family("async")
def async_read_every_100th_outside_long_steps(rng: Random) -> History:
    loop = like(ASYNC, steps=rng.choice((200, 300, 600)), log=True, read_out=100)
    return told(rng, like(loop, flight=rng.randrange(8, 60), inside=hurried(0.01)))


@family("async", evidence_missing=True)
def async_read_every_100th_outside_varied(rng: Random) -> History:
    """On a busy machine: now and then a step that is held up is short by chance."""
    loop = like(ASYNC, steps=350, work=varied(0.1, 0.6), dispatch=0.001, flight=32, read_out=100)
    return told(rng, like(loop, inside=hurried(0.01)))


@family("async", evidence_missing=True)
def async_read_every_100th_outside_never_held_up(rng: Random) -> History:
    """Two hundred steps of a millisecond, a pause in the middle and one at the end: nothing tells
    that the device worked in them."""
    loop = like(ASYNC, steps=200, work=about(0.42, 0.01), dispatch=0.0005, flight=1_000)
    loop = like(loop, read_out=100, compile=0.0, init=0.02, prepare=0.01)
    return told(rng, like(loop, inside=hurried(0.0006)))


# ── values that are logged before they are there ───────────────────────────────────────────────

FAR = like(ASYNC, dispatch=0.0005, log_later=True, inside=hurried(0.0006), compile=0.0)


@family("async")
def async_logged_and_read_every_100th(rng: Random) -> History:
    """It never has to wait but then: one pause in a hundred steps, and one at the end."""
    work = about(rng.uniform(0.03, 0.06), 0.01)
    loop = like(FAR, steps=rng.choice((200, 300)), work=work, flight=rng.choice((2, 4, 80, 1_000)))
    return told(rng, like(loop, read_out=100, init=0.02, prepare=0.01))


@family("async")
def async_logged_and_never_read(rng: Random) -> History:
    work = about(rng.uniform(0.03, 0.06), 0.01)
    loop = like(FAR, steps=300, work=work, flight=1_000)
    return told(rng, like(loop, init=0.02, prepare=0.01))


@family("async")
def async_logged_and_starved(rng: Random) -> History:
    """Steps that vary, and are read seldom: what arrives tells how long each took."""
    work, data = varied(0.2, 0.5), 0.2 * rng.uniform(1.5, 6.5)
    return told(rng, like(FAR, steps=400, work=work, data=data, read_in=50, compile=5.0))


@family("async")
def async_logged_with_hidden_data_and_saves(rng: Random) -> History:
    work, data = varied(0.6, 0.4), rng.uniform(0.2, 0.5)
    loop = like(FAR, steps=400, work=work, data=data, read_in=40, save_every=60, compile=5.0)
    return told(rng, loop)


@family("async")
def async_logged_and_the_device_hangs(rng: Random) -> History:
    """Nothing arrives while it does."""
    work = odd(rng.randrange(120, 180), 1.0, [("compute", 1.0), ("hang", 90.0)])
    return told(rng, like(FAR, steps=300, read_in=50, work=work, compile=5.0))


@family("async")
def async_logged_and_the_program_hangs(rng: Random) -> History:
    """The device has soon done what it was handed: then nothing arrives, either."""
    stop = at(rng.randrange(120, 180), hangs(70.0))
    return told(rng, like(FAR, steps=300, read_in=10, work=about(0.5), after=stop, compile=5.0))


@family("async")
def async_logged_by_one_of_two_ranks(rng: Random) -> History:
    """The other's data is late: what the first's device waits for is no work."""

    def data(process: Process, step: int) -> float:
        return 0.5 if process.rank else 0.01

    def log(process: Process, step: int) -> Moves:
        if not process.rank:
            process.log_later(step)
        yield from ()

    loop = like(FAR, steps=200, work=about(0.3), data=data, read_in=20, log_later=False)
    return history(alone(seed(rng), like(loop, after=log, compile=5.0), ranks=2))


@family("async")
def async_logged_before_the_backward_pass(rng: Random) -> History:
    """Its loss is there when a third of the step is done."""
    third = rng.uniform(0.06, 0.1)
    parts: Parts = [("compute", third), ("compute", 2 * third)]
    loop = like(FAR, steps=400, work=lambda p, n: parts, data=rng.uniform(0.1, 1.0), read_in=10)
    return told(rng, like(loop, log_later=False, log_early=0.002, compile=5.0))
