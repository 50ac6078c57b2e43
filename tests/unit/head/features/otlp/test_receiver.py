"""A request is stored once, whole or in part, and answered when it is stored."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from runwatch.clock import system_clock
from runwatch.errors import StoreBusy, StoreFull, WireError
from runwatch.head.features.otlp import receiver as receiving
from runwatch.head.features.otlp.book import MOST_SERIES, Peer
from runwatch.head.features.otlp.receiver import Answer, Busy, Envelope, Receiver, Refused
from runwatch.head.ingest import Ingest
from runwatch.head.quotas import Quotas, QuotaSettings
from runwatch.record import Event, RunId
from runwatch.store.duck.engine import DuckStore
from tests.otlp import gauge, gauge_request, metrics_request

T = 1_700_000_000_000_000_000
HERE = Peer("127.0.0.1", 5000)


class World:
    """A store in a directory, and a receiver that may begin anew."""

    def __init__(self, root: Path, quotas: QuotaSettings | None = None) -> None:
        self.root = root
        self.quotas = quotas
        self.begin()

    def begin(self) -> None:
        self.store = DuckStore.open(self.root)
        quotas = None if self.quotas is None else Quotas(self.quotas, self.store)
        self.ingest = Ingest(self.store, quotas=quotas)
        self.receiver = Receiver(self.ingest, system_clock)

    def close(self) -> None:
        self.receiver.close()
        self.ingest.close()
        self.store.close()

    def restart(self) -> None:
        self.close()
        self.begin()

    def send(self, *requests: Any, **more: Any) -> list[Answer]:
        return asyncio.run(self._send(requests, more))

    async def _send(self, requests: Any, more: dict[str, Any]) -> list[Answer]:
        signal = more.pop("signal", "metrics")
        bodies = [r if isinstance(r, bytes) else r.SerializeToString() for r in requests]
        more = {"peer": HERE} | more
        sent = [self.receiver.receive(Envelope(signal, body, **more)) for body in bodies]
        return list(await asyncio.gather(*sent))

    def values(self, run: str) -> list[float]:
        rows = self.store.series(RunId(run))
        found = self.store.points([row.series for row in rows])
        return sorted(float(value) for columns in found for value in columns.value)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_a_repeated_request_is_stored_once_also_after_a_restart(world: World) -> None:
    request = gauge_request("job", "loss", [(T, 1.0), (T + 1, 2.0)])
    assert world.send(request, request, request) == [Answer()] * 3, "at the same moment, too"
    world.send(request)
    world.restart()
    assert world.send(request) == [Answer()]
    assert world.values("job") == [1.0, 2.0]
    world.send(gauge_request("job", "loss", [(T + 2, 3.0)]))
    world.restart()
    world.send(gauge_request("job", "loss", [(T + 3, 4.0)]))
    assert world.values("job") == [1.0, 2.0, 3.0, 4.0], "what is new is no repetition"
    (series,) = world.store.series(RunId("job"))
    (process,) = world.store.processes(RunId("job"))
    assert (process.rank, process.start_ns) == (0, T), "one process and one series go on"


def test_series_are_known_again_after_a_restart(world: World) -> None:
    world.send(metrics_request("job", [gauge("a", [(T, 1.0)]), gauge("b", [(T, 2.0)])]))
    world.restart()
    world.send(metrics_request("job", [gauge("b", [(T + 1, 3.0)]), gauge("c", [(T + 1, 4.0)])]))
    rows = {row.series: row.metric for row in world.store.series(RunId("job"))}
    assert sorted(rows.values()) == ["a", "b", "c"]
    (found,) = world.store.points(list(rows))
    values = [(rows[int(s)], v) for s, v in zip(found.series, found.value, strict=True)]
    assert sorted(values) == [("a", 1.0), ("b", 2.0), ("b", 3.0), ("c", 4.0)]


def test_lines_without_a_time_are_no_repetition(world: World) -> None:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.body.CopyFrom(AnyValue(string_value="hello"))
    world.send(request, signal="logs")
    world.send(request, signal="logs")
    assert len(world.store.events(kinds=["console"])) == 2
    record.time_unix_nano = T
    world.send(request, signal="logs")
    world.send(request, signal="logs")
    assert len(world.store.events(kinds=["console"])) == 3


def test_bad_points_are_set_aside_and_the_others_stored(world: World) -> None:
    many = {f"label{i}": "x" for i in range(300)}
    wide = gauge("wide", [(T, 1.0)], **many)
    metrics = [gauge("good", [(T, 1.0)]), gauge("timeless", [(0, 1.0)]), wide]
    (answer,) = world.send(metrics_request("job", metrics))
    assert answer.rejected == 2 and "no time" in answer.why and "300 attributes" in answer.why
    assert world.values("job") == [1.0]
    (told,) = world.store.events(RunId("job"), kinds=["otlp_received"])
    assert told.body["refused"] == 2
    with pytest.raises(WireError):
        world.send(b"\xff\xff")


def test_a_sender_has_so_many_series_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_SERIES == 20_000
    monkeypatch.setattr("runwatch.head.features.otlp.book.MOST_SERIES", 3)
    metrics = [gauge(f"m{i}", [(T, float(i))]) for i in range(5)]
    (answer,) = world.send(metrics_request("job", metrics))
    assert answer.rejected == 2 and "3 series" in answer.why
    assert world.values("job") == [0.0, 1.0, 2.0]


def test_ranks_of_senders_that_do_not_say_theirs(world: World) -> None:
    def send(**resource: str | int) -> None:
        world.send(gauge_request("job", "loss", [(T, 1.0)], **resource))

    send(service__instance__id="a")
    send(service__instance__id="b")
    send(service__instance__id="c", runwatch__rank=7)
    send(process__pid=12, host__name="node1")
    world.restart()
    send(service__instance__id="b", again=1)
    send(service__instance__id="d")
    rows = world.store.processes(RunId("job"))
    assert sorted(row.rank for row in rows) == [0, 1, 2, 3, 7]
    assert {(row.host, row.pid) for row in rows if row.pid} == {("node1", 12)}


def test_what_the_wheel_sends_is_of_the_process_that_made_the_run(world: World) -> None:
    def send(at: int, address: str) -> None:
        request = gauge_request("diagon_sdk_workload", "loss", [(T + at, 1.0)], host__name="the-id")
        world.send(request, peer=Peer(address, 1))

    def journals() -> dict[str, int]:
        series = world.store.series(RunId("the-id"))
        return {row.journal.partition("..")[0] + str(row.rank): row.rank for row in series}

    send(0, "10.0.0.1")
    assert journals() == {"otlp0": 0}, "nobody made it: it is a run all the same"
    book = world.receiver.books.make(RunId("the-id"), "the name", "", Peer("10.0.0.9"), None)
    page = book.page(system_clock.wall_ns())
    page.event(Event(system_clock.wall_ns(), "config", {}, scope=1))
    world.receiver.submit(book, page, HERE, (), 0).result(100)
    send(1, "10.0.0.1")
    send(2, "10.0.0.1")
    assert journals() == {"otlp0": 0, "mlrun0": 0}, "whoever sends first is that process"
    send(3, "10.0.0.2")
    assert sorted(journals()) == ["mlrun0", "otlp0", "otlp1"], "another machine, another rank"
    world.restart()
    send(4, "10.0.0.1")
    assert len(journals()) == 3, "a head that begins anew goes on with them"


def test_a_process_of_this_machine_is_seen_to_live_and_to_end(world: World) -> None:
    books, child = world.receiver.books, subprocess.Popen(["sleep", "60"])
    book = books.make(RunId("the-id"), "the name", "", HERE, child.pid)
    journal = book.origin.journal
    assert (books.alive(), books.gone()) == ({journal}, set())
    child.kill()
    child.wait()
    assert (books.alive(), books.gone()) == (set(), {journal})
    page = book.page(system_clock.wall_ns())
    world.receiver.submit(book, page, HERE, (), 0).result(100)
    request = gauge_request("diagon_sdk_workload", "loss", [(T, 1.0)], host__name="the-id")
    world.send(request)
    assert (books.alive(), books.gone()) == (set(), set()), "it speaks: we had seen another"


def test_who_may_not_add_to_a_run_is_told_and_nothing_is_left_of_it(world: World) -> None:
    world.send(gauge_request("job", "loss", [(T, 1.0)]), projects=("ours",))
    assert world.ingest.projects.of(RunId("job")) == "ours", "who names none is of its token's"
    later = gauge_request("job", "other", [(T + 1, 2.0)])
    with pytest.raises(Refused, match="project"):
        world.send(later, projects=("theirs",))
    assert world.values("job") == [1.0]
    assert world.send(later, projects=("ours",)) == [Answer()]
    assert world.values("job") == [1.0, 2.0]
    both = gauge_request("job", "loss", [(T + 2, 3.0)])
    both.MergeFrom(gauge_request("new", "loss", [(T, 9.0)]))
    (answer,) = world.send(both, projects=("theirs",))
    assert answer.rejected == 1 and world.values("new") == [9.0], "the rest is stored"


def test_a_limit_is_a_refusal_and_not_a_repetition(tmp_path: Path) -> None:
    world = World(tmp_path, QuotaSettings(run_series=2))
    try:
        metrics: list[Metric] = [gauge(f"m{i}", [(T, 1.0)]) for i in range(2)]
        world.send(metrics_request("job", metrics))
        over = gauge_request("job", "one_more", [(T, 5.0)])
        for _ in range(2):
            with pytest.raises(Refused, match="series"):
                world.send(over)
        world.send(gauge_request("job", "m0", [(T + 1, 2.0)]))
        assert world.values("job") == [1.0, 1.0, 2.0], "its known series go on"
    finally:
        world.close()


def test_while_the_store_takes_nothing_it_is_to_be_sent_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, monkey = world.store.write, monkeypatch
    monkey.setattr(receiving, "PATIENCE_SECONDS", 0.05)
    monkey.setattr("runwatch.head.ingest.RETRY_SECONDS", 0.05)

    def full(batches: Any) -> Any:
        raise StoreFull("no space")

    monkey.setattr(world.store, "write", full)
    request = gauge_request("job", "loss", [(T, 1.0)])
    with pytest.raises(Busy):
        world.send(request)
    with pytest.raises(Busy, match="no space"):
        world.send(request)
    monkey.setattr(world.store, "write", write)
    monkey.setattr(receiving, "PATIENCE_SECONDS", 10.0)
    assert world.send(request) == [Answer()]
    assert world.values("job") == [1.0]
    monkey.setattr(receiving, "MOST_WAITING_BYTES", 10)
    with pytest.raises(Busy):
        world.send(request)
    with pytest.raises(StoreBusy, match="only be read"):
        asyncio.run(Receiver(None, system_clock).receive(Envelope("metrics", b"")))


def test_who_sends_nothing_costs_no_thread(world: World) -> None:
    assert world.receiver._thread is None and world.receiver._seen is None
    assert world.receiver.alive() == set() == world.receiver.gone()
