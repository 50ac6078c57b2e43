"""Record real traces with known answers, for tests on machines that have no GPU.

    PYTHONPATH=src python3 scripts/record_traces.py OUT            on a machine with an NVIDIA GPU
    PYTHONPATH=src python3 scripts/record_traces.py OUT --only jax
    PYTHONPATH=src python3 scripts/record_traces.py OUT --cpu      PyTorch and JAX on the processor

With a GPU: a load that keeps it busy 25, 50 and 75 % of the time (matrix products for a part of
every 50 ms, then nothing), captured with torch.profiler and with jax.profiler, each in a process
of its own, while Runwatch's own NVML collector samples the GPU's counters from outside.  How long
the products took, the load itself says: by CUDA events, or (JAX has none) from their dispatch until
the last is ready, each burst.  Then a process in which both profilers run, which CUPTI does not
allow.  About 2½ minutes; each part may fail without the others.  `figures.json` holds what was
measured, and what our summary says of each trace.

On the processor: one small trace of each, with PyTorch's own table of self times and the steps
that were timed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DUTIES = (0.25, 0.50, 0.75)
PERIOD_SECONDS = 0.050
PERIODS = 120
SIDE = 8192
JAX_SIDE = 12_288
"""Its traces hold a thousand bytes of every product: larger products, smaller files."""
WARM_SECONDS = 1.5
SAMPLE_SECONDS = 0.5
WORKER_SECONDS = 75
ALL_SECONDS = 220
LARGEST_BYTES = 3_000_000
SETTLE_NS = 1_200_000_000
"""After the load has begun, before samples count: each is an average since the one before."""


# ── the load, in a process of its own ─────────────────────────────────────────────────────────


def at_pace(burst: Callable[[int], None], mark: Callable[[int], Any]) -> tuple[int, int]:
    """A burst at the beginning of every period; when it began and ended, by the wall clock."""
    begun_ns = time.time_ns()
    begin = time.perf_counter()
    for period in range(PERIODS):
        with mark(period):
            burst(period)
            until(begin + (period + 1) * PERIOD_SECONDS)
    return begun_ns, time.time_ns()


def until(moment: float) -> None:
    while (left := moment - time.perf_counter()) > 0:
        time.sleep(left - 0.0005 if left > 0.001 else 0)


@contextmanager
def nothing(_period: int) -> Iterator[None]:
    yield


def torch_load(duty: float, out: Path) -> dict[str, Any]:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    left = torch.zeros(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    product = torch.empty_like(left)

    def products(count: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            torch.mm(left, left, out=product)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    products(50)
    each = products(50) / 50
    count = max(1, round(duty * PERIOD_SECONDS / each))
    busy: list[float] = []
    path = out / "trace.json"
    # More steps than there are: saving the trace must not fall into the time that is measured.
    plan = schedule(wait=0, warmup=1, active=PERIODS + 5, repeat=1)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]

    def save(found: Any) -> None:
        found.export_chrome_trace(str(path))

    with profile(
        activities=activities, schedule=plan, profile_memory=True, on_trace_ready=save
    ) as profiler:
        products(count)
        profiler.step()

        @contextmanager
        def step(_period: int) -> Iterator[None]:
            yield
            profiler.step()

        begun, ended = at_pace(lambda _: busy.append(products(count)), step)
    packed = trimmed(path)
    return {
        "file": packed.name, "start_ns": begun, "end_ns": ended, "kernel_seconds": each,
        "kernels_per_period": count, "busy_seconds": sum(busy), "torch": torch.__version__,
        "busy_percent": 100 * sum(busy) / ((ended - begun) / 1e9),
        "memory_peak_bytes": torch.cuda.max_memory_allocated(),
    }  # fmt: skip


def trimmed(path: Path) -> Path:
    """Packed; the last events are left out until it is small enough."""
    document = json.loads(path.read_text())
    packed = path.with_suffix(".json.gz")
    while True:
        packed.write_bytes(gzip.compress(json.dumps(document, indent=1).encode(), mtime=0))
        if packed.stat().st_size <= LARGEST_BYTES:
            path.unlink()
            return packed
        times = sorted(e["ts"] for e in document["traceEvents"] if e.get("ph") == "X")
        latest = times[int(len(times) * 0.7)]
        document["traceEvents"] = [e for e in document["traceEvents"] if e.get("ts", 0) <= latest]


def jax_load(duty: float, out: Path) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    side = int(os.environ.get("SIDE", JAX_SIDE))
    left = jnp.zeros((side, side), jnp.bfloat16)
    multiply = jax.jit(jnp.matmul)

    def products(count: int) -> float:
        """Each waits for the one before: no more than two results are in memory."""
        begin = time.perf_counter()
        found = left
        for _ in range(count):
            found = multiply(found, left)
        found.block_until_ready()
        return time.perf_counter() - begin

    each, count = calibrated(products, duty)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 1

    def step(period: int) -> Any:
        return jax.profiler.StepTraceAnnotation("train", step_num=period)

    logs = out / "log"
    jax.profiler.start_trace(str(logs), profiler_options=options)
    products(count)  # what the profiler does at the first kernel is none of the load
    busy: list[float] = []
    begun, ended = at_pace(lambda _: busy.append(products(count)), step)
    jax.profiler.stop_trace()
    kept = keep_xplane(logs, out)
    return {
        "file": kept.name, "start_ns": begun, "end_ns": ended, "kernel_seconds": each,
        "kernels_per_period": count, "side": side, "jax": jax.__version__,
        "busy_seconds": sum(busy), "longest_burst_seconds": max(busy),
        "busy_percent": 100 * sum(busy) / ((ended - begun) / 1e9),
        "devices": [str(device) for device in jax.devices()],
    }  # fmt: skip


def calibrated(products: Callable[[int], float], duty: float) -> tuple[float, int]:
    """Seconds of one product, and how many make the duty; at the pace at which they will come.

    Memory that is taken for the first time, and a GPU that has slept, make the first ones slow.
    """
    begin = time.perf_counter()
    while time.perf_counter() - begin < WARM_SECONDS:
        products(4)
    count = max(1, round(duty * PERIOD_SECONDS * 4 / products(4)))
    found = []
    for period in range(20):
        paced = time.perf_counter() + PERIOD_SECONDS
        found.append(products(count))
        until(paced)
        if period == 9:
            count = max(1, round(count * duty * PERIOD_SECONDS / statistics.median(found)))
            found.clear()
    each = statistics.median(found) / count
    return each, max(1, round(duty * PERIOD_SECONDS / each))


def keep_xplane(logs: Path, out: Path) -> Path:
    (found,) = logs.rglob("*.xplane.pb")
    kept = out / "trace.xplane.pb"
    # Where this script lies is in it, and nobody's business; the lengths must stay.
    place = str(Path(__file__).resolve().parent.parent).encode()
    kept.write_bytes(found.read_bytes().replace(place, b"/".ljust(len(place), b"x")))
    shutil.rmtree(logs)
    return kept


def both_profilers(_duty: float, out: Path) -> dict[str, Any]:
    """JAX's profiler where PyTorch's has been: no device events, and an error in the trace."""
    import jax
    import jax.numpy as jnp
    import torch
    from torch.profiler import ProfilerActivity, profile

    left = torch.zeros(256, 256, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA]):
        torch.mm(left, left)
        torch.cuda.synchronize()
    array = jnp.zeros((256, 256))
    (array @ array).block_until_ready()
    logs = out / "log"
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    jax.profiler.start_trace(str(logs), profiler_options=options)
    begun = time.time_ns()
    for _ in range(5):
        (array @ array).block_until_ready()
    jax.profiler.stop_trace()
    return {"file": keep_xplane(logs, out).name, "start_ns": begun, "end_ns": time.time_ns()}


# ── on the processor ──────────────────────────────────────────────────────────────────────────


def torch_cpu(_duty: float, out: Path) -> dict[str, Any]:
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, schedule
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = TensorDataset(torch.randn(64, 128), torch.randint(0, 10, (64,)))
    rows: list[dict[str, Any]] = []

    def save(found: Any) -> None:
        found.export_chrome_trace(str(out / "trace.json"))
        rows.extend(
            {"name": row.key, "count": row.count, "self_us": row.self_cpu_time_total}
            for row in found.key_averages()
        )

    plan = schedule(wait=0, warmup=1, active=4, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=plan, profile_memory=True, on_trace_ready=save
    ) as profiler:
        for inputs, labels in DataLoader(data, batch_size=8):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    return {"file": trimmed(out / "trace.json").name, "rows": rows, "torch": torch.__version__}


def jax_cpu(_duty: float, out: Path) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    multiply = jax.jit(lambda a: jnp.tanh(a @ a).sum())
    array = jnp.ones((400, 400))
    multiply(array).block_until_ready()
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    logs = out / "log"
    jax.profiler.start_trace(str(logs), profiler_options=options)
    begun = time.time_ns()
    for number in range(5):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            multiply(array).block_until_ready()
    ended = time.time_ns()
    jax.profiler.stop_trace()
    kept = keep_xplane(logs, out)
    found = {"file": kept.name, "start_ns": begun, "end_ns": ended, "jax": jax.__version__}
    return found | {"lines": lines_of(kept), "steps_ms": steps_of(kept)}


def lines_of(path: Path) -> dict[str, dict[str, float]]:
    """By JAX's own reader: line -> name -> nanoseconds."""
    from jax.profiler import ProfileData

    found: dict[str, dict[str, float]] = {}
    for plane in ProfileData.from_file(str(path)).planes:
        for line in plane.lines:
            names = found.setdefault(f"{plane.name} {line.name}", {})
            for event in line.events:
                names[event.name] = names.get(event.name, 0.0) + event.duration_ns
    return found


