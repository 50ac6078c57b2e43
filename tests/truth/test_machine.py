"""The laboratory itself: small jobs whose truth can be worked out by hand."""

from __future__ import annotations

from random import Random

import pytest

from tests.truth.elastic import Elastic
from tests.truth.families import gather
from tests.truth.judging import History, history
from tests.truth.loops import Go, Loop, again, alone
from tests.truth.machine import EPOCH_NS, Clock, Edge, Point, Process
from tests.truth.passing import SECOND, Moves
from tests.truth.telling import batches

BARE = Loop(steps=10, init=0.0, prepare=3.0, compile=20.0)


def seconds(told: History) -> dict[str, float]:
    """The truth, without what hosts take to hand a step over."""
    spent = {name: round(took / SECOND, 1) for name, took in told.truth.spent_ns.items()}
    return {name: took for name, took in spent.items() if took}


def test_a_synchronous_loop() -> None:
    loop = Loop(steps=10, init=4.0, prepare=3.0, data=0.5, save_every=5, save=2.0)
    assert seconds(history(alone(0, loop))) == {
        "accelerator_init": 4.0,
        "training_preparation": 3.0,
        "program_startup": 20.0,
        "productive": 10.0,
        "data_loading": 5.0,
        "checkpoint_save": 4.0,
    }


def test_a_device_that_is_busy_is_productive_wherever_its_host_is() -> None:
    loop = Loop(steps=10, init=0.0, prepare=3.0, dispatch=0.0, data=0.5)
    assert seconds(history(alone(0, loop))) == {
        "training_preparation": 3.0,
        "program_startup": 20.0,
        "productive": 10.0,
        "data_loading": 0.5,  # of the first step; the others' were waited for beside the work
    }


def test_data_that_a_queue_cannot_hide() -> None:
    loop = Loop(steps=10, init=0.0, prepare=3.0, dispatch=0.0, data=1.5)
    assert seconds(history(alone(0, loop)))["data_loading"] == 1.5 + 9 * 0.5


def test_a_save_costs_from_when_the_device_is_done() -> None:
    loop = Loop(steps=10, init=0.0, prepare=3.0, dispatch=0.0, save_every=10, save=2.0)
    told = history(alone(0, loop))
    assert seconds(told)["checkpoint_save"] == 2.0
    edges = [r for r in told.told[0].records if isinstance(r, Edge) and r.name != "step"]
    assert round((edges[-1].time_ns - edges[-2].time_ns) / SECOND) == 12  # as it was recorded


def test_what_is_in_flight_holds_up_the_host() -> None:
    loop = Loop(steps=10, init=0.0, prepare=0.0, compile=0.0, dispatch=0.0, flight=2)
    told = history(alone(0, loop)).told[0]
    ends = [
        r.time_ns
        for r in told.records
        if isinstance(r, Edge) and r.step is not None and not r.begins
    ]
    assert [round((end - EPOCH_NS) / SECOND) for end in ends] == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_the_last_rank_has_the_time() -> None:
    def data(process: Process, step: int) -> float:
        return 0.5 if process.rank == 1 else 0.0

    loop = Loop(steps=10, init=0.0, prepare=3.0, data=data)
    spent = seconds(history(alone(0, loop, ranks=3)))
    assert (spent["productive"], spent["data_loading"]) == (10.0, 5.0)


def test_a_slow_rank_is_productive() -> None:
    def work(process: Process, step: int) -> float:
        return 3.0 if process.rank == 1 else 1.0

    told = history(alone(0, Loop(steps=10, init=0.0, prepare=3.0, work=work), ranks=3))
    assert seconds(told)["productive"] == 30.0


def dies_in_step(step: int, after: float) -> Loop:
    def dies(process: Process, number: int) -> Moves:
        if number == step:
            process.world.after(after, process.kill)
        yield from ()

    return Loop(steps=20, init=0.0, prepare=3.0, work=2.0, inside=dies)


def test_lost_steps_and_the_one_that_was_cut_short_are_wasted() -> None:
    second = Loop(first=3, steps=5, init=0.0, prepare=3.0, work=2.0)
    told = history(again(0, Go(dies_in_step(5, 1.5)), Go(second, 3, 30.0)))
    spent = seconds(told)
    assert spent["productive"] == (3 + 5) * 2.0
    assert spent["wasted_progress"] == 2 * 2.0 + 1.5
    assert spent["infrastructure_recovery"] == 30.0


