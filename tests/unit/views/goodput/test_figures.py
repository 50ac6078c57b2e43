"""The figures beside goodput: ETTR, the product, device-hours, and what runs make together."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import nan

import pytest

from runwatch.record import JournalId
from runwatch.rows import SeriesRow
from runwatch.views.goodput import figures
from runwatch.views.goodput.account import Disruption, Goodput
from runwatch.views.goodput.figures import Holding, Mean, Product
from runwatch.views.pods import Pods
from runwatch.views.runs import ProcessState
from tests.unit.views.goodput.cluster import PodStory
from tests.unit.views.goodput.story import RUN, SECOND, Notebook, told


@pytest.fixture
def goodput() -> Goodput:
    """Preparation to 10, productive to 40, wasted to 50, nothing to 100, productive to 120."""
    first = Notebook().steps(0, 10, 20, 30, 40, 50).killed(50)
    return told(first, Notebook(attempt=2, start=100).steps(3, 100, 110, 120).exits(120))


def process(attempt: int = 1, rank: int = 0, host: str = "a", start: int = 0) -> ProcessState:
    book = Notebook(rank, attempt, start, name=f"{attempt} {rank} {host}")
    return replace(book.process(), host=host)


def series(
    host: str, rank: int, index: int, *, metric: str = "gpu_power_watts", device: str = ""
) -> SeriesRow:
    labels = {"uuid": f"{host}-{index}"}
    device = device or f"gpu{index}"
    return SeriesRow(index, JournalId("agent"), RUN, host, rank, device, metric, "", labels)


def seconds(spent: dict[str, int]) -> dict[str, float]:
    return {name: ns / SECOND for name, ns in spent.items() if ns}


# ── devices ────────────────────────────────────────────────────────────────────────────────────


def test_devices_are_those_tied_to_the_attempts_ranks_on_their_hosts() -> None:
    states = [process(1, 0, "a"), process(1, 1, "b"), process(2, 0, "c", 100)]
    seen = [series("a", 0, index) for index in range(4)]
    seen += [series("a", 0, 0, metric="gpu_temperature_celsius"), series("b", 1, 0)]
    seen += [series("c", 0, 0), series("c", 0, 1)]
    seen += [series("a", 7, 9), series("b", 0, 5)]  # of others
    held = figures.holdings(states, seen)
    assert held == [Holding(0, 5, True), Holding(100 * SECOND, 2, True)]
    assert figures.counted_by(held) == "accelerators"


def test_devices_of_containers_are_known_by_their_nodes() -> None:
    states = [process(1, 0, "pod-0"), process(1, 1, "pod-1"), process(2, 0, "pod-2", 100)]
    seen = [series("node-a", 0, 0), series("node-a", 0, 1), series("node-a", 1, 2)]
    seen += [series("node-b", 0, 0)]  # where rank 0 was in the other attempt
    held = figures.holdings(states, seen)
    assert held == [Holding(0, 3, True), Holding(100 * SECOND, 2, True)]


def test_without_devices_each_rank_is_one() -> None:
    states = [process(1, 0), process(1, 1), process(1, 2), process(2, 1, "b", 9)]
    loss = replace(series("a", 0, 0, metric="loss"), device="")
    held = figures.holdings(states, [loss, series("a", 0, 0, metric="my own", device="x")])
    assert held == [Holding(0, 3, False), Holding(9 * SECOND, 1, False)]
    assert figures.counted_by(held) == "ranks"
    some = figures.holdings([*states[:1], states[3]], [series("b", 1, 0), series("b", 1, 1)])
    assert [holding.devices for holding in some] == [1, 2]
    assert figures.counted_by(some) == "both"
    assert figures.counted_by([]) == "ranks"


def test_device_time_is_each_interval_times_what_was_held(goodput: Goodput) -> None:
    held = [Holding(0, 8, True), Holding(100 * SECOND, 4, True)]
    found = figures.device_ns(goodput, held, 0, 120 * SECOND)
    assert seconds(found) == {
        "training_preparation": 10 * 8,
        "productive": 30 * 8 + 20 * 4,
        "wasted_progress": 10 * 8,
        "infrastructure_recovery": 50 * 8,  # it waits for them, and nobody else has them
    }
    assert sum(found.values()) == (100 * 8 + 20 * 4) * SECOND
    part = figures.device_ns(goodput, held, 95 * SECOND, 110 * SECOND, exclude=[(0, 97 * SECOND)])
    assert seconds(part) == {
        "excluded": 2 * 8, "infrastructure_recovery": 3 * 8, "productive": 10 * 4,
    }  # fmt: skip
    assert figures.counted(part) == (3 * 8 + 10 * 4) * SECOND
    assert figures.shares(part) == {"infrastructure_recovery": 24 / 64, "productive": 40 / 64}
    assert figures.device_ns(goodput, [], 0, 120 * SECOND) == {}


def test_hours_and_sums() -> None:
    hour = figures.HOUR_NS
    assert figures.hours({"productive": hour // 2, "stall": 0}) == {"productive": 0.5}
    total = figures.summed([{"stall": 5, "b": 3}, {"productive": 1, "a": 3, "stall": 1}])
    assert list(total.items()) == [("productive", 1), ("stall", 6), ("a", 3), ("b", 3)]
    assert figures.summed([]) == {}
    assert figures.shares({"excluded": 9}) == {}


# ── the product ────────────────────────────────────────────────────────────────────────────────


def test_ettr_begins_with_the_submission(goodput: Goodput) -> None:
    account = goodput.account()
    assert figures.ettr(account, None) == account.goodput == 50 / 120
    assert figures.ettr(account, 30 * SECOND) == 50 / 150
    spared = goodput.account(exclude=[(50 * SECOND, 100 * SECOND)])
    assert figures.ettr(spared, 30 * SECOND) == 50 / 100
    nothing = goodput.account(5, 5)
    assert figures.ettr(nothing, None) is None
    assert figures.ettr(nothing, 7) == 0


def test_who_waited_in_the_queue_is_the_first_attempt() -> None:
    first, late = process(1, 0, start=100), process(2, 0, start=300)
    assert figures.queued_ns([first, late], 100 * SECOND) is None
    late = replace(late, queued_at_ns=200 * SECOND)
    assert figures.queued_ns([first, late], 100 * SECOND) is None
    told_twice = [replace(first, queued_at_ns=at * SECOND) for at in (70, 60)]
    assert figures.queued_ns([*told_twice, late], 100 * SECOND) == 40 * SECOND
    ahead = replace(first, queued_at_ns=130 * SECOND)  # its clock is not ours
    assert figures.queued_ns([ahead], 100 * SECOND) == 0


def test_a_job_that_is_queued_again_holds_nothing() -> None:
    first, again = process(1, 0, start=100), process(2, 0, start=300)
    told = replace(again, queued_at_ns=200 * SECOND, granted_at_ns=280 * SECOND)
    assert [(h.start_ns // SECOND, h.devices) for h in figures.holdings([first, told], [])] == [
        (100, 1),
        (200, 0),
        (280, 1),
    ]
    assert figures.counted_by(figures.holdings([first, told], [])) == "ranks"
    unsure = replace(again, queued_at_ns=200 * SECOND)
    held = figures.holdings([first, unsure], [])
    assert [h.start_ns // SECOND for h in held] == [100, 200, 300]
    # Started again within one go of its job, or as a clock that is not ours tells it.
    for queued, granted in ((50, 90), (310, 320), (None, 280)):
        same = replace(
            again,
            queued_at_ns=None if queued is None else queued * SECOND,
            granted_at_ns=granted * SECOND,
        )
        held = figures.holdings([first, same], [])
        assert [(h.start_ns // SECOND, h.devices) for h in held] == [(100, 1), (300, 1)]


def test_a_job_that_is_in_the_queue_beside_the_one_before_takes_nothing_from_it() -> None:
    first = replace(process(1, 0, start=100), ended_ns=250 * SECOND)
    told = replace(process(2, 0, start=300), queued_at_ns=150 * SECOND)
    for granted, away in ((280, 250), (200, 200)):
        queued = replace(told, granted_at_ns=granted * SECOND)
        held = figures.holdings([first, queued], [])
        assert [(h.start_ns // SECOND, h.devices) for h in held] == [
            (100, 1), (away, 0), (granted, 1),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("pods", "held"),
    [
        ([(210, None)], [(100, 1), (210, 0)]),
        ([(210, 300), (220, 260)], [(100, 1), (210, 0), (300, 1)]),
        ([(210, 210)], [(100, 1)]),  # it had its node at once
        ([(150, 300)], [(100, 1), (200, 0), (300, 1)]),  # made before the ranks were all gone
        ([(None, 300)], [(100, 1)]),  # nobody saw it wait
        ([], [(100, 1)]),
    ],
)
def test_while_the_next_pods_have_no_nodes_nothing_is_held(
    pods: list[tuple[int | None, int | None]], held: list[tuple[int, int]]
) -> None:
    gone = replace(process(1, 0, start=100), ended_ns=200 * SECOND)
    events = [e for n, times in enumerate(pods) for e in PodStory(f"p{n}", *times).events()]
    found = figures.holdings([gone], [], list(Pods(events)))
    assert [(h.start_ns // SECOND, h.devices) for h in found] == held


def test_who_has_its_machines_waits_for_no_scheduler() -> None:
    first = replace(process(1, 0, start=100), queued_at_ns=20 * SECOND)
    for granted, waited in ((70, 50), (100, 80), (130, 80), (10, 80)):  # the last: another's clock
        told = replace(first, granted_at_ns=granted * SECOND)
        assert figures.queued_ns([told], 100 * SECOND) == waited * SECOND
    alone = replace(process(1, 0, start=100), granted_at_ns=70 * SECOND)
    assert figures.queued_ns([alone], 100 * SECOND) is None


def test_the_product_is_of_what_is_known(goodput: Goodput) -> None:
    account = goodput.account()
    whole = figures.product(account, 30 * SECOND, 0.5)
    assert whole == Product(120 / 150, 50 / 120, 0.5)
    assert whole.overall == pytest.approx(50 / 150 * 0.5)
    assert whole.unknown == []
    some = figures.product(account, None)
    assert (some.overall, some.unknown) == (50 / 120, ["scheduling", "program"])
    assert Product().overall is None
    assert Product().unknown == ["scheduling", "runtime", "program"]


def test_use_is_averaged_over_productive_time(goodput: Goodput) -> None:
    # A bucket for every ten seconds; what was seen outside productive ones does not count.
    values = [99, 40, 50, nan, 77, 1, 1, 1, 1, 1, 60, 70]
    mean = figures.while_productive(goodput, values, 0, 10 * SECOND)
    assert mean.value == (40 + 50 + 60 + 70) / 4
    assert figures.of_percent(mean) == 0.55
    # No bucket was all productive: each counts as much as it was.
    wide = figures.while_productive(goodput, [10, 70], 0, 60 * SECOND)
    assert wide.value == (10 * 30 + 70 * 20) / 50
    assert figures.while_productive(goodput, [nan] * 12, 0, 10 * SECOND).value is None
    assert figures.of_percent(Mean()) is figures.of_mfu(Mean()) is None


def test_mfu_is_logged_as_a_share_or_in_percent() -> None:
    def mean(*values: float) -> Mean:
        found = Mean()
        for value in values:
            found.add(value, SECOND)
        return found

    assert figures.of_mfu(mean(0.4, 0.5)) == pytest.approx(0.45)
    assert figures.of_mfu(mean(0.5, 42.5)) == pytest.approx(0.215)
    assert figures.of_mfu(mean(-0.1)) == 0


# ── disruptions ────────────────────────────────────────────────────────────────────────────────


def test_a_disruption_costs_hang_lost_work_recovery_and_warm_up() -> None:
    hung = Disruption(
        attempt=1, time_ns=0, cause="", hung=True, lost_steps=3, wasted_ns=4, recovery_ns=20,
        back_ns=26, hang_ns=121, warm_up_ns=9,
    )  # fmt: skip
    assert hung.cost_ns == 121 + 4 + 20 + 9
    # Not known: at least the way to the first step.
    assert replace(hung, warm_up_ns=None).cost_ns == 121 + 4 + 26
    down = replace(hung, warm_up_ns=None, recovery_ns=None, back_ns=None)
    assert down.cost_ns == 121 + 4


def test_weeks_begin_on_mondays_wherever_one_is() -> None:
    monday = 1_767_571_200 * SECOND  # 2026-01-05T00:00:00Z
    assert [*figures.weeks(monday - 5, monday + 7)] == [
        ("2026-W01", monday - 5, monday),
        ("2026-W02", monday, monday + 7),
    ]
    assert [*figures.weeks(monday, monday)] == []
    new_year = 1_609_459_200 * SECOND  # 2021-01-01, a Friday: still the last week of 2020
    assert [*figures.weeks(new_year, new_year + 1)] == [("2020-W53", new_year, new_year + 1)]
    parts = [*figures.weeks(monday - 30 * 24 * 3600 * SECOND, monday + 1)]
    assert len(parts) == 6
    assert all(one[2] == after[1] for one, after in pairwise(parts))


def test_the_largest_loss_is_what_was_not_productive() -> None:
    assert figures.largest_loss({"productive": 9, "excluded": 8, "stall": 2, "evaluation": 3}) == (
        "evaluation"
    )
    assert figures.largest_loss({"stall": 2, "evaluation": 2}) == "evaluation"
    assert figures.largest_loss({"productive": 9, "excluded": 8, "stall": 0}) == ""
