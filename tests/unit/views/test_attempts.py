"""Which processes were started together: every history of launches that we know."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.rows import ProcessRow
from runwatch.views.attempts import attempts, clock_moves
from runwatch.views.runs import process_states
from tests.unit.views.rows import SECOND, START, process, process_rows

few = settings(max_examples=200, deadline=None, derandomize=True, database=None)


def numbers(*rows: ProcessRow) -> list[int]:
    found = attempts(rows)
    return [found[row.journal, row.run] for row in rows]


def test_ranks_started_together_are_one_attempt() -> None:
    assert numbers(*(process(f"j{r}", rank=r, start=r) for r in range(4))) == [1, 1, 1, 1]


def test_a_rank_that_comes_again_begins_an_attempt() -> None:
    order = [(0, 0), (1, 1), (1, 2), (0, 3), (2, 4), (0, 5)]
    rows = [process(f"j{i}", rank=rank, start=at) for i, (rank, at) in enumerate(order)]
    assert numbers(*rows) == [1, 1, 2, 2, 2, 3]


def test_processes_with_the_same_key_share_an_attempt() -> None:
    rows = [
        process("a", key="x", start=0),
        process("b", key="y", start=1),
        process("c", key="x", start=2, rank=1),
        process("d", key="y", start=3, rank=1),
        process("e", start=4, rank=2),
    ]
    assert numbers(*rows) == [1, 2, 1, 2, 2]


@pytest.mark.parametrize("keys", [("", ""), ("none.0", "none.0"), ("slurm-77.0", "slurm-78.0")])
def test_a_rank_that_comes_again_begins_an_attempt_under_whatever_key(
    keys: tuple[str, str],
) -> None:
    first = [process(f"a{r}", rank=r, start=r / 10, last=40, key=keys[0]) for r in range(4)]
    again = [process(f"b{r}", rank=r, start=50 + r / 10, last=90, key=keys[1]) for r in range(4)]
    assert numbers(*first, *again) == [1] * 4 + [2] * 4


@pytest.mark.parametrize("key", ["", "slurm-77.0"])
def test_a_rank_that_comes_first_in_its_launch_follows_those_that_come_again(key: str) -> None:
    """Rank 3 had died in an import: what it records now looks like the end of the first attempt."""
    first = [process(f"a{r}", rank=r, last=40, key=key) for r in range(3)]
    order = [(3, 50), (1, 51), (0, 52), (2, 53)]
    again = [process(f"b{r}", rank=r, start=at, last=90, key=key) for r, at in order]
    assert numbers(*first, *again) == [1] * 3 + [2] * 4
    late = process("b3", rank=3, start=50, last=55, key=key)  # long before: of no other launch
    assert numbers(*first, late, process("c0", start=100, last=110, key=key)) == [1] * 4 + [2]


def test_a_launch_is_not_taken_for_replacements_while_a_rank_of_the_first_hangs_on() -> None:
    first = [process(f"a{r}", rank=r, last=300 if r == 2 else 40) for r in range(4)]
    again = [process(f"b{r}", rank=r, start=50 + r, last=90) for r in range(4)]
    assert numbers(*first, *again) == [1] * 4 + [2] * 4


def test_a_crash_loop_is_as_many_attempts() -> None:
    rows = [
        process(f"j{n}{r}", rank=r, start=2 * n + r / 10, last=2 * n + 1)
        for n in range(5)
        for r in range(2)
    ]
    assert numbers(*rows) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


@pytest.mark.parametrize("apart", [0, 20])
def test_the_nodes_of_one_job_may_have_a_key_each(apart: int) -> None:
    """As torchrun's agents have, which do not count restarts alike."""
    rows = [
        process(f"{node}{r}", rank=2 * node + r, start=apart * node, last=90, key=f"job.{node}")
        for node in range(2)
        for r in range(2)
    ]
    assert numbers(*rows) == [1, 1, 1, 1]
    soon = [process(row.journal, rank=row.rank, key=row.attempt_key, last=1) for row in rows]
    assert numbers(*soon) == [1, 1, 1, 1]  # as soon as they are there


def test_two_jobs_at_once_are_told_apart_by_their_keys() -> None:
    """Their ranks come in any order, and the second job has more of them."""
    order = [("a", 0), ("b", 2), ("b", 0), ("a", 1), ("b", 1)]
    rows = [
        process(f"{job}{rank}", rank=rank, start=at, last=90, key=job)
        for at, (job, rank) in enumerate(order)
    ]
    assert numbers(*rows) == [1, 2, 2, 1, 2]


