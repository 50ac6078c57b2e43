"""XSpaces with known answers, in any order of fields, cut off anywhere, and of nonsense."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.traces.opening import BadTrace, Limits
from runwatch.traces.summary import Split, Summary, summarise
from runwatch.traces.wire import Wire
from tests.unit.traces.building import Plane, number, part, written, xspace

MS = 1_000_000


def gpu(device: int = 0) -> Plane:
    """Ten milliseconds: compute 0–4 and 6–8, a collective 3–6, a copy 8–9."""
    plane = Plane(f"/device:GPU:{device}")
    fusion = [plane.event("loop_add_fusion", a * MS, b * MS) for a, b in ((0, 2), (2, 4), (6, 8))]
    plane.line("Stream #13(Compute)", *fusion)
    plane.line("Stream #14(MemcpyH2D)", plane.event("MemcpyH2D", 8 * MS, 9 * MS))
    nccl = plane.event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 3 * MS, 6 * MS)
    plane.line("Stream #20(Compute)", nccl)
    return plane.line("XLA Ops", plane.event("made of the others", 0, 10 * MS))


def host() -> Plane:
    plane = Plane("/host:CPU")
    plane.line(
        "python",
        *(plane.event("train", i * 5 * MS, (i + 1) * 5 * MS, step_num=i) for i in range(2)),
        plane.event("PjitFunction(f)", 0, MS),
        plane.event("$frame of a file", 0, 10 * MS),
        plane.event("a tick", MS, MS),
    )
    plane.line("worker", plane.event("ExecuteHelper", 9 * MS, 9 * MS + 500_000))
    return plane


def environment(start_ns: int = 1_700_000_000 * 10**9) -> Plane:
    plane = Plane("Task Environment")
    plane.own.append(plane.stat("profile_start_time", start_ns))
    return plane


def summary(tmp_path: Path, content: bytes, limits: Limits | None = None) -> Summary:
    return summarise(written(tmp_path / "node-7.xplane.pb", content), limits=limits or Limits())


def test_a_gpu_its_streams_and_its_host(tmp_path: Path) -> None:
    found = summary(tmp_path, xspace(gpu(), host(), environment(), hosts=("node-9",)))
    assert found.kind == "xplane" and found.host == "node-9"
    assert found.split is not None
    assert (found.split.compute_ns, found.split.communication_ns) == (6 * MS, 2 * MS)
    assert (found.split.host_ns, found.split.idle_ns) == (MS + MS // 2, MS // 2)
    assert found.device_idle_percent == 20.0
    assert found.kernels == 4 and found.compute_on == "device"
    assert found.collective_ns == 3 * MS
    assert found.devices[0].copy_ns == MS
    assert found.window_ns == 10 * MS == found.split.window_ns
    assert found.captured_start_ns == 1_700_000_000 * 10**9
    assert found.problems == ()


def test_steps_are_what_carries_a_number(tmp_path: Path) -> None:
    steps = summary(tmp_path, xspace(host(), environment())).steps
    assert steps is not None
    assert (steps.count, steps.first, steps.last) == (2, 0, 1)
    assert (steps.mean_ns, steps.p50_ns, steps.max_ns) == (5 * MS, 5 * MS, 5 * MS)


def test_operations_by_self_time(tmp_path: Path) -> None:
    found = summary(tmp_path, xspace(gpu(), host()))
    top = {each.name: (each.count, each.total_ns, each.self_ns) for each in found.device_operations}
    assert top["loop_add_fusion"] == (3, 6 * MS, 6 * MS)
    assert "made of the others" not in top
    host_top = {each.name: each.self_ns for each in found.host_operations}
    assert host_top["PjitFunction(f)"] == MS
    assert "train" not in host_top


def test_several_gpus_are_averaged_and_kept_apart(tmp_path: Path) -> None:
    idle = Plane("/device:GPU:1")
    idle.line("Stream #13", idle.event("f", 0, MS))
    found = summary(tmp_path, xspace(gpu(), idle, host()))
    assert [(d.number, d.kernels, d.idle_percent) for d in found.devices] == [
        (0, 4, 20.0),
        (1, 1, 90.0),
    ]
    assert found.device_idle_percent == 55.0
    assert found.split is not None and found.split.window_ns == found.window_ns
    assert found.split.compute_ns == (6 * MS + MS) // 2


def test_a_tpu_has_its_operations_on_one_line(tmp_path: Path) -> None:
    plane = Plane("/device:TPU:0")
    plane.line("Steps", plane.event("7", 0, 10 * MS), plane.event("8", 10 * MS, 20 * MS))
    plane.line("XLA Modules", plane.event("jit_step", 0, 20 * MS))
    plane.line(
        "XLA Ops",
        plane.event("while", 0, 8 * MS),
        plane.event("fusion.3", MS, 3 * MS),
        plane.event("all-reduce.1", 10 * MS, 14 * MS),
        plane.event("infeed", 14 * MS, 15 * MS),
    )
    plane.line("Async XLA Ops", plane.event("copy-start", 0, 20 * MS))
    found = summary(tmp_path, xspace(plane))
    assert found.split == Split(8 * MS, 4 * MS, MS, 7 * MS)
    assert found.steps is not None and (found.steps.first, found.steps.last) == (7, 8)
    assert found.input_bound_percent == 5.0
    assert {each.name: each.self_ns for each in found.device_operations}["while"] == 6 * MS


def test_xla_on_the_processor_is_its_compute(tmp_path: Path) -> None:
    plane = Plane("/host:CPU")
    plane.line(
        "tf_XLAPjRtCpuClient/1",
        plane.event("fusion", 0, 6 * MS, hlo_op="fusion", hlo_module="jit_f"),
        plane.event("Await", MS, 2 * MS),
        plane.event("all-reduce", 6 * MS, 7 * MS, hlo_op="all-reduce"),
        plane.event("PjitFunction(f)", 7 * MS, 8 * MS),
        plane.event("ThunkExecutor::Execute (wait for completion)", 8 * MS, 10 * MS),
    )
    found = summary(tmp_path, xspace(plane))
    assert found.compute_on == "cpu"
    assert found.split == Split(6 * MS, MS, MS, 2 * MS)
    assert found.device_idle_percent is None and found.kernels is None and found.devices == ()


def test_memory_is_the_allocators_last_word(tmp_path: Path) -> None:
    plane = Plane("/host:CPU")
    said = [
        plane.event("MemoryAllocation", i, i, peak_bytes_in_use=i * 100, allocator_name="GPU_0_bfc")
        for i in range(1, 6)
    ]
    found = summary(tmp_path, xspace(plane.line("python", *said)))
    assert found.memory_peaks == {"GPU_0_bfc": 500}
    assert found.memory_peak_bytes == 500


def test_a_device_without_events_and_errors_are_problems(tmp_path: Path) -> None:
    error = "failed to start: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
    found = summary(tmp_path, xspace(Plane("/device:GPU:0"), host(), errors=(error,)))
    said = "\n".join(found.problems)
    assert error in said
    assert "another profiler in this process holds CUPTI" in said
    assert "/device:GPU:0 is in the trace but has no events" in said
    assert found.device_idle_percent is None


def test_a_line_has_its_own_beginning(tmp_path: Path) -> None:
    epoch = 1_700_000_000 * 10**9
    plane = Plane("/host:CPU")
    plane.line("python", plane.event("f", 5, 10), timestamp_ns=epoch)
    found = summary(tmp_path, xspace(plane))
    assert (found.captured_start_ns, found.captured_end_ns) == (epoch + 5, epoch + 10)


@pytest.mark.parametrize(
    "filler", (b"", part(99, b"later versions" * 20), b"\x99\x06" + b"12345678")
)
def test_fields_of_an_event_in_another_order(tmp_path: Path, filler: bytes) -> None:
    plane = Plane("/device:GPU:0")
    plane.event("f", 0, 1)
    odd = filler + number(3, 7000) + part(4, number(1, 1)) + number(2, 2000) + number(1, 1)
    long_varint = number(1, 1) + b"\x10\x80\x80\x80\x80\x80\x80\x80\x80\x00" + number(3, 1000)
    found = summary(tmp_path, xspace(plane.line("Stream #1", odd, long_varint)))
    assert [(each.name, each.self_ns) for each in found.device_operations] == [("f", 8)]
    assert found.window_ns == 9


def test_negative_times_are_not_counted(tmp_path: Path) -> None:
    plane = Plane("/device:GPU:0")
    fine = plane.event("f", 0, 10)
    found = summary(tmp_path, xspace(plane.line("Stream #1", number(1, 1) + number(2, -5), fine)))
    assert found.window_ns == 10
    assert "1 events have no readable time" in found.problems


def test_an_empty_trace_says_so(tmp_path: Path) -> None:
    found = summary(tmp_path, xspace(Plane("/host:CPU")))
    assert found.split is None and found.steps is None and found.window_ns == 0
    assert found.problems == ("the trace is empty: the profiler recorded nothing while it was on",)


def test_events_of_all_sizes_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of a block, and however long an event, the answer is the same."""
    chance = random.Random(1)
    plane = Plane("/device:GPU:0")
    events, now = [], 0
    for _ in range(400):
        lasted = chance.randrange(1, 50)
        said = {"hlo_op": "x" * chance.choice((1, 5, 120, 300, 2000))}
        events.append(plane.event(f"f{chance.randrange(9)}", now, now + lasted, **said))
        now += lasted + chance.randrange(3)
    content = xspace(plane.line("Stream #1", *events))
    whole = summary(tmp_path, content)
    assert whole.events == whole.kernels == 400
    for block in (600, 1000, 7777):
        monkeypatch.setattr("runwatch.traces.wire._BLOCK", block)
        assert summary(tmp_path, content) == whole


