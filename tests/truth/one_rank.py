"""Families of one rank: plain loops, asynchronous ones, and those that write entries."""

from __future__ import annotations

from random import Random

from tests.truth.families import family
from tests.truth.judging import History, history
from tests.truth.loops import Go, Loop, again, alone
from tests.truth.machine import Process
from tests.truth.passing import Crash, Moves
from tests.truth.pieces import ASYNC, about, at, by_number, like, odd, seed, told

# ── plain ──────────────────────────────────────────────────────────────────────────────────────


@family("plain")
def plain(rng: Random) -> History:
    return told(rng, Loop(work=about(rng.uniform(0.3, 2.0))))


@family("plain")
def plain_with_saves_and_data(rng: Random) -> History:
    return told(rng, Loop(work=about(0.8), data=0.2, save_every=50, save=6.0, finish=True))


@family("plain")
def plain_with_compile_span(rng: Random) -> History:
    return told(rng, Loop(work=about(1.0), compile=90.0, compile_told=True))


@family("plain")
def plain_with_evaluation(rng: Random) -> History:
    def evaluate(process: Process, step: int) -> Moves:
        if step % 60 == 59:
            with process.span("evaluation"):
                yield from process.sleep(15.0)

    return told(rng, Loop(work=about(1.0), after=evaluate))


@family("plain")
def plain_idle_between_steps(rng: Random) -> History:
    def idle(process: Process, step: int) -> Moves:
        yield from process.sleep(0.4)

    return told(rng, Loop(work=about(1.0), after=idle))


@family("plain")
def plain_restart(rng: Random) -> History:
    def crash(process: Process) -> Moves:
        yield from process.sleep(0.001)
        raise Crash("out of luck")

    first = Loop(steps=200, work=about(1.0), save_every=50, after=at(170, crash))
    second = Loop(first=150, steps=150, restore=8.0, work=about(1.0), save_every=50)
    return history(again(seed(rng), Go(first), Go(second, 150)))


@family("plain")
def plain_few_long_steps(rng: Random) -> History:
    return told(rng, Loop(steps=8, work=about(100.0), compile=60.0))


@family("plain")
def plain_saves_that_nobody_tells(rng: Random) -> History:
    def save(process: Process, step: int) -> Moves:
        if step % 50 == 49:
            yield from process.sleep(6.0)

    return told(rng, Loop(work=about(1.0), after=save))


@family("plain")
def plain_rewind_in_process(rng: Random) -> History:
    """The loss has gone up: the program takes up an older checkpoint and goes on from there."""
    loop = Loop(work=about(1.0), save_every=50)

    def program(process: Process) -> Moves:
        yield from process.sleep(5.0)
        yield from loop.train(process, 0, 180)
        with process.span("checkpoint_restore"):
            yield from process.sleep(5.0)
        process.job.rewind(100)
        yield from loop.train(process, 100, 250, compiles=False)

    return history(alone(seed(rng), program))


@family("plain", evidence_missing=True)
def plain_numbers_begin_anew_each_epoch(rng: Random) -> History:
    """`for i, batch in enumerate(loader)`: the number goes back, the work does not."""
    loop = Loop(work=about(1.0))

    def program(process: Process) -> Moves:
        yield from process.sleep(5.0)
        for epoch in range(4):
            yield from loop.train(process, 0, 80, compiles=not epoch)

    return history(alone(seed(rng), program))


# ── asynchronous dispatch ──────────────────────────────────────────────────────────────────────


@family("async")
def async_read_every_10th(rng: Random) -> History:
    return told(rng, like(ASYNC, read_in=10))


@family("async")
def async_read_every_10th_outside(rng: Random) -> History:
    return told(rng, like(ASYNC, read_out=10))


@family("async")
def async_read_every_100th(rng: Random) -> History:
    return told(rng, like(ASYNC, steps=600, read_in=100, flight=200))


@family("async")
def async_read_every_step(rng: Random) -> History:
    return told(rng, like(ASYNC, read_in=1))


@family("async")
def async_read_every_step_outside(rng: Random) -> History:
    return told(rng, like(ASYNC, read_out=1))


@family("async")
def async_never_read_bounded(rng: Random) -> History:
    return told(rng, like(ASYNC, flight=8))


@family("async", evidence_missing=True)
def async_never_read_unbounded(rng: Random) -> History:
    return told(rng, like(ASYNC, flight=1_000))


@family("async")
def async_two_in_flight(rng: Random) -> History:
    return told(rng, like(ASYNC, flight=2, work=about(0.25), steps=1_000))


@family("async")
def async_logs_without_reading(rng: Random) -> History:
    return told(rng, like(ASYNC, flight=32, log=True))


@family("async")
def async_data_hidden(rng: Random) -> History:
    return told(rng, like(ASYNC, read_in=10, data=rng.uniform(0.3, 0.6)))


@family("async")
def async_data_hidden_seldom_read(rng: Random) -> History:
    return told(rng, like(ASYNC, read_in=50, flight=4, data=rng.uniform(0.3, 0.6)))


@family("async")
def async_data_not_hidden(rng: Random) -> History:
    return told(rng, like(ASYNC, read_in=10, data=rng.uniform(1.4, 2.0)))


