"""A trace of 500 MB: how long until its summary, and how much memory?

    python benchmarks/profiles.py [--quick]

Makes a Kineto trace (JSON: operators that nest, runtime calls, kernels on three streams, flows) and
an XSpace (four GPUs with three streams each, host threads, all with the stats XLA writes) of that
size, always the same ones, and summarises each in a process of its own.  Beside it, on the same
files, what one would do otherwise: `json.load` alone, and XProf's own overview page.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from report import NO_BAR, Outcome, Table, at_most
from trial import Options, TrialFailed, answer, directory, is_installed, read_answer, worker

MEGABYTES: Final = {False: 500, True: 50}
SECONDS_BAR, MEMORY_BAR = 10.0, 300.0
PATIENCE_SECONDS: Final = 240
STEP_NS: Final = 20_000_000

# ── a Kineto trace ────────────────────────────────────────────────────────────────────────────

OPERATORS: Final = (
    ("aten::linear", ("aten::t", "aten::transpose", "aten::as_strided", "aten::addmm")),
    ("aten::layer_norm", ("aten::native_layer_norm", "aten::empty")),
    ("aten::scaled_dot_product_attention", ("aten::_flash_attention_forward", "aten::empty_like")),
    ("aten::gelu", ()),
    ("autograd::engine::evaluate_function: AddmmBackward0", ("AddmmBackward0", "aten::mm")),
)
KERNELS: Final = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel",
    "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false,"
    " cutlass::bfloat16_t>, true, false>(flash::Flash_fwd_params)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl("
    "at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}, std::array<char*, 2ul> >"
    "(int, at::native::GeluCUDAKernelImpl, std::array<char*, 2ul>)",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
    "(int, float, c10::BFloat16 const*, c10::BFloat16 const*)",
)
COLLECTIVE: Final = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def kineto(file: BinaryIO, size: int) -> int:
    """Steps of an imagined model, until the file is that large; how many events."""
    chance = random.Random(6)
    file.write(
        b'{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {"id": 0, "name": "NVIDIA H200"}\n'
        b'  ],\n  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},\n'
        b'  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 1790857026000000000,\n'
        b'  "traceEvents": [\n'
    )
    events = 0
    step = 0
    while file.tell() < size:
        lines = list(kineto_step(step, chance))
        events += len(lines)
        file.write(("".join(lines)).encode())
        step += 1
    file.write(
        b'  {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}\n  ]}\n'
    )
    return events


def kineto_step(step: int, chance: random.Random) -> Iterator[str]:
    begin = 3_880_000_000_000_000 + step * STEP_NS
    yield complete("user_annotation", f"ProfilerStep#{step}", 4242, 4242, begin, STEP_NS - 50_000)
    yield complete(
        "user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        4242, 4242, begin + 1000, 400_000,
    )  # fmt: skip
    now, device_free = begin + 450_000, begin + 470_000
    correlation = step * 1000
    while now < begin + STEP_NS - 2_000_000:
        name, inner = chance.choice(OPERATORS)
        lasted = chance.randrange(40_000, 90_000)
        external = f',\n      "External id": {correlation}, "Sequence number": {correlation % 977}'
        yield complete("cpu_op", name, 4242, 4242, now, lasted, external)
        each = lasted // (len(inner) + 2)
        for place, part in enumerate(inner):
            yield complete(
                "cpu_op", part, 4242, 4242, now + each * place + 500, each - 600, external
            )
        launched = now + each * (len(inner) + 1)
        linked = f',\n      "cbid": 211, "correlation": {correlation}'
        yield complete("cuda_runtime", "cudaLaunchKernel", 4242, 4242, launched, 4_000, linked)
        device_free = max(device_free, launched + 3_000) + chance.randrange(200, 4_000)
        worked = chance.randrange(8_000, 120_000)
        is_collective = chance.random() < 0.06
        stream = 20 if is_collective else 7
        kernel = COLLECTIVE if is_collective else chance.choice(KERNELS)
        yield complete(
            "kernel", kernel, 0, stream, device_free, worked, kernel_args(correlation, stream)
        )
        yield flow("s", correlation, 4242, 4242, launched)
        yield flow("f", correlation, 0, stream, device_free)
        device_free += 0 if is_collective else worked
        now += lasted + chance.randrange(1_000, 6_000)
        correlation += 1


def complete(
    cat: str, name: str, pid: int, tid: int, start_ns: int, lasted_ns: int, args: str = ""
) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {start_ns / 1000:.3f}, "dur": {lasted_ns / 1000:.3f},\n'
        f'    "args": {{\n      "Ev Idx": {start_ns % 99991}{args}\n    }}\n  }},\n'
    )


def kernel_args(correlation: int, stream: int) -> str:
    return (
        f',\n      "External id": {correlation},\n      "queued": 0, "device": 0, "context": 1,\n'
        f'      "stream": {stream}, "correlation": {correlation},\n'
        '      "registers per thread": 168, "shared memory": 213016,\n'
        '      "blocks per SM": 1.000000,\n      "warps per SM": 12.000000,\n'
        '      "grid": [132, 1, 1],\n      "block": [384, 1, 1],\n'
        '      "est. achieved occupancy %": 19'
    )


def flow(ph: str, number: int, pid: int, tid: int, at_ns: int) -> str:
    return (
        f'  {{\n    "ph": "{ph}", "id": {number}, "pid": {pid}, "tid": {tid},'
        f' "ts": {at_ns / 1000:.3f},\n    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }},\n'
    )


# ── an XSpace ─────────────────────────────────────────────────────────────────────────────────


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def xplane(file: BinaryIO, size: int) -> int:
    """Four GPUs of three streams and two host threads, each plane a fifth of the file."""
    chance = random.Random(6)
    share = size // 5
    events = 0
    for gpu in range(4):
        events += write_plane(file, f"/device:GPU:{gpu}", gpu_lines(chance, share))
    events += write_plane(file, "/host:CPU", host_lines(chance, share))
    start = number_field(1, 1) + number_field(3, 1_790_857_026_000_000_000)
    metadata = delimited(5, number_field(1, 1) + delimited(2, named(1, "profile_start_time")))
    file.write(delimited(1, delimited(2, b"Task Environment") + metadata + delimited(6, start)))
    file.write(delimited(4, b"node-17"))
    return events


STATS: Final = (
    "correlation_id", "kernel_details", "hlo_op", "hlo_module", "theoretical_occupancy_pct",
    "step_num", "context_id", "scope_range_id", "program_id",
)  # fmt: skip
DEVICE_NAMES: Final = tuple(
    [f"loop_add_fusion_{i}" for i in range(200)]
    + [f"gemm_fusion_dot_{i}" for i in range(60)]
    + ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "MemcpyD2D", "MemcpyH2D"]
)
HOST_NAMES: Final = ("train", "PjitFunction(step)", "ExecuteHelper", "ThunkExecutor::Execute")

Lines = Iterator[tuple[str, list[bytes]]]


def write_plane(file: BinaryIO, name: str, lines: Lines) -> int:
    body, events = [delimited(2, name.encode())], 0
    for line, found in lines:
        header = delimited(2, line.encode()) + number_field(3, 1000)
        body.append(delimited(3, header + b"".join(found)))
        events += len(found)
    names = HOST_NAMES if name == "/host:CPU" else DEVICE_NAMES
    body += [metadata_entry(4, i + 1, word) for i, word in enumerate(names)]
    body += [metadata_entry(5, i + 1, word) for i, word in enumerate(STATS)]
    file.write(varint(1 << 3 | 2) + varint(sum(map(len, body))))
    for part in body:
        file.write(part)
    return events


def metadata_entry(number: int, key: int, name: str) -> bytes:
    return delimited(number, number_field(1, key) + delimited(2, named(key, name)))


def named(key: int, name: str) -> bytes:
    return number_field(1, key) + delimited(2, name.encode())


def event(metadata: int, offset_ps: int, lasted_ps: int, stats: bytes) -> bytes:
    fields = (metadata, offset_ps, lasted_ps)
    body = b"".join(number_field(i + 1, value) for i, value in enumerate(fields)) + stats
    return delimited(4, body)


def gpu_lines(chance: random.Random, size: int) -> Lines:
    always = b"".join(
        delimited(4, number_field(1, stat) + value)
        for stat, value in (
            (2, number_field(7, 2)), (4, number_field(7, 4)), (5, b"\x11" + bytes(8)),
            (7, number_field(3, 1)), (8, number_field(3, 40_000)), (9, number_field(3, 6)),
        )
    )  # fmt: skip
    for stream in range(3):
        now, found, written = 0, [], 0
        while written < size // 3:
            lasted = chance.randrange(2_000_000, 90_000_000)
            chosen = chance.randrange(len(DEVICE_NAMES)) + 1
            linked = delimited(4, b"\x08\x01" + number_field(3, 70_000 + len(found)))
            operation = delimited(4, b"\x08\x03" + number_field(7, chosen))
            found.append(event(chosen, now, lasted, linked + operation + always))
            written += len(found[-1])
            now += lasted + chance.randrange(300_000, 9_000_000)
        yield f"Stream #{13 + stream}(Compute)", found


def host_lines(chance: random.Random, size: int) -> Lines:
    for thread in range(2):
        now, found, written, step = 0, [], 0, 0
        while written < size // 2:
            marked = delimited(4, b"\x08\x06" + number_field(4, step))
            parts = [event(1, now, STEP_NS * 1000 - 1000, marked)] if thread == 0 else []
            for place in range(200):
                at = now + place * STEP_NS * 5 + 1_000_000
                lasted = chance.randrange(40_000_000, 90_000_000)
                parts.append(event(2, at, lasted, b""))
                parts.append(event(3, at + 2_000_000, lasted // 2, b""))
                parts.append(event(4, at + 3_000_000, lasted // 4, b""))
            found += parts
            written += sum(map(len, parts))
            now += STEP_NS * 1000
            step += 1
        yield ("python" if thread == 0 else "tf_XLAEigen"), found


# ── in a process of its own ───────────────────────────────────────────────────────────────────


def work(request: dict[str, Any]) -> None:
    before = peak_mb()
    begin, worked = time.perf_counter(), time.process_time()
    found = DOING[request["what"]](Path(request["file"]))
    took, cpu = time.perf_counter() - begin, time.process_time() - worked
    numbers = {"seconds": took, "cpu_seconds": cpu, "peak_mb": peak_mb(), "before_mb": before}
    answer(request["directory"], numbers | found)


def peak_mb() -> float:
    """Of this program alone: getrusage also counts what its parent had when it began it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) / 1024


