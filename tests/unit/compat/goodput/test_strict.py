from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tracemalloc
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.goodput_shapes import Job
from runwatch.compat.goodput.calculator import strict
from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.calculator.strict import EntryAccount, JournalAccount
from runwatch.views.goodput.account import Goodput
from tests.unit.compat.goodput.support import BEGIN, stories, told

SECOND = 1_000_000_000
LATER_NS = int(BEGIN + 10_000) * SECOND
Entries = list[dict[str, Any]]


class Log:
    """A back end as callers bring it: a list, and a cursor that is a place in it."""

    def __init__(self) -> None:
        self.entries: Entries = []
        self.reads: list[int] = []

    def read(self, cursor: Any) -> tuple[Entries, Any]:
        return self.read_cloud_logging_entries(last_entry_info=cursor)

    def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)

    def read_cloud_logging_entries(
        self, start_time: Any = None, end_time: Any = None, last_entry_info: Any = None
    ) -> tuple[Entries, Any]:
        new = self.entries[last_entry_info[1] if last_entry_info else 0 :]
        self.reads.append(len(new))
        return list(new), (None, len(self.entries))


def job(start: float, *steps: tuple[int, float], end: float | None = None) -> Entries:
    entries: Entries = [{"job_name": "j", "job_start_time": start}]
    entries += [{"job_name": "j", "step_count": n, "step_start_time": t} for n, t in steps]
    return entries + ([] if end is None else [{"job_name": "j", "job_end_time": end}])


def spent(goodput: Goodput | None) -> dict[str, float]:
    assert goodput is not None
    account = goodput.account()
    assert sum(account.spent_ns.values()) == account.total_ns
    return {name: ns / SECOND for name, ns in account.spent_ns.items() if ns}


def test_a_restart_is_told_by_the_entries() -> None:
    log = Log()
    log.entries += job(0.0, (0, 5.0), (1, 8.0), (2, 11.0))
    log.entries += job(30.0, (1, 35.0), (2, 38.0), end=41.0)
    found = EntryAccount(log.read).goodput(100 * SECOND)
    assert spent(found) == {
        "training_preparation": 10.0,
        "productive": 9.0,
        "wasted_progress": 3.0,
        "infrastructure_recovery": 19.0,
    }


def test_what_was_told_is_not_read_again() -> None:
    log = Log()
    log.entries += job(0.0, (0, 5.0), (1, 8.0))
    account = EntryAccount(log.read)
    account.goodput(8 * SECOND)
    log.entries += [{"job_name": "j", "step_count": 2, "step_start_time": 11.0}]
    assert spent(account.goodput(11 * SECOND))["productive"] == 6.0
    assert log.reads == [3, 1]


def test_an_entry_that_comes_late_is_put_in_its_place() -> None:
    log = Log()
    log.entries += job(0.0, (0, 5.0), (1, 8.0), (2, 18.0))
    account = EntryAccount(log.read)
    assert "evaluation" not in spent(account.goodput(20 * SECOND))
    kind = {"job_name": "j", "custom_badput_event_type": "evaluation"}
    log.entries += [
        {**kind, "custom_badput_event_start_time": 11.0},
        {**kind, "custom_badput_event_end_time": 18.0},
    ]
    found = spent(account.goodput(20 * SECOND))
    assert found["evaluation"] == 7.0
    assert found == spent(EntryAccount(log.read).goodput(20 * SECOND))


@settings(deadline=None)
@given(stories(), st.randoms(use_true_random=False), st.integers(1, 9))
def test_the_order_in_which_entries_come_does_not_matter(
    entries: Entries, random: Random, stretch: int
) -> None:
    """They all speak of different times."""
    in_order, mixed = Log(), Log()
    in_order.entries = told("J 0") + entries
    mixed.entries = random.sample(in_order.entries, len(in_order.entries))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict, "STRETCH", stretch)
        found = EntryAccount(mixed.read).goodput(LATER_NS)
    assert spent(found) == spent(EntryAccount(in_order.read).goodput(LATER_NS))


@pytest.mark.soak
def test_a_long_log_is_never_in_memory_as_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where an entry comes so late that all are put in order: what it takes beyond the
    steps that are held to be judged hardly grows."""
    monkeypatch.setattr(strict, "STRETCH", 500)
    peaks, entries = [], []
    for steps in (5_000, 15_000):
        log, shaped = Log(), Job("full", steps)
        log.entries = list(shaped.run(steps))
        log.entries.append(log.entries.pop(1_000))
        account = EntryAccount(log.read)
        tracemalloc.start()
        try:
            found = account.goodput(int(shaped.now) * SECOND)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert len(log.reads) == 2 and found is not None and found.steps > steps - 100
        entries.append(len(log.entries))
    growth = (peaks[1] - peaks[0]) / (entries[1] - entries[0])
    assert growth < 120  # bytes: 65 to 90 by when garbage is collected; as facts they take 200


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=40))
def test_entries_of_one_time_stay_in_their_order(times: list[int]) -> None:
    entries = [{"step_count": n, "step_start_time": float(t)} for n, t in enumerate(times)]
    assert list(strict._in_order(entries)) == strict._facts(entries)


@pytest.mark.parametrize(
    "broken",
    [
        {"step_count": "seven", "step_start_time": 9.0},
        {"step_start_time": 9.0},
        {"step_count": 7, "step_start_time": "nine"},
        {"event_type": "save", "checkpoint_manager_blocking_start_time": None},
        {"tpu_init_start_time": None},
        {},
    ],
)
def test_an_entry_that_cannot_be_read_tells_nothing(broken: dict[str, Any]) -> None:
    log = Log()
    log.entries += job(0.0, (0, 5.0), (1, 8.0), end=11.0)
    before = spent(EntryAccount(log.read).goodput(20 * SECOND))
    log.entries.insert(2, {"job_name": "j", **broken})
    assert spent(EntryAccount(log.read).goodput(20 * SECOND)) == before


TRAINER = """
import os, signal, sys, time
import runwatch
run = runwatch.init("strict", dir=sys.argv[1])
with run.span("training_preparation"):
    pass