@family("async")
def async_saves(rng: Random) -> History:
    return told(rng, like(ASYNC, read_in=10, save_every=50, save=6.0))


@family("async")
def async_saves_seldom_read(rng: Random) -> History:
    """The save's first part waits for steps that are still in the queue."""
    return told(rng, like(ASYNC, read_in=25, save_every=30, save=6.0))


@family("async")
def async_evaluation(rng: Random) -> History:
    def evaluate(process: Process, step: int) -> Moves:
        if step % 75 == 74:
            with process.span("evaluation"):
                yield from process.read()
                yield from process.sleep(12.0)

    return told(rng, like(ASYNC, read_in=10, after=evaluate))


@family("async")
def async_crash(rng: Random) -> History:
    def die(process: Process) -> Moves:
        process.world.after(rng.uniform(0.2, 8.0), process.kill)
        yield from process.sleep(0.0)

    first = like(ASYNC, read_in=10, save_every=100, before=at(150, die))
    second = like(ASYNC, first=100, steps=200, restore=5.0, read_in=10)
    return history(again(seed(rng), Go(first), Go(second, 100)))


@family("async")
def async_device_hangs(rng: Random) -> History:
    work = odd(rng.randrange(120, 180), 1.0, [("compute", 1.0), ("hang", 90.0)])
    return told(rng, like(ASYNC, read_in=10, work=work))


@family("async")
def async_short_steps(rng: Random) -> History:
    return told(rng, like(ASYNC, steps=3_000, work=about(0.05, 0.1), read_in=20, dispatch=0.002))


@family("async")
def async_long_steps(rng: Random) -> History:
    """Each time a value is read, the host stands still for two minutes."""
    return told(rng, like(ASYNC, steps=120, work=about(12.0), read_in=10))


@family("async")
def async_few_steps(rng: Random) -> History:
    return told(rng, like(ASYNC, steps=40, work=about(3.0), read_in=10))


@family("async")
def async_data_span_hidden(rng: Random) -> History:
    return told(rng, like(ASYNC, read_in=20, flight=4, data=0.5, data_span=True))


@family("async")
def async_read_by_the_clock(rng: Random) -> History:
    """A value is read when the last one is some seconds old."""
    last = [0]

    def read(process: Process, step: int) -> Moves:
        if process.world.now - last[0] > 5_000_000_000:
            yield from process.read()
            last[0] = process.world.now

    return told(rng, like(ASYNC, flight=12, after=read))


@family("async")
def async_uneven(rng: Random) -> History:
    work = by_number(lambda n: 3.0 if n % 10 == 9 else 0.6)
    return told(rng, like(ASYNC, read_in=25, work=work))


@family("async")
def async_pause_that_nobody_tells(rng: Random) -> History:
    def pause(process: Process, step: int) -> Moves:
        if step % 50 == 49:
            yield from process.sleep(6.0)

    return told(rng, like(ASYNC, read_in=10, after=pause))


@family("async")
def async_hang_then_killed(rng: Random) -> History:
    def doom(process: Process) -> Moves:
        process.world.after(180.0, process.kill)
        yield from process.sleep(0.0)

    work = odd(150, 1.0, [("hang", 10_000.0)])
    first = like(ASYNC, read_in=10, save_every=50, work=work, before=at(150, doom))
    second = like(ASYNC, first=150, steps=150, read_in=10, restore=4.0)
    return history(again(seed(rng), Go(first), Go(second, 150)))


# ── entries, as GoodputRecorder writes them ────────────────────────────────────────────────────


def entries(rng: Random, loop: Loop) -> History:
    return history(alone(seed(rng), loop, form="entries"))


@family("entries")
def entries_plain(rng: Random) -> History:
    return entries(rng, Loop(work=about(1.0)))


@family("entries")
def entries_with_data_and_saves(rng: Random) -> History:
    return entries(rng, Loop(work=about(1.0), data=0.25, data_span=True, save_every=50))


@family("entries")
def entries_read_every_10th(rng: Random) -> History:
    return entries(rng, like(ASYNC, read_in=10))


@family("entries")
def entries_async_data_hidden(rng: Random) -> History:
    return entries(rng, like(ASYNC, read_in=10, data=0.3, data_span=True))


@family("entries")
def entries_uneven(rng: Random) -> History:
    return entries(rng, Loop(work=by_number(lambda n: 5.0 if n % 10 == 9 else 1.0)))


@family("entries")
def entries_hang(rng: Random) -> History:
    return entries(rng, Loop(work=odd(150, 1.0, [("compute", 1.0), ("hang", 100.0)])))


@family("entries")
def entries_evaluation(rng: Random) -> History:
    def evaluate(process: Process, step: int) -> Moves:
        if step % 60 == 59:
            with process.span("evaluation"):
                yield from process.sleep(15.0)

    return entries(rng, Loop(work=about(1.0), after=evaluate))


@family("entries")
def entries_crash(rng: Random) -> History:
    def die(process: Process) -> Moves:
        process.world.after(0.6, process.kill)
        yield from process.sleep(0.0)

    first = Loop(work=about(1.0), save_every=50, inside=at(170, die))
    second = Loop(first=150, steps=150, restore=5.0, work=about(1.0))
    return history(again(seed(rng), Go(first), Go(second, 150), form="entries"))
