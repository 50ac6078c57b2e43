"""One head on one core for every GPU of 256 nodes: is all of it stored, and who has to wait?

    python benchmarks/devices.py [--quick] [--minutes 10]

A head (`runwatch head`, a process of its own, pinned to one core) takes what 256 agents send: each
has a gRPC stream of its own and sends 12 metrics of 8 GPUs once a second, in one columnar batch.
The values are those of a recorded H200, shifted for each GPU.  A session goes on meanwhile, and
`/status` and `/metrics/latest` are asked for over HTTP.  The session is then stopped, and `/status`
is asked for 50 times a second until its file is there, by people who do not wait for each other;
the first second of that, the head itself waits for samples that are still on their way.
The same head then takes as much as it can: batches as agents send them after an outage, and one
batch for every second of every node.  In the end the store must hold exactly the points that were
sent.
The original's head is measured beside it (`devices_beside.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import devices_beside as beside
import grpc
import numpy as np
from asking import (
    Asking,
    Crowd,
    ask_once,
    at_rest,
    cpu_percent,
    cpu_seconds,
    growth_mb_per_minute,
    memory_each_second,
    spread,
)
from ingest import Head, Loader, closed_bytes
from report import NO_BAR, Outcome, Table, at_least, at_most
from trial import (
    HERE,
    METADATA,
    Options,
    TrialFailed,
    answer,
    directory,
    read_answer,
    until,
    worker,
)

from runwatch.agent.collectors.replay import Curve, load
from runwatch.record import NO_STEP, Batch, Definition, JournalId, Origin, Points, Position, Series
from runwatch.ship.client import METHOD
from runwatch.wire import spine_pb2 as pb
from runwatch.wire.convert import batch_to_message

RECORDING: Final = HERE.parent / "tests" / "fixtures" / "replay" / "h200-1hz.jsonl"
NODES, GPUS = 256, 8
METRICS: Final = (
    "gpu_utilization_percent",
    "gpu_memory_used_bytes",
    "gpu_memory_total_bytes",
    "gpu_power_watts",
    "gpu_temperature_celsius",
    "gpu_sm_clock_hz",
    "gpu_sm_activity_percent",
    "gpu_tensor_activity_percent",
    "gpu_dram_bytes_per_second",
    "gpu_pcie_rx_bytes_per_second",
    "gpu_pcie_tx_bytes_per_second",
    "gpu_nvlink_tx_bytes_per_second",
)
SERIES: Final = GPUS * len(METRICS)
FULL_TICKS: Final = 26_000 // SERIES
"""An agent sends 26,000 points a message when it has that many."""
SECOND = 10**9
POLL_SECONDS = 0.5
STOP_POLL_SECONDS, STOP_PEOPLE = 0.02, 50
DEVICES: Final = "/api/v1/devices?limit=100"
ALONE = 0.2
"""The part of the time in which nobody asks."""
FLAT_FROM_SECONDS = 300
STATUS_MS, LATEST_MS, STOP_SECONDS, BAR_POINTS, BAR_GROWTH = 100.0, 50.0, 2.0, 1.0, 5.0

# ── what nodes send ───────────────────────────────────────────────────────────────────────────


class Played:
    """A recording as a table: `values[second, metric]`, with the last known where none was read."""

    def __init__(self) -> None:
        recording = load(RECORDING)
        curves = recording.curves["gpu0"]
        self.units = recording.units
        self.seconds = int(recording.seconds)
        self.values = np.array(
            [
                [_last(curves[metric], second) for metric in METRICS]
                for second in range(self.seconds)
            ]
        )


def _last(curve: Curve, second: float) -> float:
    return curve.values[max(0, int(np.searchsorted(curve.seconds, second, side="right")) - 1)]


class Node:
    """One agent's journal."""

    def __init__(self, played: Played, number: int, suffix: str = "") -> None:
        self.journal = f"bench{suffix}-{number:03}"
        self.host = f"node-{number:03}"
        self._played = played
        self._shift = np.arange(GPUS) * 7 + number * 3
        # The journal of every node of every part is another process's.
        start = time.time_ns()
        pid = 1000 + len(suffix)
        self._origin = Origin(JournalId(self.journal), self.host, pid, start, role="agent")
        self._at = 0
        self._rows = 0

    def batch(self, time_ns: Sequence[int]) -> tuple[int, bytes]:
        """Its end, and the message: all that was sampled at those moments."""
        ticks = len(time_ns)
        row = self._rows + np.arange(ticks)
        self._rows += ticks
        places = (row[:, None] + self._shift[None, :]) % self._played.seconds
        points = Points(
            array("I", np.tile(np.arange(1, 1 + SERIES, dtype=np.uint32), ticks).tobytes()),
            array("q", np.repeat(np.asarray(time_ns, np.int64), SERIES).tobytes()),
            array("q", np.full(ticks * SERIES, NO_STEP, np.int64).tobytes()),
            array("d", self._played.values[places].ravel().tobytes()),
        )
        definitions = [] if self._at else list(self._definitions())
        start, self._at = self._at, self._at + 40 * len(points)
        batch = Batch(self._origin, Position(start), Position(self._at), definitions, points)
        return self._at, pb.Up(batch=batch_to_message(batch)).SerializeToString()

    def _definitions(self) -> Iterator[Definition]:
        id = 0
        for gpu in range(GPUS):
            uuid = f"GPU-{self.host}-{gpu}"
            labels = {"uuid": uuid, "name": "NVIDIA H200", "index": str(gpu)}
            for metric in METRICS:
                id += 1
                yield Series(id, metric, 0, self._played.units[metric], f"gpu{gpu}", labels)