# ── launchers ──────────────────────────────────────────────────────────────────────────────────


def launcher(journal: str, key: str, start: float, last: float, host: str = "host-a") -> ProcessRow:
    return process(journal, role="launcher", key=key, start=start, last=last, host=host)


def test_a_launcher_belongs_to_the_attempt_of_its_key() -> None:
    rows = [
        launcher("l1", "exec-1", 0, 50),
        process("a", key="exec-1", start=5, last=40),
        launcher("l2", "exec-2", 60, 90),
        process("b", key="exec-2", start=65, last=90),
    ]
    assert numbers(*rows) == [1, 1, 2, 2]


def test_a_launcher_whose_ranks_come_again_belongs_to_the_last_attempt() -> None:
    rows = [
        launcher("l", "exec-1", 0, 200),
        *(process(f"a{n}", key="exec-1", start=5 + 60 * n, last=50 + 60 * n) for n in range(3)),
    ]
    assert numbers(*rows) == [3, 1, 2, 3]


def test_a_command_that_brings_up_no_rank_is_an_attempt() -> None:
    commands = [launcher(f"l{n}", f"exec-{n}", 2 * n, 2 * n + 1) for n in range(3)]
    assert numbers(*commands) == [1, 2, 3]
    states = process_states(commands, [], START + 1000 * SECOND)
    assert all(state.is_launcher for state in states)


def test_the_commands_of_a_job_on_several_hosts_are_one_attempt() -> None:
    rows = [
        launcher("l1", "exec-1", 0, 100),
        launcher("l2", "exec-2", 3, 100, host="host-b"),
        process("a", key="exec-1", start=20, last=100),
        process("b", key="exec-2", start=22, last=100, rank=1, host="host-b"),
    ]
    assert numbers(*rows[:2]) == [1, 1]
    assert numbers(*rows) == [1, 1, 1, 1]
    both_here = [launcher("l2", "exec-2", 3, 100), *rows[:1], *rows[2:]]
    assert numbers(*both_here) == [1, 1, 1, 1]  # as two hosts on one machine


# ── elastic jobs ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("keys", [("", "", ""), ("a", "a", "b"), ("a", "b", "c")])
@pytest.mark.parametrize(
    "others_until, number",
    [
        (70, 1),  # the other goes on: the job is elastic, whatever the new one's key
        (60, 2),  # … for no more than it takes to be stopped: the run was started again
        (40, 2),
    ],
)
def test_a_rank_that_is_replaced_while_others_go_on_belongs_to_their_attempt(
    keys: tuple[str, ...], others_until: int, number: int
) -> None:
    stays = process("stays", rank=0, last=others_until, key=keys[0])
    gone = process("gone", rank=1, last=45, key=keys[0])
    new = process("new", rank=1, start=50, last=90, key=keys[2])
    assert numbers(stays, gone, new) == [1, 1, number]


def test_a_rank_that_is_still_there_is_not_replaced() -> None:
    """Two of one rank at the same time: another job of the same name."""
    stays, same = process("stays", rank=0, last=90), process("same", rank=1, last=90)
    assert numbers(stays, same, process("new", rank=1, start=50, last=90)) == [1, 1, 2]


@pytest.mark.parametrize("goes_on, number", [(True, 1), (False, 2)])
def test_a_rank_in_addition_belongs_to_those_that_go_on_if_its_key_says_nothing_of_them(
    goes_on: bool, number: int
) -> None:
    first = process("first", rank=0, last=90 if goes_on else 45, key="a")
    assert numbers(first, process("more", rank=1, start=50, last=90, key="b")) == [1, number]
    unnamed = process("more", rank=1, start=50, last=90)
    assert numbers(first, unnamed) == [1, 1]  # a rank that was not there yet


def test_one_that_replaced_another_can_be_replaced_itself() -> None:
    stays = process("stays", rank=0, last=300)
    others = [process(f"j{n}", rank=1, start=n * 50, last=n * 50 + 40) for n in range(5)]
    assert numbers(stays, *others) == [1] * 6
    again = [process(f"again {r}", rank=r, start=310, last=400) for r in (0, 1)]
    assert numbers(stays, *others, *again) == [1] * 6 + [2, 2]


# ── clocks that were set ───────────────────────────────────────────────────────────────────────


def moves(*rows: ProcessRow) -> dict[str, float]:
    return {journal: ns / SECOND for journal, ns in clock_moves(rows).items()}


