"""What a run, a project and a client may bring, counted over a real store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from runwatch.head.ingest import Ingest
from runwatch.head.quotas import DAY_NS, NO_LIMITS, Quotas, QuotaSettings, size_of
from runwatch.record import Batch, Event, RunId, RunScope, Verdict
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import EPOCH, BatchWriter, FakeClock, definitions, origin, ramp, until


class World:
    def __init__(self, clock: FakeClock) -> None:
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
        verdict = self.ingest.submit(batch, client, bytes).result(100)
        # What was counted is counted after the answer.
        self.ingest.submit(BatchWriter(origin("own"), []).batch(), "").result(100)
        return verdict


@pytest.fixture
def world() -> Iterator[World]:
    made = World(FakeClock())
    yield made
    made.ingest.close()
    made.store.close()


def writer(run: str, *, series: int = 3) -> BatchWriter:
    return BatchWriter(origin(f"journal-{run}"), definitions(run, series=series))


def member(run: str, project: str, *, series: int = 3) -> BatchWriter:
    """A journal of a run that names a project."""
    made = writer(run, series=series)
    made.definitions = [
        replace(each, group=project) if isinstance(each, RunScope) else each
        for each in made.definitions
    ]
    return made


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
    assert "run 'r' has sent 3 series, and 4 are allowed (run_series" in refused.why
    assert world.quotas.of_run(RunId("r")) == refused.why and world.quotas.notes() == [refused.why]
    until(lambda: world.told == [("r", "series")])
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
    assert "client a has sent 2 runs within a day" in world.bring(writer("r3").batch()).why
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


def test_something_smaller_of_another_journal_ends_no_refusal(world: World) -> None:
    world.restart(client_bytes=1000)
    large, small = writer("large"), writer("small")
    assert world.bring(large.batch(), bytes=900).accepted
    again = large.at
    refused = world.bring(large.batch(), bytes=200)
    assert world.bring(small.batch(), bytes=50).accepted
    assert world.quotas.notes() == [refused.why]
    large.at = again
    assert world.bring(large.batch(), bytes=10).accepted
    assert world.quotas.notes() == []


def test_a_refusal_is_told_for_a_day(world: World) -> None:
    world.restart(client_bytes=1000)
    assert world.bring(writer("r").batch(), bytes=1001).why
    world.clock.now_ns += DAY_NS + 1
    assert world.quotas.notes() == []


def test_many_refusals_are_told_in_brief(world: World) -> None:
    world.restart(run_series=1)
    for number in range(30):
        assert world.bring(writer(f"r{number}").batch()).why
    notes = world.quotas.notes()
    assert len(notes) == 21 and notes[-1] == "and 10 more are over a limit"
    assert world.quotas.refused == 30


# ── projects ──────────────────────────────────────────────────────────────────────────────────


def test_runs_of_a_project_are_counted_by_what_the_store_has(world: World) -> None:
    assert world.bring(member("r1", "a").batch()).accepted
    world.restart(project_runs=2)
    two = member("r2", "a")
    assert world.bring(two.batch()).accepted and world.bring(two.batch(ramp(2))).accepted
    refused = world.bring(member("r3", "a").batch())
    assert not refused.accepted and refused.position == 0
    assert "project 'a' has sent 2 runs, and 2 are allowed (project_runs" in refused.why
    assert world.quotas.notes() == [refused.why]
    assert world.quotas.of_run(RunId("r1")) == refused.why, "it is said of each of them"
    for other in (member("r3", "b"), writer("r4")):
        assert world.bring(other.batch()).accepted
    assert world.bring(two.batch(ramp(2))).accepted
    world.store.delete(RunId("r1"), at_ns=2**62, purge_ns=2**62)
    world.quotas.recount()
    assert world.bring(member("r5", "a").batch()).accepted


def test_an_agent_that_tells_of_a_run_does_not_count_for_its_project(world: World) -> None:
    world.restart(project_runs=1)
    agent = member("r1", "a")
    agent.origin = replace(agent.origin, role="agent", journal="agent-1")  # type: ignore[arg-type]
    assert world.bring(agent.batch()).accepted and world.bring(member("r2", "a").batch()).accepted
    assert "project_runs" in world.bring(member("r1", "a").batch()).why


def test_series_of_a_project_are_those_of_all_its_runs(world: World) -> None:
    world.restart(project_series=7)
    assert world.bring(member("r1", "a").batch()).accepted
    assert world.bring(member("r2", "a").batch()).accepted
    why = world.bring(member("r3", "a").batch()).why
    assert "project 'a' has sent 6 series, and 7 are allowed (project_series" in why
    one = member("r2", "a", series=4)
    one.at = world.store.cursor(one.origin.journal)
    assert world.bring(one.batch()).accepted
    assert world.bring(member("r3", "b").batch()).accepted


def test_what_a_project_has_outlives_the_head(world: World) -> None:
    one, two = member("r1", "a"), member("r2", "a")
    assert world.bring(one.batch(events=events(5))).accepted
    assert world.bring(two.batch(events=events(5))).accepted
    world.restart(project_events=13)
    assert world.bring(one.batch(events=events(2))).accepted  # twelve
    two.definitions = []  # nothing is defined any more: the quick way
    again = two.at
    why = world.bring(two.batch(events=events(2))).why
    assert "project 'a' has sent 12 events, and 13 are allowed (project_events" in why
    until(lambda: world.told == [("r2", "events of its project")])
    two.at = again
    assert world.bring(two.batch(events=events(1))).accepted
    assert world.quotas.notes() == []
    assert world.bring(writer("other").batch(events=events(50))).accepted
    world.store.delete(RunId("r1"), at_ns=2**62, purge_ns=2**62)
    world.quotas.recount()
    assert world.bring(two.batch(events=events(3))).accepted
    assert world.bring(two.batch(events=events(4))).accepted  # thirteen
    assert "project_events" in world.bring(two.batch(events=events(1))).why


def test_bytes_of_a_project_are_those_of_its_messages(world: World) -> None:
    world.restart(project_bytes=5000)
    one, two = member("r1", "a"), member("r2", "a")
    assert world.bring(one.batch(), bytes=900).accepted
    assert world.bring(two.batch(), bytes=4000).accepted
    assert "project_bytes" in world.bring(one.batch(), bytes=1100).why


def test_the_heads_own_word_and_agents_have_no_project(world: World) -> None:
    world.restart(project_runs=1, project_events=1)
    assert world.bring(member("r1", "a").batch(events=events(9)), "").accepted
    agent = BatchWriter(replace(origin("agent-2"), role="agent"), [])
    assert world.bring(agent.batch(events=events(9))).accepted
