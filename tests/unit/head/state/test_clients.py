"""What is kept of clients between two questions never shows: answers are as if made anew."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pytest

from runwatch.head.features.gswarm.profiler import Profiler
from runwatch.head.state.clients import Client, Clients, Pieces
from runwatch.head.state.session_room import SessionRoom
from runwatch.head.state.sessions import Sessions
from runwatch.record import NO_STEP, Batch, Event, JournalId, Origin, Position, Series
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import FakeClock

METRICS = (
    "gpu_utilization_percent",
    "gpu_memory_used_bytes",
    "gpu_memory_total_bytes",
    "gpu_power_watts",
    "gpu_pcie_rx_bytes_per_second",
    "host_memory_used_bytes",
    "host_memory_limit_bytes",
)
SECOND = 10**9


class Node:
    """An agent's journal; a new one of the same process, or of another, may follow it."""

    def __init__(self, number: int, life: int, clock: FakeClock) -> None:
        self.clock = clock
        host = f"node{number % 5}"
        journal = JournalId(f"{host}-{number}-{life}")
        self.origin = Origin(journal, host, 100 + life, clock.now_ns, "boot", 7, "agent")
        self.uuid = f"GPU-{number}"
        self._at = 0
        self._series: dict[str, int] = {}

    def numbers(self, chance: random.Random) -> Batch:
        batch = self._batch()
        for metric in chance.sample(METRICS, chance.randint(1, len(METRICS))):
            self._define(batch, metric)
            value = chance.choice((0.0, chance.random() * 100, chance.random() * 1e11))
            batch.points.append(self._series[metric], self.clock.now_ns, NO_STEP, value)
        return batch

    def words(self) -> Batch:
        batch = self._batch()
        batch.events.append(Event(self.clock.now_ns, "device_added", {"device": "gpu0"}))
        return batch

    def _batch(self) -> Batch:
        start, self._at = self._at, self._at + 1
        return Batch(self.origin, Position(start), Position(self._at))

    def _define(self, batch: Batch, metric: str) -> None:
        if metric not in self._series:
            self._series[metric] = len(self._series) + 1
            labels = {"uuid": self.uuid, "index": "0", "name": "NVIDIA H200"}
            is_gpu = metric.startswith("gpu_")
            batch.definitions.append(
                Series(
                    self._series[metric],
                    metric,
                    device="gpu0" if is_gpu else "",
                    labels=labels if is_gpu else {},
                )
            )


@pytest.fixture
def store() -> Iterator[DuckStore]:
    made = DuckStore.open(None)
    yield made
    made.close()


def profiler(store: DuckStore, clients: Clients, clock: FakeClock) -> Profiler:
    return Profiler(SessionRoom(Sessions(store, clock=clock), clients, clock=clock))


def answers(asked: Profiler) -> list[bytes]:
    told = (asked.latest(), asked.latest(compat=True), asked.status(), asked.clients())
    return [msgspec.json.encode(each) for each in told]


def newcomer(store: DuckStore, told: Iterable[tuple[int, list[Batch]]]) -> Clients:
    """Who was told the same and has never been asked."""
    clock = FakeClock()
    made = Clients(store, told=True, clock=clock)
    for now_ns, batches in told:
        clock.now_ns = now_ns
        made.stored(batches)
    return made


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 10))]
)
def test_kept_answers_are_as_if_made_anew(store: DuckStore, seed: int) -> None:
    chance, clock = random.Random(seed), FakeClock()
    clients = Clients(store, told=True, clock=clock)
    kept = profiler(store, clients, clock)
    nodes: list[Node] = []
    told: list[tuple[int, list[Batch]]] = []
    for turn in range(60):
        clock.now_ns += chance.choice((0, SECOND, SECOND, 20 * SECOND, 2000 * SECOND))
        if turn == 0 or chance.random() < 0.2:
            nodes.append(Node(chance.randrange(12), turn, clock))
        some = [node for node in nodes if chance.random() < 0.4] or [nodes[-1]]
        batches = [n.words() if chance.random() < 0.1 else n.numbers(chance) for n in some]
        store.write(batches)
        clients.stored(batches)
        told.append((clock.now_ns, batches))
        expected = answers(profiler(store, newcomer(store, told), clock))
        assert answers(kept) == expected
        assert answers(kept) == expected


def test_a_gap_that_does_not_say_how_many_counts_as_none(store: DuckStore) -> None:
    clock = FakeClock()
    node = Node(0, 0, clock)
    batch = node.numbers(random.Random(1))
    for records in (None, 3):
        body = {"reason": "dropped", "records": records}
        batch.events.append(Event(clock.now_ns, "journal_gap", body))
    store.write([batch])
    (found,) = Clients(store, told=False, clock=clock).all()
    assert found.dropped_records == 3


@pytest.mark.parametrize("told", [False, True])
def test_an_agent_that_ended_in_order_is_not_one_that_fell_silent(
    store: DuckStore, told: bool
) -> None:
    clock = FakeClock()
    clients = Clients(store, told=told, clock=clock)
    nodes = [Node(number, 0, clock) for number in range(2)]
    batches = [node.numbers(random.Random(1)) for node in nodes]
    store.write(batches)
    clients.stored(batches)
    assert not any(found.ended for found in clients.all())
    batch = nodes[0].words()
    batch.events.append(Event(clock.now_ns, "agent_end", {"pid": 100}))
    store.write([batch])
    clients.stored([batch])
    clock.now_ns += 60 * SECOND
    assert [(c.host, c.healthy, c.ended) for c in clients.all()] == [
        ("node0", False, True),
        ("node1", False, False),
    ]
    assert [c["ended"] for c in profiler(store, clients, clock).clients()["clients"]] == [
        True,
        False,
    ]


def client(name: str, batches: int) -> Client:
    return Client(name, "host", (), (), 0, True, batches=batches)


def test_only_what_changed_is_made_anew() -> None:
    made: list[str] = []

    def make(clients: Sequence[Client]) -> Iterator[msgspec.Raw]:
        for each in clients:
            made.append(each.id)
            yield msgspec.Raw(b"%d" % each.batches)

    pieces = Pieces(make, lambda each: each.batches)

    def told(*clients: Client) -> bytes:
        return msgspec.json.encode(pieces.of(clients))

    assert told(client("a", 1), client("b", 1)) == b'{"a":1,"b":1}'
    assert told(client("b", 1), client("a", 2)) == b'{"b":1,"a":2}'
    assert made == ["a", "b", "a"]
    assert told(client("a", 2)) == b'{"a":2}'
    assert told(client("b", 1)) == b'{"b":1}'
    assert made == ["a", "b", "a", "b"]
