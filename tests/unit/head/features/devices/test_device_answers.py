"""What `/devices` answers, over a real store."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from runwatch.head.features.devices import devices as device_answers
from runwatch.record import (
    NO_STEP,
    Batch,
    Event,
    JournalId,
    Origin,
    Position,
    RunId,
    RunScope,
    Series,
)
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.store import Store
from runwatch.testing import FakeClock
from tests.apps import app_of

with warnings.catch_warnings():  # it would rather have another client library
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

SECOND = 10**9
NOW = 1_700_000_000 * SECOND
NUMBERS = {
    "gpu_utilization_percent": 80.0,
    "gpu_memory_used_bytes": 40e9,
    "gpu_memory_total_bytes": 80e9,
    "gpu_power_watts": 500.0,
    "gpu_power_limit_watts": 700.0,
    "gpu_temperature_celsius": 50.0,
    "gpu_dram_bytes_per_second": 1e12,
    "gpu_throttle_reasons": 0.0,
    "loss": 1.0,
}


@pytest.fixture
def store() -> Iterator[Store]:
    opened = DuckStore.open(None, settings=DuckSettings(threads=1))
    yield opened
    opened.close()


def host(name: str, devices: int, *, run: str = "", ago: float = 1, **changed: float) -> Batch:
    """An agent's word on its devices; the changes are of the last one."""
    origin = Origin(JournalId(f"agent {name}"), name, 1, NOW - 9000 * SECOND, role="agent")
    batch = Batch(origin, Position(0), Position(10))
    if run:
        batch.definitions.append(RunScope(1, RunId(run), f"the {run}", rank=0))
    for index in range(devices):
        about = {"uuid": f"{name}-{index}", "name": "NVIDIA H200", "index": str(index)}
        about |= {"rank": str(index)} if run else {}
        numbers = NUMBERS | (changed if index == devices - 1 else {})
        for metric, value in numbers.items():
            number = len(batch.points) + 1
            series = Series(number, metric, 1 if run else 0, "", f"gpu{index}", about)
            batch.definitions.append(series)
            batch.points.append(number, NOW - int(ago * SECOND), NO_STEP, value)
    return batch


def process(run: str) -> Batch:
    origin = Origin(JournalId(f"rank of {run}"), "n1", 7, NOW - 9000 * SECOND)
    batch = Batch(origin, Position(0), Position(10))
    batch.definitions.append(RunScope(1, RunId(run), f"the {run}", rank=0))
    return batch


def ask(store: Store, *, status: int = 200, offsets: Any = dict, **given: Any) -> Any:
    app = app_of(store, clock=FakeClock(NOW), clock_offsets=offsets)
    reply = TestClient(app, base_url="http://localhost").get("/api/v1/devices", params=given)
    assert reply.status_code == status, reply.text
    return reply.json() if status == 200 else reply.json()["error"]["message"]


@pytest.fixture
def cluster(store: Store) -> Store:
    """n1 has a run on four devices, the last too hot; n2 has two that are free; n3 fell silent."""
    hot: dict[str, Any] = {"gpu_throttle_reasons": 0x20, "gpu_temperature_celsius": 88.0}
    batches = [
        process("llama"),
        host("n1", 4, run="llama", **hot),
        host("n2", 2, gpu_power_watts=90.0),
        host("n3", 1, ago=100),
        host("n4", 1, ago=7200),
    ]
    about = {"device": "gpu0", "uuid": "n2-0", "xid": 31, "meaning": "not mapped"}
    batches[2].events.append(Event(NOW - 60 * SECOND, "gpu_xid", about))
    store.write(batches)
    return store


def names(answer: Any) -> list[str]:
    return [f"{device['host']}:{device['index']}" for device in answer["devices"]]


def test_all_devices_those_first_that_hurt(cluster: Store) -> None:
    answer = ask(cluster)
    assert names(answer) == ["n3:0", "n2:0", "n1:3", "n1:0", "n1:1", "n1:2", "n2:1"]
    assert answer["time_ns"] == NOW
    assert answer["next_offset"] is None
    hot = answer["devices"][2]
    assert (hot["run"], hot["run_name"], hot["rank"]) == ("llama", "the llama", 3)
    assert hot["throttle_reasons"] == ["thermal limit"]
    assert hot["troubles"] == [{"hurt": "thermal", "words": "thermal limit", "since_ns": None}]
    assert (hot["temperature_celsius"], hot["memory_percent"]) == (88, 50)
    xid = answer["devices"][1]["xid"]
    assert xid == {"xid": 31, "time_ns": NOW - 60 * SECOND, "meaning": "not mapped"}
    assert "loss" not in str(answer)


