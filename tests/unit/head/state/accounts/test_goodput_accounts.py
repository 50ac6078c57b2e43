"""Accounts that are kept up as records come in equal those made afresh, whatever comes when."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runwatch.head.ingest import Ingest
from runwatch.head.reading import Reading
from runwatch.head.state.accounts import accounts as module
from runwatch.head.state.accounts import fold as goodput_fold
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.record import Batch, Event, JournalId, Origin, Position, RunId
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.store import Replay, Wanted
from runwatch.testing import FakeClock, until
from runwatch.views.goodput.account import Goodput
from tests.unit.views.goodput.histories import FORMS, histories
from tests.unit.views.goodput.story import RUN, SECOND, Notebook, told

Answer = dict[str, Any]


def everything(goodput: Goodput | None) -> Answer | None:
    if goodput is None:
        return None
    account = goodput.account()
    assert sum(account.spent_ns.values()) == account.total_ns
    return {
        "spent": {name: ns for name, ns in account.spent_ns.items() if ns},
        "intervals": list(goodput.intervals()),
        "attempts": list(goodput.attempts),
        "disruptions": list(goodput.disruptions),
        "ranks": list(goodput.ranks),
        "steps": (goodput.steps, goodput.max_productive_step, goodput.ideal_step_ns),
        "inferred": goodput.inferred_ns,
        "live": goodput.live,
    }


class Head:
    """A store and its accounts; what is sent is stored at once."""

    def __init__(self) -> None:
        self.clock = FakeClock(0)
        settings = DuckSettings(threads=1)
        self.store = DuckStore.open(None, settings=settings, clock=self.clock)
        self.reading = Reading(self.store, clock=self.clock)
        self.still = threading.Lock()
        self.accounts = Accounts(self.reading, self.still)
        self._at: dict[JournalId, int] = {}
        self._said = 0

    def send(self, *batches: Batch) -> None:
        with self.still:
            assert all(verdict.accepted for verdict in self.store.write(batches))
            self.accounts.stored(batches)

    def record(self, book: Notebook, upto: int | None = None) -> None:
        """The notebook's next records, up to number `upto`."""
        first, last = self._at.get(book.journal, 0), len(book.records) if upto is None else upto
        if last > first:
            self.send(book.batch(first, last))
            self._at[book.journal] = last
            self.clock.now_ns = max(self.clock.now_ns, book.records[last - 1].time_ns)

    def exit(self, book: Notebook) -> None:
        """What an agent says when a process is gone."""
        assert book.ended_ns is not None
        how = {"killed": {"signal": 9}, "failed": {"code": 1}, "completed": {"code": 0}}
        body = {"journal": book.journal} | how.get(book.state, {})
        agent = Origin(JournalId("agent"), "host-a", 2, 0, role="agent")
        batch = Batch(agent, Position(self._said), Position(self._said + 1))
        batch.events.append(Event(book.ended_ns, "process_exit", body))
        self._said += 1
        self.send(batch)
        self.clock.now_ns = max(self.clock.now_ns, book.ended_ns)

    def kept(self) -> Answer | None:
        with self.accounts.of(RUN) as goodput:
            return everything(goodput)

    def afresh(self) -> Answer | None:
        with Accounts(self.reading).of(RUN) as goodput:
            return everything(goodput)

    def close(self) -> None:
        self.accounts.close()
        self.store.close()


@pytest.fixture
def head() -> Iterator[Head]:
    made = Head()
    yield made
    made.close()


@contextmanager
def a_head() -> Iterator[Head]:
    made = Head()
    try:
        yield made
    finally:
        made.close()


def steady(rank: int = 0, attempt: int = 1, *, first: int = 0, count: int = 40) -> Notebook:
    start = 100 * (attempt - 1)
    book = Notebook(rank, attempt, start)
    return book.steps(first, *range(start + 1 + rank, start + 2 + rank + count))


# ── kept = afresh ──────────────────────────────────────────────────────────────────────────────

_turns = st.lists(st.tuples(st.integers(0, 11), st.integers(1, 40), st.booleans()), max_size=25)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(FORMS.flatmap(histories), _turns)
def test_in_any_order_and_cut_anywhere(
    books: Sequence[Notebook], turns: Sequence[tuple[int, int, bool]]
) -> None:
    with a_head() as head:
        given_out = dict.fromkeys(range(len(books)), 0)
        for number, count, asked in turns:
            at = number % len(books)
            given_out[at] = min(given_out[at] + count, len(books[at].records))
            head.record(books[at], given_out[at])
            if asked:
                assert head.kept() == head.afresh()
        for book in books:
            head.record(book)
            if book.ended_ns is not None:
                head.exit(book)
        assert head.kept() == head.afresh()


