from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any

import pytest

from runwatch.errors import StoreDamaged, StoreFull
from runwatch.head import ingest as module
from runwatch.head.ingest import Ingest
from runwatch.record import Batch, JournalId, Origin, Position, Series, Verdict
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import FakeClock, until


class GatedStore:
    """A real store whose writes wait for a gate, or fail as told."""

    def __init__(self) -> None:
        self.inner = DuckStore.open(None)
        self.gate = threading.Event()
        self.fail: Exception | None = None

    def write(self, batches: Sequence[Batch]) -> list[Verdict]:
        self.gate.wait(100)
        if self.fail is not None:
            raise self.fail
        return self.inner.write(batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.fixture
def store() -> Iterator[GatedStore]:
    made = GatedStore()
    yield made
    made.inner.close()


def batch(start: int, end: int, journal: str = "j") -> Batch:
    made = Batch(Origin(JournalId(journal), "h", 1, 0), Position(start), Position(end))
    made.definitions.append(Series(1, "loss"))
    for number in range(start, end):
        made.points.append(1, number, number, float(number))
    return made


def test_a_batch_is_acknowledged_after_it_is_stored_and_not_before(store: GatedStore) -> None:
    ingest = Ingest(store)
    waiting = ingest.submit(batch(0, 10))
    assert not waiting.done()
    store.gate.set()
    assert waiting.result(100) == Verdict(JournalId("j"), Position(10), accepted=True)
    assert store.cursor(JournalId("j")) == 10
    ingest.close()


def test_what_waits_is_bounded(store: GatedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_POINTS", 100)
    ingest = Ingest(store)
    futures = []
    for number in range(50):
        if not ingest.has_room:
            break
        futures.append(ingest.submit(batch(number * 10, number * 10 + 10)))
    assert 0 < len(futures) < 20
    assert not ingest.wait_for_room(0.01)
    store.gate.set()
    assert ingest.wait_for_room(20)
    assert [future.result(100).accepted for future in futures] == [True] * len(futures)
    ingest.close()
    assert ingest.points_stored == 10 * len(futures)


def test_a_full_disk_stops_acknowledging_says_so_and_resumes(
    store: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    ingest = Ingest(store)
    store.fail = StoreFull("no space left for DIR: 3 bytes free")
    store.gate.set()
    waiting = ingest.submit(batch(0, 10))
    until(lambda: ingest.problem, what="the problem to be told")
    assert "3 bytes free" in ingest.problem
    assert not waiting.done()
    store.fail = None
    assert waiting.result(100).accepted
    assert ingest.problem == ""
    ingest.close()


def test_repeats_are_answered_with_the_cursor_and_stored_once(store: GatedStore) -> None:
    store.gate.set()
    ingest = Ingest(store)
    first, again = ingest.submit(batch(0, 10)), ingest.submit(batch(0, 10))
    gap = ingest.submit(batch(20, 30))
    assert first.result(100).accepted
    assert again.result(100) == Verdict(JournalId("j"), Position(10), accepted=False)
    assert gap.result(100) == Verdict(JournalId("j"), Position(10), accepted=False)
    ingest.close()
    assert (ingest.points_stored, ingest.batches_refused) == (10, 2)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_store_that_fails_is_not_hidden(store: GatedStore) -> None:
    store.fail = StoreDamaged("the store in DIR failed")
    store.gate.set()
    ingest = Ingest(store)
    with pytest.raises(StoreDamaged):
        ingest.submit(batch(0, 10)).result(100)
    until(lambda: ingest.failure)
    assert ingest.submit(batch(0, 10)).cancelled()
    ingest.close()


# ── its pace ───────────────────────────────────────────────────────────────────────────────────


class CountingStore(GatedStore):
    """Remembers how many batches each transaction had."""

    def __init__(self) -> None:
        super().__init__()
        self.gate.set()
        self.writes: list[int] = []

    def write(self, batches: Sequence[Batch]) -> list[Verdict]:
        self.writes.append(len(batches))
        return super().write(batches)


class Paced:
    """An ingest whose time stands still, so that what has to wait would wait for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "PACE_SECONDS", 1000.0)
        monkeypatch.setattr(module, "MUCH_POINTS", 1000)
        self.store = CountingStore()
        self.clock = FakeClock()
        self.ingest = Ingest(self.store, clock=self.clock)
        self._at = 0

    def submit(self, points: int = 1) -> Future[Verdict]:
        start, self._at = self._at, self._at + points
        return self.ingest.submit(batch(start, self._at))

    def exhaust(self) -> None:
        for _ in range(module.BURST):
            assert self.submit().result(100).accepted

    def close(self) -> None:
        self.ingest.close()
        self.store.inner.close()


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Paced]:
    made = Paced(monkeypatch)
    yield made
    made.close()


def test_after_a_lull_nothing_waits(paced: Paced) -> None:
    for _ in range(3):
        paced.clock.advance(1000.0 * module.BURST)
        paced.exhaust()
    assert paced.store.writes == [1] * 3 * module.BURST


def test_what_comes_thick_and_fast_is_stored_together(paced: Paced) -> None:
    paced.exhaust()
    small = [paced.submit() for _ in range(5)]
    much = paced.submit(2000)
    assert all(future.result(100).accepted for future in (*small, much))
    assert paced.store.writes == [1] * module.BURST + [6]


def test_much_at_a_time_is_not_made_up_for_later(paced: Paced) -> None:
    """Big batches go at once however many there are, and after a lull small ones do again."""
    for _ in range(3 * module.BURST):
        assert paced.submit(2000).result(100).accepted
    paced.clock.advance(2 * 1000.0)
    assert paced.submit().result(100).accepted


def test_who_closes_does_not_wait_for_the_pace(paced: Paced) -> None:
    paced.exhaust()
    waiting = [paced.submit() for _ in range(3)]
    paced.ingest.close()
    assert all(future.result(0).accepted for future in waiting)


def test_who_is_here_for_one_answer_does_not_put_the_store_in_order(
    store: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOUSEKEEPING_SECONDS", 0.01)
    looks, compactions = count(), count()
    looked = compacted = 0

    def compact() -> int:
        nonlocal compacted
        compacted = next(compactions) + 1
        return store.inner.compact()

    store.gate.set()
    monkeypatch.setattr(store, "compact", compact, raising=False)
    ingest = Ingest(store)
    ingest.keeps_house = False
    pause = ingest._stopping.wait

    def wait(seconds: float | None = None) -> bool:
        nonlocal looked
        looked = next(looks) + 1
        return pause(seconds)

    monkeypatch.setattr(ingest._due, "wait", wait)
    assert ingest.submit(batch(0, 10)).result(100).accepted
    assert until(lambda: looked >= 2)  # one that had begun before is over
    before = compacted
    assert until(lambda: looked >= 6)
    assert compacted == before
    ingest.keeps_house = True
    assert until(lambda: compacted > before)
    ingest.close()
