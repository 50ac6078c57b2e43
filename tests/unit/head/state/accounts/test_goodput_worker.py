"""One thread keeps all accounts up: what comes first, who takes turns, and how it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from runwatch.errors import StoreDamaged
from runwatch.head.state.accounts import accounts as module
from runwatch.head.state.accounts import fold as goodput_fold
from runwatch.head.state.accounts.notes import GoodputKeeper
from runwatch.head.state.accounts.slices import BLOCKED, WORKED, Slices
from runwatch.head.state.accounts.waiters import WANTED_SECONDS, Waiters
from runwatch.head.state.accounts.worker import THREAD, Priority, Worker
from runwatch.head.state.board import RunBoard
from runwatch.record import Batch, JournalId, RunId, RunScope
from runwatch.store.asking import Question, look
from runwatch.testing import FakeClock, until
from tests.unit.head.state.accounts.test_goodput_accounts import Head
from tests.unit.head.state.accounts.test_goodput_folds import Lasting, a_lasting_head
from tests.unit.views.goodput.story import Notebook

ORDER = (
    Priority.WAITED_FOR, Priority.LISTED, Priority.CHANGED, Priority.HEAVY, Priority.UNSAVED,
)  # fmt: skip


class Bench:
    """A worker that is stopped at a gate until all jobs are in its queue."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.worker = Worker(self.clock)
        self.done: list[str] = []
        self.gate = threading.Event()
        self.worker.want("gate", self._wait, lambda: Priority.WAITED_FOR)

    def _wait(self) -> Slices[None]:
        assert self.gate.wait(100)
        yield WORKED

    def want(
        self, name: str, priority: Priority | Callable[[], Priority | None], slices: int = 1
    ) -> threading.Event:
        ask = priority if callable(priority) else lambda: priority
        return self.worker.want(name, partial(self._work, name, slices), ask).ended

    def _work(self, name: str, slices: int) -> Slices[None]:
        for _ in range(slices):
            self.done.append(name)
            yield WORKED

    def finish(self) -> list[str]:
        self.gate.set()
        until(lambda: self.worker.is_idle)
        return self.done


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.gate.set()
    made.worker.close()


# ── what comes first ───────────────────────────────────────────────────────────────────────────


def test_the_most_urgent_job_comes_first(bench: Bench) -> None:
    for priority in reversed(ORDER):
        bench.want(priority.name, priority)
    assert bench.finish() == [priority.name for priority in ORDER]


def test_a_long_job_gives_way_after_a_slice(bench: Bench) -> None:
    def upkeep() -> Slices[None]:
        bench.done.append("upkeep")
        bench.want("somebody waits", Priority.WAITED_FOR, slices=2)
        yield WORKED
        bench.done.append("upkeep")

    bench.worker.want("upkeep", upkeep, lambda: Priority.CHANGED)
    assert bench.finish() == ["upkeep", "somebody waits", "somebody waits", "upkeep"]


def test_jobs_that_people_wait_for_take_turns(bench: Bench) -> None:
    bench.want("long", Priority.WAITED_FOR, slices=4)
    bench.want("short", Priority.WAITED_FOR, slices=2)
    assert bench.finish() == ["short", "long", "short", "long", "long", "long"]


def test_a_newcomer_gets_as_many_slices_as_the_others_had(bench: Bench) -> None:
    def long() -> Slices[None]:
        for number in range(4):
            bench.done.append("long")
            if number == 2:
                bench.want("newcomer", Priority.WAITED_FOR, slices=3)
            yield WORKED

    bench.worker.want("long", long, lambda: Priority.WAITED_FOR)
    assert bench.finish() == ["long"] * 3 + ["newcomer"] * 3 + ["long"]


def test_of_the_others_the_oldest_is_finished_first(bench: Bench) -> None:
    bench.want("first", Priority.UNSAVED, slices=3)
    bench.want("second", Priority.UNSAVED, slices=2)
    assert bench.finish() == ["first"] * 3 + ["second"] * 2


