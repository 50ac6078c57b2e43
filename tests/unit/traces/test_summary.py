"""Summaries of several ranks together, their JSON, and names as they are shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.traces.names import (
    Work,
    device_work,
    host_work,
    is_collective,
    kernel_name,
    step_number,
)
from runwatch.traces.summary import (
    SessionSummary,
    Split,
    Summary,
    combine,
    label,
    mean_split,
    summarise,
)
from tests.unit.traces.building import complete, kernel, kineto, written

MS = 1_000_000
BASE = 1_700_000_000 * 10**9


def rank(tmp_path: Path, number: int, step_ns: int, busy_ns: int, late_ns: int = 0) -> Summary:
    events = [
        complete(f"ProfilerStep#{i}", "user_annotation", i * step_ns, (i + 1) * step_ns)
        for i in range(2)
    ]
    events += [kernel("gemm", i * step_ns, i * step_ns + busy_ns) for i in range(2)]
    content = kineto(*events, baseTimeNanoseconds=BASE + late_ns, distributedInfo={"rank": number})
    return summarise(written(tmp_path / f"{number}.json", content), host=f"node-{number}")


def test_ranks_of_a_session(tmp_path: Path) -> None:
    ranks = [rank(tmp_path, 0, 10 * MS, 5 * MS), rank(tmp_path, 1, 12 * MS, 3 * MS, late_ns=MS)]
    found = combine(ranks)
    assert (found.slowest, found.slowest_mean_step_ns) == ("node-1 rank 1", 12 * MS)
    assert found.fastest_mean_step_ns == 10 * MS
    assert found.device_idle_spread == (50.0, 75.0)
    assert found.device_idle_percent == 62.5
    # 0–20 ms and 1–25 ms, of the longer 24.
    assert found.windows_overlap_percent == pytest.approx(100 * 19 / 24)
    assert found.split == Split(8 * MS, 0, 0, 14 * MS)
    assert found.problems == ()


def test_one_trace_is_not_the_slowest_of_itself(tmp_path: Path) -> None:
    alone = combine([rank(tmp_path, 0, 10 * MS, 5 * MS)])
    assert alone.slowest == "" and alone.windows_overlap_percent is None
    assert combine([]).split is None


def test_json_there_and_back(tmp_path: Path) -> None:
    ranks = [rank(tmp_path, n, 10 * MS, n * MS + 1) for n in range(3)]
    session = combine(ranks)
    body = json.loads(json.dumps(session.to_json()))
    assert SessionSummary.from_json(body) == session
    assert SessionSummary.from_json(body | {"of a later version": 1}) == session
    again = Summary.from_json(json.loads(json.dumps(ranks[2].to_json() | {"new": [1]})))
    assert again == ranks[2]


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 1 << 60)] * 4).map(lambda parts: Split(*parts)), min_size=1)
)
def test_a_mean_of_splits_adds_up(splits: list[Split]) -> None:
    found = mean_split(splits)
    assert found is not None
    assert found.window_ns == sum(split.window_ns for split in splits) // len(splits)
    assert min(found.compute_ns, found.communication_ns, found.host_ns, found.idle_ns) >= 0


def test_a_trace_without_a_host_goes_by_its_file(tmp_path: Path) -> None:
    path = written(tmp_path / "run-rank2.json", kineto(kernel("f", 0, 5)))
    found = summarise(path)
    assert found.rank == 2
    assert label(found) == "rank 2"
    assert label(summarise(path, host="node-4", rank=7)) == "node-4 rank 7"


@pytest.mark.parametrize(
    "name, host, number",
    (
        ("node-4.trace.json", "node-4", None),
        ("gpu.cluster.local.rank12.pt.trace.json", "gpu.cluster.local", 12),
        ("something.json", "", None),
    ),
)
def test_host_and_rank_by_the_name_of_the_file(
    tmp_path: Path, name: str, host: str, number: int | None
) -> None:
    found = summarise(written(tmp_path / name, kineto(kernel("f", 0, 5))))
    assert (found.host, found.rank) == (host, number)


def test_the_door_opens_without_numpy() -> None:
    code = "import sys, runwatch.traces.summary; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "name, shown",
    (
        ("void at::native::elementwise<4, at::Fill<float>, std::array<char*, 1ul> >(int, float)",
         "at::native::elementwise<4, at::Fill<…>, std::array<…>>"),
        ("void at::native::(anonymous namespace)::layer_norm<float>(int)",
         "at::native::{anonymous}::layer_norm<float>"),
        ("_ZN2at6native29vectorized_elementwise_kernelILi4EEEvi",
         "at::native::vectorized_elementwise_kernel"),
        ("_ZN12_GLOBAL__N_11fEv", "f"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
         "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("loop_add_fusion_3", "loop_add_fusion_3"),
        ("_Z9999", "_Z9999"),
        ("x" * 500, "x" * 159 + "…"),
    ),
)  # fmt: skip
def test_names_are_shortened_lightly(name: str, shown: str) -> None:
    assert kernel_name(name) == shown


@pytest.mark.parametrize(
    "name",
    ("ncclDevKernel_AllGather_RING", "nccl:all_reduce", "gloo:all_reduce", "c10d::allreduce_",
     "all-reduce.1", "all-reduce-start", "all_gather", "reduce-scatter.3",
     "collective-permute-done", "all-to-all", "AllReduce", "send.1", "recv-done"),
)  # fmt: skip
def test_collectives_by_name(name: str) -> None:
    assert is_collective(name)
    assert device_work(name) is Work.COMMUNICATION


@pytest.mark.parametrize("name", ("reduce.3", "fusion", "aten::send_to", "ncc", "gather", "sender"))
def test_others_are_no_collectives(name: str) -> None:
    assert device_work(name) is Work.COMPUTE


@pytest.mark.parametrize(
    "name, work",
    (
        ("MemcpyH2D", Work.COPY), ("MemcpyD2D", Work.COMPUTE), ("Memset", Work.COMPUTE),
        ("Memcpy DtoH (Device -> Pinned)", Work.COPY), ("Memcpy DtoD", Work.COMPUTE),
        ("infeed", Work.INPUT),
    ),
)  # fmt: skip
def test_copies(name: str, work: Work) -> None:
    assert device_work(name) is work


def test_waiting_is_not_work() -> None:
    waits = ("cudaStreamSynchronize", "CommonPjRtBuffer::Await", "$threading.py:1 wait", "WaitForX")
    assert {host_work(name) for name in waits} == {Work.NONE}
    assert host_work("cudaLaunchKernel") is Work.HOST
    assert host_work("runwatch/data_wait") is Work.INPUT


def test_steps_by_name() -> None:
    assert step_number("ProfilerStep#12") == 12
    assert step_number("runwatch.step#7") == 7
    assert step_number("ProfilerStep*") is None
    assert step_number("footstep#1") is None