class Sender:
    """A node's stream to the head."""

    def __init__(self, node: Node, address: str) -> None:
        self._node = node
        # Its own connection, as an agent on another machine has.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.aio.insecure_channel(address, options=options)
        stream = self._channel.stream_stream(
            METHOD, request_serializer=None, response_deserializer=pb.Down.FromString
        )
        self._call = stream(metadata=METADATA)
        self._waiting: deque[tuple[int, float]] = deque()
        self.points = 0
        self.answered: list[float] = []
        self.late = 0.0

    async def run(self, begin: float, phase: float, ticks: int) -> None:
        await self._call.write(self._hello())
        first = await self._call.read()
        if first is grpc.aio.EOF or first.WhichOneof("message") != "welcome":
            raise TrialFailed("the head did not say welcome")
        reading = asyncio.ensure_future(self._read(ticks))
        for tick in range(ticks):
            due = begin + phase + tick
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self.late = max(self.late, time.perf_counter() - due)
            end, data = self._node.batch([time.time_ns()])
            self._waiting.append((end, time.perf_counter()))
            await self._call.write(data)
            self.points += SERIES
        await asyncio.wait_for(reading, 60)
        self._call.cancel()
        await self._channel.close()

    def _hello(self) -> bytes:
        hello = pb.Hello(
            oldest_wire_version=1,
            newest_wire_version=1,
            host=self._node.host,
            wall_ns=time.time_ns(),
        )
        said: bytes = pb.Up(hello=hello).SerializeToString()
        return said

    async def _read(self, count: int) -> None:
        """Until every batch is stored."""
        while len(self.answered) < count:
            down = await self._call.read()
            if down is grpc.aio.EOF or down.cursor.refused:
                raise TrialFailed(
                    f"{self._node.host}: the head ended the stream or refused a batch"
                )
            while self._waiting and self._waiting[0][0] <= down.cursor.position:
                self.answered.append(time.perf_counter() - self._waiting.popleft()[1])


def work(request: dict[str, Any]) -> None:
    """All nodes, in one process."""
    os.sched_setaffinity(0, {request["core"]})
    numbers = asyncio.run(_send(request["head"], request["ticks"]))
    answer(request["directory"], numbers)


async def _send(address: str, ticks: int) -> dict[str, Any]:
    played = Played()
    senders = [Sender(Node(played, number), address) for number in range(NODES)]
    begin = time.perf_counter() + 3
    async with asyncio.TaskGroup() as group:
        for number, sender in enumerate(senders):
            group.create_task(sender.run(begin, number / NODES, ticks))
    answered = [1e3 * seconds for sender in senders for seconds in sender.answered]
    return {
        "sent": sum(sender.points for sender in senders),
        "stored_ms": spread(answered),
        "latest_batch_ms": 1e3 * max(sender.late for sender in senders),
        "generator_cpu_seconds": time.process_time(),
    }


# ── the parts ─────────────────────────────────────────────────────────────────────────────────


def paced(head: Head, core: int, place: Path, seconds: int) -> dict[str, Any]:
    """Once a second from every node, and a session over all of it."""
    request = {"head": head.at.grpc, "core": core, "ticks": seconds + 5, "directory": str(place)}
    with worker("devices.py", sys.executable, request, place) as nodes:
        until(lambda: nodes.poll() is not None or _gpus(head) == NODES * GPUS, 90, "the nodes")
        ask_once(head.at.http, "/profiling/start", {"name": "bench"})
        alone = cpu_percent(head.at.pid, lambda: time.sleep(seconds * ALONE))
        asking = [
            Asking(head.at.http, "/status", POLL_SECONDS),
            Asking(head.at.http, "/metrics/latest", POLL_SECONDS, POLL_SECONDS / 2),
        ]
        for one in asking:
            one.start()
        memory: list[float] = []
        asked = cpu_percent(
            head.at.pid, lambda: memory.extend(memory_each_second(nodes, head.at.pid))
        )
        waited = {one.path: one.end() for one in asking}
    sent = read_answer(place, "the nodes")
    shown = json.loads(ask_once(head.at.http, "/metrics/latest"))["client_data"]
    if sum(len(client["gpus_metrics"]) for client in shown.values()) != NODES * GPUS:
        raise TrialFailed("/metrics/latest does not show every GPU")
    return {
        **sent,
        "head_cpu_percent": {"alone": alone, "asked": asked},
        "memory_mb": memory,
        "asked": waited,
        "at_rest": {path: at_rest(head.at.http, head.at.pid, path) for path in (*waited, DEVICES)},
        "stop": stop(head),
    }


