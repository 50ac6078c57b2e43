"""What the embedded store costs: rows written and read a second, bytes a point, three queries.

    python benchmarks/store.py --points 20000000

Telemetry of 1,000 devices for an hour at 1 Hz (integer walks, noisy power, counters, ratios), 100
series for a whole day at 1 Hz and one loss curve of a million steps.  The queries run while
10,000 points a second are being written.  Writing alone is measured on one core.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from runwatch.record import (
    NO_STEP,
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
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.store import Store

SECOND = 10**9
DAY = 86_400 * SECOND
DEVICES = 1000
HOUR = 3600
STEPS = 1_000_000
DAY_SERIES = 100
ROWS = 100_000

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Producer:
    """A journal that turns columns into consecutive batches."""

    def __init__(self, name: str, series: list[Series]) -> None:
        self._origin = Origin(JournalId(name), "bench", 1, 0)
        self._definitions: list[Definition] = [RunScope(1, RunId("bench"), "bench"), *series]
        self._at = 0

    def batch(self, series: Numbers, time_ns: Numbers, step: Numbers, value: Floats) -> Batch:
        points = Points(
            array("I", series.astype(np.uint32).tobytes()),
            array("q", time_ns.astype(np.int64).tobytes()),
            array("q", step.astype(np.int64).tobytes()),
            array("d", value.astype(np.float64).tobytes()),
        )
        start, self._at = self._at, self._at + 30 * len(points)
        definitions = self._definitions if start == 0 else []
        return Batch(self._origin, Position(start), Position(self._at), definitions, points)


def telemetry(metric: int, samples: int, random: np.random.Generator) -> Floats:
    """devices × samples of one kind of metric."""
    shape = (DEVICES, samples)
    walk = np.cumsum(random.integers(-1, 2, shape), axis=1)
    kinds: list[Callable[[], npt.NDArray[np.generic]]] = [
        lambda: np.clip(50 + walk, 0, 100),  # utilisation, percent
        lambda: 60 + np.cumsum(random.choice([0, 0, 0, 1, -1], shape), axis=1),  # temperature
        lambda: np.round(400_000 + 3000 * random.standard_normal(shape)),  # power, mW
        lambda: np.cumsum(random.integers(0, 200_000, shape), axis=1),  # counter
        lambda: np.round(np.clip(0.5 + 0.01 * walk, 0, 1), 3),  # ratio
        lambda: 1980 - 15 * random.integers(0, 3, shape),  # clock, MHz
    ]
    return kinds[metric % len(kinds)]().astype(np.float64)


def device_batches(metrics: int, start: int) -> Iterator[Batch]:
    random = np.random.default_rng(1)
    chunk = 60
    for metric in range(metrics):
        series = [Series(i + 1, f"m{metric}", 1, device=str(i)) for i in range(DEVICES)]
        producer = Producer(f"devices-{metric}", series)
        values = telemetry(metric, HOUR, random)
        for first in range(0, HOUR, chunk):
            # Time-major, as samples arrive: every device once a second.
            times = start + np.arange(first, first + chunk) * SECOND
            yield producer.batch(
                np.tile(np.arange(1, DEVICES + 1), chunk),
                np.repeat(times, DEVICES),
                np.full(chunk * DEVICES, NO_STEP),
                values[:, first : first + chunk].T.ravel(),
            )


def day_batches(start: int) -> Iterator[Batch]:
    random = np.random.default_rng(2)
    series = [Series(i + 1, "day", 1, device=str(i)) for i in range(DAY_SERIES)]
    producer = Producer("day", series)
    value: Floats = np.full(DAY_SERIES, 50.0)
    for first in range(0, 86_400, 1200):
        walk: Floats = value + np.cumsum(random.integers(-1, 2, (1200, DAY_SERIES)), axis=0)
        value = walk[-1]
        yield producer.batch(
            np.tile(np.arange(1, DAY_SERIES + 1), 1200),
            np.repeat(start + np.arange(first, first + 1200) * SECOND, DAY_SERIES),
            np.full(1200 * DAY_SERIES, NO_STEP),
            walk.ravel(),
        )


def loss_batches(start: int) -> Iterator[Batch]:
    random = np.random.default_rng(3)
    producer = Producer("loss", [Series(1, "loss", 1)])
    for first in range(0, STEPS, ROWS):
        step = np.arange(first, first + ROWS)
        value: Floats = 10 * np.exp(-step / 2e5) + 0.1 * random.standard_normal(ROWS)
        times = start + step * 80_000_000 + random.integers(0, 10**6, ROWS)
        yield producer.batch(np.ones(ROWS, np.int64), times, step, value)


def write_rate(directory: Path, rows: int, calls: int) -> float:
    """Rows a second of `write` alone, with this process on one core."""
    store = DuckStore.open(directory, settings=DuckSettings(threads=1))
    producer = Producer("rate", [Series(i + 1, "m", 1, device=str(i)) for i in range(10_000)])
    spent = 0.0
    for call in range(calls):
        series = np.arange(rows) % 10_000 + 1
        now = np.full(rows, call * SECOND)
        value = (series + call % 7).astype(np.float64)
        batch = producer.batch(series, now, np.full(rows, NO_STEP), value)
        began = time.perf_counter()
        store.write([batch])
        spent += time.perf_counter() - began
    store.close()
    return rows * calls / spent


def build(store: DuckStore, metrics: int, start: int) -> int:
    written = 0
    for source in (day_batches(start), loss_batches(start), device_batches(metrics, start)):
        for batch in source:
            store.write([batch])
            written += len(batch.points)
            store.compact()
    store.compact(force=True)
    return written


class Ingest:
    """10,000 points a second into the store, ten calls a second, in a thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.written = 0

    def __enter__(self) -> Ingest:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer("live", [Series(i + 1, "live", 1, device=str(i)) for i in range(1000)])
        series = np.arange(1000) + 1
        while not self._stop.wait(0.1):
            now = np.full(1000, time.time_ns())
            self._store.write(
                [producer.batch(series, now, np.full(1000, NO_STEP), series.astype(np.float64))]
            )
            self.written += 1000