for step, _ in run.steps(range(10), start=int(sys.argv[2])):
    if step == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
run.finish()
"""


def train(directory: Path, first: int, kill_at: int, **more: str) -> int:
    command = [sys.executable, "-c", TRAINER, str(directory), str(first), str(kill_at)]
    environment = {**os.environ, "RUNWATCH_AGENT": "off", **more}
    return subprocess.run(command, env=environment, check=False).returncode


def test_journals_tell_of_a_kill_and_a_restart(tmp_path: Path) -> None:
    assert train(tmp_path, 0, 7) == -signal.SIGKILL
    account = JournalAccount(tmp_path, "strict")
    try:
        first = account.goodput(time.time_ns())
        assert first is not None and first.steps == 7
        queued_at = time.time()
        assert train(tmp_path, 5, -1, RUNWATCH_QUEUED_AT=str(queued_at)) == 0
        found = account.goodput(time.time_ns())
    finally:
        account.close()
    assert found is not None and not found.live
    assert [a.steps for a in found.attempts] == [7, 10]
    assert [d.lost_steps for d in found.disruptions] == [2]
    assert (found.steps, found.max_productive_step) == (15, 14)
    assert spent(found)["infrastructure_recovery"] > 0
    waited = found.attempts[1].start_ns / SECOND - queued_at
    assert spent(found)["scheduling_wait"] == pytest.approx(waited, abs=1e-3)
    afresh = JournalAccount(tmp_path, "strict")
    try:
        again = afresh.goodput(found.end_ns)
    finally:
        afresh.close()
    assert again is not None and list(again.intervals()) == list(found.intervals())


def test_a_name_that_nobody_used_has_no_account(tmp_path: Path) -> None:
    account = JournalAccount(tmp_path, "nobody")
    try:
        assert account.goodput(time.time_ns()) is None
    finally:
        account.close()


# ── asked of a calculator ─────────────────────────────────────────────────────────────────────


def test_the_calculator_gives_it_beside_the_originals_figures() -> None:
    """B5: in the original a hang of 300 s is productive."""
    log = Log()
    log.entries += job(0.0, *((n, 3.0 * n) for n in range(20)))
    log.entries += job(0.0, *((n, 300.0 + 3.0 * n) for n in range(20, 40)), end=420.0)[1:]
    calculator = GoodputCalculator("j", "log", log)
    goodput, _, last_step = calculator.get_job_goodput()
    assert (round(goodput, 2), last_step) == (100.0, 39)
    account = calculator.get_account()
    assert account.spent_ns["stall"] == 300 * SECOND
    assert account.spent_ns["productive"] == 120 * SECOND
    assert account.goodput == 120 / 420


def test_a_window_and_exclusions_of_the_account() -> None:
    log = Log()
    log.entries += job(0.0, (0, 10.0), (1, 20.0), end=30.0)
    calculator = GoodputCalculator("j", "log", log)
    at = partial(datetime.fromtimestamp, tz=UTC)
    account = calculator.get_account(at(5), at(25), [(at(10), at(15))])
    assert (account.start_ns, account.end_ns) == (5 * SECOND, 25 * SECOND)
    assert account.spent_ns["excluded"] == 5 * SECOND
    assert account.counted_ns == 15 * SECOND
    assert calculator.get_account(exclusion_intervals=[(at(0), at(100))]).goodput is None
    with pytest.raises(ValueError, match="time zone"):
        calculator.get_account(datetime(2026, 1, 1), None)


def test_a_log_that_gives_everything_each_time_tells_it_once() -> None:
    entries: Entries = job(0.0, (0, 10.0), (1, 20.0), end=30.0)

    class First:
        def read_cloud_logging_entries(self, start_time: Any = None, end_time: Any = None) -> Any:
            return list(entries)

    calculator = GoodputCalculator("j", "log", First())
    first = calculator.get_account()
    assert calculator.get_account() == first
    assert first.spent_ns["productive"] == 20 * SECOND


def test_a_job_that_nobody_recorded(place: Path) -> None:
    with pytest.raises(ValueError, match="nothing is known of job 'nobody'"):
        GoodputCalculator("nobody", "log").get_account()


def test_the_journals_account_is_the_calculators(place: Path) -> None:
    assert train(place, 0, -1) == 0
    account = GoodputCalculator("strict", "log").get_account()
    assert sum(account.spent_ns.values()) == account.total_ns > 0
    assert account.spent_ns["productive"] > 0