def _gpus(head: Head) -> int:
    found: int = json.loads(ask_once(head.at.http, "/status"))["total_gpus"]
    return found


def stop(head: Head) -> dict[str, Any]:
    """How long the answer takes, and who waits while the file is written."""
    status = Crowd(head.at.http, "/status", STOP_POLL_SECONDS, STOP_PEOPLE)
    begin = time.perf_counter()
    ask_once(head.at.http, "/profiling/stop", {"name": "bench"})
    answered = time.perf_counter() - begin
    file = head.root.parent / "bench.json"
    until(file.exists, 600, "the session's file")
    written = time.perf_counter() - begin
    return {
        "seconds": answered,
        "file_seconds": written,
        "file_mb": file.stat().st_size / 1e6,
        "status_ms": status.end(),
    }


def flood(head: Head, loader: Loader, suffix: str, ticks: int, messages: int) -> dict[str, float]:
    """As fast as the head takes it: `messages` of each node, each of so many seconds."""
    played = Played()
    nodes = [Node(played, number, suffix) for number in range(NODES)]
    begin = time.time_ns() - (messages * ticks + 1) * SECOND
    # What the series are is said once in the life of a journal, and not timed.
    loader.send([(node.journal, *node.batch([begin - SECOND])) for node in nodes])
    made = []
    for message in range(messages):
        moments = [begin + (message * ticks + tick) * SECOND for tick in range(ticks)]
        made += [(node.journal, *node.batch(moments)) for node in nodes]
    used = cpu_seconds(head.at.pid)
    seconds = loader.send(made)
    used = cpu_seconds(head.at.pid) - used
    points = len(made) * ticks * SERIES
    return {
        "points": points,
        "sent": points + NODES * SERIES,
        "points_per_second": points / seconds,
        "gpu_samples_per_second": points / len(METRICS) / seconds,
        "cpu_seconds_per_million": used / points * 1e6,
    }


def trial(seconds: int, rounds: int) -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))
    with directory() as place:
        root = place / "head"
        root.mkdir()
        (root / "config.toml").write_text(f'[head]\nsession_dir = "{place}"\n')
        head = Head(root, cores[0], [])
        os.sched_setaffinity(0, {cores[-1]})
        try:
            found: dict[str, Any] = {"paced": paced(head, cores[-1], place, seconds)}
            loader = Loader(head.at.grpc)
            try:
                full = [
                    flood(head, loader, f"-full{'x' * n}", FULL_TICKS, 1) for n in range(rounds)
                ]
                single = flood(head, loader, "-single", 1, 60)
            finally:
                loader.close()
        finally:
            head.close()
            os.sched_setaffinity(0, set(cores))
        found |= {"full": full, "single": single, **closed_bytes(root / "store")}
    found["sent_points"] = sum(
        part["sent"] for part in (found["paced"], found["single"], *found["full"])
    )
    if found["stored_points"] != found["sent_points"]:
        raise TrialFailed(f"of {found['sent_points']} points {found['stored_points']} are stored")
    return found


# ── what is shown ─────────────────────────────────────────────────────────────────────────────


def measure(options: Options, minutes: float | None = None) -> Outcome:
    lasts = minutes or (1.0 if options.quick else 10.0)
    numbers = trial(round(lasts * 60), 3 if options.quick else 5)
    both = beside.measure(options)
    tables = [_paced_table(numbers, lasts), _most_table(numbers), *both.tables]
    return Outcome(tables, numbers | {"beside": both.numbers})


