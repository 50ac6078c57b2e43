"""A head that is stopped while agents and guests send ends without a word about it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from runwatch.head.main import LocalHead
from runwatch.head.stream import SpineService, serve_grpc
from runwatch.record import Batch, Command, JournalId, Origin, Position, Series
from runwatch.ship.client import METHOD
from runwatch.testing import until
from runwatch.wire import gswarm_pb2, spine_pb2
from runwatch.wire.convert import batch_to_message
from tests import tokens
from tests.integration.processes import Cluster
from tests.sampling import sampled

GSWARM = "/gswarm_profiler.ProfilerService/"


class Sending(threading.Thread):
    """Sends as fast as it is let, until the head ends the stream."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.metadata = tokens.metadata(port)
        self.began = threading.Event()
        self.code: grpc.StatusCode | None = None
        self.channel = grpc.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]
        )

    def run(self) -> None:
        try:
            self.send()
        except grpc.RpcError as error:
            self.code = error.code()
        finally:
            self.channel.close()

    def send(self) -> None:
        raise NotImplementedError


class Agent(Sending):
    def send(self) -> None:
        stream = self.channel.stream_stream(
            METHOD, spine_pb2.Up.SerializeToString, spine_pb2.Down.FromString
        )
        for down in stream(self._said(), metadata=self.metadata):
            if down.WhichOneof("message") == "cursor":
                self.began.set()

    def _said(self) -> Iterator[spine_pb2.Up]:
        name = f"agent-{self.number}"
        yield hello(name)
        origin = Origin(JournalId(name), name, 1, 0, role="agent")
        for start in range(0, 10**9, 100):
            batch = Batch(origin, Position(start), Position(start + 100))
            if not start:
                batch.definitions.append(Series(1, "gpu_power_watts", device="gpu0"))
            for time_ns in range(start, start + 100):
                batch.points.append(1, time_ns, 0, 1.0)
            yield spine_pb2.Up(batch=batch_to_message(batch))


class Guest(Sending):
    def send(self) -> None:
        stream = self.channel.stream_unary(
            GSWARM + "StreamMetrics",
            gswarm_pb2.MetricsUpdate.SerializeToString,
            gswarm_pb2.Empty.FromString,
        )
        stream(self._said(), metadata=self.metadata)

    def _said(self) -> Iterator[gswarm_pb2.MetricsUpdate]:
        gpus = [gswarm_pb2.GPUMetric(physical_idx=0, name="G", gpu_util=0.5)]
        for number in range(10**9):
            yield gswarm_pb2.MetricsUpdate(hostname=f"guest-{self.number}", gpus_metrics=gpus)
            if number == 100:
                self.began.set()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        yield made
    finally:
        made.close()


def end(cluster: Cluster, how: str) -> None:
    assert cluster.head is not None
    if how != "Exit":
        cluster.head.send_signal(getattr(signal, how))
        return
    with grpc.insecure_channel(f"127.0.0.1:{cluster.grpc_port}") as channel:
        call = channel.unary_unary(
            GSWARM + "Exit", gswarm_pb2.Empty.SerializeToString, gswarm_pb2.Empty.FromString
        )
        call(gswarm_pb2.Empty(), metadata=tokens.metadata(cluster.grpc_port), timeout=100)


@pytest.mark.parametrize("how", sampled(["SIGTERM", "Exit", "SIGINT"], 2))
def test_a_head_that_is_stopped_under_load_says_nothing(cluster: Cluster, how: str) -> None:
    cluster.start_head()
    sending: list[Sending] = [Agent(cluster.grpc_port, number) for number in range(6)]
    sending += [Guest(cluster.grpc_port, number) for number in range(3)]
    for one in sending:
        one.start()
    until(lambda: all(one.began.is_set() for one in sending), what="all of them to be heard")
    end(cluster, how)
    assert cluster.head is not None
    cluster.head.wait(100)
    for one in sending:
        one.join(100)
    assert not any(one.is_alive() for one in sending)
    if how == "Exit":
        assert {one.code for one in sending} == {grpc.StatusCode.UNAVAILABLE}
    said = [line for line in cluster.words().splitlines() if line.strip()]
    greeting = ("Runwatch head:", "For programs, ", "  export RUNWATCH_HEAD=")
    plain = [line for line in said if not line.startswith(greeting) and " INFO " not in line]
    assert plain == []


def test_who_is_late_or_behind_is_told_so_and_not_cut_off(tmp_path: Path) -> None:
    async def tell() -> tuple[grpc.StatusCode, list[str]]:
        service = SpineService(head.ingest)
        server, port = await serve_grpc(service, "127.0.0.1:0")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            method = channel.stream_stream(
                METHOD, spine_pb2.Up.SerializeToString, spine_pb2.Down.FromString
            )
            heard, late = method(), method()
            await heard.write(hello("heard"))
            said = [(await heard.read()).WhichOneof("message")]
            (agent,) = service.agents.values()
            for number in range(1000):
                agent.send(Command(str(number), "stacks"))
            await asyncio.sleep(0)  # now they wait to be said
            service.end()
            await late.write(hello("late"))
            with suppress(grpc.RpcError):
                while (down := await heard.read()) is not grpc.aio.EOF:
                    said.append(down.WhichOneof("message"))
            code = await late.code()
            await server.stop(grace=5.0)
        return code, said

    head = LocalHead(tmp_path)
    try:
        code, said = asyncio.run(asyncio.wait_for(tell(), 100))
    finally:
        head.close()
    assert code == grpc.StatusCode.UNAVAILABLE
    assert said[0] == "welcome" and len(said) < 500


def hello(host: str) -> spine_pb2.Up:
    return spine_pb2.Up(
        hello=spine_pb2.Hello(oldest_wire_version=1, newest_wire_version=1, host=host)
    )
