"""Accounts outlive the head: what the next one goes on from equals what it would make afresh."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runwatch.head.state.accounts import accounts as module
from runwatch.head.state.accounts import arrivals as goodput_arrivals
from runwatch.head.state.accounts import fold as goodput_fold
from runwatch.head.state.accounts import saved as goodput_state
from runwatch.head.state.accounts import worker as goodput_worker
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.head.state.accounts.arrivals import Arrivals
from runwatch.head.state.accounts.slices import Slices, finish
from runwatch.record import Batch, Event, JournalId, Origin, Position, RunId
from runwatch.store.asking import question
from runwatch.store.folds import FoldFiles
from runwatch.store.store import Retention
from runwatch.testing import until
from tests.unit.head.state.accounts.test_goodput_accounts import Answer, Head, everything, steady
from tests.unit.views.goodput.histories import FORMS, histories
from tests.unit.views.goodput.story import RUN, SECOND, Notebook


class Lasting(Head):
    """A store that stays, and heads that come and go."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._begin()

    def _begin(self) -> None:
        self.files = FoldFiles(self.folder, spare_bytes=0)
        self.accounts = Accounts(self.reading, self.still, self.files)

    def restart(self) -> None:
        self.accounts.close()
        self._begin()

    def crash(self) -> None:
        """Nothing is saved any more."""
        self.accounts.worker.close()
        self._begin()

    def tend(self) -> None:
        finish(self.accounts._tend(RUN))

    def since(self) -> list[dict[JournalId, int]]:
        """What the store is asked to tell again, from now on."""
        asked: list[dict[JournalId, int]] = []
        replay = self.store.replay

        def watched(run: RunId, wanted: Any) -> Any:
            asked.append(dict(wanted.since))
            return replay(run, wanted)

        self.store.replay = watched  # type: ignore[method-assign,assignment]
        return asked


@contextmanager
def small_is_enough() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(goodput_fold, "WORTH_SAVING", 1)
        patch.setattr(module, "LEAST_UNSAVED", 1)
        patch.setattr(goodput_worker, "REST", {})
        patch.setattr(goodput_worker, "PAUSE", {})
        yield


@contextmanager
def a_lasting_head() -> Iterator[Lasting]:
    with small_is_enough(), tempfile.TemporaryDirectory() as folder:
        made = Lasting(Path(folder))
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def head() -> Iterator[Lasting]:
    with a_lasting_head() as made:
        yield made


def is_resumed(head: Lasting) -> bool:
    """Whether the next question goes on from the file: nothing is then told from the beginning."""
    before = len(gone_on)
    head.kept()
    return len(gone_on) > before


gone_on: list[RunId] = []


