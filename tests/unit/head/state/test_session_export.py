"""A session's samples as frames: each exactly once, whoever joins, leaves or is late."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.exports.fleet import survey
from runwatch.exports.session import SessionExport
from runwatch.head.state.clients import Clients
from runwatch.head.state.frame_counts import FrameCounts
from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import Store
from runwatch.testing import FakeClock
from runwatch.views.sessions import Session, Stretch
from tests.unit.head.session_world import (
    SECOND,
    START,
    Node,
)

NOW = START + 10_000 * SECOND


@pytest.fixture
def store() -> Iterator[Store]:
    opened = DuckStore.open(None)
    yield opened
    opened.close()


def session(start: float = 0, end: float | None = 100, **more: Any) -> Session:
    stretch = Stretch(
        START + int(start * SECOND), None if end is None else START + int(end * SECOND)
    )
    return Session("id-1", "name", more.pop("stretches", (stretch,)), **more)


def exported(store: Store, of: Session, **more: Any) -> Any:
    export = SessionExport(store, survey(store), of, now_ns=NOW, **more)
    return json.loads(b"".join(export.json()))


def samples(document: Any) -> list[tuple[str, float]]:
    return [
        pair
        for frame in document["frames"]
        for pair in zip(frame["gpu_id"], frame["gpu_util"], strict=True)
    ]


def test_e2_09_the_document(store: Store) -> None:
    node = Node(store)
    node.sample(0.2, 0, 1, gpu_memory_total_bytes=200.0)
    for second in range(1, 4):
        node.sample(
            second, 0, 1,
            gpu_utilization_percent=10.0 * second, gpu_memory_used_bytes=50.0,
            gpu_pcie_rx_bytes_per_second=2e9, gpu_pcie_tx_bytes_per_second=1e9,
            gpu_nvlink_rx_bytes_per_second=4e9, gpu_power_watts=300.0,
        )  # fmt: skip
        node.sample(second, host_memory_used_bytes=30.0, host_memory_limit_bytes=60.0)
    found = exported(store, session())
    assert found["session_name"] == "name"
    assert found["start_time"] == "2023-11-14T22:13:20.000000+00:00"
    assert found["end_time"] == "2023-11-14T22:15:00.000000+00:00"
    assert [frame["frame_id"] for frame in found["frames"]] == [1, 2, 3]
    first = found["frames"][0]
    assert first["time"] == "2023-11-14T22:13:21.000000+00:00"
    assert first["gpu_id"] == ["node-1:0:NVIDIA H200", "node-1:1:NVIDIA H200"]
    assert (first["gpu_util"], first["gpu_memory"]) == ([10.0, 10.0], [25.0, 25.0])
    assert (first["dram_bandwidth"], first["dram_bandwidth_rx"]) == ([3.0, 3.0], [2.0, 2.0])
    assert (first["dram_bandwidth_tx"], first["gpu_bandwidth"]) == ([1.0, 1.0], [4.0, 4.0])
    assert (first["memory_bandwidth"], first["gpu_power"]) == ([None, None], [300.0, 300.0])
    assert (first["hostname"], first["dram_util"]) == (["node-1"], [50.0])
    assert first["disk_util"] == [None]
    device = found["summary_by_device"]["node-1:0:NVIDIA H200"]
    assert (device["avg_gpu_util"], device["avg_gpu_memory"], device["samples"]) == (20.0, 25.0, 3)
    assert found["summary_by_client"] == {"node-1": {"avg_dram_util": 50.0, "avg_disk_util": None}}


def test_e2_10_without_bandwidth_there_are_no_such_keys(store: Store) -> None:
    Node(store).sample(1, 0, gpu_utilization_percent=1.0, gpu_pcie_rx_bytes_per_second=1.0)
    keys = set(exported(store, session(bandwidth=False))["frames"][0])
    assert not keys & {"dram_bandwidth", "dram_bandwidth_rx", "memory_bandwidth"}
    assert "gpu_bandwidth" in keys
    assert "gpu_bandwidth" not in exported(store, session(nvlink=False))["frames"][0]


def test_e2_23_as_the_old_version_wrote_it(store: Store) -> None:
    Node(store).sample(
        1, 0, gpu_utilization_percent=37.0, gpu_memory_used_percent=50.0,
        gpu_pcie_rx_bytes_per_second=1024.0, gpu_pcie_tx_bytes_per_second=2048.0,
        host_memory_used_percent=10.0,
    )  # fmt: skip
    found = exported(store, session(), compat=True)
    [frame] = found["frames"]
    assert (frame["gpu_util"], frame["gpu_memory"]) == (["0.37"], ["0.50"])
    assert (frame["dram_bandwidth"], frame["dram_bandwidth_rx"]) == (["3.0"], ["1.00"])
    assert frame["dram_util"] == ["10.00"]
    assert found["summary_by_device"]["node-1:0:NVIDIA H200"] == {
        "avg_gpu_util": "0.37",
        "avg_gpu_memory": "0.50",
    }


def test_e2_11_frames_follow_the_period(store: Store) -> None:
    one, other = Node(store), Node(store, "node-2")
    for tick in range(20):
        one.sample(tick / 2 + 0.01, 0, gpu_utilization_percent=float(tick))
        other.sample(tick / 2 + 0.3, 0, gpu_utilization_percent=float(tick))
    found = exported(store, session(0, 10, period_ns=SECOND // 2))
    assert len(found["frames"]) == 20
    assert all(len(frame["gpu_id"]) == 2 for frame in found["frames"])
    # Sampled faster than that: each sample is there all the same, devices still side by side.
    slow = exported(store, session(0, 10, period_ns=SECOND))
    assert len(slow["frames"]) == 20
    assert sorted(samples(slow)) == sorted(samples(found))


def test_only_what_is_in_its_time(store: Store) -> None:
    node = Node(store)
    for second in range(10):
        node.sample(second, 0, gpu_utilization_percent=float(second))
    assert [value for _, value in samples(exported(store, session(2, 5)))] == [2.0, 3.0, 4.0]
    gap = session(stretches=(Stretch(START, START + SECOND), Stretch(START + 8 * SECOND)))
    found = exported(store, gap)
    assert [value for _, value in samples(found)] == [0.0, 8.0, 9.0]
    assert [frame["frame_id"] for frame in found["frames"]] == [1, 2, 3]
    assert found["is_active"]


def test_e2_17_nodes_come_and_go(store: Store) -> None:
    steady, late = Node(store), Node(store, "node-2")
    for second in range(10):
        steady.sample(second, 0, gpu_utilization_percent=1.0)
        if 3 <= second < 6:
            late.sample(second, 0, gpu_utilization_percent=2.0)
    sizes = [len(frame["gpu_id"]) for frame in exported(store, session(0, 10))["frames"]]
    assert sizes == [1, 1, 1, 2, 2, 2, 1, 1, 1, 1]


def test_e2_16_frames_say_who_has_fallen_silent(store: Store) -> None:
    steady, gone = Node(store), Node(store, "node-2")
    for second in range(0, 100, 5):
        steady.sample(second, 0, gpu_utilization_percent=1.0)
        if second < 20 or second >= 80:
            gone.sample(second, 0, gpu_utilization_percent=2.0)
    flagged = {
        START + second * SECOND: frame["unhealthy_clients"]
        for second, frame in zip(
            range(0, 100, 5), exported(store, session())["frames"], strict=True
        )
    }
    seconds = [(t - START) // SECOND for t, names in flagged.items() if names]
    assert seconds == [50, 55, 60, 65, 70, 75]  # more than 30 s after 15, until it is back at 80
    assert flagged[START + 50 * SECOND] == ["node-2"]


def test_a_new_agent_or_owner_is_still_the_same_gpu(store: Store) -> None:
    for journal in ("before", "after"):
        node = Node(store, journal=journal)
        node.sample(1.0 if journal == "before" else 2.0, 0, gpu_utilization_percent=1.0)
    owned = Node(store, journal="owned", labels={"rank": "3"})
    owned.sample(3, 0, gpu_utilization_percent=1.0)
    found = exported(store, session())
    assert list(found["summary_by_device"]) == ["node-1:0:NVIDIA H200"]
    assert found["summary_by_device"]["node-1:0:NVIDIA H200"]["samples"] == 3


def test_e2_18_one_hostname_twice_is_kept_apart(store: Store) -> None:
    one, other = Node(store, pid=1), Node(store, pid=2)
    for second in range(3):
        one.sample(second, 0, gpu_utilization_percent=1.0)
        other.sample(second, 0, gpu_utilization_percent=2.0)
    found = exported(store, session())
    assert set(samples(found)) == {
        ("node-1:0:NVIDIA H200", 1.0),
        ("node-1#2:0:NVIDIA H200", 2.0),
    }
    assert len(found["frames"]) == 3


def test_a_clock_ten_minutes_off_is_put_right(store: Store) -> None:
    right, wrong = Node(store), Node(store, "wrong")
    for second in range(3):
        right.sample(second, 0, gpu_utilization_percent=1.0)
        wrong.sample(second + 600, 0, gpu_utilization_percent=2.0)
    found = exported(store, session(clocks={"wrong": 600 * SECOND}))
    assert [len(frame["gpu_id"]) for frame in found["frames"]] == [2, 2, 2]


def test_hosts_without_devices_have_frames_too(store: Store) -> None:
    node = Node(store)
    for second in range(3):
        node.sample(second, host_memory_used_bytes=1.0, host_memory_limit_bytes=4.0)
    found = exported(store, session())
    assert [frame["dram_util"] for frame in found["frames"]] == [[25.0]] * 3
    assert found["frames"][0]["gpu_id"] == []


def test_a_session_without_samples_is_a_document(store: Store) -> None:
    found = exported(store, session())
    assert (found["frames"], found["summary_by_device"]) == ([], {})


moments = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 40_000)),
    max_size=60, unique=True,
)  # fmt: skip


def each_sample_is_in_exactly_one_frame(
    moments: list[tuple[int, int, int]], period_ms: int, window_points: int
) -> None:
    store = DuckStore.open(None)
    try:
        nodes = [Node(store, f"n{number}") for number in range(4)]
        expected = []
        for number, (node, device, ms) in enumerate(sorted(moments, key=lambda m: m[2])):
            nodes[node].sample(ms / 1000, device, gpu_utilization_percent=float(number))
            expected.append((f"n{node}:{device}:NVIDIA H200", float(number)))
        of = session(0, 41, period_ns=period_ms * 10**6)
        found = exported(store, of, window_points=window_points)
        assert sorted(samples(found)) == sorted(expected)
        for frame in found["frames"]:
            assert len(set(frame["gpu_id"])) == len(frame["gpu_id"])
        times = [frame["time"] for frame in found["frames"]]
        assert [frame["frame_id"] for frame in found["frames"]] == list(range(1, len(times) + 1))
        assert found == exported(store, of), "the size of windows shows"
    finally:
        store.close()


@pytest.mark.parametrize("examples", [8, pytest.param(300, marks=pytest.mark.soak)])
def test_each_sample_is_in_exactly_one_frame(examples: int) -> None:
    drawn = given(moments, st.sampled_from([100, 1000, 3000]), st.integers(1, 40))
    settings(max_examples=examples, deadline=None)(drawn(each_sample_is_in_exactly_one_frame))()


def test_parquet_has_the_same_numbers(store: Store, tmp_path: Path) -> None:
    node = Node(store)
    for second in range(3):
        node.sample(second, 0, 1, gpu_utilization_percent=float(second))
    path = tmp_path / "session.parquet"
    frames = SessionExport(store, survey(store), session(), now_ns=NOW).parquet(path)
    stored = duckdb.read_parquet(str(path)).project("frame_id, gpu_id, gpu_util")
    rows = stored.order("frame_id, gpu_id").fetchall()
    assert (frames, len(rows)) == (3, 6)
    assert rows[0] == (1, "node-1:0:NVIDIA H200", 0.0)
    assert rows[-1] == (3, "node-1:1:NVIDIA H200", 2.0)


def test_frames_are_counted_as_they_come(store: Store) -> None:
    clock, node = FakeClock(START), Node(store)
    counts = FrameCounts(store, lambda: survey(store), clock=clock)
    of, second = session(end=None), 0
    for until in (10, 200, 1000):
        while second < until:
            node.sample(second, 0, gpu_utilization_percent=1.0)
            second += 1
        clock.now_ns = START + until * SECOND
        assert counts.of(of) == until
    clock.now_ns += 2 * SECOND
    assert counts.of(session(end=1000)) == 1000


@pytest.mark.parametrize("seed", range(2))
def test_frames_that_come_late_are_counted_after_a_while(store: Store, seed: int) -> None:
    """Two nodes, one a minute behind; a session with a pause; asked at odd moments."""
    chance, clock = random.Random(seed), FakeClock(START)
    counts = FrameCounts(store, lambda: survey(store), clock=clock)
    prompt, late = Node(store, "prompt"), Node(store, "late")
    behind = 0.0
    stretches: tuple[Stretch, ...] = (Stretch(START, None),)
    for second in range(2, 320, 2):
        clock.now_ns = START + second * SECOND
        prompt.sample(second - 0.5, 0, gpu_utilization_percent=1.0)
        if chance.random() < 0.3:
            while behind < second - chance.random() * 50:
                late.sample(behind + 0.25, 0, gpu_utilization_percent=1.0)
                behind += 1.5
        if second == 150:
            stretches = (Stretch(START, START + 150 * SECOND),)
        elif second == 180:
            stretches = (*stretches, Stretch(START + 180 * SECOND, None))
        if chance.random() < 0.3:
            counts.of(session(stretches=stretches, period_ns=SECOND // 2))
    clock.now_ns += 11 * SECOND
    of = session(stretches=stretches, period_ns=SECOND // 2)
    assert counts.of(of) == len(exported(store, of)["frames"])


def test_e2_16_a_silent_client_is_unhealthy_until_it_is_back(store: Store) -> None:
    clock, node = FakeClock(START), Node(store)
    clients = Clients(store, clock=clock)
    node.sample(0, 0, gpu_utilization_percent=1.0)
    assert [client.healthy for client in clients.all()] == [True]
    clock.now_ns = START + 31 * SECOND
    assert [client.healthy for client in clients.all()] == [False]
    node.sample(31, 0, gpu_utilization_percent=1.0)
    assert [client.healthy for client in clients.all()] == [True]