def _paced_table(numbers: dict[str, Any], minutes: float) -> Table:
    found = numbers["paced"]
    title = f"Devices: {NODES} nodes × {GPUS} GPUs × {len(METRICS)} metrics at 1 Hz, one core"
    table = Table(title, ("what", "measured", "bar", ""))
    sent, stored = numbers["sent_points"], numbers["stored_points"]
    table.rows.append(("points stored / sent", f"{stored:,} / {sent:,}", "all", "pass"))
    for path, bar in (("/status", STATUS_MS), ("/metrics/latest", LATEST_MS)):
        table.rows.append(_asked_row(path, found["asked"][path], bar))
    for path, rest in found["at_rest"].items():
        words = f"{rest['p50']:.1f} / {rest['p95']:.1f} ms, {rest['cpu_ms']:.1f} ms of CPU each"
        table.rows.append((f"{path} of a head at rest, median / 95 %", words, *NO_BAR))
    table.rows.append(_memory_row(found["memory_mb"]))
    used = found["head_cpu_percent"]
    words = f"{used['alone']:.0f} / {used['asked']:.0f} % of a core"
    table.rows.append(("head's CPU, nobody asks / both paths twice a second", words, *NO_BAR))
    table.rows.append(_plain_spread("from sending to stored", found["stored_ms"]))
    ended = found["stop"]
    file = f"file of {ended['file_mb']:.0f} MB: {ended['file_seconds']:.1f} s"
    words = f"{ended['seconds']:.2f} s ({file})"
    table.rows.append(("stop", words, *at_most(ended["seconds"], STOP_SECONDS, "s")))
    table.rows.append(
        _asked_row("/status while the file is written", ended["status_ms"], STATUS_MS)
    )
    each = numbers["bytes_per_point"] * len(METRICS)
    table.rows.append(("on disk, a GPU-sample", f"{each:.1f} B", *at_most(each, 16, "B")))
    table.notes.append(
        f"{minutes:g} minutes, {NODES * SERIES:,} points/s; no batch was sent more than "
        f"{found['latest_batch_ms']:.0f} ms late.  Nodes and those who ask share the core that the "
        "head does not have.  Stored and sent count the floods below, too."
    )
    return table


def _asked_row(what: str, found: dict[str, float], bar: float) -> tuple[str, ...]:
    words = f"{found['p50']:.1f} / {found['p95']:.1f} / {found['max']:.0f} ms"
    size = f"{found['bytes'] / 1e3:.0f} kB, asked {found['asked']:.0f} times"
    name = f"{what}, median / 95 % / longest"
    return (name, f"{words} ({size})", *at_most(found["p95"], bar, "ms"))


def _plain_spread(what: str, found: dict[str, float]) -> tuple[str, ...]:
    words = f"{found['p50']:.0f} / {found['p95']:.0f} / {found['max']:.0f} ms"
    return (f"{what}, median / 95 % / longest", words, *NO_BAR)


def _memory_row(memory: Sequence[float]) -> tuple[str, ...]:
    """The line is that of the second half; the first is warming up."""
    part = max(1, len(memory) // 6)
    first, middle, last = (
        statistics.median(piece)
        for piece in (memory[:part], memory[len(memory) // 2 :][:part], memory[-part:])
    )
    growth = 100 * (last - middle) / middle
    slope = growth_mb_per_minute(memory)
    words = f"{first:.0f} / {middle:.0f} / {last:.0f} MB, {slope:+.2f} MB/min"
    if len(memory) < FLAT_FROM_SECONDS:
        return ("resident, begin / middle / end", words, "", "too short to tell")
    bar = at_most(growth, BAR_GROWTH, "% from the middle on")
    return ("resident, begin / middle / end", words, *bar)


def _most_table(numbers: dict[str, Any]) -> Table:
    head = ("a message", "points/s", "GPU-samples/s", "head CPU s per M points", "bar", "")
    table = Table("Devices: the most that one head on one core stores and acknowledges", head)
    full = sorted(numbers["full"], key=lambda one: one["points_per_second"])
    middle = full[(len(full) - 1) // 2]
    speed = middle["points_per_second"] / 1e6
    name = f"{FULL_TICKS} seconds of a node ({FULL_TICKS * SERIES:,} points)"
    table.rows.append((name, *_speed(middle), *at_least(speed, BAR_POINTS, "M points/s")))
    single = numbers["single"]
    name = f"one second of a node ({SERIES} points)"
    table.rows.append((name, *_speed(single), *NO_BAR))
    table.notes.append(
        f"The same head, straight afterwards; {len(full)} rounds of {middle['points']:,.0f} points "
        f"(the middle one is shown, the best had {full[-1]['points_per_second']:,.0f} points/s) "
        f"and one of {single['points']:,.0f}.  Each round has {NODES} new journals."
    )
    return table


def _speed(found: dict[str, float]) -> tuple[str, str, str]:
    return (
        f"{found['points_per_second']:,.0f}",
        f"{found['gpu_samples_per_second']:,.0f}",
        f"{found['cpu_seconds_per_million']:.2f}",
    )


def main() -> None:
    from command import run_one

    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--minutes", type=float, help="of the even load (10; with --quick 1)")
    minutes = own.parse_known_args()[0].minutes
    parser = argparse.ArgumentParser(description=__doc__, parents=[own])
    run_one(parser, work, partial(measure, minutes=minutes))


if __name__ == "__main__":
    main()