def test_a_job_that_somebody_comes_to_wait_for_is_hurried(bench: Bench) -> None:
    bench.want("first", Priority.CHANGED)
    bench.want(
        "hurried", lambda: Priority.CHANGED if not bench.gate.is_set() else Priority.WAITED_FOR
    )
    assert bench.finish() == ["hurried", "first"]


def test_a_job_that_is_blocked_holds_nobody_up(bench: Bench) -> None:
    lock = threading.Lock()
    lock.acquire()

    def blocked() -> Slices[None]:
        while not lock.acquire(blocking=False):
            yield BLOCKED
        bench.done.append("blocked")

    bench.worker.want("blocked", blocked, lambda: Priority.WAITED_FOR)
    other = bench.want("other", Priority.UNSAVED)
    bench.gate.set()
    assert other.wait(100)
    assert not bench.worker.is_idle
    lock.release()
    assert bench.finish() == ["other", "blocked"]


# ── what is queued ─────────────────────────────────────────────────────────────────────────────


def test_a_job_is_queued_once_until_it_begins(bench: Bench) -> None:
    for name in ("a", "b", "a", "a"):
        bench.want(name, Priority.CHANGED)
    assert bench.finish() == ["a", "b"]


def test_a_job_that_has_begun_is_queued_again(bench: Bench) -> None:
    """It may have missed what is new."""

    def work() -> Slices[None]:
        bench.done.append("a")
        if len(bench.done) == 1:
            bench.worker.want("a", work, lambda: Priority.CHANGED)
        yield WORKED

    bench.worker.want("a", work, lambda: Priority.CHANGED)
    assert bench.finish() == ["a", "a"]


def test_a_job_that_cannot_begin_yet_is_queued_once(bench: Bench) -> None:
    lock = threading.Lock()
    lock.acquire()
    tried = threading.Event()

    def work() -> Slices[None]:
        while not lock.acquire(blocking=False):
            tried.set()
            yield BLOCKED
        bench.done.append("a")

    bench.gate.set()
    first = bench.worker.want("a", work, lambda: Priority.WAITED_FOR)
    assert tried.wait(100)
    until(lambda: bench.worker.want("a", work, lambda: Priority.WAITED_FOR) is first)
    lock.release()
    bench.finish()
    assert first.ended.is_set() and set(bench.done) == {"a"}


def test_a_job_that_nobody_wants_any_more_is_given_up(bench: Bench) -> None:
    left: list[str] = []

    def work() -> Slices[None]:
        try:
            while True:
                bench.done.append("slice")
                yield WORKED
        finally:
            left.append("its lock")

    bench.gate.set()
    until(lambda: bench.worker.is_idle)
    job = bench.worker.want(
        "unwanted", work, lambda: Priority.WAITED_FOR if len(bench.done) < 2 else None
    )
    assert job.ended.wait(100)
    assert bench.done == ["slice"] * 2
    assert left == ["its lock"]


def test_a_page_that_does_not_ask_again_waits_no_more() -> None:
    clock = FakeClock()
    waiters, page, closed = Waiters(clock), Question(), Question()
    assert not waiters.are_there
    waiters.add(page)
    waiters.add(closed)
    clock.advance(WANTED_SECONDS - 1)
    waiters.add(closed)
    assert waiters.are_there
    clock.advance(2)
    assert waiters.are_there
    closed.give_up("the page was closed")
    assert not waiters.are_there
    waiters.add(page)
    assert waiters.are_there


# ── how much of a core ─────────────────────────────────────────────────────────────────────────


def test_what_nobody_waits_for_pauses_and_rests() -> None:
    """A slice takes a second: two of pause within a job, nine of rest after it."""
    clock = FakeClock()
    bench = Bench(clock)
    started: list[float] = []

    def work(slices: int) -> Slices[None]:
        for _ in range(slices):
            started.append(clock.mono_ns() / 1e9)
            clock.advance(1)
            yield WORKED

    begun = clock.mono_ns() / 1e9
    bench.worker.want("long", lambda: work(2), lambda: Priority.CHANGED)
    bench.worker.want("next", lambda: work(1), lambda: Priority.CHANGED)
    bench.gate.set()
    while not bench.worker.is_idle:
        other = bench.want("somebody waits", Priority.WAITED_FOR)
        assert other.wait(100), "a rest holds nobody up"
        clock.advance(0.25)
    bench.worker.close()
    first, second, third = (at - begun for at in started)
    assert 3 <= second - first < 4
    assert third - second >= 3


