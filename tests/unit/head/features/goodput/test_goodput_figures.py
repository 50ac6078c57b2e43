"""The figures beside a run's account over HTTP, and the accounts of several runs together."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from runwatch.head.features.goodput import figures as goodput_figures
from runwatch.head.reading import Reading
from runwatch.head.settings import HeadSettings
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.record import RunId
from runwatch.settings import load
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.testing import FakeClock
from tests.apps import app_of
from tests.integration.head_history import (
    SECOND,
    START,
    Producer,
    exited,
)

with warnings.catch_warnings():  # it would rather have another client library
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

NOW = 7200.0
HOUR = 3600


class World:
    """Runs of one rank: steps of 10 s from second 0 to 100, from when it starts on."""

    def __init__(self) -> None:
        self.store = DuckStore.open(None, settings=DuckSettings(threads=1))
        self.clock = FakeClock(START + int(NOW * SECOND))
        self.agent = Producer(self.store, "agent", run="", name="", role="agent")

    def run(
        self,
        name: str,
        start: float = 0,
        *,
        group: str = "",
        took: int = 100,
        idle: int = 0,
        **said: Any,
    ) -> Producer:
        made = Producer(
            self.store, f"j-{name}", run=name, name=name, group=group,
            start_ns=START + int(start * SECOND),
        )  # fmt: skip
        steps = [(n, start + 10 * n, start + 10 * n + 10) for n in range(took // 10)]
        made.write(events=[("run_start", start, said)], steps=steps)
        self.agent.write(events=[exited(f"j-{name}", start + took + idle, code=0)], scope=0)
        return made

    def device(self, run: str, index: int, points: list[tuple[str, float, None, float]]) -> None:
        journal = f"devices-{run}-{index}"
        seen = Producer(self.store, journal, run=run, name=run, role="agent")
        seen.write(points, device=f"gpu{index}")

    def get(self, path: str, *, price: float | None = None, status: int = 200, **given: Any) -> Any:
        app = app_of(self.store, clock=self.clock, serving={"price_per_device_hour": price})
        reply = TestClient(app, base_url="http://localhost").get(f"/api/v1{path}", params=given)
        assert reply.status_code == status, reply.text
        return reply.json() if status == 200 else reply.json()["error"]["message"]

    def figures(self, run: str = "a", **given: Any) -> Any:
        return self.get(f"/runs/{run}/goodput", **given)["figures"]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.store.close()


def at(seconds: float) -> int:
    return START + int(seconds * SECOND)


# ── of one run ─────────────────────────────────────────────────────────────────────────────────


def test_what_is_known_of_a_run_that_tells_little(world: World) -> None:
    world.run("a")
    found = world.figures()
    assert found == {
        "ettr": 1.0,
        "queued_ns": None,
        "scheduling_goodput": None,
        "runtime_goodput": 1.0,
        "program_goodput": None,
        "program_goodput_by": "",
        "overall_goodput": 1.0,
        "unknown": ["scheduling", "program"],
        "devices": 1,
        "devices_by": "ranks",
        "device_hours": {"productive": pytest.approx(100 / HOUR)},
        "counted_device_hours": pytest.approx(100 / HOUR),
        "price_per_device_hour": None,
        "cost": None,
        "counted_cost": None,
    }


def test_the_time_in_the_queue(world: World) -> None:
    world.run("a", 50, queued_at_ns=at(0))
    found = world.figures()
    assert (found["queued_ns"], found["ettr"]) == (50 * SECOND, 100 / 150)
    assert found["scheduling_goodput"] == 100 / 150
    assert found["unknown"] == ["program"]
    # A later window has nothing to do with the queue.
    found = world.figures(since=at(100))
    assert (found["queued_ns"], found["ettr"], found["scheduling_goodput"]) == (None, 1.0, None)


def test_devices_that_were_seen_and_what_they_did(world: World) -> None:
    world.run("a")
    for index in range(4):
        used = 40.0 + index
        points = [("gpu_tensor_activity_percent", float(s), None, used) for s in range(5, 100)]
        world.device("a", index, [*points, ("gpu_power_watts", 5.0, None, 600.0)])
    found = world.figures()
    assert (found["devices"], found["devices_by"]) == (4, "accelerators")
    assert found["counted_device_hours"] == pytest.approx(400 / HOUR)
    assert found["program_goodput"] is None  # nobody asked
    found = world.figures(program="true")
    assert found["program_goodput"] == pytest.approx(0.415)
    assert (found["program_goodput_by"], found["unknown"]) == ("tensor_activity", ["scheduling"])
    assert found["overall_goodput"] == pytest.approx(0.415)


def test_what_the_program_says_of_itself_goes_first(world: World) -> None:
    made = world.run("a")
    world.device("a", 0, [("gpu_tensor_activity_percent", 5, None, 90.0)])
    made.write([("mfu", 15.0, 1, 0.5), ("mfu", 25.0, 2, 0.3)])
    found = world.figures(program="true")
    assert found["program_goodput"] == pytest.approx(0.4)
    assert found["program_goodput_by"] == "mfu"


def test_money_only_with_a_price(world: World) -> None:
    world.run("a", took=HOUR)
    found = world.figures(price_per_device_hour="2.5", exclude=f"{at(0)}/{at(HOUR / 2)}")
    assert found["cost"] == {"productive": pytest.approx(1.25), "excluded": pytest.approx(1.25)}
    assert found["counted_cost"] == pytest.approx(1.25)
    assert found["price_per_device_hour"] == 2.5
    assert world.figures(price=4.0)["counted_cost"] == pytest.approx(4.0)
    mine = world.figures(price=4.0, price_per_device_hour=0)
    assert (mine["counted_cost"], mine["price_per_device_hour"]) == (0, 0)
    for wrong in ("-1", "dear", "nan", "1e999", ""):
        said = world.get("/runs/a/goodput", status=400, price_per_device_hour=wrong)
        assert "is not a number from 0" in said


def test_the_price_is_a_setting_of_the_head() -> None:
    def price(**environ: str) -> float | None:
        return load(HeadSettings, section="head", environ=environ).values.price_per_device_hour

    assert price(RUNWATCH_DIR="/nowhere") is None
    assert price(RUNWATCH_DIR="/nowhere", RUNWATCH_PRICE_PER_DEVICE_HOUR="2.5") == 2.5


# ── of several ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def several(world: World) -> World:
    """Of two groups and two users, a hundred seconds each; `c` holds two devices."""
    world.run("a", 0, group="g", user="ada")
    world.run("b", 1000, group="g", user="bob")
    world.run("c", 2000, group="h", user="ada")
    for index in range(2):
        world.device("c", index, [("gpu_power_watts", 2010, None, 1.0)])
    return world


def names(answer: Any) -> list[str]:
    return [run["run"] for run in answer["runs"]]


def test_all_runs_together(several: World) -> None:
    found = several.get("/goodput")
    assert names(found) == ["c", "a", "b"]
    assert (found["total"], found["disruptions"], found["goodput"]) == (3, 0, 1.0)
    assert found["counted_device_hours"] == pytest.approx(400 / HOUR)
    assert found["device_hours"] == {"productive": pytest.approx(400 / HOUR)}
    assert (found["cost"], found["counted_cost"]) == (None, None)
    first = found["runs"][0]
    assert (first["devices"], first["devices_by"], first["user"]) == (2, "accelerators", "ada")
    assert (first["ettr"], first["goodput"], first["state"]) == (1.0, 1.0, "completed")


def test_a_group_a_user_a_week(several: World) -> None:
    assert names(several.get("/goodput", group="g")) == ["a", "b"]
    assert names(several.get("/goodput", user="ada")) == ["c", "a"]
    assert names(several.get("/goodput", user="ada", group="g")) == ["a"]
    assert names(several.get("/goodput", user="nobody")) == []
    window = several.get("/goodput", since=at(1050), until=at(2050))
    assert names(window) == ["c", "b"]
    assert [run["counted_device_hours"] for run in window["runs"]] == [
        pytest.approx(100 / HOUR),
        pytest.approx(50 / HOUR),
    ]
    priced = several.get("/goodput", since=at(1050), until=at(2050), price_per_device_hour=36)
    assert priced["counted_cost"] == pytest.approx(1.5)
    assert [run["counted_cost"] for run in priced["runs"]] == [pytest.approx(1), pytest.approx(0.5)]


def test_the_headline_is_of_device_hours_not_of_runs(several: World) -> None:
    several.run("d", 3000, group="i", took=40, idle=260)
    found = several.get("/goodput")
    shares = {run["run"]: run["goodput"] for run in found["runs"]}
    assert shares["a"] == shares["b"] == shares["c"] == 1.0
    assert shares["d"] < 0.2
    assert found["goodput"] == pytest.approx((100 + 100 + 200 + 40) / (100 + 100 + 200 + 300))


def test_of_many_the_newest(several: World) -> None:
    found = several.get("/goodput", limit=2)
    assert (names(found), found["total"]) == (["c", "b"], 3)
    assert "is after until" in several.get("/goodput", status=422, since=2, until=1)
    assert several.get("/goodput", group="none") == {
        "runs": [], "total": 0, "goodput": None, "disruptions": 0, "device_hours": {},
        "counted_device_hours": 0.0, "price_per_device_hour": None, "cost": None,
        "counted_cost": None, "parts": None,
    }  # fmt: skip


def test_sums_by_group_by_user_and_by_week(several: World) -> None:
    assert several.get("/goodput")["parts"] is None
    several.run("d", 3000, took=40, idle=260)
    parts = several.get("/goodput", by="group", price_per_device_hour=36)["parts"]
    assert [(part["name"], part["runs"]) for part in parts] == [("", 1), ("g", 2), ("h", 1)]
    hours = [part["counted_device_hours"] * HOUR for part in parts]
    assert hours == [pytest.approx(300), pytest.approx(200), pytest.approx(200)]
    assert [part["counted_cost"] for part in parts] == [pytest.approx(h / 100) for h in hours]
    assert [part["goodput"] for part in parts] == [pytest.approx(40 / 300), 1.0, 1.0]
    lost = parts[0]["device_hours"]
    assert [part["largest_loss"] for part in parts] == [
        max(set(lost) - {"productive"}, key=lost.get),
        "",
        "",
    ]
    parts = several.get("/goodput", by="user", since=at(0), until=at(2900))["parts"]
    assert [(part["name"], part["runs"]) for part in parts] == [("ada", 2), ("bob", 1)]
    whole = several.get("/goodput", by="week")
    assert sum(part["runs"] for part in whole["parts"]) == 4, "all in one week"
    assert several.get("/goodput", status=400, by="moon")


def test_a_run_that_lies_in_two_weeks_is_in_both(world: World) -> None:
    midnight = 4 * 24 * HOUR + (START // SECOND - 4 * 24 * HOUR) // (7 * 24 * HOUR) * 7 * 24 * HOUR
    before = midnight + 7 * 24 * HOUR - START // SECOND - 60  # a minute before the next Monday
    world.clock.now_ns = at(before + 7200)
    world.run("a", before, took=100)
    found = world.get("/goodput", by="week")
    new, old = found["parts"]
    assert old["name"] < new["name"], "the newest first"
    assert (old["runs"], new["runs"]) == (1, 1)
    assert old["counted_device_hours"] == pytest.approx(60 / HOUR)
    assert new["counted_device_hours"] == pytest.approx(40 / HOUR)
    assert old["disruptions"] + new["disruptions"] == found["disruptions"]


def test_many_runs_leave_no_accounts_behind(
    several: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(several.store, clock=several.clock)
    accounts = Accounts(reading, threading.Lock())
    app = app_of(several.store, clock=several.clock, accounts=accounts)
    client = TestClient(app, base_url="http://localhost")
    monkeypatch.setattr(goodput_figures, "KEPT_RUNS", 2)
    many = client.get("/api/v1/goodput").json()
    assert names(many) == ["c", "a", "b"]
    assert not any(accounts.at_hand(RunId(run)) for run in "abc")
    few = client.get("/api/v1/goodput", params={"group": "g"}).json()
    assert [accounts.at_hand(RunId(run)) for run in "abc"] == [True, True, False]
    again = client.get("/api/v1/goodput").json()
    assert again == many
    assert few["runs"] == many["runs"][1:]