def test_a_first_step_that_only_compiled_is_no_waste() -> None:
    told = history(again(0, Go(dies_in_step(0, 0.0)), Go(BARE, 0, 30.0)))
    assert "wasted_progress" not in seconds(told)
    assert seconds(told)["program_startup"] == 40.0


@pytest.mark.parametrize("finish", [False, True])
def test_only_a_program_that_says_so_was_complete(finish: bool) -> None:
    loop = Loop(steps=10, init=0.0, prepare=3.0, finish=finish)
    spent = seconds(history(again(0, Go(loop), Go(loop, 0, 30.0))))
    if finish:
        assert (spent["productive"], spent["excluded"]) == (20.0, 30.0)
    else:
        assert (spent["productive"], spent["wasted_progress"]) == (10.0, 10.0)
        assert spent["infrastructure_recovery"] == 30.0


def test_fewer_ranks_are_worth_less() -> None:
    loop = Loop(steps=40, work=1.0)
    told = history(Elastic(0, loop, victims=(2, 3), lose_at=10, grow_at=None, back_to=5).run())
    spent = seconds(told)
    assert spent["productive"] == 5.0 + 35.0 / 2
    assert spent["degraded_capacity"] == 35.0 / 2
    assert spent["wasted_progress"] == pytest.approx(5.0 + 0.4 + 0.2)
    assert spent["elastic_slice_down"] == 8.0


def test_ranks_that_come_back_are_worth_it() -> None:
    told = history(Elastic(0, Loop(steps=60, work=1.0), lose_at=10, grow_at=40).run())
    spent = seconds(told)
    assert spent["degraded_capacity"] == pytest.approx(30.0 / 4, abs=0.11)
    assert spent["productive"] == pytest.approx(60.0 - 30.0 / 4, abs=0.11)
    assert (spent["elastic_slice_down"], spent["elastic_scale_up"]) == (8.0, 4.0)


def test_a_hang_before_a_step_is_all_of_the_pause() -> None:
    def before(process: Process, step: int) -> Moves:
        if process.rank == 1 and step == 5:
            with process.doing("hung"):
                yield from process.sleep(30.0)

    told = history(alone(0, Loop(steps=10, init=0.0, prepare=3.0, before=before), ranks=2))
    # The other rank does its part meanwhile, and the step is not done sooner for it.
    assert seconds(told)["stall"] == 30.0
    assert seconds(told)["productive"] == 10.0


def test_a_rank_that_is_late_for_no_stated_reason_while_others_work() -> None:
    def before(process: Process, step: int) -> Moves:
        if process.rank == 1 and step == 5:
            yield from process.sleep(4.0)

    told = history(alone(0, Loop(steps=10, init=0.0, prepare=3.0, before=before), ranks=2))
    assert seconds(told)["unattributed"] == 3.0
    assert seconds(told)["productive"] == 11.0


def test_clocks_change_what_is_recorded_and_not_the_truth() -> None:
    def clocks(rank: int, launch: int) -> Clock:
        return Clock(30.0 * rank, 1e-3)

    right = history(alone(0, BARE, ranks=2))
    off = history(alone(0, BARE, ranks=2, clocks=clocks))
    assert off.truth == right.truth
    for a, b in zip(right.told[1].records, off.told[1].records, strict=True):
        true_ns = a.time_ns - EPOCH_NS
        assert b.time_ns == a.time_ns + 30 * SECOND + round(true_ns * 1e-3)


def test_what_is_told_of_waits_is_what_was_waited() -> None:
    told = history(alone(0, Loop(steps=4, data=0.25))).told[0]
    waits = [r for r in told.records if isinstance(r, Point)]
    assert [(wait.step, wait.value) for wait in waits] == [(n, 0.25) for n in range(4)]


def test_batches_hold_each_record_once() -> None:
    told = history(alone(0, Loop(steps=50, data=0.25, save_every=10))).told[0]
    found = batches(told, Random(3))
    assert sum(batch.records for batch in found) == len(told.records)
    assert [b.start for b in found[1:]] == [b.end for b in found[:-1]]


def test_there_are_enough_families_and_they_repeat_exactly() -> None:
    families = gather()
    assert len(families) >= 60
    for name in ("async_crash", "elastic_with_clocks_off", "uneven_lognormal"):
        first, second = (families[name].make(Random(5)) for _ in range(2))
        assert first == second
        assert first != families[name].make(Random(6))
