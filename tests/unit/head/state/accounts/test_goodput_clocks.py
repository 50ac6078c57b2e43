"""Accounts of jobs on hosts whose clocks differ: told by agents, or by the steps themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from runwatch.head.reading import Reading
from runwatch.head.state.accounts.fold import WORTH_SAVING, Fold
from runwatch.record import RunId
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.folds import FoldFiles
from runwatch.testing import FakeClock
from runwatch.views.goodput.account import Goodput
from tests.integration.head_history import (
    SECOND,
    START,
    Producer,
    agent,
    exited,
    when,
)

RUN = RunId("run-1")
AHEAD = 30.0


@pytest.fixture
def store() -> Iterator[DuckStore]:
    made = DuckStore.open(None, settings=DuckSettings(threads=1))
    yield made
    made.close()


def job(store: DuckStore, steps: int = 60, ahead: float = AHEAD, together: bool = True) -> None:
    """Rank 1 waits 0.6 s for the data of each step, and its clock is ahead; they end together."""
    for rank, off in ((0, 0.0), (1, ahead)):
        late = 0.6 * rank
        begun = [(n, n + late) for n in range(steps)]
        lag = 0.0 if together else 0.3 * rank
        mine = Producer(
            store, f"j-{rank}", rank=rank, host=f"host-{rank}", start_ns=when(off - 1 - rank / 10)
        )
        mine.write(
            [("data_wait_seconds", n + 1 + off, n, late) for n in range(steps)] if late else [],
            [("run_start", off - 1, {})],
            steps=[(n, b + off, n + 1 + off + lag * (n % 3)) for n, b in begun],
        )
        seen = agent(store, f"agent-{rank}", f"host-{rank}")
        seen.write(events=[exited(f"j-{rank}", steps + off, code=0)], scope=0)


def account(store: DuckStore, told: Mapping[str, int] | None = None) -> Goodput:
    reading = Reading(
        store, clock=FakeClock(START + 7200 * SECOND), clock_offsets=lambda: told or {}
    )
    goodput = Fold(RUN, reading, None).account()
    assert goodput is not None
    return goodput


def seconds(goodput: Goodput, name: str) -> float:
    return goodput.account().spent_ns[name] / SECOND


@pytest.mark.parametrize("ahead", [AHEAD, -AHEAD, 0.05, 0.0])
def test_the_steps_tell_how_far_a_clock_is_off(store: DuckStore, ahead: float) -> None:
    job(store, ahead=ahead)
    found = account(store)
    assert found.account().total_ns / SECOND == pytest.approx(61, abs=0.2)
    assert seconds(found, "data_loading") == pytest.approx(60 * 0.6, abs=0.1)
    assert seconds(found, "productive") == pytest.approx(60 * 0.4, abs=1)


def test_an_agent_tells_it_sooner(store: DuckStore) -> None:
    """Of a job that has done too few steps to tell."""
    job(store, steps=5)
    without = account(store).account().total_ns / SECOND
    found = account(store, {"host-1": int(AHEAD * SECOND)})
    assert without == pytest.approx(36, abs=0.2)
    assert found.account().total_ns / SECOND == pytest.approx(6, abs=0.2)


def test_ranks_that_do_not_end_together_tell_nothing(store: DuckStore) -> None:
    job(store, ahead=0.05, together=False)
    assert seconds(account(store), "data_loading") > 0
    reading = Reading(store, clock=FakeClock(START + 7200 * SECOND))
    fold = Fold(RUN, reading, None)
    fold.account()
    assert set(fold._ahead.values()) == {0}


def test_what_was_found_out_is_saved_with_the_account(tmp_path: Path) -> None:
    with_files = DuckStore.open(tmp_path / "store", settings=DuckSettings(threads=1))
    job(with_files, steps=WORTH_SAVING // 2)
    reading = Reading(with_files, clock=FakeClock(START + 10**6 * SECOND))
    files = FoldFiles(tmp_path / "folds")

    first = Fold(RUN, reading, threading.Lock(), files)
    before = first.account()
    first.save()
    again = Fold(RUN, reading, threading.Lock(), files)
    after = again.account()
    assert before is not None and after is not None
    assert again.told == first.told and again._ahead == first._ahead != {}
    assert after.account() == before.account()
    with_files.close()
