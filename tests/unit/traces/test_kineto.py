"""Kineto traces with known answers; any JSON, in any pieces, gives the events json.loads does."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runwatch.traces.json_stream import EventStream
from runwatch.traces.kineto import EventDecoder
from runwatch.traces.opening import BadTrace, Limits
from runwatch.traces.summary import Split, Summary, summarise
from tests.unit.traces.building import complete, kernel, kineto, written

QUICKLY = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MS = 1_000_000
BASE = 1_700_000_000 * 10**9


def gpu_step() -> list[dict[str, Any]]:
    """Two steps of ten milliseconds; the device works in 1–4 and 5–6, and sends in 3–5."""
    return [
        complete("ProfilerStep#3", "user_annotation", 0, 10 * MS),
        complete("ProfilerStep#4", "user_annotation", 10 * MS, 20 * MS),
        complete("enumerate(DataLoader)#_Iter.__next__", "user_annotation", 8 * MS, 10 * MS),
        complete("aten::linear", "cpu_op", 0, 2 * MS),
        complete("aten::addmm", "cpu_op", MS // 2, MS),
        complete("cudaLaunchKernel", "cuda_runtime", MS // 2 + 100, MS // 2 + 200),
        complete("cudaDeviceSynchronize", "cuda_runtime", 12 * MS, 20 * MS),
        complete("<module>", "python_function", 0, 20 * MS),
        kernel("void gemm<float, std::array<int, 2> >(int*)", MS, 4 * MS),
        kernel("vectorized", 5 * MS, 6 * MS, stream=9),
        kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)", 3 * MS, 5 * MS, stream=20),
        complete("ProfilerStep#3", "gpu_user_annotation", MS, 6 * MS, 0, 7),
        complete("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", 6 * MS, 7 * MS, 0, 7),
        complete("PyTorch Profiler (0)", "Trace", 0, 99 * MS, "Spans", "PyTorch Profiler"),
        memory(1000), memory(5000), memory(2000),
    ]  # fmt: skip


def memory(used: int, kind: int = 1, number: int = 0) -> dict[str, Any]:
    args = {"Total Allocated": used, "Device Type": kind, "Device Id": number}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1.0, "args": args}


def summary(tmp_path: Path, content: str | bytes, name: str = "trace.json") -> Summary:
    return summarise(written(tmp_path / name, content))


def test_a_gpu_its_streams_and_its_host(tmp_path: Path) -> None:
    content = kineto(
        *gpu_step(), distributedInfo={"rank": 5}, baseTimeNanoseconds=BASE, host_name="node-3"
    )
    found = summary(tmp_path, content)
    assert (found.kind, found.host, found.rank) == ("kineto", "node-3", 5)
    # Host: 0–1 before the first kernel, the copy, the data loader; waiting is not work.
    assert found.split == Split(4 * MS, MS, MS + MS + 2 * MS, 11 * MS)
    assert found.window_ns == 20 * MS
    assert found.device_idle_percent == 75.0
    assert found.kernels == 3 and found.collective_ns == 2 * MS
    assert found.input_bound_percent == 10.0
    assert found.steps is not None
    assert (found.steps.count, found.steps.first, found.steps.last) == (2, 3, 4)
    assert (found.window_start_ns, found.window_end_ns) == (BASE, BASE + 20 * MS)
    assert found.memory_peaks == {"cuda:0": 5000}
    assert found.problems == ()


def test_operations_by_self_time(tmp_path: Path) -> None:
    found = summary(tmp_path, kineto(*gpu_step()))
    host = {each.name: (each.count, each.total_ns, each.self_ns) for each in found.host_operations}
    assert host["aten::linear"] == (1, 2 * MS, 2 * MS - MS // 2)
    assert host["aten::addmm"] == (1, MS // 2, MS // 2 - 100)
    assert not [name for name in host if name.startswith("ProfilerStep")]
    device = {each.name: each.self_ns for each in found.device_operations}
    assert device["gemm<float, std::array<…>>"] == 3 * MS


def test_without_a_device_operators_are_the_compute(tmp_path: Path) -> None:
    found = summary(
        tmp_path,
        kineto(
            complete("enumerate(DataLoader)#_Iter.__next__", "user_annotation", 0, 2 * MS),
            complete("aten::stack", "cpu_op", MS, 2 * MS),
            complete("aten::mm", "cpu_op", 2 * MS, 6 * MS),
            complete("gloo:all_reduce", "user_annotation", 5 * MS, 8 * MS, tid=200),
            complete("Optimizer.step#SGD", "user_annotation", 6 * MS, 10 * MS),
        ),
    )
    assert found.compute_on == "cpu"
    assert found.split == Split(4 * MS, 2 * MS, 2 * MS, 2 * MS)
    assert found.device_idle_percent is None and found.kernels is None
    assert found.input_bound_percent == 20.0
    assert found.captured_start_ns is None


def test_launches_without_kernels_are_a_problem(tmp_path: Path) -> None:
    calls = [complete("cudaLaunchKernel", "cuda_runtime", i * 10, i * 10 + 5) for i in range(3)]
    (problem,) = summary(tmp_path, kineto(*calls)).problems
    assert problem.startswith("3 kernels were launched, but no device event was recorded")


def test_two_devices_and_two_of_the_same_name(tmp_path: Path) -> None:
    found = summary(
        tmp_path, kineto(kernel("f", 0, 10), kernel("f", 0, 4, device=3), kernel("g", 2, 8, 9, 3))
    )
    assert [(d.number, d.idle_percent, d.kernels) for d in found.devices] == [
        (0, 0.0, 1),
        (3, 20.0, 2),
    ]
    assert found.split is not None and found.split.window_ns == 10


def test_xlas_own_json_reads_like_its_xspace(tmp_path: Path) -> None:
    names = [("process_name", 1, 0, "/device:GPU:0"), ("process_name", 2, 0, "/host:CPU")]
    names += [("thread_name", 1, 7, "Stream #7(Compute)"), ("thread_name", 1, 8, "XLA Modules")]
    about = [
        {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
        for kind, pid, tid, name in names
    ]
    events = [
        complete("fusion", "", 0, 4 * MS, 1, 7, hlo_op="fusion"),
        complete("jit_f", "", 0, 9 * MS, 1, 8),
        complete("train", "", 0, 10 * MS, 2, 9, step_num="4"),
        complete("PjitFunction(f)", "", 5 * MS, 6 * MS, 2, 9),
    ]
    found = summary(tmp_path, json.dumps({"traceEvents": [*about, *events]}))
    assert found.kind == "chrome"
    assert found.split == Split(4 * MS, 0, MS, 5 * MS)
    assert found.steps is not None and found.steps.first == 4
    assert [each.name for each in found.device_operations] == ["fusion"]


def test_gzip_and_plain_are_the_same(tmp_path: Path) -> None:
    content = kineto(*gpu_step(), baseTimeNanoseconds=BASE)
    plain = summary(tmp_path, content)
    packed = summary(tmp_path, gzip.compress(content.encode()), "trace.json.gz")
    assert packed.to_json() == plain.to_json() | {
        "file": packed.file,
        "size_bytes": packed.size_bytes,
    }


@pytest.mark.parametrize("ending", ("]", "", ",\n", ",\n]\n"))
def test_a_bare_list_of_events_need_not_be_closed(tmp_path: Path, ending: str) -> None:
    events = ",".join(json.dumps(event) for event in gpu_step())
    found = summary(tmp_path, f"[{events}{ending}")
    assert found.kernels == 3
    assert bool(found.problems) == ("]" not in ending)


def test_halves_and_times_that_are_none(tmp_path: Path) -> None:
    half = {"ph": "B", "name": "f", "ts": 1, "pid": 1, "tid": 1}
    odd = [complete("f", "cpu_op", 0, 5) | {"ts": ts} for ts in ("soon", None, 1e300)]
    found = summary(tmp_path, kineto(half, *odd, complete("g", "cpu_op", 0, 10)))
    assert found.window_ns == 10
    assert "1 begin and end events (ph B, E) are not counted" in found.problems
    assert "3 events have no readable time; not counted" in found.problems


def test_names_without_end_are_counted_together(tmp_path: Path) -> None:
    events = [complete(f"f{i}", "cpu_op", i * 10, i * 10 + 5) for i in range(50)]
    path = written(tmp_path / "trace.json", kineto(*events))
    found = summarise(path, limits=Limits(names=10))
    assert found.split is not None and found.split.compute_ns == 250
    assert found.events == 50


# ── any JSON, in any pieces ───────────────────────────────────────────────────────────────────

WORDS = st.text(st.sampled_from('a"}{],[:\\ \n\t\x7fé漢🎉'), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
EVENTS = st.lists(
    st.fixed_dictionaries({"ph": st.sampled_from("XiM"), "name": WORDS, "ts": st.integers(0, 99)})
    .flatmap(lambda event: VALUES.map(lambda args: {**event, "args": {"own": args}})),
    max_size=8,
)  # fmt: skip


def streamed(content: bytes, block: int) -> tuple[list[Any], dict[str, Any]]:
    stream: EventStream[Any] = EventStream(
        "made up", io.BytesIO(content).read, EventDecoder(), Limits(), block=block
    )
    found = [event for some in stream for event in some]
    return found, stream.fields


@QUICKLY
@given(
    EVENTS,
    st.dictionaries(WORDS, VALUES, max_size=2),
    st.sampled_from((None, 1)),
    st.booleans(),
    st.integers(1, 200),
)
def test_any_json_in_any_pieces(
    events: list[dict[str, Any]],
    others: dict[str, Any],
    indent: int | None,
    ascii_: bool,
    block: int,
) -> None:
    body = {**others, "traceEvents": events, "after": 1.5}
    content = json.dumps(body, indent=indent, ensure_ascii=ascii_).encode()
    wanted = [(event["ph"], event["name"], float(event["ts"])) for event in events]
    found, fields = streamed(content, block)
    assert [(event.ph, event.name, event.ts) for event in found] == wanted
    assert fields == {**others, "after": 1.5}


@QUICKLY
@given(st.integers(1, 400))
def test_a_file_that_ends_in_the_middle(size: int) -> None:
    content = kineto(*gpu_step()).encode()
    with pytest.raises(BadTrace, match="made up: at byte .*(?:ends too early|Expecting)"):
        streamed(content[: size * len(content) // 401], 64)


@pytest.mark.parametrize(
    "content, said",
    (
        (b'{"traceEvents": [1, 2]}', "an event must be an object, not '1'"),
        (b'{"traceEvents": [{"ph": tru, "name": "and more"}]}', "at byte 17: Expecting value"),
        (b'{"traceEvents": [' + b"[" * 100_000 + b"]", "nested too deeply"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"traceEvents" [', "expected a name and a colon"),
        (b"{" + b",".join(b'"%d": 1' % i for i in range(2000)) + b"}", "more than 1,000 fields"),
        (b'{"a": 1' + b', "a": 1' * 2000, "more than 1,000 fields"),
        (b'{"traceEvents": []' + b', "traceEvents": []' * 2000, "more than 1,000 fields"),
        (b"{" + b"," * 5_000_000, "ends too early"),
        (b"[" + b" " * 5_000_000 + b"1", "an event must be an object"),
    ),
)
def test_what_is_wrong_is_named_with_its_place(content: bytes, said: str) -> None:
    with pytest.raises(BadTrace, match=said):
        streamed(content, 1 << 20)


def test_an_event_beyond_all_bounds_is_refused() -> None:
    content = b'{"traceEvents": [{"name": "' + b"x" * 500_000
    stream: EventStream[Any] = EventStream(
        "made up",
        io.BytesIO(content * 2).read,
        EventDecoder(),
        Limits(event_bytes=100_000),
        block=1000,
    )
    with pytest.raises(BadTrace, match="one value is longer than 100,000 bytes"):
        list(stream)
