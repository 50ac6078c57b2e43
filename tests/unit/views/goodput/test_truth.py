"""The account beside the truth of simulated runs: equal where everything was recorded, within the
bound that it states where something was not.

How much of a hang was a step's own time is judged, not recorded: by how long other steps took, with
the time around them.  There the account may be off by as much as that time varies, a second."""

from __future__ import annotations

from itertools import pairwise

import pytest

from runwatch.views.goodput.account import Goodput
from tests.unit.views.goodput.losses import LOSSES, Loss, incomplete
from tests.unit.views.goodput.rank import Form
from tests.unit.views.goodput.story import SECOND, told
from tests.unit.views.goodput.world import World, simulate

HISTORIES, SOAK_HISTORIES = 50, 1_000
FORMS: tuple[Form, ...] = ("native", "entries")
often = pytest.mark.parametrize(
    "histories", [HISTORIES, pytest.param(SOAK_HISTORIES, marks=pytest.mark.soak)]
)


JUDGED = {"productive", "wasted_progress", "unattributed", "stall"}


def check_exact(seed: int, world: World, form: Form = "native") -> None:
    goodput = told(*world.books)
    errors = errors_of(goodput, world)
    assert len(goodput.disruptions) == len(world.faults), f"history {seed}"
    hangs = sum(piece.spent == "stall" for piece in world.truth)
    if hangs and form == "native":  # entries leave no time between steps
        worst = max(map(abs, errors.values()))
        assert worst <= min(hangs * SECOND, goodput.inferred_ns), f"history {seed}: {errors}"
        assert {name for name, ns in errors.items() if ns} <= JUDGED, f"history {seed}: {errors}"
    elif not world.paced:  # a first step that was cut short may have been starting
        assert max(map(abs, errors.values())) <= goodput.inferred_ns, f"history {seed}: {errors}"
    else:
        assert list(goodput.intervals()) == world.intervals, f"history {seed}"
        assert not any(errors.values()), f"history {seed}: {errors}"


def errors_of(goodput: Goodput, world: World) -> dict[str, int]:
    spent, truth = goodput.account().spent_ns, world.spent_ns
    names = spent.keys() | truth.keys()
    return {name: spent.get(name, 0) - truth.get(name, 0) for name in names}


@pytest.mark.parametrize("form", FORMS)
@often
def test_where_everything_is_recorded_the_account_is_the_truth(histories: int, form: Form) -> None:
    for seed in range(histories):
        check_exact(seed, simulate(seed, form), form)


@often
def test_many_ranks_have_one_account(histories: int) -> None:
    for seed in range(10_000, 10_000 + histories // 10):
        check_exact(seed, simulate(seed, most_ranks=64))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("losses", [(), *((loss,) for loss in LOSSES)], ids=str)
@often
def test_where_something_is_missing_the_error_is_within_the_stated_bound(
    histories: int, losses: tuple[Loss, ...], form: Form
) -> None:
    error_ns = bound_ns = total_ns = 0
    for seed in range(histories):
        world = incomplete(seed, form, *losses)
        goodput = told(*world.books)
        errors = errors_of(goodput, world)
        worst = max(map(abs, errors.values()))
        assert worst <= goodput.inferred_ns, f"history {seed}: {_wrong(errors)}"
        error_ns += sum(map(abs, errors.values())) // 2
        bound_ns += goodput.inferred_ns
        total_ns += goodput.end_ns - goodput.start_ns
    print(
        f"{form}, missing {', '.join(losses) or 'some of all'}: {histories} histories, mean error "
        f"{error_ns / total_ns:.3%} of the time, stated bound {bound_ns / total_ns:.3%}"
    )
    assert error_ns <= bound_ns


def _wrong(errors: dict[str, int]) -> str:
    return ", ".join(f"{name} by {ns / SECOND:+.3f} s" for name, ns in errors.items() if ns)


# ── the simulator itself ───────────────────────────────────────────────────────────────────────


def test_the_truth_has_no_gap_and_the_simulator_leaves_nothing_out() -> None:
    faults: set[str] = set()
    classes: set[str] = set()
    for seed in range(150):
        world = simulate(seed)
        assert all(a.end == b.start and a.start < a.end for a, b in pairwise(world.truth))
        faults |= set(world.faults)
        classes |= world.spent_ns.keys()
    assert faults == {
        "crash", "hang", "preemption", "crash while starting", "crash while saving",
        "crash between steps",
    }  # fmt: skip
    assert classes == {
        "productive", "program_startup", "accelerator_init", "training_preparation",
        "data_loading", "checkpoint_save", "checkpoint_restore", "evaluation", "wasted_progress",
        "infrastructure_recovery", "stall", "unattributed", "custom:push to hub", "excluded",
    }  # fmt: skip


def test_one_seed_is_one_history() -> None:
    first, again = simulate(7), simulate(7)
    assert [book.records for book in first.books] == [book.records for book in again.books]
    assert first.intervals == again.intervals
    assert simulate(8).intervals != first.intervals


def test_histories_are_as_long_and_as_broken_as_said() -> None:
    worlds = [simulate(seed) for seed in range(150)]
    mean = sum(len(world.faults) for world in worlds) / len(worlds)
    assert 2 < mean < 5
    gaps = [
        piece.end - piece.start
        for world in worlds
        for piece in world.truth
        if piece.spent == "infrastructure_recovery"
    ]
    assert min(gaps) >= 200 * SECOND and max(gaps) <= 900 * SECOND
    assert all(world.scale > 1 for world in worlds)