def test_totals_are_of_all_however_few_are_listed(cluster: Store) -> None:
    answer = ask(cluster, limit=1)
    assert names(answer) == ["n3:0"]
    assert answer["next_offset"] == 1
    sums = answer["totals"]
    assert (sums["devices"], sums["reporting"], sums["hosts"]) == (7, 6, 3)
    assert sums["hurting"] == {"silent": 1, "xid": 1, "thermal": 1}
    assert (sums["power_watts"], sums["memory_total_bytes"]) == (2590, 6 * 80e9)


@pytest.mark.parametrize("order", ["hurt", "host", "run", "utilization", "memory", "power"])
@pytest.mark.parametrize(("limit", "offset"), [(1, 0), (3, 0), (3, 2), (200, 0)])
def test_a_screenful_says_the_same_as_the_whole(
    cluster: Store, order: str, limit: int, offset: int
) -> None:
    whole = ask(cluster, sort=order, limit=device_answers.A_SCREENFUL + 1)
    part = ask(cluster, sort=order, limit=limit, offset=offset)
    assert part["devices"] == whole["devices"][offset : offset + limit]
    assert part["totals"] == whole["totals"]


def test_the_hottest_of_a_screenful(cluster: Store) -> None:
    (device,) = ask(cluster, sort="temperature", limit=1)["devices"]
    assert device["temperature_celsius"] == 88


def test_only_some(cluster: Store) -> None:
    assert names(ask(cluster, run="llama", sort="host")) == ["n1:0", "n1:1", "n1:2", "n1:3"]
    assert names(ask(cluster, run="the llama", limit=1)) == ["n1:3"]
    assert names(ask(cluster, host=["n2", "n3"])) == ["n3:0", "n2:0", "n2:1"]
    assert names(ask(cluster, within=9000))[:2] == ["n3:0", "n4:0"]
    assert ask(cluster, host="nobody")["totals"]["devices"] == 0


def test_a_clock_that_is_behind_makes_no_one_silent(cluster: Store) -> None:
    answer = ask(cluster, offsets=lambda: {"n3": -99 * SECOND}, host="n3")
    assert (answer["devices"][0]["state"], answer["devices"][0]["age_seconds"]) == ("reporting", 1)


def test_questions_that_cannot_be(cluster: Store) -> None:
    assert "no run with id or name 'nope'" in ask(cluster, status=404, run="nope")
    assert "not one of hurt" in ask(cluster, status=400, sort="colour")
    assert "within" in ask(cluster, status=400, within=0)


def test_no_devices_at_all(store: Store) -> None:
    answer = ask(store)
    assert answer["devices"] == []
    assert (answer["totals"]["devices"], answer["totals"]["power_watts"]) == (0, None)


def test_a_scrape_tells_of_devices(store: Store) -> None:
    store.write([host("a", 2, run="r", gpu_throttle_reasons=64.0), host("b", 1, ago=600)])
    with TestClient(app_of(store, clock=FakeClock(NOW)), base_url="http://localhost") as client:
        text = client.get("/metrics").text
    assert 'runwatch_devices{state="reporting"} 2.0' in text
    assert 'runwatch_devices{state="silent"} 1.0' in text
    assert 'runwatch_device_utilization_percent{device="gpu0",host="a",run="r"} 80.0' in text
    assert 'runwatch_device_power_watts{device="gpu1",host="a",run="r"} 500.0' in text
    assert 'runwatch_device_trouble{device="gpu1",host="a",trouble="thermal"} 1.0' in text
    assert 'runwatch_device_trouble{device="gpu0",host="b",trouble="silent"} 1.0' in text
    # What was not read has no sample, and of a silent device only what lasts is known.
    assert "runwatch_device_tensor_percent{" not in text
    assert 'runwatch_device_power_watts{device="gpu0",host="b"' not in text
