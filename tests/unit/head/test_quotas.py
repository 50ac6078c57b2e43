"""What a run and a client may bring, counted over a real store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runwatch.head.ingest import Ingest
from runwatch.head.quotas import DAY_NS, NO_LIMITS, Quotas, QuotaSettings, size_of
from runwatch.record import Batch, Event, RunId, Verdict
from runwatch.store.duck import DuckStore
from tests.integration.head_history import Clock
from tests.integration.processes import until
from tests.unit.store.batches import EPOCH, Writer, definitions, origin, ramp


class World:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.store = DuckStore.open(None)
        self.told: list[tuple[str, str]] = []
        self.begin(NO_LIMITS)

    def begin(self, limits: QuotaSettings) -> None:
        self.quotas = Quotas(
            limits,
            self.store,
            tell=lambda run, what, why: self.told.append((run, what)),
            clock=self.clock,
        )
        self.ingest = Ingest(self.store, quotas=self.quotas)

    def restart(self, **limits: int) -> None:
        self.ingest.close()
        self.begin(QuotaSettings(**dict.fromkeys(QuotaSettings.__slots__, 0) | limits))

    def bring(self, batch: Batch, client: str = "a", bytes: int = 0) -> Verdict:
        verdict = self.ingest.submit(batch, client, bytes).result(20)
        # What was counted is counted after the answer.
        self.ingest.submit(Writer(origin("own"), []).batch(), "").result(20)
        return verdict


@pytest.fixture
def world() -> Iterator[World]:
    made = World(Clock())
    yield made
    made.ingest.close()
    made.store.close()


def writer(run: str, *, series: int = 3) -> Writer:
    return Writer(origin(f"journal-{run}"), definitions(run, series=series))


def events(count: int) -> list[Event]:
    return [Event(EPOCH, "log", {}, scope=1)] * count


def test_without_limits_all_is_taken(world: World) -> None:
    assert world.bring(writer("r", series=5000).batch(ramp(9), events=events(99))).accepted


def test_series_of_a_run_are_counted_once_however_often_they_are_defined(world: World) -> None:
    world.restart(run_series=4)
    one = writer("r")
    assert world.bring(one.batch()).accepted and world.bring(one.batch(ramp(2))).accepted
    one.definitions = definitions("r", series=5)
    refused = world.bring(one.batch())
    assert not refused.accepted and refused.position == world.store.cursor(refused.journal)
    assert "run 'r' has brought 3 series, and 4 are allowed (run_series" in refused.why
    assert world.quotas.of_run(RunId("r")) == refused.why and world.quotas.notes() == [refused.why]
    until(lambda: world.told == [("r", "series")], 10)
    assert world.bring(writer("other").batch()).accepted


def test_what_a_run_has_outlives_the_head(world: World) -> None:
    one = writer("r")
    assert world.bring(one.batch(events=events(5))).accepted
    world.restart(run_events=8)
    assert world.bring(one.batch(events=events(2))).accepted  # seven
    again = one.at
    assert "run_events" in world.bring(one.batch(events=events(2))).why
    one.at = again
    assert world.bring(one.batch(events=events(1))).accepted
    assert world.quotas.notes() == []


def test_a_client_may_come_again_after_a_day(world: World) -> None:
    world.restart(client_runs=2)
    assert world.bring(writer("r1").batch()).accepted and world.bring(writer("r2").batch()).accepted
    assert "client a has brought 2 runs within a day" in world.bring(writer("r3").batch()).why
    assert world.bring(writer("r3").batch(), "b").accepted
    assert world.bring(writer("r4").batch(), "").accepted  # the head's own word
    world.clock.now_ns += DAY_NS + 1
    assert world.bring(writer("r5").batch()).accepted


def test_bytes_are_those_of_the_message(world: World) -> None:
    world.restart(client_bytes=1000)
    one = writer("r")
    assert world.bring(one.batch(), bytes=900).accepted
    assert "client_bytes" in world.bring(one.batch(), bytes=200).why
    assert size_of(Batch(origin(), 5, 25)) == 20  # type: ignore[arg-type]
    assert size_of(Batch(origin(), 5, (1 << 32) + 7)) == 7  # type: ignore[arg-type]


def test_many_refusals_are_told_in_brief(world: World) -> None:
    world.restart(run_series=1)
    for number in range(30):
        assert world.bring(writer(f"r{number}").batch()).why
    notes = world.quotas.notes()
    assert len(notes) == 21 and notes[-1] == "and 10 more are over a limit"
    assert world.quotas.refused == 30
