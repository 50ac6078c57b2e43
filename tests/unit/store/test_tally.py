"""A tally says in brief what a replay would tell of each journal."""

from __future__ import annotations

from runwatch.record import Batch, JournalId
from runwatch.store.store import Replay, Store, Tally
from runwatch.testing import EPOCH, SECOND
from tests.unit.store.conftest import Engine
from tests.unit.store.test_goodput_replay import ALL, RUN, journal, write

Times = dict[JournalId, list[int]]


def times_of(told: Replay) -> Times:
    found: Times = {}
    for batch in (batch for stretch in told for batch in stretch):
        found.setdefault(batch.origin.journal, []).extend(_times(batch))
    return found


def _times(batch: Batch) -> list[int]:
    events = [event.time_ns for event in batch.events]
    return [*batch.spans.time_ns, *batch.points.time_ns, *events]


def tally_of(times: list[int]) -> Tally:
    return Tally(len(times), max(times), sum(times)) if times else Tally()


def test_it_is_of_what_is_told_wherever_it_lies(engine: Engine) -> None:
    store = engine.fresh()
    writers = [journal("j-0"), journal("j-1", rank=1)]
    for first in (0, 100):
        for rank, writer in enumerate(writers):
            write(store, writer, first, 60 + 40 * rank, rank=rank)
        store.compact(force=True)
        write(store, writers[0], 500 + first, 7)  # the rest stays hot
    silent = journal("j-silent", rank=2)
    store.write([silent.batch([])])
    with store.replay(RUN, ALL) as told:
        found = told.tally()
        times = times_of(told)
    assert found == {name: tally_of(each) for name, each in times.items()}
    assert found[JournalId("j-silent")] == Tally()
    assert found[JournalId("j-0")].rows > 300


def test_up_to_a_time_that_is_included(store: Store) -> None:
    for rank in (0, 1):
        write(store, journal(f"j-{rank}", rank=rank), 0, 50, rank=rank)
    until = {
        JournalId("j-0"): EPOCH + 20 * SECOND,  # when a step begins, and an event tells of it
        JournalId("j-1"): EPOCH - 1,
    }
    with store.replay(RUN, ALL) as told:
        found = told.tally(until)
        times = times_of(told)
    kept = {name: [t for t in each if t <= until[name]] for name, each in times.items()}
    assert found == {name: tally_of(each) for name, each in kept.items()}
    assert found[JournalId("j-0")].newest_ns == EPOCH + 20 * SECOND
    assert found[JournalId("j-1")] == Tally()


def test_it_is_of_the_moment_of_the_replay(store: Store) -> None:
    writer = journal("j-0")
    write(store, writer, 0, 10)
    with store.replay(RUN, ALL) as told:
        write(store, writer, 10, 10)
        store.compact(force=True)
        early = told.tally()
    with store.replay(RUN, ALL) as told:
        late = told.tally()
    assert early[JournalId("j-0")].rows == 31
    assert late[JournalId("j-0")].rows == 62
