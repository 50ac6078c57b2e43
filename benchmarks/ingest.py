"""How many points a second a head stores and acknowledges on one core.

    python benchmarks/ingest.py [--quick]

A head (`runwatch head`, a process of its own, pinned to one core) takes columnar batches over
gRPC from a loader pinned to another core.  The loader speaks as an agent does: several journals on
one stream, a bounded number of unacknowledged bytes, messages built beforehand.  The clock stops
at the last acknowledgement; afterwards the store is compacted to closed blocks, for bytes a point,
and must hold exactly the points that were sent.
"""

from __future__ import annotations

import argparse
import itertools
import os
import queue
import signal
import statistics
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import grpc
import numpy as np
from report import Outcome, Table, at_least, at_most
from trial import METADATA, Options, TrialFailed, directory, environment, until

from runwatch.address import Listening, read_address
from runwatch.record import (
    Batch,
    Definition,
    JournalId,
    Origin,
    Points,
    Position,
    RunId,
    RunScope,
    Series,
)
from runwatch.ship.client import METHOD, ShipSettings
from runwatch.store.duck.engine import DuckStore
from runwatch.wire import spine_pb2 as pb
from runwatch.wire.convert import MAX_MESSAGE_BYTES, batch_to_message

BAR_POINTS, BAR_BYTES = 1_000_000, 2.5
JOURNALS = 8
SERIES = 16
SECOND = 10**9
BEGIN_NS = 1_800_000_000 * SECOND


class Loader:
    """Sends prepared messages and waits until every one is acknowledged."""

    def __init__(self, address: str) -> None:
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._in_flight = 0
        self._pending: dict[str, list[tuple[int, int]]] = {}
        self._failure: BaseException | None = None
        self._welcome = False
        limit = [
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ]
        self._channel = grpc.insecure_channel(address, options=limit)
        stream = self._channel.stream_stream(
            METHOD, request_serializer=None, response_deserializer=pb.Down.FromString
        )
        self._call = stream(self._requests(), metadata=METADATA)
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()
        hello = pb.Hello(oldest_wire_version=1, newest_wire_version=1, host="bench")
        self._outgoing.put(pb.Up(hello=hello).SerializeToString())
        with self._changed:
            self._changed.wait_for(lambda: self._welcome or self._failure, 30)

    def send(self, messages: list[tuple[str, int, bytes]]) -> float:
        """Seconds until all are stored."""
        begin = time.perf_counter()
        most = ShipSettings().unacknowledged_bytes
        for journal, end, data in messages:
            with self._changed:
                self._changed.wait_for(lambda: self._in_flight < most or self._failure)
                self._pending.setdefault(journal, []).append((end, len(data)))
                self._in_flight += len(data)
            self._outgoing.put(data)
        with self._changed:
            self._changed.wait_for(lambda: not self._in_flight or self._failure)
            if self._failure is not None:
                raise TrialFailed(f"the stream to the head ended: {self._failure}")
        return time.perf_counter() - begin

    def close(self) -> None:
        self._outgoing.put(None)
        self._call.cancel()
        self._receiver.join()
        self._channel.close()

    def _requests(self) -> Iterator[bytes]:
        while (data := self._outgoing.get()) is not None:
            yield data

    def _receive(self) -> None:
        try:
            for down in self._call:
                with self._changed:
                    self._take(down)
                    self._changed.notify_all()
            raise TrialFailed("the head closed the stream")
        except (grpc.RpcError, TrialFailed) as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _take(self, down: pb.Down) -> None:
        kind = down.WhichOneof("message")
        if kind == "welcome":
            self._welcome = True
        elif kind == "cursor":
            if down.cursor.refused:
                raise TrialFailed("the head refused a batch")
            pending = self._pending[down.cursor.journal]
            while pending and pending[0][0] <= down.cursor.position:
                self._in_flight -= pending.pop(0)[1]