# ── how it ends ────────────────────────────────────────────────────────────────────────────────


def test_closing_gives_up_what_is_under_way_and_drops_the_rest(bench: Bench) -> None:
    under_way = threading.Event()

    def endless() -> Slices[None]:
        while True:
            under_way.set()
            look()

    long = bench.worker.want("long", endless, lambda: Priority.WAITED_FOR)
    dropped = bench.want("dropped", Priority.UNSAVED)
    bench.gate.set()
    assert under_way.wait(100)
    bench.worker.close()
    assert long.ended.is_set() and dropped.is_set()
    assert bench.done == []
    assert not threads()
    assert bench.want("too late", Priority.WAITED_FOR).is_set()
    assert not threads() and bench.done == []


def test_a_store_that_fails_costs_one_job(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> Slices[None]:
        yield WORKED
        raise StoreDamaged("a file is gone")

    with caplog.at_level(logging.WARNING, "runwatch.head"):
        failed = bench.worker.want("account of run a", fails, lambda: Priority.CHANGED)
        bench.want("other", Priority.UNSAVED)
        assert bench.finish() == ["other"]
    assert failed.ended.is_set()
    assert caplog.messages == ["account of run a: a file is gone"]


def test_a_bug_costs_one_job(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.append(args.exc_value))

    def bug() -> Slices[None]:
        yield WORKED
        raise KeyError("nobody foresaw it")

    failed = bench.worker.want("bug", bug, lambda: Priority.CHANGED)
    bench.want("other", Priority.UNSAVED)
    assert bench.finish() == ["other"]
    assert failed.ended.is_set()
    until(lambda: [type(each) for each in shown] == [KeyError])


# ── accounts ───────────────────────────────────────────────────────────────────────────────────

SMALL_STRETCH = 20


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("runwatch")]


@pytest.fixture
def head() -> Iterator[Lasting]:
    with a_lasting_head() as made:
        yield made


class Book(Notebook):
    """Of a run of its own."""

    def __init__(self, run: str) -> None:
        super().__init__(name=f"{run}-0")
        self._run = RunId(run)

    def batch(self, first: int = 0, last: int | None = None, *, repeat: bool = False) -> Batch:
        batch = super().batch(first, last, repeat=repeat)
        batch.definitions = [
            replace(each, run=self._run) if isinstance(each, RunScope) else each
            for each in batch.definitions
        ]
        return batch


def book_of(run: str, steps: int = 90) -> Notebook:
    return Book(run).steps(0, *range(1, steps))


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> Iterator[list[str]]:
    """The runs whose stretches were folded, in order; the first one is stopped at the gate."""
    turns: list[str] = []
    take = goodput_fold.Fold._take

    def counted(fold: goodput_fold.Fold, batches: Any) -> None:
        turns.append(fold.run)
        assert gate.wait(100)
        take(fold, batches)

    with monkeypatch.context() as patch:
        patch.setattr(goodput_fold.Fold, "_take", counted)
        yield turns


