"""What the first answer about a run costs that nobody has asked about: from bare journals on.

    python benchmarks/first_answer.py                      64 ranks x 10,000, and 1 x 1,000,000
    python benchmarks/first_answer.py --ranks 512 --steps 10000
    python benchmarks/first_answer.py --profile fold       where the time of a stage goes

The journals are what the SDK writes for a loop over a data loader: STEP records with waits, nothing
else.  Three questions are asked, of a process of its own each: `runwatch goodput` as a whole, which
stores nothing of much that nobody has stored; what a head does, stage by stage: the journals are
read; read and stored; told again by the store; folded; and drawn up; and, of one rank, what the
page asks a head that has the run stored and was just started, over HTTP, twice.  CPU time is that
of all threads, memory the peak of the process.  The same arguments give the same journals.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import io
import json
import os
import pstats
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psutil
from command import run_one
from report import NO_BAR, Outcome, Table, at_most
from tools import Tool
from trial import HEADERS, Options, TrialFailed, answer, ask, directory, environment

from runwatch.address import read_address
from runwatch.head.main import LocalHead
from runwatch.head.reading import Reading
from runwatch.head.state.accounts.fold import WANTED
from runwatch.journal.reader import JournalReader
from runwatch.journal.segment import (
    DEFAULT_SEGMENT_BYTES,
    DEFINE,
    HEADER_LENGTH,
    ORIGIN,
    STEP_BEGIN_HEAD,
    STEP_END_HEAD,
    Header,
    definition_to_json,
    event_record,
    journal_directories,
    origin_to_json,
    segment_name,
    text_record,
)
from runwatch.record import (
    NO_STEP,
    Definition,
    JournalId,
    Origin,
    RunId,
    RunScope,
    Series,
    SpanName,
)
from runwatch.views.goodput.drawing import draw_up
from runwatch.views.goodput.facts import Scribe
from runwatch.views.goodput.ledger import Ledger

NAME: Final = "first"
BEGIN_NS: Final = 1_700_000_000_000_000_000
STEP_NS: Final = 200_000_000
LEAST_RANKS, MOST_MB, MOST_US = 512, 400, 3.0
"""The bars: with so many ranks, that much memory, and CPU time for a step of a rank."""
MOST_SECONDS: Final = 2.0
"""For the first answer over HTTP about one rank whose steps are stored."""
KEYS: Final = ("cpu_s", "wall_s", "peak_mb")
STAGES: Final = ("read", "store", "replay", "fold", "draw")
Numbers = npt.NDArray[np.int64]

OURS: Final = Tool(
    "Runwatch", "runwatch", lambda place, home: {}, "", "", "", lambda a, b: [], is_ours=True
)


@dataclass(frozen=True, slots=True)
class Size:
    ranks: int
    steps: int

    def __str__(self) -> str:
        return f"{self.ranks} × {self.steps:,}"


DEFAULT: Final = (Size(64, 10_000), Size(1, 1_000_000))


# ── the journals ──────────────────────────────────────────────────────────────────────────────


def write(root: Path, size: Size) -> None:
    """As the SDK writes it; each rank is a little later than the others now and then."""
    random = np.random.default_rng(size.ranks)
    ends = BEGIN_NS + 5 * 10**9 + np.cumsum(random.integers(STEP_NS, STEP_NS * 6 // 5, size.steps))
    for rank in range(size.ranks):
        late = random.integers(0, STEP_NS // 20, (3, size.steps))
        asked = np.concatenate(([BEGIN_NS + 4 * 10**9], ends[:-1] + STEP_NS // 20))
        begins = asked + late[0]
        _write_journal(root, rank, size, _records(begins, asked - late[1] // 10, ends + late[2]))


def _records(begins: Numbers, asked: Numbers, ends: Numbers) -> Numbers:
    """Eight words a step: its STEP_BEGIN and its STEP_END."""
    steps = np.arange(len(begins), dtype=np.int64)
    columns = [np.full_like(steps, STEP_BEGIN_HEAD), steps, begins]
    columns += [np.full_like(steps, STEP_END_HEAD), steps, begins, asked, ends]
    return np.stack(columns, axis=1)


def _write_journal(root: Path, rank: int, size: Size, records: Numbers) -> None:
    name = JournalId(f"{BEGIN_NS // 10**9:x}-node{rank // 8:03d}-{rank + 100}-{rank:04x}")
    origin = Origin(name, f"node{rank // 8:03d}", rank + 100, BEGIN_NS, "boot", rank + 1)
    scope = RunScope(1, RunId(NAME), NAME, rank, size.ranks, "one")
    series = [Series(1, "step_seconds", 1, "s"), Series(2, "data_wait_seconds", 1, "s")]
    head = text_record(ORIGIN, BEGIN_NS, origin_to_json(origin))
    definitions: list[Definition] = [scope, *series, SpanName(1, "step", 1)]
    for definition in definitions:
        head += text_record(DEFINE, BEGIN_NS, definition_to_json(definition))
    first = event_record(BEGIN_NS, "run_start", b"{}", NO_STEP, 1)
    last_ns = int(records[-1, 7]) + 10**9
    last = event_record(last_ns, "run_end", b'{"status": "completed"}', NO_STEP, 1)
    folder = root / "journals" / name
    folder.mkdir(parents=True)
    room = (DEFAULT_SEGMENT_BYTES - HEADER_LENGTH - len(head) - len(first) - len(last)) // 64
    for index, at in enumerate(range(0, size.steps, room)):
        body = head + (first if index == 0 else b"") + records[at : at + room].tobytes()
        body += last if at + room >= size.steps else b""
        header = Header(
            index, DEFAULT_SEGMENT_BYTES, at + (index > 0), BEGIN_NS, BEGIN_NS,
            last_ns, HEADER_LENGTH + len(body), (1, 1, 2),
        )  # fmt: skip
        whole = (header.pack() + body).ljust(DEFAULT_SEGMENT_BYTES, b"\0")
        (folder / segment_name(index)).write_bytes(whole.rstrip(b"\0") + bytes(8))


# ── in the worker ─────────────────────────────────────────────────────────────────────────────


class Meter:
    """CPU time by stage, and the peak of memory while it went on."""

    def __init__(self, profiled: str = "") -> None:
        self.cpu_s = dict.fromkeys(STAGES, 0.0)
        self.wall_s = dict.fromkeys(STAGES, 0.0)
        self.peak_mb = dict.fromkeys(STAGES, 0.0)
        self._profiled = profiled
        self.profile = cProfile.Profile()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        if name == self._profiled:
            self.profile.enable()
        try:
            yield
        finally:
            if name == self._profiled:
                self.profile.disable()
            self.cpu_s[name] += time.process_time() - cpu
            self.wall_s[name] += time.perf_counter() - wall
            self.peak_mb[name] = max(self.peak_mb[name], resident_mb("VmHWM"))

    def forget(self) -> None:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")


def resident_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6


def by_stage(root: Path, meter: Meter) -> dict[str, Any]:
    with meter.stage("read"):
        for folder in journal_directories(root):
            reader = JournalReader(folder)
            while reader.read(final=True) is not None:
                pass
            reader.close()
    meter.forget()
    head = LocalHead(root)
    head.ingest.keeps_house = False  # as in a command
    try:
        with meter.stage("store"):
            while head.tail.round():
                pass
        meter.forget()
        found = told(head, meter)
    finally:
        head.close()
    return found | {"cpu_s": meter.cpu_s, "wall_s": meter.wall_s, "peak_mb": meter.peak_mb}


def told(head: LocalHead, meter: Meter) -> dict[str, Any]:
    run_id = RunId(NAME)
    scribe = Scribe(run_id, Ledger())
    states = Reading(head.store, alive=head.alive, gone=head.tail.gone).processes(run_id)
    for state in states:
        scribe.enter(state.journal, state.attempt, state.rank, state.started_ns)
    with head.store.replay(run_id, WANTED) as replay:
        stretches = iter(replay)
        while True:
            with meter.stage("replay"):
                stretch = next(stretches, None)
            if stretch is None:
                break
            with meter.stage("fold"):
                for batch in stretch:
                    scribe.batch(batch)
                scribe.ledger.settle()
    with meter.stage("draw"):
        goodput = draw_up(scribe.ledger, scribe.lives(states), time.time_ns())
        assert goodput is not None
        account = goodput.account()
    return {"steps": goodput.steps, "spent": {k: v for k, v in account.spent_ns.items() if v}}


def work(request: dict[str, Any]) -> None:
    root = Path(request["root"])
    meter = Meter(request.get("profile", ""))
    found = by_stage(root, meter)
    if request.get("profile"):
        lines = io.StringIO()
        pstats.Stats(meter.profile, stream=lines).sort_stats("tottime").print_stats(30)
        found["profile"] = lines.getvalue()
    answer(request["directory"], found)


# ── asking ────────────────────────────────────────────────────────────────────────────────────


def whole(root: Path) -> dict[str, float]:
    """The command, from the bare directory."""
    command = [sys.executable, "-m", "runwatch.cli", "goodput", NAME, "--json", "--dir", str(root)]
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(root)) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or not said:
        raise TrialFailed(f"`runwatch goodput` exited with {process.returncode}")
    return {
        "cpu_s": used.ru_utime + used.ru_stime,
        "wall_s": time.perf_counter() - begun,
        "peak_mb": used.ru_maxrss * 1024 / 1e6,
    }


def over_http(root: Path) -> dict[str, dict[str, float]]:
    """What the page of a run asks for, first and again; the run is stored."""
    command = [sys.executable, "-m", "runwatch.cli", "head", "--dir", str(root)]
    command += ["--http-port", "0", "--grpc-port", "-1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment(root)) as process:
        try:
            deadline = time.monotonic() + 60
            while (at := read_address(root)) is None or at.pid != process.pid:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise TrialFailed("the head did not start")
                time.sleep(0.01)
            head = psutil.Process(process.pid)
            url = f"{at.http}/api/v1/runs/{NAME}/goodput?buckets=96&program=true"
            return {which: _asked(url, head) for which in ("first", "again")}
        finally:
            process.terminate()


def _asked(url: str, head: psutil.Process) -> dict[str, float]:
    before, begun = head.cpu_times(), time.perf_counter()
    asked = urllib.request.Request(url, headers=HEADERS)
    with urllib.request.urlopen(asked, timeout=600) as said:
        found = json.loads(said.read())
    wall_s, used = time.perf_counter() - begun, head.cpu_times()
    if not found["steps"]:
        raise TrialFailed("the head knows of no step")
    return {
        "cpu_s": used.user + used.system - before.user - before.system,
        "wall_s": wall_s,
        "peak_mb": head.memory_info().rss / 1e6,
    }


def of(size: Size, profile: str = "") -> dict[str, Any]:
    with directory() as place:
        bare = place / "bare"
        write(bare, size)
        found: dict[str, Any] = {}
        if not profile:
            found["whole"] = whole(bare)
            for kept in [p for p in bare.iterdir() if p.name != "journals"]:
                subprocess.run(["rm", "-r", str(kept)], check=True)
        request = {"root": str(bare), "profile": profile}
        found |= ask("first_answer.py", OURS, request, seconds=1800)
        if size.ranks == 1 and not profile:
            found["http"] = over_http(bare)
        return found


def table(size: Size, found: dict[str, Any]) -> Table:
    rank_steps = size.ranks * size.steps
    made = Table(
        f"First answer: {size} steps",
        ("stage", "CPU", "µs per rank-step", "wall", "peak memory", "bar", ""),
    )
    for name in STAGES:
        made.rows.append(_row(name, rank_steps, NO_BAR, *(found[k][name] for k in KEYS)))
    together = [found["cpu_s"][name] for name in ("replay", "fold", "draw")]
    waited = sum(found["wall_s"][name] for name in ("replay", "fold", "draw"))
    peak = max(found["peak_mb"][name] for name in ("replay", "fold", "draw"))
    made.rows.append(_row("of what is stored", rank_steps, NO_BAR, sum(together), waited, peak))
    for which, asked in found.get("http", {}).items():
        bar = at_most(asked["wall_s"], MOST_SECONDS, "s") if which == "first" else NO_BAR
        name = f"over HTTP, {which}"
        made.rows.append(_row(name, rank_steps, bar, *(asked[k] for k in KEYS)))
    if "whole" in found:
        cost = found["whole"]
        micros = cost["cpu_s"] / rank_steps * 1e6
        bar = at_most(micros, MOST_US, "µs") if size.ranks >= LEAST_RANKS else NO_BAR
        whole = _row("`runwatch goodput`", rank_steps, bar, *(cost[k] for k in KEYS))
        made.rows.append(whole)
        if size.ranks >= LEAST_RANKS:
            made.rows.append(("", "", "", "", "", *at_most(cost["peak_mb"], MOST_MB, "MB", 3)))
    return made


def _row(
    name: str, count: int, bar: tuple[str, str], cpu_s: float, wall_s: float, mb: float
) -> tuple[str, ...]:
    each = f"{cpu_s / count * 1e6:.2f}"
    return name, f"{cpu_s:.2f} s", each, f"{wall_s:.2f} s", f"{mb:.0f} MB", *bar


def measure(options: Options) -> Outcome:
    sizes = (Size(8, 2_000), Size(1, 50_000)) if options.quick else DEFAULT
    found = {size: of(size) for size in sizes}
    return Outcome(
        [table(size, each) for size, each in found.items()],
        {str(size): each for size, each in found.items()},
    )


def main(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, help="only so many …")
    parser.add_argument("--steps", type=int, default=10_000, help="… with so many steps each")
    parser.add_argument("--profile", choices=STAGES, help="where the time of a stage goes")
    given, _ = parser.parse_known_args()
    if given.ranks is None:
        run_one(parser, work, measure)
        return
    size = Size(given.ranks, given.steps)
    found = of(size, given.profile or "")
    print(table(size, found).text())
    print(found.get("profile", ""))


if __name__ == "__main__":
    main(argparse.ArgumentParser(description=__doc__))
