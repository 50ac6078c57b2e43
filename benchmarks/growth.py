"""What grows with the past: four costs of a head, each as a curve.

    python benchmarks/growth.py                   all four
    python benchmarks/growth.py --only life       one of life, manifest, hot, watchers
    python benchmarks/growth.py --quick           smaller sizes

`life`: an answer about one run, beside how many runs have ended.
`manifest`: what the store says of each file that it closes, beside how many series there are.
`hot`: what the database of the newest rows keeps of the disk when those are in files.
`watchers`: what it takes to tell every open page of a change, beside how many there are.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from command import run_one
from page_store import MINUTE, SECOND, Journal, columns
from report import Outcome, Table
from trial import Options, TrialFailed

from runwatch.cli.asgi import Exchange
from runwatch.head.http.feed import Cards, feed
from runwatch.head.http.live import Live
from runwatch.head.main import LocalHead
from runwatch.head.reading import Reading
from runwatch.head.settings import Pace
from runwatch.head.state.board import RunBoard
from runwatch.record import Batch, Event, RunId, RunScope, Series
from runwatch.store.duck.engine import DuckStore

LIVE: Final = 20
NODES: Final = 2
SERIES: Final = 1_000
RUNS: Final = 1_000
ROUNDS: Final = 9


@contextmanager
def directory() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="runwatch-bench-"))
    try:
        yield root
    finally:
        shutil.rmtree(root)


def cpu_ms(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Of one call, all threads together; the middle of some."""
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        spent.append((time.process_time() - began) * 1e3)
    return statistics.median(spent)


# ── an answer about one run ────────────────────────────────────────────────────────────────────


def ended_run(number: int, start_ns: int) -> Batch:
    scope = RunScope(1, RunId(f"run-{number:06}"), f"sweep-{number:06}")
    journal = Journal(f"journal-{number:06}", f"node{number % NODES}", scope, start_ns)
    journal.definitions.append(Series(1, "loss", 1))
    events = [Event(start_ns, "run_start", {"argv": ["sweep.py", str(number)]}, scope=1)]
    return journal.closed(journal.batch(events=events))


def exits(agents: list[Journal], numbers: range, end_ns: int) -> list[Batch]:
    """What the agent of each node says of the processes that ended there."""
    made = []
    for node, agent in enumerate(agents):
        bodies = [
            {"journal": f"journal-{number:06}", "pid": 100, "code": 0, "signal": None,
             "core_dumped": False, "oom": False, "lived_ns": end_ns}
            for number in numbers if number % len(agents) == node
        ]  # fmt: skip
        events = [Event(end_ns, "process_exit", body) for body in bodies]
        if events:
            made.append(agent.closed(agent.batch(events=events)))
    return made


def build_life(root: Path, ended: int, *, closed: bool) -> None:
    """So many runs that ended, and some that go on; in closed files, or in the hot tables."""
    now_ns = time.time_ns()
    store = DuckStore.open(root / "store")
    nobody = RunScope(1, RunId(""), "")
    agents = [Journal(f"agent-{n}", f"node{n}", nobody, 0, "agent") for n in range(NODES)]
    try:
        for first in range(0, ended, 2_000):
            numbers = range(first, min(first + 2_000, ended))
            starts = {number: now_ns - (ended - number + 10) * MINUTE for number in numbers}
            store.write([ended_run(number, starts[number]) for number in numbers])
            store.write(exits(agents, numbers, starts[numbers[-1]] + 30 * SECOND))
        if closed:
            store.compact(force=True)
        live = range(ended, ended + LIVE)
        store.write([ended_run(number, now_ns - SECOND) for number in live])
    finally:
        store.close()


def life(options: Options) -> tuple[Table, Any]:
    table = Table(
        "An answer about one run, CPU ms",
        [
            "runs that ended",
            "lie in",
            "`/runs/X`, it goes on",
            "… it has ended",
            f"{LIVE} live runs, one look at each",
        ],
    )
    numbers: list[dict[str, Any]] = []
    sizes = (100, 1_000) if options.quick else (100, 1_000, 10_000, 40_000)
    for ended in sizes:
        for closed in (False, True):
            with directory() as root:
                build_life(root, ended, closed=closed)
                found = ask_life(root, ended)
            lie_in = "closed files" if closed else "hot tables"
            cells = [f"{found['live']:.1f}", f"{found['ended']:.1f}", f"{found['all']:.0f}"]
            table.rows.append([f"{ended:,}", lie_in, *cells])
            numbers.append({"runs": ended, "closed": closed, "cpu_ms": found})
    return table, numbers


def ask_life(root: Path, ended: int) -> dict[str, float]:
    head, loop = LocalHead(root), asyncio.new_event_loop()
    reading = Reading(head.store, alive_window_s=3600)
    try:
        live = [RunId(f"run-{number:06}") for number in range(ended, ended + LIVE)]
        gone = f"run-{ended // 2:06}"

        def ask(run: str) -> None:
            answer = Exchange(head.app, loop, f"/api/v1/runs/{run}")
            body = b"".join(answer.body())
            if answer.status != 200:
                raise TrialFailed(f"{answer.status} {body[:200]!r}")

        def look() -> None:
            for run in live:
                states = reading.processes(run)
                if [state.state for state in states] != ["running"]:
                    raise TrialFailed(f"{run} is {states}")

        ask(gone)
        look()
        return {
            "live": cpu_ms(lambda: ask(live[0])),
            "ended": cpu_ms(lambda: ask(gone)),
            "all": cpu_ms(look, 3),
        }
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        head.close()