@pytest.fixture
def nothing_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are long enough for the worker."""
    monkeypatch.setattr(module, "FEW_RECORDS", 0)


def wait_for(head: Head, runs: list[str]) -> list[threading.Thread]:
    """Somebody for each of them."""
    people = [
        threading.Thread(target=lambda run=run: until(lambda: head.accounts.wait(RunId(run))))
        for run in runs
    ]
    for one in people:
        one.start()
    return people


@pytest.mark.usefixtures("nothing_is_short")
def test_one_thread_for_all_who_wait_and_all_upkeep(
    head: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, gate = [f"run-{number}" for number in range(8)], threading.Event()
    for run in runs:
        head.record(book_of(run))
    with watched(monkeypatch, gate) as turns:
        people = wait_for(head, runs)
        for run in runs:
            head.accounts.want(RunId(run))
        GoodputKeeper(head.accounts, RunBoard(head.reading)).want((run, 1) for run in runs)
        until(lambda: turns and len(head.accounts._waiters) == len(runs))
        assert [thread.name for thread in threads()] == [THREAD]
        gate.set()
        for one in people:
            one.join(100)
        until(lambda: head.accounts.worker.is_idle)
    assert all(head.accounts.at_hand(RunId(run)) for run in runs)
    assert len(threads()) == 1
    head.accounts.close()
    assert not threads()


@pytest.mark.usefixtures("nothing_is_short")
def test_two_who_wait_take_turns_with_one_large_run(
    head: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goodput_fold, "WANTED", replace(goodput_fold.WANTED, rows=SMALL_STRETCH))
    head.record(book_of("large", 900))
    head.record(book_of("small", 20))
    gate = threading.Event()
    with watched(monkeypatch, gate) as turns:
        large = wait_for(head, ["large"])
        until(lambda: turns)
        small = wait_for(head, ["small"])
        until(lambda: RunId("small") in head.accounts._waiters)
        gate.set()
        for one in small + large:
            one.join(100)
    last_small = len(turns) - turns[::-1].index("small")
    assert turns[:last_small].count("large") <= turns.count("small") + 1
    assert turns.count("large") > 5 * turns.count("small")
    assert all(head.accounts.at_hand(RunId(run)) for run in ("large", "small"))


@pytest.mark.usefixtures("nothing_is_short")
def test_who_waits_is_served_before_upkeep(head: Lasting, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in ("changed-1", "changed-2", "waited-for"):
        head.record(book_of(run))
    gate = threading.Event()
    with watched(monkeypatch, gate) as turns:
        head.accounts.want(RunId("changed-1"))
        head.accounts.want(RunId("changed-2"))
        until(lambda: turns)
        people = wait_for(head, ["waited-for"])
        until(lambda: head.accounts._waiters)
        gate.set()
        people[0].join(100)
        until(lambda: head.accounts.worker.is_idle)
    assert list(dict.fromkeys(turns)) == ["changed-1", "waited-for", "changed-2"]


def test_upkeep_of_a_run_that_somebody_asks_for_does_not_rest(
    head: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    head.record(book_of("a"))
    gate = threading.Event()
    with watched(monkeypatch, gate) as turns:
        head.accounts.want(RunId("a"))
        until(lambda: turns)
        (job,) = head.accounts.worker._jobs
        assert job.priority() is Priority.CHANGED
        steps: list[int] = []

        def ask() -> None:
            with head.accounts.of(RunId("a")) as goodput:
                steps.append(0 if goodput is None else goodput.steps)

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: job.priority() is Priority.WAITED_FOR)
        gate.set()
        asking.join(100)
        until(lambda: head.accounts.worker.is_idle)
    assert steps == [88]


@pytest.mark.usefixtures("nothing_is_short")
def test_a_head_that_ends_gives_up_a_first_account(
    head: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    head.record(book_of("a"))
    begun = threading.Event()

    def endless(fold: goodput_fold.Fold, replay: Any) -> Slices[None]:
        while True:
            begun.set()
            look()
            yield WORKED

    with monkeypatch.context() as patch:
        patch.setattr(goodput_fold.Fold, "_listen", endless)
        (one,) = wait_for(head, ["a"])
        assert begun.wait(100)
        head.accounts.close()
        one.join(100)
    assert not one.is_alive() and not threads()
    assert not head.accounts._folds[RunId("a")].lock.locked()
    assert head.store.cursor(JournalId("a-0")) > 0


def test_who_waits_for_a_short_run_does_not_wait_for_the_worker(
    head: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = book_of("short")
    head.record(book, 60)
    gate = threading.Event()

    def busy() -> Slices[None]:
        assert gate.wait(100)
        yield WORKED

    head.accounts.worker.want("busy", busy, lambda: Priority.WAITED_FOR)
    assert head.accounts.wait(RunId("short"))
    assert head.accounts.at_hand(RunId("short"))
    gate.set()
    head.record(book)
    with head.accounts.of(RunId("short")) as goodput:
        assert goodput is not None and goodput.steps == 88, "it is kept up from then on"