def test_cut_off_anywhere_it_is_an_error_or_a_shorter_trace(tmp_path: Path) -> None:
    content = xspace(gpu(), host(), environment(), hosts=("node-9",))
    planes = {
        len(xspace(gpu())),
        len(xspace(gpu(), host())),
        len(xspace(gpu(), host(), environment())),
    }
    for size in range(1, len(content)):
        if size in planes:
            assert summary(tmp_path, content[:size]).kernels == 4
        else:
            with pytest.raises(BadTrace, match="at byte|neither JSON"):
                summary(tmp_path, content[:size])


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=300))
def test_nonsense_ends(content: bytes) -> None:
    import io

    wire = Wire("nonsense", io.BytesIO(content), len(content))
    try:
        read = sum(1 for _ in wire.fields(wire.whole))
    except BadTrace as error:
        assert "nonsense: at byte" in str(error)
    else:
        assert read <= len(content)


@settings(deadline=None)
@given(st.data())
def test_a_flipped_byte_never_hangs_or_leaks_another_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(xspace(gpu(), host(), environment()))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = written(tmp_path_factory.getbasetemp() / "flipped.xplane.pb", bytes(content))
    try:
        found = summarise(path)
    except BadTrace as error:
        assert str(path) in str(error)
    else:
        assert found.split is None or found.split.window_ns == found.window_ns


def test_too_many_events_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="node-7.xplane.pb: more than 3 events"):
        summary(tmp_path, xspace(gpu()), limits=Limits(events=3))
    with pytest.raises(BadTrace, match="more than 2 events in memory at once"):
        summary(tmp_path, xspace(gpu()), limits=Limits(held_events=2))
