"""What the agent says about a GPU, beside what the load on it must give.

    PYTHONPATH=src python3 benchmarks/gpu.py [--rehearse]

A program keeps one GPU idle, then busy with bf16 matrix products, then with copies from its memory
to its memory, and measures with CUDA events how many operations and bytes that was.  A real agent
watches at 1 Hz, and in a second pass at 10 Hz; its journal is read afterwards.  About 2½ minutes.

Tensor-core activity is compared with operations / (multiprocessors × operations per tick × ticks);
the ticks are counted on the GPU itself, beside the load, since the clock that the driver reports is
up to 9 % faster than the one that a loaded multiprocessor sees.  Memory traffic is compared with
the bytes read and written, power with the GPU's own energy counter.  With $OUT set, the numbers and
a recording for RUNWATCH_DEVICE_REPLAY are written there.  `--rehearse` goes through the motions
without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from runwatch.agent.collectors.replay import save
from runwatch.journal.reader import JournalReader
from runwatch.record import Event, RunScope, Series

PASSES = {1.0: 1.0, 10.0: 5.0}
"""Samples a second -> the most of one core, in percent, that the agent may take."""
SECONDS = {"idle": 20.0, "matrix": 20.0, "copy": 20.0}
SIDE = 16384
COPY_BYTES = 4 << 30
SETTLE_SECONDS = 3.0
"""Of each phase, before it is measured."""
WITHIN = 0.10
# Operations of one multiprocessor in one tick of its clock, dense bf16, by compute capability.
OPERATIONS_PER_TICK = {(9, 0): 4096, (10, 0): 8192}


@dataclass
class Phase:
    name: str
    start_ns: int
    end_ns: int
    agent_cpu_percent: float
    watts: float | None = None
    """By the energy counter."""
    operations_per_second: float | None = None
    ticks_per_second: float | None = None
    """Of a multiprocessor's clock, counted by the GPU."""
    bytes_per_second: float | None = None


# ── the load, in a process of its own ─────────────────────────────────────────────────────────


COUNT_TICKS = r"""
extern "C" __global__ void count(long long nanoseconds, long long* counted) {
  long long begun, now, tick = clock64();
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
  do {
    __nanosleep(20000);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begun < nanoseconds);
  counted[0] += clock64() - tick;
  counted[1] += now - begun;
}
"""


class Ticks:
    """Counts the clock of whichever multiprocessor has room, beside the load."""

    def __init__(self) -> None:
        import cupy

        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._kernel = cupy.RawKernel(COUNT_TICKS, "count")
        self._counted = cupy.zeros(2, dtype=cupy.int64)

    def count(self, seconds: float = 0.005) -> None:
        with self._stream:
            self._kernel((1,), (1,), (int(seconds * 1e9), self._counted))

    def per_second(self) -> float:
        """Since the last call."""
        self._stream.synchronize()
        ticks, nanoseconds = (int(number) for number in self._counted.get())
        self._counted.fill(0)
        return ticks / nanoseconds * 1e9