def timed(ask: Callable[[], object], times: int) -> tuple[float, float]:
    """p50 and p95, in milliseconds."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        ask()
        spent.append((time.perf_counter() - began) * 1e3)
    return statistics.median(spent), sorted(spent)[int(0.95 * (len(spent) - 1))]


def queries(store: Store, start: int) -> dict[str, Callable[[], object]]:
    one = [row.series for row in store.series(metric="day")][7]
    heat = [row.series for row in store.series(metric="m0")]
    loss = [row.series for row in store.series(metric="loss")]
    hour = start + HOUR * SECOND
    return {
        "day of one series (86,400 points)": lambda: store.curves(
            [one], start=start, end=start + DAY
        ),
        "1,000 series × 1 h → 300 buckets": lambda: store.curves(
            heat, start=start, end=hour, buckets=300
        ),
        "1 M-step loss curve": lambda: store.curves(loss, axis="step", start=0, end=STEPS),
    }


def read_rate(store: Store, start: int) -> float:
    """Rows a second of `points`, over all series in the first half hour."""
    ids = [row.series for row in store.series()]
    began = time.perf_counter()
    found = store.points(ids, start_ns=start, end_ns=start + HOUR * SECOND // 2)
    rows = sum(len(columns) for columns in found)
    return rows / (time.perf_counter() - began)


def on_one_core(root: Path) -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    for rows, calls in ((10_000, 200), (100_000, 40)):
        rate = write_rate(root / f"rate-{rows}", rows, calls)
        print(f"{f'write, calls of {rows:,} rows, one core':45} {rate / 1e6:8.2f} M rows/s")
        shutil.rmtree(root / f"rate-{rows}")
    os.sched_setaffinity(0, allowed)


def closed_bytes(store: DuckStore, kind: str) -> int:
    return sum(block.bytes for block in store.closed_blocks() if block.kind == kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--points", type=int, default=20_000_000, help="at least 13,240,000")
    parser.add_argument("--rounds", type=int, default=30, help="times each query is asked")
    parser.add_argument("--directory", type=Path, help="where to build; default: a temporary one")
    asked = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="runwatch-bench-", dir=asked.directory))
    try:
        measure(root, asked.points, asked.rounds)
    finally:
        shutil.rmtree(root)


def measure(root: Path, wanted: int, rounds: int) -> None:
    on_one_core(root)
    start = (time.time_ns() // DAY - 2) * DAY
    metrics = max(1, (wanted - STEPS - DAY_SERIES * 86_400) // (DEVICES * HOUR))
    store = DuckStore.open(root / "store")
    began = time.perf_counter()
    written = build(store, metrics, start)
    spent = time.perf_counter() - began
    print(f"{f'write + compact {written:,} points':45} {written / spent / 1e6:8.2f} M rows/s")
    for kind in ("points", "rollup"):
        size = closed_bytes(store, kind) / written
        print(f"{f'closed blocks, {kind}':45} {size:8.2f} bytes/point")
    print(f"{'blocks':45} {store.health().blocks:8}")
    with Ingest(store) as ingest:
        for name, ask in queries(store, start).items():
            ask()
            p50, p95 = timed(ask, rounds)
            print(f"{name:45} {p50:8.1f} ms p50 {p95:8.1f} ms p95")
        rate = read_rate(store, start)
        print(f"{'raw points, read in order':45} {rate / 1e6:8.2f} M rows/s")
    print(f"{'points taken meanwhile':45} {ingest.written:8,}")
    print(f"{'load average, 1 minute':45} {os.getloadavg()[0]:8.1f}")
    store.close()


if __name__ == "__main__":
    main()