def steps_of(path: Path) -> list[float] | None:
    """By XProf's overview, where it is installed."""
    try:
        from xprof.convert import raw_to_tool_data
    except ImportError:
        return None
    data, _ = raw_to_tool_data.xspace_to_tool_data([str(path)], "overview_page", {})
    for left in path.parent.glob("*.op_stats*"):
        left.unlink()
    for table in json.loads(data):
        columns = [column["id"] for column in table.get("cols", ())]
        if "stepTimeMs" in columns:
            place = columns.index("stepTimeMs")
            return [row["c"][place]["v"] for row in table["rows"]]
    return None


WORK: dict[str, Callable[[float, Path], dict[str, Any]]] = {
    "torch": torch_load,
    "jax": jax_load,
    "both": both_profilers,
    "torch-cpu": torch_cpu,
    "jax-cpu": jax_cpu,
}


# ── outside: the GPU's counters, and what came out ────────────────────────────────────────────


class Sampling:
    """Runwatch's own NVML collector, in a thread; nothing at all where there is no NVML."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, str, float]] = []
        self.why = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampling:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _run(self) -> None:
        try:
            import pynvml
        except ImportError as error:
            self.why = str(error)
            return
        try:
            self._sample(pynvml)
        except (pynvml.NVMLError, OSError, RuntimeError, AttributeError, ValueError) as error:
            self.why = f"{type(error).__name__}: {error}"

    def _sample(self, pynvml: Any) -> None:
        from runwatch.agent.attribution import Attribution
        from runwatch.agent.collectors import gpm, nvml
        from runwatch.agent.collectors.base import Sample
        from runwatch.agent.collectors.gpus import Gpus
        from runwatch.clock import system_clock

        pace = gpm.Pace(SAMPLE_SECONDS, system_clock)
        collector = nvml.NvmlCollector(
            Gpus(pynvml), Attribution(lambda: ()), period_seconds=SAMPLE_SECONDS, pace=pace
        )
        while not self._over.wait(SAMPLE_SECONDS):
            for reading in collector.collect():
                if isinstance(reading, Sample) and reading.unit == "%":
                    self.samples.append((time.time_ns(), reading.metric, reading.value))
        collector.close()

    def between(self, start_ns: int, end_ns: int) -> dict[str, Any]:
        """Of each metric: mean and number of samples that are of this time alone."""
        found: dict[str, list[float]] = {}
        for time_ns, metric, value in self.samples:
            if start_ns + SETTLE_NS <= time_ns <= end_ns:
                found.setdefault(metric, []).append(value)
        return {m: {"mean": statistics.fmean(v), "samples": len(v)} for m, v in found.items()}


def part(name: str, duty: float, out: Path, sampling: Sampling | None) -> dict[str, Any]:
    """One worker; what it measured, what the counters said, and our summary of its trace."""
    label = name if duty == 0 else f"{name}-{round(100 * duty)}"
    with tempfile.TemporaryDirectory(prefix="runwatch-traces-") as place:
        command = [sys.executable, __file__, place, "--worker", name, "--duty", str(duty)]
        variables = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        try:
            done = subprocess.run(
                command, env=variables, capture_output=True, text=True, timeout=WORKER_SECONDS
            )
        except subprocess.TimeoutExpired:
            return {"part": label, "failed": f"took more than {WORKER_SECONDS} s"}
        answer = Path(place) / "answer.json"
        if done.returncode or not answer.exists():
            return {"part": label, "failed": (done.stderr or done.stdout)[-3000:]}
        figures: dict[str, Any] = {"part": label, "duty": duty, **json.loads(answer.read_text())}
        kept = out / f"{label}{figures['file'].removeprefix('trace')}"
        shutil.copyfile(Path(place) / figures["file"], kept)
    figures |= {"file": kept.name, "bytes": kept.stat().st_size, "stderr": done.stderr[-1500:]}
    if sampling is not None:
        figures["counters"] = sampling.between(figures["start_ns"], figures["end_ns"])
    return figures | {"summary": summarised(kept)}


def summarised(path: Path) -> dict[str, Any]:
    from runwatch.errors import RunwatchError
    from runwatch.traces.summary import summarise

    try:
        return summarise(path).to_json()
    except (RunwatchError, ImportError, ValueError, ArithmeticError, LookupError) as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def record(out: Path, *, cpu: bool, only: str) -> int:
    out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    parts = [(name, duty) for duty in DUTIES for name in ("torch", "jax")] + [("both", 0.0)]
    if cpu:
        parts = [("torch-cpu", 0.0), ("jax-cpu", 0.0)]
    parts = [(name, duty) for name, duty in parts if only in ("", name)]
    found: list[dict[str, Any]] = []
    with Sampling() as sampling:
        for name, duty in parts:
            if time.monotonic() - begun > ALL_SECONDS:
                found.append({"part": f"{name} {duty:g}", "failed": "no time left"})
                continue
            found.append(part(name, duty, out, None if cpu else sampling))
            say(found[-1])
            # After every part, so that an end before the end loses little.
            body = {"about": about(), "counters": sampling.why, "parts": found}
            (out / "figures.json").write_text(json.dumps(body, indent=1) + "\n")
    return int(any("failed" in each for each in found))


def say(figures: dict[str, Any]) -> None:
    if "failed" in figures:
        print(f"{figures['part']}: FAILED: {figures['failed'][-400:]}", flush=True)
        return
    idle = figures["summary"].get("device_idle_percent")
    counters = figures.get("counters", {})
    words = [f"{name} {each['mean']:.1f}" for name, each in counters.items()]
    load = f"load busy {figures['busy_percent']:.1f} %" if "busy_percent" in figures else ""
    seen = "no device events" if idle is None else f"summary busy {100 - idle:.1f} %"
    print(f"{figures['part']}: {figures['bytes']:,} bytes; {load}; {seen}; {'; '.join(words)}")
    for problem in figures["summary"].get("problems", ()):
        print(f"   problem: {problem}", flush=True)


def about() -> dict[str, str]:
    import platform

    return {"python": platform.python_version(), "day": time.strftime("%Y-%m-%d", time.gmtime())}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--cpu", action="store_true", help="traces of the processor alone")
    parser.add_argument("--only", choices=WORK, default="", help="the parts of this load alone")
    parser.add_argument("--worker", choices=WORK, help=argparse.SUPPRESS)
    parser.add_argument("--duty", type=float, default=0.0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is None:
        return record(arguments.out, cpu=arguments.cpu, only=arguments.only)
    answer = WORK[arguments.worker](arguments.duty, arguments.out)
    (arguments.out / "answer.json").write_text(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
