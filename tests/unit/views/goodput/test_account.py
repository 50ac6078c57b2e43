"""Questions about a window: clipped, excluded, in parts."""

from __future__ import annotations

import pytest

from runwatch.views.goodput.account import Goodput, Range, normalised
from runwatch.views.goodput.classes import Spent
from tests.unit.views.goodput.story import SECOND, Notebook, rows, spent, told


@pytest.fixture
def goodput() -> Goodput:
    """Preparation to 10, productive to 40, a save to 50, done again to 70, then from 100 on."""
    first = Notebook().steps(0, 10, 20, 30, 40).span("checkpoint_save", 40, 50).steps(3, 50, 60, 70)
    second = Notebook(attempt=2, start=100).steps(3, 100, 110, 120)
    return told(first.killed(70), second.exits(120))


WHOLE = [
    (0, 10, "training_preparation"),
    (10, 40, "productive"),
    (40, 50, "checkpoint_save"),
    (50, 70, "wasted_progress"),
    (70, 100, "infrastructure_recovery"),
    (100, 120, "productive"),
]


def window(goodput: Goodput, since: int | None, until: int | None) -> dict[str, float]:
    edges = [None if edge is None else edge * SECOND for edge in (since, until)]
    account = goodput.account(*edges)
    assert sum(account.spent_ns.values()) == account.total_ns
    return {name: ns / SECOND for name, ns in account.spent_ns.items() if ns}


def test_the_whole(goodput: Goodput) -> None:
    assert rows(goodput) == WHOLE
    account = goodput.account()
    assert (account.start_ns, account.end_ns, account.total_ns) == (0, 120 * SECOND, 120 * SECOND)
    assert account.goodput == 50 / 120
    assert account.spent_ns.keys() == {spent.name.lower() for spent in Spent}


@pytest.mark.parametrize(
    "since, until, expected",
    [
        (None, 20, {"training_preparation": 10, "productive": 10}),
        (45, 60, {"checkpoint_save": 5, "wasted_progress": 10}),
        (65, 110, {"wasted_progress": 5, "infrastructure_recovery": 30, "productive": 10}),
        (90, None, {"infrastructure_recovery": 10, "productive": 20}),
        (-50, 5, {"training_preparation": 5}),
        (115, 999, {"productive": 5}),
        (50, 50, {}),
        (60, 40, {}),
        (-50, -10, {}),
        (500, 900, {}),
    ],
)
def test_a_window_is_clipped_to_the_run(
    goodput: Goodput, since: int | None, until: int | None, expected: dict[str, float]
) -> None:
    assert window(goodput, since, until) == expected
    found: dict[str, float] = {}
    for a, b, name in rows(goodput, since, until):
        found[name] = found.get(name, 0) + b - a
    assert found == expected


def test_a_window_without_time_has_no_goodput(goodput: Goodput) -> None:
    for since, until in ((50, 50), (60, 40), (500, 900)):
        account = goodput.account(since * SECOND, until * SECOND)
        assert (account.total_ns, account.goodput) == (0, None)


# ── exclusions ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "ranges, expected",
    [
        ([], []),
        ([(5, 5), (9, 3)], []),
        ([(1, 3), (3, 4), (8, 9)], [(1, 4), (8, 9)]),
        ([(8, 9), (1, 5), (2, 3), (4, 7)], [(1, 7), (8, 9)]),
        ([(1, 9), (2, 3), (1, 4)], [(1, 9)]),
    ],
)
def test_ranges_are_put_in_order(ranges: list[Range], expected: list[Range]) -> None:
    assert normalised(ranges) == expected


def test_what_is_excluded_is_taken_from_the_class_that_had_it(goodput: Goodput) -> None:
    found = spent(goodput, [(35, 55), (95, 105)])
    assert found == {
        "training_preparation": 10,
        "productive": 25 + 15,
        "wasted_progress": 15,
        "infrastructure_recovery": 25,
        "excluded": 30,
    }
    account = goodput.account(exclude=[(35 * SECOND, 55 * SECOND), (95 * SECOND, 105 * SECOND)])
    assert (account.counted_ns, account.goodput) == (90 * SECOND, 40 / 90)


def test_overlapping_exclusions_are_excluded_once(goodput: Goodput) -> None:
    assert spent(goodput, [(10, 25), (20, 30), (12, 14), (30, 30)])["excluded"] == 20


def test_an_exclusion_of_a_gap_counts(goodput: Goodput) -> None:
    assert spent(goodput, [(70, 100)])["excluded"] == 30
    assert "infrastructure_recovery" not in spent(goodput, [(70, 100)])


def test_an_exclusion_of_everything_leaves_nothing_to_share(goodput: Goodput) -> None:
    account = goodput.account(exclude=[(-100 * SECOND, 900 * SECOND)])
    assert (account.counted_ns, account.goodput) == (0, None)
    assert account.spent_ns["excluded"] == account.total_ns == 120 * SECOND


def test_an_exclusion_that_runs_backwards_or_lies_outside_is_none(goodput: Goodput) -> None:
    assert spent(goodput, [(30, 20), (500, 600), (-20, 0), (120, 130)]) == spent(goodput)


def test_exclusions_show_in_the_intervals(goodput: Goodput) -> None:
    found = list(goodput.intervals(30 * SECOND, 60 * SECOND, exclude=[(35 * SECOND, 45 * SECOND)]))
    assert [(a // SECOND, b // SECOND, name) for a, b, name in found] == [
        (30, 35, "productive"), (35, 45, "excluded"), (45, 50, "checkpoint_save"),
        (50, 60, "wasted_progress"),
    ]  # fmt: skip


def test_asking_about_an_exclusion_does_not_change_the_answer_without(goodput: Goodput) -> None:
    before = spent(goodput)
    spent(goodput, [(0, 60)])
    assert spent(goodput) == before


# ── in parts ───────────────────────────────────────────────────────────────────────────────────


def test_goodput_against_time(goodput: Goodput) -> None:
    parts = goodput.over_time(6)
    assert [part.goodput for part in parts] == [0.5, 1, 0, 0, 0, 1]
    assert [part.end_ns for part in parts[:-1]] == [part.start_ns for part in parts[1:]]


def test_parts_of_uneven_length_tile_the_window(goodput: Goodput) -> None:
    parts = goodput.over_time(7, 3, 3 + 10)
    assert [part.total_ns for part in parts] == [1, 1, 2, 1, 2, 1, 2]
    assert goodput.over_time(7, 5, 5) == []


def test_custom_classes_have_their_names() -> None:
    book = Notebook().steps(0, 0, 10).span("push to hub", 10, 15).steps(1, 15, 25).exits(25)
    assert spent(told(book)) == {"productive": 20, "custom:push to hub": 5}
    early = told(book).account(0, 5 * SECOND)
    assert "custom:push to hub" not in early.spent_ns


def test_an_account_stays_as_it_was_drawn_while_the_fold_goes_on() -> None:
    from tests.unit.views.goodput.story import goodput_of, scribe_for

    book = Notebook().steps(0, *range(0, 300, 10))
    scribe = scribe_for([book])
    scribe.batch(book.batch(0, 41))
    found = goodput_of(scribe, [book], 205 * SECOND)
    assert found is not None
    before = list(found.intervals())
    scribe.batch(book.batch(41, None))
    scribe.ledger.settle()
    assert list(found.intervals()) == before
    assert found.account().total_ns == 205 * SECOND
