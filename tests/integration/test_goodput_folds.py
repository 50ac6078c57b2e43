"""A head that is stopped and started over one directory goes on with its accounts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runwatch.head.main import LocalHead
from runwatch.head.reading import Reading
from runwatch.head.state.accounts import fold as goodput_fold
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.testing import until
from tests.unit.views.goodput.story import RUN, Notebook

STEPS = 3_000


@pytest.fixture
def gone_on(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each fold was made of that was gone on from."""
    found: list[int] = []
    go_on = goodput_fold.Fold._go_on

    def counted(fold: goodput_fold.Fold, saved: Any) -> Any:
        rest = go_on(fold, saved)
        found.append(saved.told)
        return rest

    monkeypatch.setattr(goodput_fold.Fold, "_go_on", counted)
    monkeypatch.setattr(goodput_fold, "WORTH_SAVING", 3_000)
    monkeypatch.setattr(
        "runwatch.head.state.accounts.accounts.LEAST_UNSAVED", 1_000
    )  # less, as it is in truth
    return found


def store(head: LocalHead, book: Notebook, first: int, last: int | None = None) -> None:
    assert head.ingest.submit(book.batch(first, last)).result(60).accepted


def answers(head: LocalHead) -> tuple[object, object]:
    """As it is kept, and afresh."""
    with head.accounts.of(RUN) as kept, Accounts(Reading(head.store)).of(RUN) as afresh:
        assert kept is not None and afresh is not None
        until_ns = STEPS * 10**9
        return tuple(
            (list(each.intervals(until_ns=until_ns)), each.attempts[0].steps, each.ideal_step_ns)
            for each in (kept, afresh)
        )  # type: ignore[return-value]


def test_from_one_head_to_the_next(tmp_path: Path, gone_on: list[int]) -> None:
    book = Notebook().steps(0, *range(1, STEPS))
    head = LocalHead(tmp_path)
    try:
        store(head, book, 0, 4_001)
        kept, afresh = answers(head)
        assert kept == afresh
    finally:
        head.close()
    (file,) = (tmp_path / "store" / "folds").iterdir()
    assert file.stat().st_size > 8 * 2_000

    head = LocalHead(tmp_path)
    try:
        store(head, book, 4_001, 5_000)  # more comes before anybody asks
        head.store.compact(force=True)
        store(head, book, 5_000)
        kept, afresh = answers(head)
        assert kept == afresh
        assert gone_on == [4_001]
    finally:
        head.close()


def test_a_run_that_nobody_asks_for_is_ready_when_somebody_does(
    tmp_path: Path, gone_on: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runwatch.head.state.accounts.arrivals.MANY_RECORDS", 4_000)
    book = Notebook().steps(0, *range(1, STEPS))
    head = LocalHead(tmp_path)
    try:
        store(head, book, 0, 4_001)
        until((tmp_path / "store" / "folds").is_dir)
        until(lambda: not head.accounts.at_hand(RUN))
        kept, afresh = answers(head)
        assert kept == afresh
        assert gone_on == [4_001]
        assert head.board.noted(RUN) is not None
    finally:
        head.close()
