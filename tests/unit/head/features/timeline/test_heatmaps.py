"""Heat maps: which columns and rows they have, and what a byte of them means."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.buckets import heat_grid
from runwatch.errors import NotFound, UsageError
from runwatch.head.features.timeline.heatmaps import heatmap, metrics
from runwatch.head.reading import Reading
from runwatch.record import RunId
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import FakeClock
from runwatch.views.heatmaps import grouped
from tests.integration.head_history import (
    START,
    Producer,
    when,
)

MINUTE = 60 * 10**9
ASKED = {
    "run": "run-1",
    "metric": "gpu_power_watts",
    "start": when(0),
    "end": when(40),
    "columns": 4,
    "rows": 100,
    "statistic": "mean",
}


@given(
    st.integers(-(10**18), 10**18),
    st.integers(1, 10**17),
    st.integers(1, 4000),
    st.integers(1, 100_000),
)
def test_columns_cover_the_window_and_are_not_too_many(
    start: int, length: int, most: int, series: int
) -> None:
    cells = heat_grid(start, start + length, most, series)
    assert cells.start <= start < cells.start + cells.width
    assert cells.end - cells.width < start + length <= cells.end
    assert cells.buckets <= most and cells.end == cells.start + cells.buckets * cells.width
    if cells.width >= MINUTE:
        assert cells.by_minutes


def test_a_day_of_a_thousand_devices_is_read_by_minutes_and_a_quarter_of_an_hour_is_not() -> None:
    assert heat_grid(START, START + 1440 * MINUTE, 700, 1024).by_minutes
    assert heat_grid(START, START + 60 * MINUTE * 2, 700, 1024).by_minutes
    assert not heat_grid(START, START + 15 * MINUTE, 700, 1024).by_minutes
    assert not heat_grid(START, START + 1440 * MINUTE, 4000, 8).by_minutes


@given(st.integers(1, 3000), st.integers(1, 500))
def test_rows_hold_as_many_neighbours_as_each_other(devices: int, most: int) -> None:
    rows = grouped(devices, most)
    assert rows == sorted(rows) and rows[0] == 0 and rows[-1] == min(devices, most) - 1
    sizes = [rows.count(row) for row in range(rows[-1] + 1)]
    assert max(sizes) - min(sizes) <= 1


@pytest.fixture
def reading() -> Iterator[Reading]:
    store = DuckStore.open(None)
    yield Reading(store, clock=FakeClock(when(40)))
    store.close()


def node(reading: Reading, host: str, watts: dict[str, list[tuple[float, float]]]) -> None:
    agent = Producer(reading.store, f"agent-{host}", host=host, role="agent")
    for device, samples in watts.items():
        points = [("gpu_power_watts", at, None, value) for at, value in samples]
        agent.write(points, device=device)


def values(found: Any) -> list[list[float | None]]:
    raw = base64.b64decode(found.values)
    assert len(raw) == len(found.rows) * found.columns
    scale = found.high - found.low if found.low is not None else 0
    numbers = [None if b == 0 else found.low + (b - 1) / 254 * scale for b in raw]
    return [numbers[i : i + found.columns] for i in range(0, len(raw), found.columns)]


def test_a_heat_map(reading: Reading) -> None:
    Producer(reading.store, "p", start_ns=when(0)).write([("loss", 1, 1, 1.0)])
    node(reading, "node10", {"0": [(5, 100.0), (6, 200.0)]})
    node(reading, "node2", {"1": [(35, 300.0)], "0": [(15, 0.0), (15.5, float("nan"))]})
    found = heatmap(reading, ASKED)
    assert [(row.host, row.device) for row in found.rows] == [
        ("node2", "0"), ("node2", "1"), ("node10", "0"),
    ]  # fmt: skip
    assert (found.start_ns, found.width_ns, found.columns) == (when(0), 10 * 10**9, 4)
    assert (found.low, found.high, found.devices, found.unit) == (0.0, 300.0, 3, "u")
    first, second, third = values(found)
    assert first == [None, 0.0, None, None] and second == [None, None, None, 300.0]
    assert third[0] == pytest.approx(150.0, abs=300 / 254) and third[1:] == [None, None, None]


def test_more_devices_than_rows_share_them(reading: Reading) -> None:
    Producer(reading.store, "p", start_ns=when(0)).write([("loss", 1, 1, 1.0)])
    for n in range(4):
        node(reading, f"node{n}", {"0": [(5, 100.0 * n)]})
    found = heatmap(reading, ASKED | {"rows": 2})
    assert found.devices == 4
    assert [(r.host, r.last_host, r.devices) for r in found.rows] == [
        ("node0", "node1", 2), ("node2", "node3", 2),
    ]  # fmt: skip
    assert (found.low, found.high) == (50.0, 250.0)
    most = heatmap(reading, ASKED | {"rows": 2, "statistic": "maximum"})
    assert (most.low, most.high) == (100.0, 300.0)
    least = heatmap(reading, ASKED | {"rows": 2, "statistic": "minimum"})
    assert (least.low, least.high) == (0.0, 200.0)


def test_one_device_that_two_agents_told_of_is_one_row(reading: Reading) -> None:
    Producer(reading.store, "p", start_ns=when(0)).write([("loss", 1, 1, 1.0)])
    for number, at in enumerate((5.0, 15.0)):
        agent = Producer(reading.store, f"agent-{number}", host="node0", role="agent")
        agent.write([("gpu_power_watts", at, None, 100.0)], device="0")
    found = heatmap(reading, ASKED)
    assert found.devices == 1
    assert values(found) == [[100.0, 100.0, None, None]]


def test_without_a_window_it_is_the_whole_run(reading: Reading) -> None:
    Producer(reading.store, "p", start_ns=when(3)).write([("loss", 30, 1, 1.0)])
    node(reading, "node0", {"0": [(5, 1.0)]})
    found = heatmap(reading, ASKED | {"start": None, "end": None})
    assert found.start_ns == when(3)
    assert found.start_ns + found.columns * found.width_ns >= when(30)


def test_nothing_in_the_window(reading: Reading) -> None:
    Producer(reading.store, "p", start_ns=when(0)).write([("loss", 1, 1, 1.0)])
    node(reading, "node0", {"0": [(5, 1.0)]})
    found = heatmap(reading, ASKED | {"start": when(1000), "end": when(2000)})
    assert (found.low, found.high) == (None, None) and values(found) == [[None] * 4]


def test_what_cannot_be_drawn(reading: Reading) -> None:
    Producer(reading.store, "p", start_ns=when(0)).write([("loss", 1, 1, 1.0)])
    with pytest.raises(NotFound, match="no device with a metric 'gpu_power_watts'"):
        heatmap(reading, ASKED)
    node(reading, "node0", {"0": [(5, 1.0)]})
    with pytest.raises(UsageError, match="no window"):
        heatmap(reading, ASKED | {"start": when(5), "end": when(5)})
    with pytest.raises(UsageError, match="no window"):
        heatmap(reading, ASKED | {"start": -(2**63), "end": 2**63 - 1})


def test_which_metrics_devices_have(reading: Reading) -> None:
    Producer(reading.store, "p", start_ns=when(0)).write([("loss", 1, 1, 1.0)])
    node(reading, "node0", {"0": [(5, 1.0)], "1": [(5, 1.0)]})
    found = metrics(reading, {"run": RunId("run-1")})
    assert [(m.metric, m.unit, m.devices) for m in found.metrics] == [("gpu_power_watts", "u", 2)]