def messages(points: int, batch_points: int, seed: int) -> list[tuple[str, int, bytes]]:
    """(journal, end, serialised message): telemetry of 16 series a process, once a second."""
    journals = [_Journal(f"bench-{seed}-{number}", number, seed) for number in range(JOURNALS)]
    made = []
    for journal in itertools.islice(itertools.cycle(journals), points // batch_points):
        batch = journal.batch(batch_points)
        data = pb.Up(batch=batch_to_message(batch)).SerializeToString()
        made.append((journal.name, int(batch.end), data))
    return made


class _Journal:
    def __init__(self, name: str, rank: int, seed: int) -> None:
        self.name = name
        self._random = np.random.default_rng([seed, rank])
        self._origin = Origin(JournalId(name), f"host-{rank}", 1000 + rank, BEGIN_NS)
        self._definitions: list[Definition] = [RunScope(1, RunId("bench"), "bench", rank)]
        self._definitions += [Series(2 + i, f"metric_{i}", 1) for i in range(SERIES)]
        self._rows = 0
        self._at = 0
        self._level = self._random.integers(40, 60, SERIES)

    def batch(self, count: int) -> Batch:
        rows = count // SERIES
        time_ns = BEGIN_NS + (self._rows + np.arange(rows)) * SECOND
        step = self._rows + np.arange(rows)
        walk = self._level + np.cumsum(self._random.integers(-1, 2, (rows, SERIES)), axis=0)
        self._level, self._rows = walk[-1], self._rows + rows
        points = Points(
            array("I", np.tile(np.arange(2, 2 + SERIES, dtype=np.uint32), rows).tobytes()),
            array("q", np.repeat(time_ns, SERIES).astype(np.int64).tobytes()),
            array("q", np.repeat(step, SERIES).astype(np.int64).tobytes()),
            array("d", walk.astype(np.float64).ravel().tobytes()),
        )
        start, self._at = self._at, self._at + 40 * count
        definitions = self._definitions if start == 0 else []
        batch = Batch(self._origin, Position(start), Position(self._at), definitions, points)
        return batch


class Head:
    """`runwatch head` pinned to one core."""

    def __init__(self, root: Path, core: int, wrapper: list[str]) -> None:
        self.root = root
        self._log = (root.parent / "head.log").open("wb")
        command = [*wrapper, sys.executable, "-m", "runwatch.cli", "head", "--dir", str(root)]
        self.process = subprocess.Popen(
            [*command, "--grpc-port", "0", "--http-port", "0"],
            env=environment(root),
            stdout=self._log,
            stderr=self._log,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        self.at = self._wait()

    def _wait(self) -> Listening:
        until(lambda: read_address(self.root) or self.process.poll() is not None, 60, "the head")
        at = read_address(self.root)
        if at is None:
            raise TrialFailed((self.root.parent / "head.log").read_text(errors="replace")[-2000:])
        return at

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.at.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        if self.process.poll() is None:
            os.kill(self.at.pid, signal.SIGTERM)
        self.process.wait(60)
        self._log.close()


def trial(points: int, batch_points: int, rounds: int, profiler: list[str]) -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))
    with directory() as place:
        head = Head(place / "head", cores[0], profiler)
        os.sched_setaffinity(0, {cores[-1]})
        loader = Loader(head.at.grpc)
        seconds, cpu = [], []
        try:
            warm = messages(points // 4, batch_points, 0)
            loader.send(warm)
            for number in range(rounds):
                prepared = messages(points, batch_points, number + 1)
                before = head.cpu_seconds()
                seconds.append(loader.send(prepared))
                cpu.append(head.cpu_seconds() - before)
        finally:
            loader.close()
            head.close()
            os.sched_setaffinity(0, set(cores))
        sent = len(prepared) * batch_points
        closed = closed_bytes(place / "head" / "store")
        if closed["stored_points"] != len(warm) * batch_points + sent * rounds:
            raise TrialFailed(f"{closed['stored_points']} points are stored, not what was sent")
        return {
            "points": sent,
            "seconds": seconds,
            "cpu_seconds_per_million": [used / sent * 1e6 for used in cpu],
            **closed,
        }


def closed_bytes(store_directory: Path) -> dict[str, float]:
    """Bytes a point when all is in closed blocks."""
    store = DuckStore.open(store_directory)
    try:
        store.compact(force=True)
    finally:
        store.close()
    files = store_directory / "blocks" / "points-*"
    found = duckdb.execute("SELECT count(*) FROM read_parquet(?)", [str(files)]).fetchone()
    count: int = found[0] if found else 0
    size = sum(path.stat().st_size for path in files.parent.glob(files.name))
    return {"stored_points": count, "bytes_per_point": size / max(count, 1)}


def measure(options: Options, profiler: list[str] | None = None) -> Outcome:
    points, rounds = (2_000_000, 2) if options.quick else (6_000_000, 5)
    sizes = (26_000,) if options.quick else (10_000, 26_000, 50_000)
    numbers = {str(n): trial(points, n - n % SERIES, rounds, profiler or []) for n in sizes}
    return Outcome([_table(numbers)], numbers)


def _table(numbers: dict[str, Any]) -> Table:
    head = (
        "points a message",
        "points/s, median (best)",
        "head CPU s per M points",
        "bar",
        "",
        "bytes a point, closed",
        "bar",
        "",
    )
    table = Table("Head: stored and acknowledged, one core", head)
    for size, found in numbers.items():
        speeds = [found["points"] / seconds for seconds in found["seconds"]]
        middle = statistics.median(speeds)
        cpu = statistics.median(found["cpu_seconds_per_million"])
        bytes_each = found["bytes_per_point"]
        table.rows.append(
            (
                f"{int(size):,}",
                f"{middle:,.0f} ({max(speeds):,.0f})",
                f"{cpu:.2f}",
                *at_least(middle / 1e6, BAR_POINTS / 1e6, "M points/s"),
                f"{bytes_each:.2f}",
                *at_most(bytes_each, BAR_BYTES, "B"),
            )
        )
    rounds = len(next(iter(numbers.values()))["seconds"])
    table.notes.append(
        f"{JOURNALS} journals × {SERIES} series, {rounds} rounds of "
        f"{next(iter(numbers.values()))['points']:,} points; head and loader have a core each. "
        "An agent sends 26,000 points a message when it has that many.  No peer here can be "
        "installed from a package index."
    )
    return table


def main() -> None:
    from command import run_one

    parser = argparse.ArgumentParser(description=__doc__)
    run_one(parser, None, measure)


if __name__ == "__main__":
    main()
