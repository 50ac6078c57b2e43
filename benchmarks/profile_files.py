"""Traces of any size, always the same ones: imagined, or recorded on an H200 and repeated.

The imagined are dense: a Kineto trace of operators that nest, runtime calls, kernels on three
streams and flows; an XSpace of four GPUs with three streams each and host threads, all with the
stats that XLA writes.  The repeated have the very events of `tests/fixtures/traces/h200`, again and
again, each time later by as long as the recording took.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from runwatch.traces.wire import BYTES, Range, Wire

RECORDED: Final = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "traces" / "h200"
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
        found: list[bytes] = []
        now = written = 0
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


# ── recorded, and repeated ────────────────────────────────────────────────────────────────────


def repeated_kineto(file: BinaryIO, size: int) -> int:
    """`torch-75`, until the file is that large; how many events."""
    document = json.loads(gzip.decompress((RECORDED / "torch-75.json.gz").read_bytes()))
    events = document.pop("traceEvents")
    once = [event for event in events if "ts" not in event]
    timed = [event for event in events if "ts" in event]
    period = max(e["ts"] + e.get("dur", 0) for e in timed) - min(e["ts"] for e in timed) + 1
    steps = len({e["name"] for e in timed if e["name"].startswith("ProfilerStep#")})
    cut = [_around_time(event) for event in timed]
    file.write(json.dumps(document, indent=1).removesuffix("\n}").encode())
    file.write(b',\n "traceEvents": [\n' + b",\n".join(map(_dumped, once)))
    rounds = 0
    while file.tell() < size:
        later = rounds * period
        parts = [
            f"{_renumbered(before, rounds * steps)}{at + later:.3f}{after}"
            for before, at, after in cut
        ]
        file.write((",\n" + ",\n".join(parts)).encode())
        rounds += 1
    file.write(b"\n ]\n}\n")
    return len(once) + rounds * len(timed)


def _dumped(event: dict[str, Any]) -> bytes:
    return json.dumps(event, indent=1).encode()


def _around_time(event: dict[str, Any]) -> tuple[str, float, str]:
    at = event["ts"]
    before, _, after = json.dumps({**event, "ts": "@"}, indent=1).partition('"@"')
    return before, at, after


def _renumbered(text: str, later: int) -> str:
    mark = "ProfilerStep#"
    if mark not in text:
        return text
    before, _, after = text.partition(mark)
    digits = len(after) - len(after.lstrip("0123456789"))
    return f"{before}{mark}{int(after[:digits]) + later}{after[digits:]}"


@dataclass
class Cut:
    """An event of an XSpace without its time, and without the number of its step."""

    before: bytes
    offset_ps: int
    after: bytes
    step: int | None = None
    step_stat: int = 0

    def later(self, picoseconds: int, steps: int) -> bytes:
        body = self.before + number_field(2, self.offset_ps + picoseconds) + self.after
        if self.step is not None:
            number = number_field(4, self.step + steps)
            body += delimited(4, number_field(1, self.step_stat) + number)
        return b"\x22" + varint(len(body)) + body


def repeated_xplane(file: BinaryIO, size: int) -> int:
    """`jax-50`, as often as makes that size; how many events."""
    path = RECORDED / "jax-50.xplane.pb"
    with path.open("rb") as source:
        recorded = Recorded(Wire(path.name, source, path.stat().st_size))
        return recorded.write(file, size)


class Recorded:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._period_ps = 0
        self._steps = 0
        self._events = 0
        self._space = [self._plane_or_raw(field) for field in wire.fields(wire.whole)]

    def write(self, file: BinaryIO, size: int) -> int:
        rounds = max(1, size // self._wire.whole.end)
        for part in self._space:
            if isinstance(part, bytes):
                file.write(part)
                continue
            body = [p if isinstance(p, bytes) else self._line(rounds, *p) for p in part]
            file.write(b"\x0a" + varint(sum(map(len, body))))
            file.writelines(body)
        return rounds * self._events

    def _line(self, rounds: int, head: bytes, events: list[Cut]) -> bytes:
        every = range(rounds)
        body = head + b"".join(
            event.later(number * self._period_ps, number * self._steps)
            for number in every
            for event in events
        )
        return delimited(3, body)

    def _raw(self, field: Any) -> bytes:
        return self._wire.take(field.at, field.range.end - field.at)

    def _plane_or_raw(self, field: Any) -> bytes | list[Any]:
        if field.number != 1:
            return self._raw(field)
        inside = list(self._wire.fields(field.range))
        marks = {self._key(each.range) for each in inside if each.number == 5} - {0}
        step_stat = marks.pop() if marks else 0
        return [
            self._cut_line(each.range, step_stat) if each.number == 3 else self._raw(each)
            for each in inside
        ]

    def _key(self, entry: Range) -> int:
        """Of the stat that is called step_num; 0 for the others."""
        text = self._wire.take(entry.begin, entry.end - entry.begin)
        key = next((f.value for f in self._wire.fields(entry) if f.number == 1), 0)
        return key if b"\x12\x08step_num" in text else 0

    def _cut_line(self, where: Range, step_stat: int) -> tuple[bytes, list[Cut]]:
        head, events = b"", []
        for each in self._wire.fields(where):
            if each.number == 4 and each.type == BYTES:
                events.append(self._cut(each.range, step_stat))
            else:
                head += self._raw(each)
        self._events += len(events)
        return head, events

    def _cut(self, where: Range, step_stat: int) -> Cut:
        cut, lasted, parts = Cut(b"", 0, b"", step_stat=step_stat), 0, [b"", b""]
        for each in self._wire.fields(where):
            step = self._step(each, step_stat) if each.number == 4 else None
            if each.number == 2:
                cut.offset_ps = each.value
            elif step is not None:
                cut.step, self._steps = step, max(self._steps, step + 1)
            else:
                lasted = each.value if each.number == 3 else lasted
                parts[each.number > 2] += self._raw(each)
        cut.before, cut.after = parts
        self._period_ps = max(self._period_ps, cut.offset_ps + lasted + 1)
        return cut

    def _step(self, stat: Any, step_stat: int) -> int | None:
        found = {field.number: field.value for field in self._wire.fields(stat.range)}
        return found.get(4) if step_stat and found.get(1) == step_stat else None
