"""Our head and the original's under one load: 256 nodes × 8 GPUs, as the original's clients send.

    python benchmarks/devices_beside.py [--quick]

Both take the original's protocol (`src/runwatch/wire/gswarm.proto`), each as a process of its own
on one core, one after the other.  First every node sends one update a second, a session goes on,
and `/status` and `/metrics/latest` are asked for twice a second.  Then eight nodes send as fast as
they are let.  The original is gswarm 0.4.3, the only release that a package index has, in
`.venv-bench/gswarm`; PyTorch and transformers, which its head imports and does not use, are left
out.  Its version 0.2.1 (`gswarm-profiler`) is in no index.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from asking import (
    Asking,
    ask_once,
    cpu_percent,
    growth_mb_per_minute,
    memory_each_second,
)
from ingest import Head
from report import Outcome, Table
from trial import (
    HERE,
    METADATA,
    PEERS_PYTHON,
    Options,
    TrialFailed,
    answer,
    directory,
    environment,
    read_answer,
    until,
    worker,
)

from runwatch.store.duck.engine import DuckStore
from runwatch.wire import gswarm_pb2 as pb

ORIGINAL: Final = PEERS_PYTHON.parents[1] / "gswarm" / "bin" / "python"
NODES, GPUS, FLOOD_NODES = 256, 8, 8
SERVICE: Final = "/gswarm_profiler.ProfilerService/"
POLL_SECONDS: Final = 0.5
PATHS: Final = ("/status", "/metrics/latest")
NAME: Final = "NVIDIA H200"
NOT_HERE: Final = (
    "NOT RUN HERE: .venv-bench/gswarm is missing (`make bench` makes it).  Taken on another day on "
    "two busy cores at 2 Hz: /status 16 ms, /metrics/latest 133 ms in the middle; 40,000 to 51,000 "
    "GPU-samples/s taken, one a second and GPU stored; 0.96 MB/s more memory in a session."
)


@dataclass(frozen=True)
class At:
    """A head that listens."""

    grpc: str
    http: str
    pid: int


# ── the nodes, in a process of their own ──────────────────────────────────────────────────────


class Node:
    def __init__(self, number: int, address: str) -> None:
        self.host = f"node-{number:03}"
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.aio.insecure_channel(address, options=options)
        self._number = number

    async def connect(self) -> None:
        gpus = [pb.GPUInfo(physical_idx=index, name=NAME) for index in range(GPUS)]
        call = self.channel.unary_unary(
            SERVICE + "Connect",
            request_serializer=pb.InitialInfo.SerializeToString,
            response_deserializer=pb.ConnectResponse.FromString,
        )
        said = await call(
            pb.InitialInfo(hostname=self.host, gpus=gpus), metadata=METADATA, timeout=60
        )
        if not said.success:
            raise TrialFailed(f"{self.host}: {said.message}")

    def stream(self) -> Any:
        method = self.channel.stream_unary(
            SERVICE + "StreamMetrics", response_deserializer=pb.Empty.FromString
        )
        return method(metadata=METADATA)

    def update(self, tick: int) -> bytes:
        gpus = []
        for index in range(GPUS):
            turn = (tick * 7 + index * 13 + self._number) % 100
            rate = 1e6 + 1e4 * turn
            gpus.append(
                pb.GPUMetric(
                    physical_idx=index,
                    name=NAME,
                    gpu_util=turn / 100,
                    mem_util=0.5 + turn / 400,
                    dram_bw_gbps_rx=rate,
                    dram_bw_gbps_tx=rate / 2,
                    nvlink_bw_gbps_rx=rate * 3,
                    nvlink_bw_gbps_tx=rate * 2,
                )
            )
        system = pb.SystemMetrics(dram_util=40 + tick % 9, disk_util=20)
        told = pb.MetricsUpdate(
            hostname=self.host, gpus_metrics=gpus, system_metrics=system, timestamp=time.time()
        )
        data: bytes = told.SerializeToString()
        return data


async def paced(node: Node, begin: float, phase: float, ticks: int) -> None:
    call = node.stream()
    for tick in range(ticks):
        await asyncio.sleep(max(0.0, begin + phase + tick - time.perf_counter()))
        await call.write(node.update(tick))
    await call.done_writing()
    await call


async def flood(node: Node, seconds: float) -> int:
    """How many updates it got rid of."""
    call, sent = node.stream(), 0
    ready = [node.update(tick) for tick in range(100)]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        await call.write(ready[sent % len(ready)])
        sent += 1
    await call.done_writing()
    await call  # answered when the head has read the last of them
    return sent


async def _nodes(request: Mapping[str, Any]) -> dict[str, float]:
    flooding = request["kind"] == "flood"
    count = FLOOD_NODES if flooding else NODES
    nodes = [Node(number, request["head"]) for number in range(count)]
    await asyncio.gather(*[node.connect() for node in nodes])
    begin = time.perf_counter()
    if flooding:
        sent = await asyncio.gather(*[flood(node, request["seconds"]) for node in nodes])
        updates = sum(sent)
    else:
        ticks = request["seconds"]
        await asyncio.gather(
            *[paced(node, begin + 1, n / count, ticks) for n, node in enumerate(nodes)]
        )
        updates = count * ticks
    seconds = time.perf_counter() - begin
    await asyncio.gather(*[node.channel.close() for node in nodes])
    return {"updates": updates, "seconds": seconds}


def work(request: dict[str, Any]) -> None:
    os.sched_setaffinity(0, {request["core"]})
    answer(request["directory"], asyncio.run(_nodes(request)))


# ── the heads ─────────────────────────────────────────────────────────────────────────────────


@contextmanager
def ours(place: Path, core: int) -> Iterator[At]:
    head = Head(place / "head", core, [])
    try:
        yield At(head.at.grpc, head.at.http, head.at.pid)
    finally:
        head.close()


@contextmanager
def original(place: Path, core: int) -> Iterator[At]:
    grpc_port, http_port = _free_ports(2)
    with (place / "head.log").open("wb") as log:
        process = subprocess.Popen(
            [str(ORIGINAL), str(HERE / "gswarm_head.py"), str(grpc_port), str(http_port)],
            env=environment(place, HOME=str(place)),
            cwd=place,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
    at = At(f"127.0.0.1:{grpc_port}", f"127.0.0.1:{http_port}", process.pid)
    try:
        until(lambda: _listens(http_port) or process.poll() is not None, 90, "the original's head")
        if process.poll() is not None:
            raise TrialFailed((place / "head.log").read_text(errors="replace")[-2000:])
        yield at
    finally:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


HEADS: Final = {"Runwatch": ours, "gswarm 0.4.3": original}


# ── the trial ─────────────────────────────────────────────────────────────────────────────────


def trial(name: str, seconds: int, flood_seconds: float) -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))
    try:
        with directory() as place:
            with HEADS[name](place, cores[0]) as at:
                os.sched_setaffinity(0, {cores[-1]})
                found = _paced(at, place, cores[-1], seconds)
                found["flood"] = _flood(at, place, cores[-1], flood_seconds)
            if name == "Runwatch":
                found |= _kept(place / "head" / "store", found)
            return found
    finally:
        os.sched_setaffinity(0, set(cores))


def _paced(at: At, place: Path, core: int, seconds: int) -> dict[str, Any]:
    request = _request(at, place, core, "paced", seconds)
    with worker("devices_beside.py", sys.executable, request, place) as nodes:
        until(lambda: nodes.poll() is not None or _gpus(at) == NODES * GPUS, 90, "the nodes")
        ask_once(at.http, "/profiling/start", {"name": "bench"})
        offsets = (0.0, POLL_SECONDS / 2)
        asking = [
            Asking(at.http, path, POLL_SECONDS, o) for path, o in zip(PATHS, offsets, strict=True)
        ]
        for one in asking:
            one.start()
        memory: list[float] = []
        rest = seconds - 5  # those who ask are gone before the nodes are
        used = cpu_percent(at.pid, lambda: memory.extend(memory_each_second(nodes, at.pid, rest)))
        frames = json.loads(ask_once(at.http, "/status"))["frame_id_counter"]
        asked = {one.path: one.end() for one in asking}
        until(lambda: nodes.poll() is not None, 120, "the nodes to end")
    sent = read_answer(place, "the nodes")
    (place / "answer.json").unlink()
    return {
        **sent,
        "asked": asked,
        "cpu_percent": used,
        "memory_mb": memory,
        "mb_per_minute": growth_mb_per_minute(memory),
        "frames": frames,
        "session_seconds": len(memory),
    }


def _flood(at: At, place: Path, core: int, seconds: float) -> dict[str, float]:
    with worker(
        "devices_beside.py", sys.executable, _request(at, place, core, "flood", seconds), place
    ) as nodes:
        before = json.loads(ask_once(at.http, "/status"))["frame_id_counter"]
        until(lambda: nodes.poll() is not None, 600, "the flood to end")
        after = json.loads(ask_once(at.http, "/status"))["frame_id_counter"]
    found = read_answer(place, "the flood")
    return {**found, "frames": after - before}


def _request(at: At, place: Path, core: int, kind: str, seconds: float) -> dict[str, Any]:
    return {
        "kind": kind,
        "head": at.grpc,
        "core": core,
        "seconds": seconds,
        "directory": str(place),
    }


def _gpus(at: At) -> int:
    found: int = json.loads(ask_once(at.http, "/status"))["total_gpus"]
    return found


def _kept(directory: Path, found: Mapping[str, Any]) -> dict[str, float]:
    """Counted in the store, not told by the head."""
    store = DuckStore.open(directory)
    try:
        ids = [row.series for row in store.series(metric="gpu_utilization_percent")]
        kept = sum(len(part) for part in store.points(ids))
    finally:
        store.close()
    sent = GPUS * (found["updates"] + found["flood"]["updates"])
    if kept != sent:
        raise TrialFailed(f"of {sent} GPU-samples {kept} are stored")
    return {"kept": kept}


# ── what is shown ─────────────────────────────────────────────────────────────────────────────


def measure(options: Options) -> Outcome:
    seconds, flood_seconds = (30, 3.0) if options.quick else (120, 8.0)
    names = [name for name in HEADS if name == "Runwatch" or ORIGINAL.exists()]
    numbers = {name: trial(name, seconds, flood_seconds) for name in names}
    return Outcome([_table(numbers, seconds)], numbers)


def _table(numbers: Mapping[str, Any], seconds: int) -> Table:
    title = f"Devices: {NODES} nodes × {GPUS} GPUs through the original's protocol, one core"
    table = Table(title, ("what", *numbers))
    for what, tell in _ROWS.items():
        table.rows.append((what, *[tell(found) for found in numbers.values()]))
    table.notes.append(
        f"{seconds} s at 1 Hz with a session and both paths asked twice a second, then "
        f"{FLOOD_NODES} nodes as fast as they are let.  Nodes and those who ask have the other "
        "core.  What ours stored is counted in its store; the original copies the newest of each "
        "node once a second into memory, and has nothing on disk before a stop."
    )
    if len(numbers) == 1:
        table.notes.append(NOT_HERE)
    else:
        table.notes.append(
            "The original's head: gswarm 0.4.3 in an environment of its own; PyTorch, "
            "transformers and safetensors, which it imports and does not use here, are empty "
            "modules, so its memory is understated."
        )
    return table


def _waited(path: str) -> Any:
    def tell(found: Mapping[str, Any]) -> str:
        asked = found["asked"][path]
        return f"{asked['p50']:.1f} / {asked['p95']:.1f} / {asked['max']:.0f} ms"

    return tell


def _stored(found: Mapping[str, Any], part: Mapping[str, Any], nodes: int) -> str:
    if "kept" in found:
        return "1.00"
    seconds = part.get("session_seconds", part["seconds"])
    sent = part["updates"] * min(1.0, seconds / part["seconds"])
    return f"{min(1.0, part['frames'] * nodes / sent):.3f}"


_ROWS: Final[dict[str, Any]] = {
    "updates/s sent, GPU-samples/s": lambda found: (
        f"{found['updates'] / found['seconds']:.0f}, "
        f"{GPUS * found['updates'] / found['seconds']:,.0f}"
    ),
    "stored / sent": lambda found: _stored(found, found, NODES),
    "/status, median / 95 % / longest": _waited("/status"),
    "/metrics/latest, median / 95 % / longest": _waited("/metrics/latest"),
    "CPU, of one core": lambda found: f"{found['cpu_percent']:.0f} %",
    "resident, begin / end": lambda found: (
        f"{found['memory_mb'][0]:.0f} / {found['memory_mb'][-1]:.0f} MB"
    ),
    "resident, growth": lambda found: f"{found['mb_per_minute']:+.1f} MB/min",
    "flood: updates/s taken, GPU-samples/s": lambda found: (
        f"{found['flood']['updates'] / found['flood']['seconds']:,.0f}, "
        f"{GPUS * found['flood']['updates'] / found['flood']['seconds']:,.0f}"
    ),
    "flood: stored / sent": lambda found: _stored(found, found["flood"], FLOOD_NODES),
}


def main() -> None:
    from command import run_one

    run_one(argparse.ArgumentParser(description=__doc__), work, measure)


if __name__ == "__main__":
    main()
