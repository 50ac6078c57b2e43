"""gRPC for programs made for gswarm-profiler: `wire/gswarm.proto` on the spine's own port.

A client that connects is a guest.  What it streams is stored like an agent's journal, a new one for
each connection.  Two guests with the same host name get a number each.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, TypeAlias

import grpc

from runwatch.clock import Clock, system_clock
from runwatch.head.features.gswarm.profiler import Profiler
from runwatch.head.ingest import Ingest
from runwatch.head.state.clients import GUEST, Client
from runwatch.journal.segment import new_journal_id
from runwatch.record import NO_STEP, Batch, Event, Origin, Position, Series, Verdict
from runwatch.record.node import GuestConnect
from runwatch.wire import gswarm_pb2 as pb
from runwatch.wire.gswarm_readings import device_name, readings, sampled_ns, says_percent

NAME: Final = "gswarm_profiler.ProfilerService"
MOST_WAITING: Final = 50_000
ROOM_POLL_SECONDS: Final = 0.02
LONGEST_TEXT: Final = 200
MOST_SERIES: Final = 20_000
DROPPED: Final = "runwatch-dropped-records"
UNHEALTHY: Final = "runwatch-unhealthy-clients"
AWAITED: Final = "runwatch-awaited-clients"
"""Headers beside the answer, since the message is the other project's: how many records clients
dropped in all while no head took them; which clients are silent or behind, and for which a session
that stops waits, as JSON.  Each is left out when there is nothing to say."""
MOST_TOLD: Final = 20
logger = logging.getLogger("runwatch.head")

Context: TypeAlias = grpc.aio.ServicerContext


class Guest:
    """One client's journal.  Used in the event loop only."""

    def __init__(self, ingest: Ingest, host: str, peer: str, slot: int, clock: Clock) -> None:
        self.host = host
        self.slot = slot
        now_ns = clock.wall_ns()
        journal = new_journal_id(host, slot, now_ns, os.urandom(4).hex())
        self._origin = Origin(journal, host, 0, now_ns, GUEST + peer, 0, "agent", "gswarm")
        self._ingest = ingest
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._series: dict[tuple[str, int], int] = {}
        self._is_percent = False
        self._last_ns = 0
        self._place = 0
        self._batch = self._new_batch()
        self._sending: asyncio.Future[Verdict] | None = None
        self.failure: BaseException | None = None

    def _new_batch(self) -> Batch:
        return Batch(self._origin, Position(self._place), Position(self._place))

    # ── what it says ──────────────────────────────────────────────────────────────────────────

    def know(self, gpus: Any) -> None:
        """Records the guest's devices, before it has sent any samples."""
        for gpu in gpus[: MOST_SERIES // 10]:
            self._define("gpu_utilization_percent", max(gpu.physical_idx, -1), gpu.name, "%")
        connect = GuestConnect(len(gpus), self.slot)
        self._batch.events.append(Event(self._clock.wall_ns(), connect.KIND, connect.body()))

    def take(self, update: Any, *, bandwidth: bool, nvlink: bool) -> None:
        time_ns = self._time(update.timestamp)
        self._is_percent = self._is_percent or says_percent(update)
        for metric, index, name, unit, value in readings(
            update, percent=self._is_percent, bandwidth=bandwidth, nvlink=nvlink
        ):
            self._point(metric, index, name, unit, time_ns, value)

    def _time(self, seconds: float) -> int:
        time_ns = sampled_ns(seconds)
        if time_ns is None:
            # Samples without a time count as now.  Two samples of one time would be one.
            time_ns = self._last_ns = max(self._clock.wall_ns(), self._last_ns + 1)
        return time_ns

    def _point(
        self, metric: str, index: int, name: str, unit: str, time_ns: int, value: float
    ) -> None:
        series = self._series.get((metric, index))
        if series is None:
            if len(self._series) >= MOST_SERIES:
                return
            series = self._define(metric, index, name, unit)
        self._batch.points.append(series, time_ns, NO_STEP, value)

    def _define(self, metric: str, index: int, name: str, unit: str) -> int:
        device = device_name(index)
        known = self._series.get((metric, index))
        if known is None:
            known = self._series[metric, index] = len(self._series) + 1
            labels = {"client": str(self.slot)}
            if device:
                labels |= {"index": str(index), "name": name[:LONGEST_TEXT]}
            self._batch.definitions.append(
                Series(known, metric[:LONGEST_TEXT], 0, unit, device, labels)
            )
        return known

    # ── storing it ────────────────────────────────────────────────────────────────────────────

    async def send(self) -> None:
        """Starts storing what waits.  Returns at once, unless too much waits already."""
        if self._sending is None:
            while not self._ingest.has_room:
                await asyncio.sleep(ROOM_POLL_SECONDS)
            self._submit()
        elif len(self._batch.points) > MOST_WAITING:
            await self.drain()

    async def drain(self) -> None:
        """Returns when everything is stored, or when storing failed: `failure` says why."""
        while self.failure is None and (self._sending is not None or self._batch.records):
            if self._sending is None:
                self._submit()
            if self._sending is not None:
                await asyncio.wait([self._sending])

    def _submit(self) -> None:
        batch = self._batch
        batch.end = Position(batch.start + max(1, batch.records))
        self._place = batch.end
        self._batch = self._new_batch()
        sending = asyncio.wrap_future(self._ingest.submit(batch), loop=self._loop)
        self._sending = sending
        sending.add_done_callback(self._sent)

    def _sent(self, sent: asyncio.Future[Verdict]) -> None:
        self._sending = None
        if sent.cancelled():
            self.failure = ConnectionError("this head is stopping")
        elif (error := sent.exception()) is not None:
            self.failure = error
        elif self._batch.records:
            self._submit()


class Guests:
    """The connected guests, by address."""

    def __init__(self, ingest: Ingest, clock: Clock) -> None:
        self._ingest = ingest
        self._clock = clock
        self._by_peer: dict[str, Guest] = {}

    def greet(self, peer: str, host: str) -> Guest:
        """A new guest at this address.  Its number at another address is free again."""
        self._by_peer.pop(peer, None)
        taken = {guest.slot for guest in self._by_peer.values() if guest.host == host}
        slot = next(number for number in range(1, len(taken) + 2) if number not in taken)
        guest = self._by_peer[peer] = Guest(self._ingest, host, peer, slot, self._clock)
        return guest

    def at(self, peer: str, host: str) -> Guest:
        known = self._by_peer.get(peer)
        return known if known is not None and known.host == host else self.greet(peer, host)

    def leave(self, peer: str) -> None:
        self._by_peer.pop(peer, None)


class ProfilerService:
    """Serves `gswarm_profiler.ProfilerService`; `on_exit` ends the head."""

    def __init__(
        self,
        profiler: Profiler,
        ingest: Ingest,
        *,
        on_exit: Callable[[], None],
        clock: Clock = system_clock,
    ) -> None:
        self._profiler = profiler
        self._guests = Guests(ingest, clock)
        self._on_exit = on_exit

    def handler(self) -> Any:
        unary: dict[str, tuple[Any, Any]] = {
            "Connect": (self.connect, pb.InitialInfo),
            "GetStatus": (self.get_status, pb.Empty),
            "StartProfiling": (self.start_profiling, pb.StartProfilingRequest),
            "StopProfiling": (self.stop_profiling, pb.StopProfilingRequest),
            "Exit": (self.exit, pb.Empty),
            "ReadClusterStatus": (self.read_cluster_status, pb.ReadClusterStatusRequest),
            "ReadNodeStatus": (self.read_node_status, pb.ReadNodeStatusRequest),
            "SetBandwidthProfiling": (self.set_bandwidth, pb.SetBandwidthRequest),
            "SetNVLinkProfiling": (self.set_nvlink, pb.SetNVLinkRequest),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                method,
                request_deserializer=kind.FromString,
                response_serializer=lambda reply: reply.SerializeToString(),
            )
            for name, (method, kind) in unary.items()
        }
        handlers["StreamMetrics"] = grpc.stream_unary_rpc_method_handler(
            self.stream_metrics,
            request_deserializer=pb.MetricsUpdate.FromString,
            response_serializer=pb.Empty.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(NAME, handlers)

    # ── clients ───────────────────────────────────────────────────────────────────────────────

    async def connect(self, info: Any, context: Context) -> Any:
        guest = self._guests.greet(context.peer(), _host(info.hostname))
        guest.know(info.gpus)
        await self._stored(guest, context)
        logger.info("%s connects with %d GPUs", context.peer(), len(info.gpus))
        return pb.ConnectResponse(
            success=True,
            message=f"Connected successfully. Registered {len(info.gpus)} GPUs.",
        )

    async def stream_metrics(self, updates: AsyncIterator[Any], context: Context) -> Any:
        """Samples that came are stored even when the client vanishes."""
        peer, guest = context.peer(), None
        try:
            async for update in updates:
                guest = self._guests.at(peer, _host(update.hostname))
                defaults = self._profiler.sessions.defaults
                guest.take(update, bandwidth=defaults.bandwidth, nvlink=defaults.nvlink)
                await guest.send()
                if guest.failure is not None:
                    break
            if guest is not None:
                await self._stored(guest, context)
        finally:
            self._guests.leave(peer)
        return pb.Empty()

    async def _stored(self, guest: Guest, context: Context) -> None:
        await guest.drain()
        if guest.failure is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(guest.failure))

    # ── sessions ──────────────────────────────────────────────────────────────────────────────

    async def get_status(self, request: Any, context: Context) -> Any:
        found = await asyncio.to_thread(self._profiler.status)
        context.set_trailing_metadata(_beside(found))
        return pb.StatusResponse(
            freq=found["freq"],
            enable_bandwidth_profiling=found["enable_bandwidth_profiling"],
            enable_nvlink_profiling=found["enable_nvlink_profiling"],
            is_profiling=found["is_profiling"],
            output_filename=found["output_filename"],
            frame_id_counter=min(found["frame_id_counter"], 2**31 - 1),
            connected_clients=found["connected_clients"],
            active_sessions_json=json.dumps(found["active_sessions"]),
        )

    async def start_profiling(self, request: Any, context: Context) -> Any:
        name, metrics = request.name or None, list(request.report_metrics)
        outcome = await asyncio.to_thread(self._profiler.start, name, metrics)
        return pb.StartProfilingResponse(
            success=outcome.success, message=outcome.message, output_file=outcome.output_file or ""
        )

    async def stop_profiling(self, request: Any, context: Context) -> Any:
        outcome = await self._profiler.stop(request.name or None)
        return pb.StopProfilingResponse(success=outcome.success, message=outcome.message)

    async def exit(self, request: Any, context: Context) -> Any:
        # The answer must be sent first.
        asyncio.get_running_loop().call_later(0.1, self._on_exit)
        return pb.Empty()

    async def set_bandwidth(self, request: Any, context: Context) -> Any:
        self._profiler.sessions.set_defaults(bandwidth=request.enable)
        return _set("Bandwidth", request.enable)

    async def set_nvlink(self, request: Any, context: Context) -> Any:
        self._profiler.sessions.set_defaults(nvlink=request.enable)
        return _set("NVLink", request.enable)

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────

    async def read_cluster_status(self, request: Any, context: Context) -> Any:
        nodes = await asyncio.to_thread(self._nodes)
        return pb.ClusterStatusResponse(
            success=True, message=f"{len(nodes)} nodes.", cluster_id="runwatch", nodes=nodes
        )

    async def read_node_status(self, request: Any, context: Context) -> Any:
        nodes = await asyncio.to_thread(self._nodes)
        wanted = next((node for node in nodes if node.node_id == request.node_id), None)
        if wanted is None:
            message = f"There is no node {request.node_id[:LONGEST_TEXT]!r}."
            return pb.NodeStatusResponse(success=False, message=message)
        return pb.NodeStatusResponse(success=True, message="", node_status=wanted)

    def _nodes(self) -> list[Any]:
        clients = self._profiler.room.clients.all()
        values = self._profiler.values(clients)
        return [_node(client, values) for client in clients]