@pytest.fixture(autouse=True)
def _count_resumptions(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = goodput_fold.Fold._go_on

    def counted(fold: goodput_fold.Fold, saved: goodput_state.FoldState) -> Any:
        rest = go_on(fold, saved)
        gone_on.append(fold.run)
        return rest

    monkeypatch.setattr(goodput_fold.Fold, "_go_on", counted)


# ── resumed = afresh ───────────────────────────────────────────────────────────────────────────

_what = st.sampled_from(["store", "ask", "ask", "restart", "restart", "crash", "tend", "wait"])
_turns = st.lists(st.tuples(_what, st.integers(0, 11), st.integers(1, 40)), max_size=30)


def whenever_a_head_ends_and_whatever_comes_late(
    books: Sequence[Notebook], turns: Sequence[tuple[str, int, int]]
) -> None:
    with a_lasting_head() as head:
        given_out = dict.fromkeys(range(len(books)), 0)
        for what, number, count in turns:
            at = number % len(books)
            given_out[at] = min(given_out[at] + count, len(books[at].records))
            head.record(books[at], given_out[at])
            _turn(head, what)
        for book in books:
            head.record(book)
            if book.ended_ns is not None:
                head.exit(book)
        head.restart()
        assert head.kept() == head.afresh()
        head.clock.now_ns += 61 * SECOND  # those who have ended are surely gone
        assert head.kept() == head.afresh()
        head.restart()
        assert head.kept() == head.afresh()


def _turn(head: Lasting, what: str) -> None:
    if what == "ask":
        assert head.kept() == head.afresh()
    elif what == "restart":
        head.restart()
    elif what == "crash":
        head.crash()
    elif what == "tend":
        head.tend()
    elif what == "wait":
        head.clock.now_ns += 61 * SECOND


@pytest.mark.parametrize("examples", [5, pytest.param(600, marks=pytest.mark.soak)])
def test_resumed_equals_afresh(examples: int) -> None:
    before = len(gone_on)
    tried = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    # A new one each time: the settings of a function can be set only once.
    tried(given(FORMS.flatmap(histories), _turns)(whenever_a_head_ends_and_whatever_comes_late))()
    assert len(gone_on) - before > examples


def test_only_what_is_new_is_told_again(head: Lasting) -> None:
    books = [steady(rank, count=90) for rank in (0, 1)]
    for book in books:
        head.record(book, 101)
    head.kept()
    head.restart()
    head.record(books[0], 131)
    asked = head.since()
    assert is_resumed(head)
    last_ns = books[0].records[100].time_ns
    assert asked[1:] == [{books[0].journal: last_ns + 1}]
    assert head.kept() == head.afresh()
    head.record(books[0])
    head.record(books[1])
    assert head.kept() == head.afresh()


def test_nothing_is_told_again_of_a_run_that_is_over(head: Lasting) -> None:
    book = steady(count=90).exits(95)
    head.record(book)
    head.exit(book)
    expected = head.kept()
    head.restart()
    asked = head.since()
    assert head.kept() == expected
    assert asked == [{book.journal: -(2**63)}]  # for its tally


def test_a_new_attempt_after_the_head_came_back(head: Lasting) -> None:
    old = steady(0, 1).killed(60)
    head.record(old)
    head.exit(old)
    head.kept()
    head.restart()
    new = steady(0, 2, first=20)
    head.record(new)
    assert is_resumed(head)
    found = head.kept()
    assert found == head.afresh()
    assert found is not None
    assert len(found["attempts"]) == 2


# ── what cannot be gone on from ────────────────────────────────────────────────────────────────


def saved(head: Lasting, count: int = 90) -> Notebook:
    book = steady(count=count)
    head.record(book, 101)
    head.kept()
    head.restart()
    assert head.files.path(RUN).exists()
    return book


def test_what_comes_late_makes_it_begin_afresh(head: Lasting) -> None:
    """Steps that were recorded before the newest, and stored after it."""
    book = saved(head)
    late = book.batch(101, 110)
    for at in range(len(late.spans.time_ns)):
        late.spans.time_ns[at] -= 60 * SECOND
    head.send(late)
    assert not is_resumed(head)
    assert head.kept() == head.afresh()


def test_two_records_of_one_moment_on_either_side_of_it(head: Lasting) -> None:
    """Which of them was folded is not known: points have a time, and no place."""
    book = steady(count=90)
    head.record(book, 100)  # a step ends, and the next begins at the same time
    head.kept()
    head.restart()
    head.record(book)
    assert not is_resumed(head)
    assert head.kept() == head.afresh()


def test_a_store_that_forgot_is_believed(head: Lasting) -> None:
    book = saved(head)
    head.store.retain(
        Retention(None, None, 1 / 86_400, None), now_ns=book.records[50].time_ns + SECOND
    )
    assert not is_resumed(head)
    assert not head.files.path(RUN).exists()
    assert head.kept() == head.afresh()


def test_a_store_that_was_built_anew(head: Lasting) -> None:
    book = saved(head)
    with a_lasting_head() as other:
        other.folder = head.folder
        other._begin()
        other.record(book, 60)
        assert not is_resumed(other)
        assert other.kept() == other.afresh()


@pytest.mark.parametrize(
    "harm",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content + b"x",
        lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
        lambda content: b"RWFOLD99" + content[8:],
    ],
    ids=["empty", "torn", "longer", "flipped", "another version"],
)
def test_a_damaged_file_is_deleted(head: Lasting, harm: Any) -> None:
    saved(head)
    path = head.files.path(RUN)
    path.write_bytes(harm(path.read_bytes()))
    assert not is_resumed(head)
    assert not path.exists()
    assert head.kept() == head.afresh()


@pytest.mark.parametrize(
    "payload", [b"", b"\0" * 8, b"\xff\xff\xff\xff", b"\x02\0\0\0{}", b"\x04\0\0\0null"]
)
def test_a_payload_that_is_no_fold_is_deleted(head: Lasting, payload: bytes) -> None:
    saved(head)
    head.files.write(RUN, payload)
    assert not is_resumed(head)
    assert not head.files.path(RUN).exists()
    assert head.kept() == head.afresh()