# ── the manifest ───────────────────────────────────────────────────────────────────────────────


def build_series(store: DuckStore, series: int) -> Journal:
    """A thousand to a process; of each one point.  The last process goes on."""
    store.write([])
    for first in range(0, series, 1_000):
        scope = RunScope(1, RunId(f"run-{first}"), "r")
        journal = Journal(f"journal-{first}", "node", scope, 1)
        numbers = range(1, min(1_000, series - first) + 1)
        labels = {"layer": "encoder"}
        journal.definitions += [
            Series(n, f"metric-{n % 50}", 1, "bytes", f"gpu{n // 50}", labels) for n in numbers
        ]
        ids = np.array(numbers, np.int64)
        times = np.full(len(ids), SECOND)
        store.write(
            [journal.closed(journal.batch(columns(ids, times, ids, ids.astype(np.float64))))]
        )
    store.compact(force=True)
    return journal


def manifest(options: Options) -> tuple[Table, Any]:
    table = Table(
        "Saying in the manifest that a file was closed, with one point in it",
        ["series", "CPU ms", "written, kB", "the manifest, MB", "opening the store, CPU s"],
        notes=["Opening reads the catalogue itself, too."],
    )
    numbers = []
    for series in (1_000, 10_000) if options.quick else (1_000, 10_000, 100_000, 1_000_000):
        with directory() as root:
            store = DuckStore.open(root)
            journal = build_series(store, series)
            spent: list[float] = []
            written: list[int] = []
            for second in range(2, 5):
                one = np.array([1], np.int64)
                points = columns(one, one * second * SECOND, one, np.array([1.0]))
                store.write([journal.closed(journal.batch(points))])
                with writing(store, spent, written, root):
                    store.compact(force=True)
            size = manifest_bytes(root)
            store.close()
            began = time.process_time()
            DuckStore.open(root).close()
            opened = time.process_time() - began
        found = {
            "series": series,
            "cpu_ms": statistics.median(spent),
            "written": statistics.median(written),
            "bytes": size,
            "open_s": opened,
        }
        numbers.append(found)
        table.rows.append(
            [f"{series:,}", f"{found['cpu_ms']:.1f}", f"{found['written'] / 1e3:,.1f}",
             f"{size / 1e6:.1f}", f"{opened:.2f}"]
        )  # fmt: skip
    return table, numbers


def manifest_bytes(root: Path) -> int:
    return sum(path.stat().st_size for path in root.glob("manifest.*"))


@contextmanager
def writing(store: DuckStore, spent: list[float], written: list[int], root: Path) -> Iterator[None]:
    """What each of its manifests costs meanwhile."""
    save = store._save_manifest

    def measured() -> None:
        before, began = manifest_bytes(root), time.process_time()
        save()
        spent.append((time.process_time() - began) * 1e3)
        after = manifest_bytes(root)
        # One that is not a log is written anew.
        written.append(after - before if (root / "manifest.log").exists() else after)

    store._save_manifest = measured  # type: ignore[method-assign]
    try:
        yield
    finally:
        del store._save_manifest


# ── the hot database ───────────────────────────────────────────────────────────────────────────


