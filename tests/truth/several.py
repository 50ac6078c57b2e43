"""Families of several ranks or several launches: clocks, elastic jobs, crashes, completeness."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.truth.elastic import Elastic
from tests.truth.families import family
from tests.truth.judging import History, history
from tests.truth.loops import Go, Loop, Parts, again, alone
from tests.truth.machine import Clock, Process
from tests.truth.passing import Crash, Killed, Moves
from tests.truth.pieces import ASYNC, about, at, hangs, like, seed

Clocks = Callable[[int, int], Clock]


# ── several ranks ──────────────────────────────────────────────────────────────────────────────


def slow_on(rank: int, usual: float, slow: float) -> Callable[[Process, int], float]:
    fast_work, slow_work = about(usual), about(slow)
    return lambda process, step: (slow_work if process.rank == rank else fast_work)(process, step)


def late_data(rank: int, wait: float, usual: float = 0.01) -> Callable[[Process, int], float]:
    def data(process: Process, step: int) -> float:
        return (wait if process.rank == rank else usual) * process.rng.uniform(0.95, 1.05)

    return data


@family("ranks")
def ranks_plain(rng: Random) -> History:
    return history(alone(seed(rng), Loop(work=about(1.0)), ranks=4, stagger_s=0.3))


@family("ranks")
def ranks_one_slow_in_compute(rng: Random) -> History:
    """All begin and end together: who keeps the others is told by nothing that is recorded."""
    loop = Loop(steps=200, work=slow_on(2, 0.5, 1.5))
    return history(alone(seed(rng), loop, ranks=4))


@family("ranks")
def ranks_one_late_data(rng: Random) -> History:
    loop = Loop(steps=200, work=about(1.0), data=late_data(1, 0.5))
    return history(alone(seed(rng), loop, ranks=4), awaited=1)


@family("ranks")
def ranks_rotating_straggler(rng: Random) -> History:
    def work(process: Process, step: int) -> float:
        late = 0.6 if step % 4 == process.rank else 0.0
        return 0.8 * process.rng.uniform(0.98, 1.02) + late

    return history(alone(seed(rng), Loop(steps=200, work=work), ranks=4))


@family("ranks")
def ranks_rotating_data(rng: Random) -> History:
    def data(process: Process, step: int) -> float:
        return 0.5 if step % 4 == process.rank else 0.01

    return history(alone(seed(rng), Loop(steps=200, work=about(0.8), data=data), ranks=4))


@family("ranks")
def ranks_sixteen_with_jitter(rng: Random) -> History:
    return history(alone(seed(rng), Loop(steps=120, work=about(1.0, 0.2)), ranks=16))


@family("ranks")
def ranks_async(rng: Random) -> History:
    return history(alone(seed(rng), like(ASYNC, steps=200, read_in=10), ranks=4))


@family("ranks")
def ranks_async_late_data(rng: Random) -> History:
    loop = like(ASYNC, steps=200, read_in=10, data=late_data(1, 1.6, 0.2))
    return history(alone(seed(rng), loop, ranks=4))


@family("ranks")
def ranks_rank_0_saves(rng: Random) -> History:
    def save(process: Process, step: int) -> Moves:
        if process.rank == 0 and step % 40 == 39:
            with process.span("checkpoint_save"):
                yield from process.sleep(7.0)

    return history(alone(seed(rng), Loop(steps=200, work=about(1.0), after=save), ranks=4))


@family("ranks")
def ranks_one_hangs_before_its_step(rng: Random) -> History:
    def hang(process: Process, step: int) -> Moves:
        if process.rank == 2 and step == 120:
            yield from hangs(70.0)(process)

    return history(alone(seed(rng), Loop(steps=200, work=about(1.0), before=hang), ranks=4))


@family("ranks")
def ranks_one_hangs_in_its_step(rng: Random) -> History:
    plain_work = about(1.0)

    def work(process: Process, step: int) -> float | Parts:
        if process.rank == 2 and step == 120:
            return [("compute", 1.0), ("hang", 70.0)]
        return plain_work(process, step)

    return history(alone(seed(rng), Loop(steps=200, work=work), ranks=4))


@family("ranks")
def ranks_one_hangs_then_killed(rng: Random) -> History:
    def hang(process: Process, step: int) -> Moves:
        if process.rank == 2 and step == 120:
            process.world.after(150.0, process.kill)
            yield from hangs(10_000.0)(process)

    first = Loop(steps=200, work=about(1.0), save_every=60, save=2.0, before=hang)
    second = Loop(first=120, steps=80, work=about(1.0), restore=5.0)
    return history(again(seed(rng), Go(first, ranks=4), Go(second, 120, ranks=4)))


@family("ranks")
def ranks_start_late(rng: Random) -> History:
    return history(alone(seed(rng), Loop(steps=200, work=about(1.0)), ranks=4, stagger_s=6.0))


@family("ranks")
def ranks_one_compiles_longer(rng: Random) -> History:
    def more(process: Process, step: int) -> Moves:
        if step == 0 and process.rank == 2:
            with process.doing("program_startup"):
                yield from process.sleep(60.0)

    return history(alone(seed(rng), Loop(steps=200, work=about(1.0), inside=more), ranks=4))


@family("ranks")
def ranks_async_only_rank_0_reads(rng: Random) -> History:
    def read(process: Process, step: int) -> Moves:
        if process.rank == 0 and step % 10 == 9:
            yield from process.read()

    loop = like(ASYNC, steps=200, flight=16, after=read)
    return history(alone(seed(rng), loop, ranks=4))


# ── clocks ─────────────────────────────────────────────────────────────────────────────────────


@family("clocks")
def clocks_30_s_off_with_late_data(rng: Random) -> History:
    sign = rng.choice((-1, 1))
    clocks: Clocks = lambda rank, launch: Clock(30.0 * sign if rank == 1 else 0.0)  # noqa: E731
    loop = Loop(steps=200, work=about(0.4), data=late_data(1, 1.2), compile=8.0)
    return history(alone(seed(rng), loop, ranks=2, clocks=clocks))


@family("clocks")
def clocks_50_ms_off_with_late_data(rng: Random) -> History:
    sign = rng.choice((-1, 1))
    clocks: Clocks = lambda rank, launch: Clock(0.05 * sign if rank == 1 else 0.0)  # noqa: E731
    loop = Loop(steps=600, work=about(0.3), data=late_data(1, 0.15))
    return history(alone(seed(rng), loop, ranks=2, clocks=clocks))


def random_clocks(rng: Random, most_s: float) -> Clocks:
    offsets = [rng.uniform(-most_s, most_s) for _ in range(8)]
    return lambda rank, launch: Clock(offsets[rank % 8])


@family("clocks")
def clocks_of_four_hosts_at_random(rng: Random) -> History:
    loop = Loop(steps=200, work=about(1.0), data=late_data(2, 0.4))
    return history(alone(seed(rng), loop, ranks=4, clocks=random_clocks(rng, 5.0)))


@family("clocks")
def clocks_at_random_async(rng: Random) -> History:
    loop = like(ASYNC, steps=200, read_in=10)
    return history(alone(seed(rng), loop, ranks=4, clocks=random_clocks(rng, 2.0)))


@family("clocks")
def clocks_that_drift(rng: Random) -> History:
    drifts = (0.0, 50e-6, -50e-6, 20e-6)
    clocks: Clocks = lambda rank, launch: Clock(0.0, drifts[rank])  # noqa: E731
    loop = Loop(steps=600, work=about(30.0), data=late_data(1, 6.0))
    return history(alone(seed(rng), loop, ranks=4, clocks=clocks))


@family("clocks", evidence_missing=True)
def clocks_that_drift_for_days(rng: Random) -> History:
    """Five seconds by the end: more than what is waited for."""
    sign = rng.choice((-1, 1))
    clocks: Clocks = lambda rank, launch: Clock(0.0, 0.0 if rank else 50e-6 * sign)  # noqa: E731
    loop = Loop(steps=2_500, work=about(40.0), data=late_data(1, 1.5))
    return history(alone(seed(rng), loop, ranks=2, clocks=clocks))


@family("clocks")
def clocks_step_back_between_attempts(rng: Random) -> History:
    clocks: Clocks = lambda rank, launch: Clock(-90.0 if launch else 0.0)  # noqa: E731
    first = Loop(steps=200, work=about(1.0), save_every=50, after=at(170, crash))
    second = Loop(first=150, steps=150, work=about(1.0), restore=5.0)
    return history(again(seed(rng), Go(first), Go(second, 150, 60.0), clocks=clocks))


# ── crashes ────────────────────────────────────────────────────────────────────────────────────


def crash(process: Process) -> Moves:
    yield from process.sleep(0.001)
    raise Crash("out of luck")


def crash_within(seconds: float) -> Callable[[Process], Moves]:
    def moves(process: Process) -> Moves:
        process.world.after(seconds, process.kill)
        yield from process.sleep(0.0)

    return moves


@family("crashes")
def crash_loop_with_long_compiles(rng: Random) -> History:
    def dies(process: Process, step: int) -> Moves:
        if step == 0:
            yield from crash(process)

    bad = Loop(work=about(1.0), compile=300.0, inside=dies)
    good = Loop(work=about(1.0), compile=300.0)
    goes = [Go(bad, pause_s=rng.uniform(5.0, 40.0)) for _ in range(4)]
    return history(again(seed(rng), *goes, Go(good)))


@family("crashes")
def crash_loop_after_a_few_steps(rng: Random) -> History:
    bad = Loop(work=about(1.0), compile=120.0, inside=at(5, crash))
    good = Loop(work=about(1.0), compile=120.0)
    return history(again(seed(rng), Go(bad), Go(bad), Go(bad), Go(good)))


@family("crashes")
def crash_in_mid_step(rng: Random) -> History:
    first = Loop(work=about(4.0), save_every=50, inside=at(130, crash_within(2.5)))
    second = Loop(first=100, steps=100, work=about(4.0), restore=6.0)
    return history(again(seed(rng), Go(first), Go(second, 100)))


@family("crashes")
def crash_between_steps(rng: Random) -> History:
    first = Loop(work=about(1.0), save_every=50, after=at(130, crash))
    second = Loop(first=100, steps=150, work=about(1.0), restore=6.0)
    return history(again(seed(rng), Go(first), Go(second, 100)))


@family("crashes")
def crash_while_saving(rng: Random) -> History:
    def save(process: Process) -> Moves:
        process.world.after(4.0, process.kill)
        with process.span("checkpoint_save"):
            yield from process.sleep(10.0)

    first = Loop(work=about(1.0), save_every=60, after=at(149, save))
    second = Loop(first=120, steps=150, work=about(1.0), restore=6.0)
    return history(again(seed(rng), Go(first), Go(second, 120)))


@family("crashes")
def crash_of_one_rank_of_four(rng: Random) -> History:
    def dies(process: Process, step: int) -> Moves:
        if process.rank == 3 and step == 130:
            yield from crash_within(0.5)(process)

    first = Loop(work=about(1.0), save_every=50, save=2.0, inside=dies)
    second = Loop(first=100, steps=120, work=about(1.0), restore=6.0)
    return history(again(seed(rng), Go(first, ranks=4), Go(second, 100, ranks=4)))


@family("crashes")
def crash_without_checkpoints(rng: Random) -> History:
    first = Loop(work=about(1.0), inside=at(rng.randrange(60, 160), crash_within(0.5)))
    return history(again(seed(rng), Go(first), Go(Loop(work=about(1.0)))))


@family("crashes")
def crash_at_the_end(rng: Random) -> History:
    """Nobody starts it again: the steps stand, but for the one that was cut short."""
    return history(alone(seed(rng), Loop(work=about(2.0), inside=at(150, crash_within(1.2)))))


@family("crashes")
def crash_of_one_rank_noticed_late(rng: Random) -> History:
    """The others wait in a collective until it times out."""

    def dies(process: Process, step: int) -> Moves:
        if process.rank == 3 and step == 130:
            yield from crash_within(0.5)(process)

    first = Loop(work=about(1.0), save_every=50, save=2.0, inside=dies)
    second = Loop(first=100, steps=120, work=about(1.0), restore=6.0)
    job = again(seed(rng), Go(first, ranks=4), Go(second, 100, ranks=4))
    job.grace_s = 120.0
    return history(job)


@family("crashes", evidence_missing=True)
def crash_of_a_host(rng: Random) -> History:
    """Nobody saw when it went; a step takes long enough for that to matter."""

    def dies(process: Process) -> Moves:
        process.unseen = True
        process.world.after(25.0, process.kill)
        yield from process.sleep(0.0)

    first = Loop(steps=60, work=about(35.0), save_every=20, inside=at(35, dies))
    second = Loop(first=20, steps=40, work=about(35.0), restore=6.0)
    return history(again(seed(rng), Go(first), Go(second, 20, 90.0)))


# ── completeness ───────────────────────────────────────────────────────────────────────────────


@family("completeness")
def preempted_ten_times_and_back_to_0(rng: Random) -> History:
    goes = [Go(Loop(steps=rng.randrange(80, 120), work=about(1.0)), 0, 30.0) for _ in range(10)]
    return history(again(seed(rng), *goes, Go(Loop(steps=15, work=about(1.0)))))


@family("completeness")
def preempted_ten_times_and_goes_on(rng: Random) -> History:
    goes, step = [], 0
    for number in range(11):
        steps = rng.randrange(80, 120)
        restore = 5.0 if number else 0.0
        loop = Loop(first=step, steps=steps, work=about(1.0), restore=restore)
        goes.append(Go(loop, step, 30.0))
        step += steps
    return history(again(seed(rng), *goes))


@family("completeness")
def preempted_and_back_a_little(rng: Random) -> History:
    """It exits with 0, and what it had done since its last save is lost."""
    first = Loop(steps=170, work=about(1.0), save_every=50)
    second = Loop(first=150, steps=150, work=about(1.0), restore=5.0)
    return history(again(seed(rng), Go(first), Go(second, 150)))


@family("completeness")
def preempted_and_says_that_the_job_ends(rng: Random) -> History:
    """A recorder writes `job_end_time` whenever the program leaves well, done or not."""
    first = Loop(steps=170, work=about(1.0), save_every=50)
    second = Loop(first=150, steps=150, work=about(1.0), restore=5.0)
    return history(again(seed(rng), Go(first), Go(second, 150), form="entries"))


@family("completeness", evidence_missing=True)
def preempted_and_says_that_the_job_ends_and_back_to_0(rng: Random) -> History:
    """It looks as another go would."""
    first, second = Loop(steps=170, work=about(1.0)), Loop(steps=150, work=about(1.0))
    return history(again(seed(rng), Go(first), Go(second, 0), form="entries"))


@family("completeness")
def preempted_by_a_signal_after_a_save(rng: Random) -> History:
    def save_and_die(process: Process) -> Moves:
        with process.span("checkpoint_save"):
            yield from process.sleep(5.0)
        raise Killed("SIGTERM")

    first = Loop(work=about(1.0), after=at(149, save_and_die))
    second = Loop(first=150, steps=150, work=about(1.0), restore=5.0)
    return history(again(seed(rng), Go(first), Go(second, 150)))


@family("completeness")
def finished_then_extended(rng: Random) -> History:
    first = Loop(steps=150, work=about(1.0), save_every=50, finish=True)
    second = Loop(first=150, steps=100, work=about(1.0), restore=5.0, finish=True)
    return history(again(seed(rng), Go(first), Go(second, 150, 300.0)))


@family("completeness")
def two_complete_goes(rng: Random) -> History:
    loop = Loop(steps=150, work=about(1.0), finish=True)
    return history(again(seed(rng), Go(loop), Go(loop, 0, 200.0)))


@family("completeness")
def two_complete_goes_of_two_ranks(rng: Random) -> History:
    loop = Loop(steps=150, work=about(1.0), finish=True)
    return history(again(seed(rng), Go(loop, ranks=2), Go(loop, 0, 200.0, ranks=2)))


@family("completeness")
def complete_and_never_again(rng: Random) -> History:
    return history(alone(seed(rng), Loop(steps=200, work=about(1.0)), ranks=2))


# ── elastic jobs ───────────────────────────────────────────────────────────────────────────────

STEPS = Loop(steps=320, work=about(1.0), data=0.02)


@family("elastic")
def elastic_shrink_and_grow_with_rewind(rng: Random) -> History:
    elastic = Elastic(
        seed(rng), STEPS, victims=(2, 3), lose_at=130, back_to=100, grow_at=220, again_to=200
    )
    return history(elastic.run())


@family("elastic")
def elastic_shrink_and_grow(rng: Random) -> History:
    return history(Elastic(seed(rng), STEPS, victims=(1,)).run())


@family("elastic")
def elastic_shrink_without_grow(rng: Random) -> History:
    return history(Elastic(seed(rng), STEPS, victims=(3,), back_to=90, grow_at=None).run())


@family("elastic")
def elastic_replaced_without_a_key(rng: Random) -> History:
    return history(
        Elastic(
            seed(rng), STEPS, victims=(1,), keys=lambda rank: "", new_keys=lambda rank: ""
        ).run()
    )


@family("elastic")
def elastic_two_replaced_without_a_key(rng: Random) -> History:
    loop = like(STEPS, steps=300)
    elastic = Elastic(seed(rng), loop, victims=(3, 2), grow_at=140, keys=lambda r: "")
    elastic.new_keys = lambda rank: ""
    return history(elastic.run())


@family("elastic")
def elastic_rank_0_replaced(rng: Random) -> History:
    return history(Elastic(seed(rng), STEPS, victims=(0,)).run())


@family("elastic")
def elastic_async_with_rewind(rng: Random) -> History:
    loop = like(ASYNC, steps=320, read_in=10)
    elastic = Elastic(seed(rng), loop, victims=(3,), lose_at=130, back_to=100, grow_at=210)
    return history(elastic.run())


@family("elastic")
def elastic_renumbered(rng: Random) -> History:
    return history(Elastic(seed(rng), STEPS, victims=(1,), numbers=(4,)).run())


@family("elastic")
def elastic_replica_groups(rng: Random) -> History:
    """Each group has a launcher of its own; the others go on at once and tell of nothing."""
    elastic = Elastic(
        seed(rng),
        STEPS,
        victims=(2,),
        told=False,
        down_s=0.3,
        up_s=0.0,
        keys=lambda rank: f"group {rank}",
        new_keys=lambda rank: f"group {rank} again",
    )
    return history(elastic.run())


@family("elastic")
def elastic_with_clocks_off(rng: Random) -> History:
    return history(
        Elastic(seed(rng), STEPS, victims=(1,), back_to=80, clocks=random_clocks(rng, 3.0)).run()
    )


@family("elastic")
def elastic_relaunched_smaller(rng: Random) -> History:
    """Its launcher starts all of them again, fewer and numbered anew, and later all."""

    def dies(process: Process, step: int) -> Moves:
        if process.rank == 1 and step == 130:
            yield from crash_within(0.5)(process)

    first = Loop(work=about(1.0), save_every=50, save=2.0, inside=dies)
    second = Loop(first=100, steps=100, work=about(1.0), restore=5.0)
    third = Loop(first=200, steps=100, work=about(1.0), restore=5.0)
    goes = (Go(first, ranks=4), Go(second, 100, ranks=3), Go(third, 200, ranks=4))
    return history(again(seed(rng), *goes))
