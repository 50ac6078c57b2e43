"""The picture of a session's traces: nothing is lost at any width."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from runwatch.cli.pictures.moments import fine_duration, size
from runwatch.cli.pictures.traces import bar, show_summary
from runwatch.traces.summary import Split, combine, summarise

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"


def shown(*names: str, width: int) -> str:
    console = Console(width=width, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    with console.file:
        show_summary(combine([summarise(TRACES / name) for name in names]), console)
    return console.export_text()


@pytest.mark.parametrize("width", (60, 80, 140))
def test_two_traces(width: int) -> None:
    text = shown("torch-cpu.json.gz", "jax-cpu.xplane.pb", width=width)
    assert text.startswith("2 traces · kineto + xplane")
    for word in ("compute", "communication", "host", "idle", "waiting for input", "slowest: vm"):
        assert word in text
    assert "aten::" in text and "operations on the host" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width


def test_one_trace_and_no_trace() -> None:
    text = shown("jax-cpu.xplane.pb", width=100)
    assert "vm · xplane · processor only · 5 steps of" in text
    assert "slowest" not in text
    assert shown(width=100).strip() == "no trace"


@pytest.mark.parametrize("parts", ((1, 0, 0, 0), (1, 1, 1, 10**12), (7, 0, 5, 3), (1, 1, 1, 1)))
def test_a_bar_is_as_wide_as_it_should_be(parts: tuple[int, int, int, int]) -> None:
    drawn = bar(Split(*parts), 50).plain
    assert len(drawn) == 50
    assert [sign in drawn for sign in "█▓▒░"] == [part > 0 for part in parts]


def test_times_and_sizes() -> None:
    assert [fine_duration(ns) for ns in (7, 1500, 25_000_000, 3_000_000_000)] == [
        "7 ns",
        "1.50 µs",
        "25.0 ms",
        "3.00 s",
    ]
    assert [size(count) for count in (5, 1500, 60_100_000_000)] == ["5 B", "1.5 kB", "60.1 GB"]
