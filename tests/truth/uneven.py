"""Families of one rank: uneven paces, hangs, spans."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.truth.families import family
from tests.truth.judging import History, history
from tests.truth.loops import Go, Loop, Parts, again
from tests.truth.machine import Process
from tests.truth.passing import Moves
from tests.truth.pieces import about, at, by_number, hangs, odd, seed, told

# ── uneven paces ───────────────────────────────────────────────────────────────────────────────


@family("uneven")
def uneven_every_third_5x(rng: Random) -> History:
    return told(rng, Loop(work=by_number(lambda n: 2.5 if n % 3 == 2 else 0.5)))


@family("uneven")
def uneven_every_tenth_5x(rng: Random) -> History:
    return told(rng, Loop(work=by_number(lambda n: 5.0 if n % 10 == 9 else 1.0)))


@family("uneven")
def uneven_accumulation_over_8(rng: Random) -> History:
    return told(rng, Loop(steps=800, work=by_number(lambda n: 1.6 if n % 8 == 7 else 0.25)))


def lognormal(sigma: float) -> Callable[[Process, int], float]:
    return lambda process, step: 0.8 * process.rng.lognormvariate(0.0, sigma)


@family("uneven")
def uneven_lognormal(rng: Random) -> History:
    return told(rng, Loop(steps=400, work=lognormal(0.5)))


@family("uneven")
def uneven_lognormal_wide(rng: Random) -> History:
    return told(rng, Loop(steps=400, work=lognormal(1.0)))


@family("uneven")
def uneven_change_that_lasts(rng: Random) -> History:
    turn = rng.randrange(120, 250)
    return told(rng, Loop(steps=400, work=by_number(lambda n: 1.0 if n < turn else 4.0)))


@family("uneven")
def uneven_warm_up(rng: Random) -> History:
    return told(rng, Loop(steps=400, work=by_number(lambda n: 1.0 + 4.0 * max(0.0, 1 - n / 60))))


@family("uneven")
def uneven_curriculum(rng: Random) -> History:
    phases = (0.4, 0.8, 1.6, 3.2, 5.0)
    return told(rng, Loop(steps=400, work=by_number(lambda n: phases[n // 80])))


@family("uneven")
def uneven_buckets(rng: Random) -> History:
    def work(process: Process, step: int) -> float:
        (seconds,) = process.rng.choices((0.3, 0.6, 1.2, 2.4), weights=(8, 4, 2, 1))
        return seconds

    return told(rng, Loop(steps=500, work=work))


@family("uneven")
def uneven_short_steps_with_jitter(rng: Random) -> History:
    def work(process: Process, step: int) -> float:
        pause = process.rng.uniform(0.05, 0.4) if process.rng.random() < 0.015 else 0.0
        return 0.02 * process.rng.uniform(0.9, 1.3) + pause

    return told(rng, Loop(steps=6_000, work=work, compile=5.0))


@family("uneven")
def uneven_evaluation_inside_steps(rng: Random) -> History:
    def evaluate(process: Process, step: int) -> Moves:
        if step % 100 == 99:
            yield from process.sleep(20.0)

    return told(rng, Loop(steps=700, work=about(1.0), inside=evaluate))


@family("uneven")
def uneven_one_step_8x(rng: Random) -> History:
    work = odd(rng.randrange(60, 130), 1.0, [("compute", 1.0), ("slow", 7.0)])
    return told(rng, Loop(steps=150, work=work))


@family("uneven")
def uneven_slow_stretch(rng: Random) -> History:
    turn, plain_work = rng.randrange(100, 200), about(1.0)

    def work(process: Process, step: int) -> float | Parts:
        if turn <= step < turn + 6:
            return [("compute", 1.0), ("slow", 4.0)]
        return plain_work(process, step)

    return told(rng, Loop(work=work))


@family("uneven")
def uneven_recompile(rng: Random) -> History:
    def recompile(process: Process) -> Moves:
        with process.doing("slow_steps"):
            yield from process.sleep(7.5)

    recompiles = at(rng.randrange(60, 110), recompile)
    return told(rng, Loop(steps=130, work=about(1.2), inside=recompiles))


@family("uneven")
def uneven_every_tenth_5x_of_long_steps(rng: Random) -> History:
    return told(rng, Loop(steps=120, work=by_number(lambda n: 40.0 if n % 10 == 9 else 8.0)))


@family("uneven")
def uneven_lognormal_of_long_steps(rng: Random) -> History:
    def work(process: Process, step: int) -> float:
        return 8.0 * process.rng.lognormvariate(0.0, 0.5)

    return told(rng, Loop(steps=150, work=work))


@family("uneven")
def uneven_slow_phase(rng: Random) -> History:
    """A change that lasts for a good while, and then is taken back."""
    turn = rng.randrange(90, 150)
    work = by_number(lambda n: 4.0 if turn <= n < turn + 80 else 1.0)
    return told(rng, Loop(steps=350, work=work))


@family("uneven")
def uneven_three_slow_steps(rng: Random) -> History:
    slow, plain_work = set(rng.sample(range(60, 290), 3)), about(1.0)

    def work(process: Process, step: int) -> float | Parts:
        return [("compute", 1.0), ("slow", 6.0)] if step in slow else plain_work(process, step)

    return told(rng, Loop(work=work))


@family("uneven")
def uneven_one_step_2x(rng: Random) -> History:
    """Not far enough out of line to be worth a word."""
    return told(rng, Loop(work=odd(150, 2.0, [("compute", 4.5)])))


@family("uneven")
def uneven_one_of_the_long_steps(rng: Random) -> History:
    """Steps of half a minute: a minute and a half more is no hang yet."""
    work = odd(rng.randrange(40, 90), 30.0, [("compute", 30.0), ("slow", 85.0)])
    return told(rng, Loop(steps=120, work=work, compile=60.0))


# ── hangs ──────────────────────────────────────────────────────────────────────────────────────


@family("hangs")
def hang_in_step_recovers(rng: Random) -> History:
    work = odd(rng.randrange(80, 220), 1.0, [("compute", 1.0), ("hang", 60.0)])
    return told(rng, Loop(work=work))


@family("hangs")
def hang_between_steps(rng: Random) -> History:
    return told(rng, Loop(work=about(1.0), after=at(rng.randrange(80, 220), hangs(80.0))))


@family("hangs")
def hang_before_step(rng: Random) -> History:
    return told(rng, Loop(work=about(1.0), before=at(rng.randrange(80, 220), hangs(45.0))))


@family("hangs")
def hang_in_first_step_after_compile(rng: Random) -> History:
    loop = Loop(work=odd(0, 1.0, [("compute", 1.0), ("hang", 120.0)]), compile_told=True)
    return told(rng, loop)


@family("hangs", evidence_missing=True)
def hang_in_first_step(rng: Random) -> History:
    """It looks as a compile of two minutes more would."""
    return told(rng, Loop(work=odd(0, 1.0, [("compute", 1.0), ("hang", 120.0)])))


@family("hangs", evidence_missing=True)
def hang_after_last_step(rng: Random) -> History:
    return told(rng, Loop(work=about(1.0), done=lambda p, n: hangs(90.0)(p)))


@family("hangs")
def hang_with_long_steps(rng: Random) -> History:
    work = odd(rng.randrange(40, 90), 30.0, [("compute", 30.0), ("hang", 400.0)])
    return told(rng, Loop(steps=120, work=work, compile=60.0))


@family("hangs")
def hang_with_short_steps(rng: Random) -> History:
    work = odd(2_000, 0.05, [("compute", 0.05), ("hang", 30.0)])
    return told(rng, Loop(steps=3_000, work=work))


@family("hangs")
def hang_twice(rng: Random) -> History:
    plain_work = about(1.0)

    def work(process: Process, step: int) -> float | Parts:
        if step == 100:
            return [("compute", 1.0), ("hang", 40.0)]
        if step == 200:
            return [("compute", 1.0), ("hang", 100.0)]
        return plain_work(process, step)

    return told(rng, Loop(work=work))


@family("hangs")
def hang_twice_in_few_steps(rng: Random) -> History:
    """A dozen steps, and two of them are nearly all of the time: no device is waited for there."""
    first, second = sorted(rng.sample(range(3, 12), 2))
    plain_work = about(1.0)

    def work(process: Process, step: int) -> float | Parts:
        if step in (first, second):
            return [("compute", 1.0), ("hang", 60.0 if step == first else 120.0)]
        return plain_work(process, step)

    return told(rng, Loop(steps=13, work=work))


@family("hangs")
def hang_in_loader_that_is_told(rng: Random) -> History:
    """A wait that is told has its own class, however long."""
    slow = rng.randrange(100, 200)
    return told(rng, Loop(work=about(1.0), data=lambda p, n: 90.0 if n == slow else 0.05))


@family("hangs")
def hang_then_killed(rng: Random) -> History:
    def doom(process: Process) -> Moves:
        process.world.after(121.0, process.kill)
        yield from process.sleep(0.0)

    step = rng.randrange(120, 180)
    first = Loop(work=odd(step, 1.0, [("hang", 10_000.0)]), save_every=50, before=at(step, doom))
    second = Loop(first=100, steps=200, work=about(1.0), restore=4.0)
    return history(again(seed(rng), Go(first), Go(second, 100)))


@family("hangs")
def hang_between_steps_then_killed(rng: Random) -> History:
    def doom(process: Process) -> Moves:
        process.world.after(200.0, process.kill)
        yield from hangs(10_000.0)(process)

    first = Loop(work=about(1.0), save_every=50, after=at(149, doom))
    second = Loop(first=150, steps=150, work=about(1.0), restore=4.0)
    return history(again(seed(rng), Go(first), Go(second, 150)))


# ── spans ──────────────────────────────────────────────────────────────────────────────────────


@family("spans")
def spans_save_told_late(rng: Random) -> History:
    """A hook that knows a save only when it is over, and says so in the next step."""
    saved: list[int] = []

    def save(process: Process, step: int) -> Moves:
        if step % 50 == 24:
            with process.doing("checkpoint_save"):
                yield from process.sleep(6.0)
            saved.append(process.world.now)

    def tell(process: Process, step: int) -> Moves:
        if saved:
            yield from process.sleep(0.3)
            ago = (process.world.now - saved.pop()) / 1e9
            process.tell_elapsed("checkpoint_save", 6.0, ago)

    return told(rng, Loop(work=about(1.0), after=save, inside=tell))


@family("spans")
def spans_save_told_as_the_step_begins(rng: Random) -> History:
    """It ends when the next step begins, and is told after that, at the same time."""

    def save(process: Process, step: int) -> Moves:
        if step % 50 == 24:
            with process.doing("checkpoint_save"):
                yield from process.sleep(6.0)

    def tell(process: Process, step: int) -> Moves:
        if step % 50 == 25:
            process.tell_elapsed("checkpoint_save", 6.0)
        yield from ()

    return told(rng, Loop(work=about(1.0), after=save, inside=tell))


@family("spans")
def spans_save_told_steps_later(rng: Random) -> History:
    """The same, three steps later."""
    saved: list[int] = []

    def save_or_tell(process: Process, step: int) -> Moves:
        if step % 50 == 24:
            with process.doing("checkpoint_save"):
                yield from process.sleep(6.0)
            saved.append(process.world.now)
        elif step % 50 == 27:
            ago = (process.world.now - saved.pop()) / 1e9
            process.tell_elapsed("checkpoint_save", 6.0, ago)

    return told(rng, Loop(work=about(1.0), after=save_or_tell))


@family("spans")
def spans_one_long_save_told_late(rng: Random) -> History:
    """One that would be called a hang if nobody told of it."""
    saved: list[int] = []

    def save(process: Process) -> Moves:
        with process.doing("checkpoint_save"):
            yield from process.sleep(40.0)
        saved.append(process.world.now)

    def tell(process: Process, step: int) -> Moves:
        if saved:
            yield from process.sleep(0.2)
            ago = (process.world.now - saved.pop()) / 1e9
            process.tell_elapsed("checkpoint_save", 40.0, ago)

    return told(rng, Loop(work=about(1.0), after=at(149, save), inside=tell))


@family("spans")
def spans_save_over_the_steps_begin(rng: Random) -> History:
    """A save of six seconds of which the last four are inside the next step."""

    def first_part(process: Process, step: int) -> Moves:
        if step % 50 == 24:
            with process.doing("checkpoint_save"):
                yield from process.sleep(2.0)

    def second_part(process: Process, step: int) -> Moves:
        if step % 50 == 25:
            with process.doing("checkpoint_save"):
                yield from process.sleep(4.0)
            process.tell_elapsed("checkpoint_save", 6.0)

    return told(rng, Loop(work=about(1.0), after=first_part, inside=second_part))


@family("spans")
def spans_nested(rng: Random) -> History:
    def evaluate(process: Process, step: int) -> Moves:
        if step % 40 == 39:
            with process.span("evaluation"):
                yield from process.sleep(3.0)
                with process.span("data_loading"):
                    yield from process.sleep(2.0)
                with process.span("upload"):
                    yield from process.sleep(1.5)
                yield from process.sleep(2.0)

    return told(rng, Loop(work=about(1.0), after=evaluate))


@family("spans")
def spans_inside_steps(rng: Random) -> History:
    def inside(process: Process, step: int) -> Moves:
        with process.span("augment"):
            yield from process.sleep(0.2)

    return told(rng, Loop(work=about(0.8), inside=inside))


@family("spans")
def spans_save_in_background(rng: Random) -> History:
    return told(rng, Loop(work=about(1.0), save_every=50, save=0.5, background_s=25.0))


@family("spans")
def spans_open_at_a_crash(rng: Random) -> History:
    def evaluate(process: Process) -> Moves:
        process.world.after(9.0, process.kill)
        with process.span("evaluation"), process.span("upload"):
            yield from process.sleep(100.0)

    first = Loop(steps=300, work=about(1.0), save_every=50, after=at(149, evaluate))
    second = Loop(first=150, steps=100, restore=4.0, work=about(1.0))
    return history(again(seed(rng), Go(first), Go(second, 150)))
