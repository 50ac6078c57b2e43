"""Traces recorded by scripts/record_traces.py, beside what others say of the same ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runwatch.traces.summary import summarise

FIXTURES = Path(__file__).parents[2] / "fixtures" / "traces"
CPU = {
    each["part"]: each
    for each in json.loads((FIXTURES / "figures-cpu.json").read_text())["parts"]
}  # fmt: skip


def test_self_times_are_those_of_pytorchs_own_table() -> None:
    figures = CPU["torch-cpu"]
    found = summarise(FIXTURES / figures["file"])
    said = {row["name"]: row for row in figures["rows"] if "#" not in row["name"]}
    ours = {each.name: each for each in found.host_operations if each.name in said}
    assert len(ours) > 10
    for name, each in ours.items():
        assert each.count == said[name]["count"]
        assert each.self_ns / 1e3 == pytest.approx(said[name]["self_us"], abs=0.01 * each.count)


def test_a_real_pytorch_trace_adds_up() -> None:
    found = summarise(FIXTURES / "torch-cpu.json.gz")
    assert found.kind == "kineto" and found.compute_on == "cpu"
    assert found.split is not None and found.split.window_ns == found.window_ns
    assert found.steps is not None and found.steps.count == 4
    assert found.split.compute_ns > 0 and found.split.host_ns > 0
    assert found.input_bound_percent is not None and 0 < found.input_bound_percent < 100
    assert found.memory_peak_bytes is not None and found.memory_peak_bytes > 8 * 128 * 4
    assert found.device_idle_percent is None
    assert found.problems == ()


def test_steps_are_those_of_xprofs_overview() -> None:
    figures = CPU["jax-cpu"]
    steps = summarise(FIXTURES / figures["file"]).steps
    said = sorted(round(each * 1e6) for each in figures["steps_ms"])
    assert steps is not None and steps.count == len(said) == 5
    assert (steps.p50_ns, steps.max_ns) == pytest.approx((said[2], said[-1]), abs=1)
    assert steps.mean_ns == pytest.approx(sum(said) / 5, abs=1)


def test_times_are_those_of_jaxs_own_reader() -> None:
    figures = CPU["jax-cpu"]
    found = summarise(FIXTURES / figures["file"])
    totals: dict[str, float] = {}
    for line in figures["lines"].values():
        for name, lasted_ns in line.items():
            totals[name] = totals.get(name, 0.0) + lasted_ns
    assert len(found.host_operations) > 5
    for each in found.host_operations:
        assert each.total_ns == pytest.approx(totals[each.name], abs=each.count)
    assert found.captured_start_ns is not None and found.captured_end_ns is not None
    assert abs(found.captured_start_ns - figures["start_ns"]) < 5_000_000
    assert abs(found.captured_end_ns - figures["end_ns"]) < 5_000_000


# ── on a GPU: a known duty cycle ──────────────────────────────────────────────────────────────


def gpu_parts() -> list[Any]:
    parts = json.loads((FIXTURES / "h200" / "figures.json").read_text())["parts"]
    return [pytest.param(each, id=each["part"]) for each in parts if each["duty"]]


@pytest.mark.parametrize("figures", gpu_parts())
def test_device_idle_agrees_with_the_gpus_own_counters(figures: dict[str, Any]) -> None:
    found = summarise(FIXTURES / "h200" / figures["file"])
    assert found.device_idle_percent is not None and found.kernels
    busy = 100 - found.device_idle_percent
    assert busy == pytest.approx(figures["counters"]["gpu_sm_activity_percent"]["mean"], abs=5)
    # As the load itself timed it: by CUDA events, or from the first dispatch until all is ready.
    assert busy == pytest.approx(figures["busy_percent"], abs=5)
    assert found.split is not None and found.split.window_ns == found.window_ns


def test_a_trace_of_a_second_profiler_has_no_device_figures() -> None:
    """CUPTI takes one subscriber: the files are written all the same, without device events."""
    found = summarise(FIXTURES / "h200" / "both.xplane.pb")
    assert found.device_idle_percent is None and not found.kernels