class Gpu:
    """The real one, by PyTorch."""

    def __init__(self) -> None:
        import pynvml
        import torch

        self._torch: Any = torch
        self._nvml = pynvml
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        # Zeros take as many operations.  Random numbers draw so much power that the clock is cut
        # many times a second, and samples of it no longer tell how many ticks there were.
        self._left = torch.zeros(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
        self._product = torch.empty_like(self._left)
        self._from = torch.zeros(COPY_BYTES, device="cuda", dtype=torch.uint8)
        self._to = torch.empty_like(self._from)
        self._ticks = Ticks()
        for work in (self._multiply, self._copy):
            self._keep_busy(1.0, work, 5)

    def about(self) -> dict[str, Any]:
        properties = self._torch.cuda.get_device_properties(0)
        capability = (properties.major, properties.minor)
        per_tick = OPERATIONS_PER_TICK.get(capability)
        return {
            "name": properties.name,
            "multiprocessors": properties.multi_processor_count,
            "operations_per_tick": per_tick and per_tick * properties.multi_processor_count,
            "torch": self._torch.__version__,
            "driver": str(self._nvml.nvmlSystemGetDriverVersion()),
        }

    def joules(self) -> float:
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3

    def idle(self, seconds: float) -> dict[str, float]:
        time.sleep(seconds)
        return {}

    def matrix(self, seconds: float) -> dict[str, float]:
        per_second = self._keep_busy(seconds, self._multiply, 8, self._ticks.count)
        return {
            "operations_per_second": per_second * 2 * SIDE**3,
            "ticks_per_second": self._ticks.per_second(),
        }

    def copy(self, seconds: float) -> dict[str, float]:
        per_second = self._keep_busy(seconds, self._copy, 20)
        return {"bytes_per_second": per_second * 2 * COPY_BYTES}  # each is read and written

    def _multiply(self) -> None:
        self._torch.mm(self._left, self._left, out=self._product)

    def _copy(self) -> None:
        self._to.copy_(self._from)

    def _keep_busy(
        self,
        seconds: float,
        work: Callable[[], None],
        batch: int,
        beside: Callable[[], None] = lambda: None,
    ) -> float:
        """How often a second `work` was done, by the GPU's clock; it never waits for us."""
        cuda = self._torch.cuda
        cuda.synchronize()
        marks = [self._mark()]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for _ in range(batch):
                work()
            marks.append(self._mark())
            beside()
            marks[-2].synchronize()  # one batch is done, another waits
        cuda.synchronize()
        return 1e3 * batch * (len(marks) - 1) / float(marks[0].elapsed_time(marks[-1]))

    def _mark(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class NoGpu:
    """Goes through the motions."""

    def about(self) -> dict[str, Any]:
        return {"name": "no GPU: a rehearsal", "operations_per_tick": None}

    def joules(self) -> float:
        return time.monotonic() * 100

    def idle(self, seconds: float) -> dict[str, float]:
        time.sleep(seconds)
        return {}

    matrix = copy = idle


def work(request: dict[str, Any]) -> None:
    """The program under watch: a run like any other, so that the GPU is known to be its."""
    import runwatch

    run = runwatch.init("gpu-load")
    gpu = NoGpu() if request["rehearse"] else Gpu()
    phases = []
    for name, seconds in request["seconds"].items():
        with run.span(name):
            getattr(gpu, name)(request["settle"])
            phases.append(measured(gpu, name, seconds - request["settle"], request["agent"]))
    answer = {"about": gpu.about(), "phases": [asdict(phase) for phase in phases]}
    Path(request["answer"]).write_text(json.dumps(answer))
    run.finish()


def measured(gpu: Gpu | NoGpu, name: str, seconds: float, agent: int) -> Phase:
    joules, cpu, begun = gpu.joules(), cpu_seconds(agent), time.time_ns()
    found = getattr(gpu, name)(seconds)
    ended = time.time_ns()
    took = (ended - begun) / 1e9
    percent = 100 * (cpu_seconds(agent) - cpu) / took
    return Phase(name, begun, ended, percent, (gpu.joules() - joules) / took, **found)


def cpu_seconds(pid: int) -> float:
    """Of all its threads: the scheduler's own count where it tells, else in ticks."""
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except OSError:
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)


# ── the agent, and what it wrote ──────────────────────────────────────────────────────────────


@dataclass
class Journal:
    """What an agent wrote about devices."""

    series: dict[int, Series] = field(default_factory=dict)
    runs: dict[int, str] = field(default_factory=lambda: {0: ""})
    points: list[tuple[int, int, float]] = field(default_factory=list)
    """(series, time, value)"""
    events: list[Event] = field(default_factory=list)

    def of(self, metric: str, **labels: str) -> list[tuple[int, float]]:
        ids = {
            number
            for number, series in self.series.items()
            if series.metric == metric and labels.items() <= series.labels.items()
        }
        return [(time_ns, value) for number, time_ns, value in self.points if number in ids]

    def mean(self, metric: str, phase: Phase) -> float | None:
        """Over those samples that say something about the phase alone: each is an average since
        the one before (counters), or over the last second (power)."""
        found = self.of(metric)
        skip = max(1.0, 1.2 * spacing(found)) * 1e9
        begin = phase.start_ns + min(skip, (phase.end_ns - phase.start_ns) / 2)
        inside = [value for time_ns, value in found if begin <= time_ns <= phase.end_ns]
        return statistics.fmean(inside) if inside else None


def spacing(points: list[tuple[int, float]]) -> float:
    gaps = [(b[0] - a[0]) / 1e9 for a, b in zip(points, points[1:], strict=False)]
    return statistics.median(gaps) if gaps else 0.0


def read_agent(root: Path) -> Journal:
    found = Journal()
    for folder in (root / "journals").iterdir():
        reader = JournalReader(folder)
        while (batch := reader.read(final=True)) is not None and batch.origin.role == "agent":
            for definition in batch.definitions:
                if isinstance(definition, Series):
                    found.series[definition.id] = definition
                elif isinstance(definition, RunScope):
                    found.runs[definition.id] = definition.run
            columns = (batch.points.series, batch.points.time_ns, batch.points.value)
            found.points += zip(*columns, strict=True)
            found.events += batch.events
        reader.close()
    return found


@contextmanager
def agent(root: Path, hz: float, rehearse: bool) -> Iterator[subprocess.Popen[bytes]]:
    variables = environment(root) | {"RUNWATCH_DEVICE_HZ": f"{hz:g}"}
    if rehearse:
        variables["RUNWATCH_DEVICE_REPLAY"] = str(made_up(root / "made-up.jsonl"))
    with (root / "agent.log").open("wb") as log:
        command = [sys.executable, "-m", "runwatch.agent", "--dir", str(root), "--idle", "0"]
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def environment(root: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    return kept | {"RUNWATCH_DIR": str(root), "RUNWATCH_AGENT": "off"}


def made_up(path: Path) -> Path:
    metrics = {"gpu_power_watts": "W", "gpu_utilization_percent": "%"}
    rows = [(float(s), "gpu0", {"gpu_power_watts": 100.0 + s % 7}) for s in range(60)]
    save(path, period_seconds=1.0, units=metrics, devices={"gpu0": {}}, rows=rows)
    return path


def watch(hz: float, seconds: dict[str, float], rehearse: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="runwatch-gpu-") as place:
        root = Path(place)
        answer = root / "answer.json"
        with agent(root, hz, rehearse) as process:
            wait_for(lambda: has_sampled(root), root, process)
            request = {
                "agent": process.pid, "seconds": seconds, "rehearse": rehearse,
                "settle": 0.1 if rehearse else SETTLE_SECONDS, "answer": str(answer),
            }  # fmt: skip
            command = [sys.executable, __file__, "--worker", json.dumps(request)]
            subprocess.run(command, env=environment(root), check=True, timeout=180)
        return {"hz": hz, "journal": read_agent(root), **json.loads(answer.read_text())}


def has_sampled(root: Path) -> bool:
    return (root / "journals").is_dir() and bool(read_agent(root).of("gpu_power_watts"))


def wait_for(condition: Callable[[], bool], root: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            words = (root / "agent.log").read_text(errors="replace")[-2000:]
            raise SystemExit(f"the agent has recorded no GPU: is there one?\n{words}")
        time.sleep(0.2)


# ── what came out ─────────────────────────────────────────────────────────────────────────────


def compare(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per phase: what the agent says, and what it should."""
    journal: Journal = result["journal"]
    rows = []
    for phase in (Phase(**each) for each in result["phases"]):
        clock = journal.mean("gpu_sm_clock_hz", phase)
        rows.append(
            {
                "hz": result["hz"],
                "phase": phase.name,
                "utilization_percent": journal.mean("gpu_utilization_percent", phase),
                "sm_activity_percent": journal.mean("gpu_sm_activity_percent", phase),
                "tensor_percent": journal.mean("gpu_tensor_activity_percent", phase),
                "tensor_percent_due": tensor_due(phase, result["about"]),
                "dram_bytes_per_second": journal.mean("gpu_dram_bytes_per_second", phase),
                "dram_bytes_per_second_due": phase.bytes_per_second,
                "watts": journal.mean("gpu_power_watts", phase),
                "watts_due": phase.watts,
                "operations_per_second": phase.operations_per_second,
                "sm_clock_hz": clock,
                "ticks_per_second": phase.ticks_per_second,
                "agent_cpu_percent": phase.agent_cpu_percent,
            }
        )
    return rows


def tensor_due(phase: Phase, about: dict[str, Any]) -> float | None:
    per_tick = about.get("operations_per_tick")
    if not per_tick or not phase.ticks_per_second or phase.operations_per_second is None:
        return None
    return float(100 * phase.operations_per_second / (per_tick * phase.ticks_per_second))


def misses(row: dict[str, Any]) -> list[str]:
    """The bars that a row does not meet."""
    missed = [] if row["agent_cpu_percent"] < PASSES[row["hz"]] else ["agent_cpu_percent"]
    for name in ("tensor_percent", "dram_bytes_per_second", "watts"):
        said, due = row[name], row[f"{name}_due"]
        if due is not None and (said is None or abs(said / due - 1) > WITHIN):
            missed.append(name)
    return missed


def verdict(said: float | None, due: float | None) -> str:
    if due is None:
        return number(said)
    if said is None:
        return f"not reported (due {number(due)})"
    off = said / due - 1
    return f"{number(said)} of {number(due)}, {off:+.1%}{'' if abs(off) <= WITHIN else ' (!)'}"


def number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def show(results: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    print(f"### {results[0]['about']}\n")
    head = ("Hz", "phase", "utilisation %", "tensor %", "DRAM GB/s", "power W", "agent CPU %")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        moved = (scaled(row["dram_bytes_per_second"]), scaled(row["dram_bytes_per_second_due"]))
        bar = PASSES[row["hz"]]
        cells = (
            f"{row['hz']:g}",
            row["phase"],
            number(row["utilization_percent"]),
            verdict(row["tensor_percent"], row["tensor_percent_due"]),
            verdict(*moved),
            verdict(row["watts"], row["watts_due"]),
            f"{row['agent_cpu_percent']:.2f}{'' if row['agent_cpu_percent'] < bar else ' (!)'}",
        )
        print(f"| {' | '.join(cells)} |")
    for result in results:
        show_details(result)


def scaled(bytes_per_second: float | None) -> float | None:
    return None if bytes_per_second is None else bytes_per_second / 1e9


def show_details(result: dict[str, Any]) -> None:
    journal: Journal = result["journal"]
    late = [value for _, value in journal.of("agent_late_seconds", collector="nvml")]
    power = journal.of("gpu_power_watts")
    counters = journal.of("gpu_tensor_activity_percent")
    print(f"\nat {result['hz']:g} Hz: {len(journal.points)} points,")
    print(f"  power each {spacing(power):.3f} s, counters (GPM) each {spacing(counters):.3f} s")
    if late:
        print(
            f"  lateness: median {statistics.median(late) * 1e3:.2f} ms, most {max(late) * 1e3:.1f}"
        )
    for event in journal.events:
        if event.kind not in ("agent_start", "agent_end"):
            print(f"  event {event.kind} {journal.runs[event.scope] or 'host'}: {event.body}")
    scopes = {
        journal.runs[series.scope] or "host"
        for series in journal.series.values()
        if series.device.startswith("gpu")
    }
    print(f"  device series belong to: {', '.join(sorted(scopes))}")


def keep(results: list[dict[str, Any]], rows: list[dict[str, Any]], folder: Path) -> None:
    about = results[0]["about"]
    (folder / "gpu.json").write_text(json.dumps({"about": about, "rows": rows}, indent=1))
    for result in results:
        path = folder / f"replay-{result['hz']:g}hz.jsonl"
        keep_recording(result, [row for row in rows if row["hz"] == result["hz"]], path)
    print(f"\nWrote {folder}/gpu.json and recordings")


def keep_recording(result: dict[str, Any], rows: list[dict[str, Any]], path: Path) -> None:
    """The samples of one pass from its first phase on, in the format of `replay.py`."""
    journal: Journal = result["journal"]
    begun, ended = result["phases"][0]["start_ns"], result["phases"][-1]["end_ns"]
    moments: dict[tuple[int, str], dict[str, float]] = {}
    units: dict[str, str] = {}
    devices: dict[str, dict[str, str]] = {}
    for number_, time_ns, value in sorted(journal.points, key=lambda point: point[1]):
        series = journal.series[number_]
        own = series.device.startswith("gpu") and "process" not in series.metric
        if not own or "errors" in series.labels or not begun <= time_ns <= ended:
            continue
        moments.setdefault((time_ns, series.device), {})[series.metric] = value
        units[series.metric] = series.unit
        devices[series.device] = {"name": series.labels.get("name", ""), "uuid": "GPU-recorded"}
    save(
        path,
        period_seconds=1 / result["hz"],
        units=units,
        devices=devices,
        rows=(
            (round((time_ns - begun) / 1e9, 4), device, values)
            for (time_ns, device), values in moments.items()
        ),
        about=result["about"],
        phases=[
            [phase["name"], (phase["start_ns"] - begun) / 1e9, (phase["end_ns"] - begun) / 1e9]
            for phase in result["phases"]
        ],
        figures=rows,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rehearse", action="store_true", help="without a GPU")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(json.loads(arguments.worker))
        return 0
    share = 0.1 if arguments.rehearse else 1.0
    seconds = {name: length * share for name, length in SECONDS.items()}
    results = [watch(hz, seconds, arguments.rehearse) for hz in PASSES]
    rows = [row for result in results for row in compare(result)]
    show(results, rows)
    missed = 0 if arguments.rehearse else sum(len(misses(row)) for row in rows)
    if folder := os.environ.get("OUT"):
        keep(results, rows, Path(folder))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