@pytest.mark.parametrize(
    "start, found",
    [
        (100, {}),  # as much as the host says has passed
        (700, {}),  # a program may take so long to begin
        (701, {"b": 601}),
        (5, {"b": -95}),  # while the first was there: the clock was put back
        (11, {}),  # after the first: that one began its run late
        (3700, {"b": 3600}),
        (-3500, {"b": -3600}),
    ],
)
def test_a_clock_was_set_where_a_host_has_run_for_another_time(
    start: int, found: dict[str, float]
) -> None:
    first = process("a", start=0, ticks=5_000)
    assert moves(first, process("b", start=start, ticks=15_000)) == found  # 100 s later


def test_only_processes_of_one_boot_of_one_host_tell() -> None:
    first = process("a", start=0, ticks=5_000)
    later = {"start": 3700, "ticks": 15_000}
    assert moves(first, process("b", **later)) == {"b": 3600}  # type: ignore[arg-type]
    assert moves(first, process("b", host="host-b", **later)) == {}  # type: ignore[arg-type]
    assert moves(first, process("b", boot="another", **later)) == {}  # type: ignore[arg-type]
    assert moves(first, process("b", boot="", **later)) == {}  # type: ignore[arg-type]
    assert moves(first, process("b", start=3700, ticks=0)) == {}  # it is not known


def test_the_later_runs_of_a_process_do_not_tell_of_a_clock() -> None:
    """A notebook begins one after the other."""
    runs = [process(f"j{n}", start=5 + n * 600, last=500 + n * 600, ticks=5_000) for n in range(4)]
    assert moves(*runs) == {}
    assert numbers(*runs) == [1, 2, 3, 4]


def test_attempts_are_counted_in_the_order_in_which_they_really_began() -> None:
    """The clock was put back by an hour between them."""
    first = process("a", start=0, last=50, ticks=5_000)
    second = process("b", start=-3500, last=-3400, ticks=15_000)
    assert numbers(first, second) == [1, 2]
    states = process_states([first, second], [], START + 60 * SECOND)
    assert {state.journal: state.ahead_ns for state in states} == {"a": 0, "b": -3600 * SECOND}


def test_a_forked_child_belongs_to_the_attempt_of_its_time_and_has_no_state() -> None:
    rows = [
        process("a", start=0),
        process("a-child", start=1, role="child"),
        process("b", start=2),
        process("b-child", start=3, role="child"),
    ]
    assert numbers(*rows) == [1, 1, 2, 2]
    states = process_states(rows, [], START)
    assert [state.journal for state in states] == ["a", "b"]


def test_attempts_are_counted_in_each_run() -> None:
    rows = [process("a", run="x"), process("b", run="y"), process("c", run="y", start=1)]
    assert numbers(*rows) == [1, 1, 2]


@few
@given(process_rows(), st.integers(0, 2**32))
def test_attempts_do_not_depend_on_the_order_of_rows(rows: list[ProcessRow], seed: int) -> None:
    shuffled = list(rows)
    random.Random(seed).shuffle(shuffled)
    assert attempts(rows) == attempts(shuffled)


@few
@given(process_rows())
def test_attempts_count_from_one_without_gaps_and_no_rank_is_there_twice_at_once(
    rows: list[ProcessRow],
) -> None:
    found = attempts(rows)
    for run in {row.run for row in rows}:
        of_run = [row for row in rows if row.run == run]
        seen = {found[row.journal, run] for row in of_run}
        assert seen == set(range(1, len(seen) + 1))
        for number in seen:
            assert_no_rank_twice([row for row in of_run if found[row.journal, run] == number])


def assert_no_rank_twice(members: Sequence[ProcessRow]) -> None:
    by_rank: dict[int, list[ProcessRow]] = {}
    for row in sorted(members, key=lambda row: row.start_ns):
        for before in by_rank.get(row.rank, ()):
            assert before.last_ns < row.start_ns
        by_rank.setdefault(row.rank, []).append(row)


@few
@given(process_rows(keys=("",)))
def test_without_keys_no_rank_is_twice_in_an_attempt_and_later_starts_come_later(
    rows: list[ProcessRow],
) -> None:
    found = attempts(rows)
    places = [(row.run, found[row.journal, row.run], row.rank) for row in rows]
    assert len(set(places)) == len(places)
    in_order = sorted(rows, key=lambda row: (row.run, row.start_ns, row.journal))
    ordered = [(row.run, found[row.journal, row.run]) for row in in_order]
    assert ordered == sorted(ordered)