class Burst:
    """Runs that come one after the other, each with a hundred thousand points of 1,000 series."""

    ROWS: Final = 100_000

    def __init__(self, store: DuckStore) -> None:
        self._store = store
        self._random = np.random.default_rng(1)
        self._runs = 0

    def write(self, points: int) -> None:
        for _ in range(points // self.ROWS):
            self._runs += 1
            scope = RunScope(1, RunId(f"run-{self._runs}"), "r")
            journal = Journal(f"journal-{self._runs}", "node", scope, 1)
            journal.definitions += [
                Series(n, f"metric-{n % 50}", 1, "", f"gpu{n // 50}") for n in range(1, 1001)
            ]
            seconds = np.arange(self.ROWS // 1_000) + self._runs * 100
            times = np.repeat(1_790_000_000 * SECOND + seconds * SECOND, 1_000)
            ids, values = np.tile(np.arange(1, 1001), len(seconds)), self._random.random(self.ROWS)
            self._store.write(
                [journal.closed(journal.batch(columns(ids, times, times // SECOND, values)))]
            )


class Trickle(threading.Thread):
    """A point now and then; how long the longest wait for one was."""

    def __init__(self, store: DuckStore) -> None:
        super().__init__(daemon=True)
        self._store, self._ended = store, threading.Event()
        self.longest_ms = 0.0

    def run(self) -> None:
        scope = RunScope(1, RunId("trickle"), "r")
        journal = Journal("trickle", "node", scope, 1)
        journal.definitions.append(Series(1, "one", 1))
        one = np.array([1], np.int64)
        while not self._ended.wait(0.01):
            points = columns(one, one * time.time_ns(), one, np.array([1.0]))
            began = time.perf_counter()
            self._store.write([journal.closed(journal.batch(points))])
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - began) * 1e3)

    def end(self) -> float:
        self._ended.set()
        self.join()
        return self.longest_ms


def hot(options: Options) -> tuple[Table, Any]:
    table = Table(
        "The hot database after a burst, MB",
        ["points", "before it is put in order", "after", "after 3 small ones more", "Parquet",
         "CPU s", "longest write meanwhile, ms"],
    )  # fmt: skip
    numbers = []
    sizes = (2_000_000, 5_000_000) if options.quick else (2_000_000, 10_000_000, 40_000_000)
    for points in sizes:
        with directory() as root:
            store = DuckStore.open(root)
            burst = Burst(store)
            burst.write(points)
            full = database_bytes(root)
            trickle = Trickle(store)
            trickle.start()
            began = time.process_time()
            store.compact(force=True)
            spent, longest = time.process_time() - began, trickle.end()
            after = database_bytes(root)
            for _ in range(3):
                burst.write(Burst.ROWS)
                store.compact(force=True)
            later, closed = database_bytes(root), sum(b.bytes for b in store.closed_blocks())
            store.close()
        megabytes = [f"{size / 1e6:.1f}" for size in (full, after, later, closed)]
        table.rows.append([f"{points:,}", *megabytes, f"{spent:.1f}", f"{longest:.0f}"])
        numbers.append(
            {"points": points, "full": full, "after": after, "later": later, "closed": closed,
             "cpu_s": spent, "longest_ms": longest}
        )  # fmt: skip
    return table, numbers


def database_bytes(root: Path) -> int:
    return sum(path.stat().st_size for path in root.glob("hot.duckdb*"))


# ── the live stream ────────────────────────────────────────────────────────────────────────────


def watchers(options: Options) -> tuple[Table, Any]:
    table = Table(
        "Telling all who watch of a change, CPU ms",
        ["watchers", f"of one run with {SERIES:,} series", f"of the list of {RUNS:,} runs"],
        notes=["Every series has a new point, and one run of the list a new step."],
    )
    numbers = []
    for count in (1, 10) if options.quick else (1, 10, 50, 200):
        with directory() as root:
            store = DuckStore.open(root)
            one, all_runs = asyncio.run(tell(store, count))
            store.close()
        table.rows.append([str(count), f"{one:.1f}", f"{all_runs:.1f}"])
        numbers.append({"watchers": count, "run_ms": one, "list_ms": all_runs})
    return table, numbers


async def tell(store: DuckStore, count: int) -> tuple[float, float]:
    live, reading = Live(), Reading(store)
    board = RunBoard(reading, told=True)
    pace = Pace(keep_alive_seconds=60)
    cards = Cards(reading, live, fresh_seconds=pace.all_seconds, board=board)
    others, agent = (
        range(RUNS - 1),
        Journal("agent", "node", RunScope(1, RunId(""), ""), 0, "agent"),
    )
    store.write([ended_run(number, time.time_ns()) for number in others])
    store.write(exits([agent], others, time.time_ns()))
    big = Journal("big", "node", RunScope(1, RunId("big"), "big"), time.time_ns())
    big.definitions += [Series(n, f"metric-{n}", 1) for n in range(1, SERIES + 1)]
    ids = np.arange(1, SERIES + 1)

    def write(step: int) -> None:
        times = np.full(SERIES, time.time_ns())
        batch = big.closed(big.batch(columns(ids, times, ids * 0 + step, ids.astype(np.float64))))
        store.write([batch])
        board.stored([batch])
        live.stored([batch])

    async def cost(run: RunId | None) -> float:
        streams = [feed(reading, live, cards, run=run, last_id="", pace=pace) for _ in range(count)]
        await asyncio.gather(*map(anext, streams))
        spent = []
        for step in range(2, 7):
            listening = asyncio.gather(*(told(stream, run is not None) for stream in streams))
            await asyncio.sleep(2 * pace.all_seconds)
            before = time.process_time()
            write(step)
            await listening
            spent.append((time.process_time() - before) * 1e3)
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]
        return statistics.median(spent)

    write(1)
    return await cost(RunId("big")), await cost(None)


async def told(stream: AsyncIterator[bytes], points: bool) -> None:
    while (b"event: points" if points else b"event: run") not in await anext(stream):
        pass


CURVES: Final = {"life": life, "manifest": manifest, "hot": hot, "watchers": watchers}


def measure(options: Options, only: str = "") -> Outcome:
    found = {name: curve(options) for name, curve in CURVES.items() if only in ("", name)}
    return Outcome(
        [table for table, _ in found.values()],
        {name: numbers for name, (_, numbers) in found.items()},
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=tuple(CURVES), default="")
    wanted = parser.parse_known_args()[0].only
    run_one(parser, None, lambda options: measure(options, wanted))