def summarised(file: Path) -> dict[str, Any]:
    from runwatch.traces.summary import summarise

    found = summarise(file)
    assert found.split is not None and found.split.window_ns == found.window_ns
    return {
        "events": found.events,
        "idle_percent": found.device_idle_percent,
        "steps": found.steps.count if found.steps else 0,
    }


def loaded(file: Path) -> dict[str, Any]:
    import json

    with file.open() as stream:
        return {"events": len(json.load(stream)["traceEvents"])}


def overviewed(file: Path) -> dict[str, Any]:
    from xprof.convert import raw_to_tool_data

    data, _ = raw_to_tool_data.xspace_to_tool_data([str(file)], "overview_page", {})
    return {"answer_bytes": len(data or b"")}


DOING: Final = {"runwatch": summarised, "json.load": loaded, "xprof": overviewed}


def once(what: str, file: Path) -> dict[str, Any]:
    with directory() as place:
        request = {"what": what, "file": str(file), "directory": str(place)}
        with worker("profiles.py", sys.executable, request, place) as process:
            try:
                process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise TrialFailed(f"{what} took more than {PATIENCE_SECONDS} s") from error
        return read_answer(place, what)


def measure(options: Options) -> Outcome:
    size = MEGABYTES[options.quick] * 1_000_000
    head = ("trace", "read by", "seconds (of processor time)", "bar", "", "peak MB", "bar", "")
    table = Table(f"A trace of {MEGABYTES[options.quick]} MB", head)
    numbers: dict[str, Any] = {}
    with directory() as place:
        for name, make, peer in (("Kineto JSON", kineto, "json.load"), ("XSpace", xplane, "xprof")):
            file = place / ("trace.json" if make is kineto else "node-17.xplane.pb")
            with file.open("wb") as stream:
                events = make(stream, size)
            table.notes.append(f"{name}: {file.stat().st_size:,} bytes, {events:,} events.")
            rounds = [once("runwatch", file) for _ in range(1 if options.quick else 3)]
            ours = max(rounds, key=lambda one: one["seconds"])
            numbers[name] = {"runwatch": rounds, "events": events}
            table.rows.append(row(name, "runwatch", ours, with_bar=True))
            table.rows.append(beside(name, peer, file, numbers[name]))
            file.unlink()
    return Outcome([table], numbers)


def beside(name: str, peer: str, file: Path, numbers: dict[str, Any]) -> tuple[str, ...]:
    if peer == "xprof" and not is_installed(sys.executable, "xprof"):
        return (name, peer, "not installed", *NO_BAR, "", *NO_BAR)
    try:
        numbers[peer] = once(peer, file)
    except TrialFailed as error:
        return (name, peer, f"failed: {str(error)[:60]}", *NO_BAR, "", *NO_BAR)
    return row(name, peer, numbers[peer], with_bar=False)


def row(name: str, who: str, one: dict[str, Any], *, with_bar: bool) -> tuple[str, ...]:
    speed = at_most(one["seconds"], SECONDS_BAR, "s") if with_bar else NO_BAR
    memory = at_most(one["peak_mb"], MEMORY_BAR, "MB") if with_bar else NO_BAR
    took = f"{one['seconds']:.1f} ({one['cpu_seconds']:.1f})"
    return (name, who, took, *speed, f"{one['peak_mb']:,.0f}", *memory)


def main() -> None:
    from command import run_one

    run_one(argparse.ArgumentParser(description=__doc__), work, measure)


if __name__ == "__main__":
    main()