def test_it_is_the_account_of_the_records(head: Head) -> None:
    books = [
        steady(0).killed(50, "killed by SIGKILL"),
        steady(1).killed(49, "killed by SIGKILL"),
        steady(0, 2, first=30).exits(160),
        steady(1, 2, first=30).exits(161),
    ]
    for book in books:
        head.record(book)
        head.exit(book)
    expected = everything(told(*books))
    assert expected is not None
    assert head.kept() == expected
    assert expected["spent"]["wasted_progress"] > 0
    assert len(expected["disruptions"]) == 1


def test_a_question_costs_what_is_new(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    book = steady(count=90)
    head.record(book, 100)
    assert head.kept() is not None

    def replay(*_: Any) -> Any:
        raise AssertionError("told again")

    monkeypatch.setattr(head.store, "replay", replay)
    head.record(book, 120)
    head.record(book)
    found = head.kept()
    monkeypatch.undo()
    assert found == head.afresh()


# ── what turns up late ─────────────────────────────────────────────────────────────────────────


def test_a_rank_that_turns_up_when_others_are_far(head: Head) -> None:
    books = [steady(0), steady(1)]
    head.record(books[0])
    assert head.kept() == head.afresh()
    head.record(books[1], 10)
    assert head.kept() == head.afresh()
    head.record(books[1])
    found = head.kept()
    assert found == head.afresh()
    assert found is not None
    assert [rank.steps for rank in found["ranks"]] == [40, 40]


def test_only_the_attempt_it_belongs_to_is_told_again(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = steady(0, 1).killed(60)
    head.record(old)
    head.exit(old)
    assert head.kept() == head.afresh()
    asked = []
    replay = head.store.replay

    def watched(run: RunId, wanted: Wanted) -> Replay:
        asked.append(wanted.since)
        return replay(run, wanted)

    monkeypatch.setattr(head.store, "replay", watched)
    new = steady(0, 2, first=20)
    head.record(new)
    found = head.kept()
    assert asked == [{new.journal: -(2**63)}]
    assert found == head.afresh()


def test_records_that_come_after_others_were_booked(head: Head) -> None:
    """A node that was cut off ships its journal an hour later."""
    books = [steady(rank, count=95) for rank in (0, 1)]
    head.record(books[0], 20)
    head.record(books[1], 20)
    head.kept()
    head.record(books[0])
    head.clock.now_ns += 60 * SECOND  # rank 1 is taken for lost: nobody waits for it
    assert head.kept() == head.afresh()
    head.record(books[0])
    head.record(books[1])
    assert head.kept() == head.afresh()


@pytest.mark.parametrize("steps", [1, 9])
@pytest.mark.parametrize("early_first", [True, False])
def test_a_rank_that_came_when_another_had_done_its_step(
    head: Head, steps: int, early_first: bool
) -> None:
    """Which of the two is heard first does not show: rank 0 began behind rank 3 in truth."""
    early = Notebook(3, start=6).step(0, 11, 16)
    late = Notebook(0, start=121).steps(0, *range(183, 184 + steps))
    for book in (early, late) if early_first else (late, early):
        head.record(book)
        assert head.kept() == head.afresh()
    head.clock.now_ns += 61 * SECOND  # both are taken for gone, one after the other
    found = head.kept()
    assert found == head.afresh()
    assert found is not None
    assert found["steps"][0] == 1 + steps
    assert (16 * SECOND, 183 * SECOND) in [(start, end) for start, end, _ in found["intervals"]]


def test_ranks_are_missing_by_the_attempt_before(head: Head) -> None:
    """Attempt 2 did its steps with one rank; it is heard of when attempt 3 is known already."""
    first = [Notebook(rank).steps(0, *range(1, 8)).killed(9) for rank in (0, 1)]
    second = Notebook(0, 2, 100).steps(0, *range(101, 108)).killed(109)
    third = Notebook(0, 3, 200).steps(0, *range(201, 208))
    for book in first:
        head.record(book)
        head.exit(book)
    head.record(second, 1)
    head.exit(second)
    head.record(third)
    assert head.kept() == head.afresh()
    head.record(second)
    found = head.kept()
    assert found == head.afresh()
    assert found is not None
    assert (201 * SECOND, 207 * SECOND, "productive") in found["intervals"]


def test_a_process_that_shifts_the_attempts(head: Head) -> None:
    later = Notebook(0, 2, 100).steps(0, *range(101, 120))
    head.record(later)
    head.kept()
    earlier = Notebook(0, 1, 10, name="earlier").steps(0, *range(11, 60))
    head.record(earlier)
    found = head.kept()
    assert found == head.afresh()
    assert found is not None
    assert [attempt.start_ns // SECOND for attempt in found["attempts"]] == [10, 100]


def test_a_run_that_nobody_recorded_has_no_account(head: Head) -> None:
    assert head.kept() is None
    book = steady()
    head.record(book)
    assert head.kept() == head.afresh() != None  # noqa: E711


# ── a moment between two batches ───────────────────────────────────────────────────────────────


def test_nothing_is_missed_or_doubled_while_records_pour_in() -> None:
    store = DuckStore.open(None)
    reading = Reading(store)
    made: list[Accounts] = []
    ingest = Ingest(store, on_stored=lambda batches: made[0].stored(batches))
    made.append(Accounts(reading, ingest.still))
    books = [Notebook(rank).steps(0, *range(1, 1000)) for rank in range(3)]
    asked, done = threading.Event(), threading.Event()

    def pour() -> None:
        for first in range(0, 1998, 54):
            if first > 999:
                assert asked.wait(100)
            for book in books:
                last = min(first + 54, len(book.records))
                assert ingest.submit(book.batch(first, last)).result(100).accepted
        done.set()

    writer = threading.Thread(target=pour)
    writer.start()
    try:
        questions = 0
        while not done.is_set():
            with Accounts(reading).of(RUN) as afresh:
                at_least = 0 if afresh is None else afresh.steps
            made[0]._folds.clear()  # begin anew in the middle of it
            with made[0].of(RUN) as goodput:
                assert (0 if goodput is None else goodput.steps) >= at_least
            questions += 1
            asked.set()
        with made[0].of(RUN) as goodput, Accounts(reading).of(RUN) as afresh:
            assert goodput is not None and afresh is not None
            assert questions > 0
            assert goodput.steps == afresh.steps == 998
            assert [rank.steps for rank in goodput.ranks] == [998] * 3
            assert list(goodput.intervals(until_ns=999 * SECOND)) == list(
                afresh.intervals(until_ns=999 * SECOND)
            )
    finally:
        writer.join()
        ingest.close()
        made[0].close()
        store.close()


def test_a_long_replay_does_not_hold_up_ingest(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    book = steady(count=90)
    head.record(book, 50)
    take = goodput_fold.Fold._take
    during: list[int] = []

    def slowly(fold: Any, batches: Any) -> None:
        if not during:
            during.append(1)
            sending = threading.Thread(target=head.record, args=(book,))
            sending.start()
            sending.join(100)
            assert not sending.is_alive()
        take(fold, batches)

    monkeypatch.setattr(goodput_fold.Fold, "_take", slowly)
    assert head.kept() == head.afresh()
    assert head.store.cursor(book.journal) == len(book.records)


# ── what is kept ───────────────────────────────────────────────────────────────────────────────


def test_what_nobody_asks_for_is_dropped(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FOLDS", 3)
    for name in ("a", "b", "c", "d"):
        with head.accounts.of(RunId(name)):
            pass
    assert list(head.accounts._folds) == ["b", "c", "d"]
    head.clock.now_ns += 3599 * SECOND
    with head.accounts.of(RunId("c")):
        pass
    head.clock.now_ns += 2 * SECOND
    with head.accounts.of(RunId("e")):
        pass
    assert list(head.accounts._folds) == ["c", "e"]


def test_what_waits_is_bounded(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goodput_fold, "MOST_WAITING", 50)
    book = steady(count=95)
    head.record(book, 10)
    head.kept()
    (fold,) = head.accounts._folds.values()
    for upto in range(20, 190, 10):
        head.record(book, upto)
        until(lambda: fold._records <= 50)
    head.record(book)
    assert head.kept() == head.afresh()


# ── in brief ───────────────────────────────────────────────────────────────────────────────────


def test_a_scrape_says_what_is_cheap_and_leaves_out_the_rest(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = steady(count=40).exits(45)
    head.record(book)
    monkeypatch.setattr(module, "BRIEF_RECORDS", 20)
    assert head.accounts.brief() == []
    assert not head.accounts._folds
    head.kept()  # somebody asked, so it is at hand
    (brief,) = head.accounts.brief()
    assert (brief.run, brief.disruptions, brief.ideal_step_seconds) == (RUN, 0, 1.0)
    assert brief.goodput == pytest.approx(40 / 41)
    assert brief.spent_seconds["productive"] == 40
    assert brief.ettr == brief.goodput  # nobody told of a queue
    assert brief.device_hours["productive"] == pytest.approx(40 / 3600)
    head.exit(book)
    assert len(head.accounts.brief()) == 1
    head.clock.now_ns += 3601 * SECOND
    assert head.accounts.brief() == []


def test_a_scrape_waits_for_nobody(head: Head) -> None:
    head.record(steady())
    assert len(head.accounts.brief()) == 1
    with head.accounts.of(RUN):
        assert head.accounts.brief() == []