MEBI: Final = float(1 << 20)
"""gswarm's `read` shows memory as MB, and bandwidths divided by 1024 as GB/s."""
NOT_READ: Final = -1.0
"""gswarm's `read` shows it as N/A."""


def _node(client: Client, values: Any) -> Any:
    def status(device: Any) -> Any:
        def of(*columns: str, unit: float = 1.0) -> float:
            found = [values.of(device.series, column) for column in columns]
            known = [float(value) for value in found if value is not None]
            return sum(known) / unit if known else NOT_READ

        return pb.GPUStatus(
            gpu_id=device.index,
            utilization=of("util"),
            memory_used=round(of("memory_used", unit=MEBI)),
            memory_total=round(of("memory_total", unit=MEBI)),
            dram_bandwidth=of("pcie_rx", "pcie_tx", unit=MEBI),
            nvlink_bandwidth=of("nvlink_rx", "nvlink_tx", unit=MEBI),
            temperature=NOT_READ,
            power=of("power"),
        )

    label = client.devices[0].label if client.devices else client.host
    return pb.NodeStatus(node_id=label, gpus=[status(device) for device in client.devices])


def _beside(status: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    dropped = sum(status["dropped_records"].values())
    said = [(DROPPED, str(dropped))] if dropped else []
    for header, names in (
        (UNHEALTHY, status["unhealthy_clients"]),
        (AWAITED, status["awaited_clients"]),
    ):
        if names:
            said.append((header, json.dumps(names[:MOST_TOLD])))  # it is ASCII
    return tuple(said)


def _host(name: str) -> str:
    return name[:LONGEST_TEXT] or "unknown"


def _set(what: str, enable: bool) -> Any:
    word = "enabled" if enable else "disabled"
    return pb.SetProfilingResponse(success=True, message=f"{what} profiling {word}.")