def test_other_rules_would_give_other_numbers(
    head: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(head)
    monkeypatch.setattr(goodput_state, "rules", lambda: "others")
    assert not is_resumed(head)
    assert not head.files.path(RUN).exists()


def test_a_fold_that_is_not_fed_is_not_saved(head: Lasting) -> None:
    """It was dropped while somebody still asked it: the store has gone on without it."""
    book = steady(count=90)
    head.record(book, 50)
    fold = head.accounts._fold(RUN)
    with fold.lock:
        fold.account()
        with head.accounts._lock:
            head.accounts._drop(RUN)
        head.record(book)
        fold.save()
    assert not head.files.path(RUN).exists()


def test_few_records_are_not_saved(head: Lasting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goodput_fold, "WORTH_SAVING", 1000)
    head.record(steady())
    head.kept()
    head.restart()
    assert not head.files.path(RUN).exists()


def test_a_full_disk_costs_the_file_only(head: Lasting, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FoldFiles, "write", full)
    head.record(steady())
    head.kept()
    head.restart()
    assert head.kept() == head.afresh()


# ── before anybody asks ────────────────────────────────────────────────────────────────────────


def test_a_long_run_is_folded_as_it_comes_in(
    head: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goodput_arrivals, "MANY_RECORDS", 30)
    told: list[Answer | None] = []
    head.accounts.on_account = lambda run, goodput: told.append(everything(goodput))
    book = steady(count=90)
    head.record(book, 20)
    assert head.accounts.worker.is_idle
    head.record(book, 61)
    until(lambda: head.files.path(RUN).exists() and head.accounts.worker.is_idle)
    assert told and told[0] is not None
    assert not head.accounts._folds  # nobody asked
    before = len(gone_on)
    head.record(book)
    assert head.kept() == head.afresh()
    assert len(gone_on) > before


def test_an_account_that_is_asked_for_is_saved_beside(head: Lasting) -> None:
    head.record(steady(count=90))
    assert head.kept() is not None
    until(head.files.path(RUN).exists)
    head.crash()
    assert is_resumed(head)


def test_the_end_of_a_process_is_reason_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goodput_arrivals, "MANY_RECORDS", 100)
    monkeypatch.setattr(goodput_arrivals, "LAST_RECORDS", 20)
    arrivals, book = Arrivals(), steady(count=90)
    assert arrivals.stored([book.batch(0, 60)]) == []
    assert arrivals.stored([book.batch(60, 110)]) == [book.journal]
    assert arrivals.stored([_exit(book.journal)]) == []
    assert arrivals.stored([book.batch(110, 140)]) == []
    assert arrivals.stored([_exit(book.journal)]) == [book.journal]
    assert arrivals.stored([_exit(JournalId("unheard of"))]) == []


def test_the_longer_a_run_the_rarer_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goodput_arrivals, "MANY_RECORDS", 10)
    arrivals, book = Arrivals(), steady(count=500)
    looked = [n for n in range(1000) if arrivals.stored([book.batch(n, n + 1)])]
    apart = [b - a for a, b in zip(looked, looked[1:], strict=False)]
    assert apart[0] == 10 and apart[-1] > 80 and apart == sorted(apart)


def _exit(journal: JournalId) -> Batch:
    batch = Batch(Origin(JournalId("agent"), "h", 1, 0, role="agent"), Position(0), Position(1))
    batch.events.append(Event(0, "process_exit", {"journal": journal}))
    return batch


def test_a_head_that_ends_does_not_wait_for_a_long_fold(
    head: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    head.record(steady(count=90))
    begun, listen = threading.Event(), goodput_fold.Fold._listen

    def stuck(fold: goodput_fold.Fold, replay: Any) -> Slices[None]:
        begun.set()
        until(lambda: (asked := question()) is not None and asked.is_over)
        yield from listen(fold, replay)

    monkeypatch.setattr(goodput_fold.Fold, "_listen", stuck)
    head.accounts.want(RUN)
    assert begun.wait(100)
    head.accounts.close()
    assert not head.accounts._folds
    assert not head.files.path(RUN).exists()


def test_runs_that_are_gone_leave_nothing(head: Lasting) -> None:
    head.files.write(RunId("gone"), b"x")
    head.record(steady())
    head.tend()
    assert not head.files.path(RunId("gone")).exists()
    assert head.files.path(RUN).exists()


def test_progress_is_told_while_it_is_drawn_up(
    head: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    head.record(steady(count=90))
    seen: list[float] = []
    take = goodput_fold.Fold._take

    def watched(fold: goodput_fold.Fold, batches: Any) -> None:
        seen.append(head.accounts.progress(RUN))
        take(fold, batches)

    monkeypatch.setattr(goodput_fold, "WANTED", replace(goodput_fold.WANTED, rows=20))
    monkeypatch.setattr(goodput_fold.Fold, "_take", watched)
    assert head.accounts.progress(RUN) == 0.0
    head.kept()
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert 0.5 < seen[-2] <= 1.0
