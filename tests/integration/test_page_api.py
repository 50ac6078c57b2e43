"""What the page asks a head for: the list of runs, and a timeline in one answer."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runwatch.head.features.timeline.answers import Timelines, thinned
from runwatch.head.main import LocalHead
from runwatch.head.reading import Reading
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.head.state.accounts.notes import GoodputKeeper
from runwatch.head.state.board import RunBoard
from runwatch.record import BEGIN, END, Batch, Position, RunId, SpanName
from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import Store
from runwatch.testing import FakeClock
from tests.apps import app_of
from tests.integration.head_history import (
    Producer,
    agent,
    exited,
    fill,
    when,
)

with warnings.catch_warnings():  # it would rather have another client library
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

NOW = when(120)
SAVE = "checkpoint_save"


@pytest.fixture
def store() -> Iterator[Store]:
    opened = DuckStore.open(None)
    yield opened
    opened.close()


@contextmanager
def browser(store: Store, **more: Any) -> Iterator[TestClient]:
    app = app_of(store, clock=FakeClock(NOW), **more)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as opened:
        yield opened


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with browser(store) as opened:
        yield opened


def get(client: TestClient, path: str, **parameters: Any) -> Any:
    reply = client.get(f"/api/v1/{path}", params=parameters)
    assert reply.status_code == 200, reply.text
    return reply.json()


# ── runs ───────────────────────────────────────────────────────────────────────────────────────


def test_a_run_in_the_list(store: Store, client: TestClient) -> None:
    run = Producer(store, "p", group="sweep")
    config = {"part": "user", "values": {"optimizer": {"max_steps": 500}}}
    run.write([("loss", 1, 7, 0.5), ("lr", 1, 7, 3e-4)], [("config", 1, config)])
    watcher = Producer(store, "a", role="agent")
    watcher.write([("gpu_power_watts", 1, None, 1.0)], device="gpu0")
    watcher.write([("gpu_power_watts", 1, None, 1.0)], device="gpu1")
    watcher.write([("host_cpu_percent", 1, None, 1.0)])
    (found,) = get(client, "runs", metrics=["lr", "nothing"])["runs"]
    assert (found["last_step"], found["total_steps"], found["devices"]) == (7, 500, 2)
    assert found["values"] == {"lr": {"time_ns": when(1), "step": 7, "value": 3e-4}}
    assert found["goodput"] is None
    get(client, "runs/run-1/goodput")
    (found,) = get(client, "runs")["runs"]
    assert found["goodput"]["time_ns"] > 0 and found["values"] == {}
    assert sum(found["goodput"]["spent"].values()) == pytest.approx(1)


def test_of_several_ranks_the_list_shows_the_newest_of_rank_0(
    store: Store, client: TestClient
) -> None:
    for journal, rank, at, value in (("a", 0, 1, 1.0), ("b", 1, 9, 2.0), ("c", 0, 5, 3.0)):
        Producer(store, journal, rank=rank).write([("loss", at, at, value)])
    (found,) = get(client, "runs", metrics="loss")["runs"]
    assert found["values"]["loss"]["value"] == 3.0


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"search": "BER"}, ["run-2"]),
        ({"search": "sweep"}, ["run-2"]),
        ({"search": "run-4"}, ["run-4"]),
        ({"search": "名前"}, ["run-3"]),
        ({"order": "-last_step", "limit": 2}, ["run-2", "run-1"]),
        ({"order": "last_step", "limit": 1}, ["run-3"]),
        ({"order": "-group", "limit": 1}, ["run-2"]),
        ({"order": "-devices", "limit": 1}, ["run-5"]),
        ({"order": "goodput", "offset": 4}, ["run-5"]),
    ],
)
def test_search_and_orders(
    store: Store, client: TestClient, asked: dict[str, Any], expected: list[str]
) -> None:
    fill(store)
    assert [run["run"] for run in get(client, "runs", **asked)["runs"]] == expected


def test_who_has_the_list_is_not_sent_it_again(store: Store, client: TestClient) -> None:
    fill(store)
    first = client.get("/api/v1/runs")
    tag = first.headers["etag"]
    again = client.get("/api/v1/runs", headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get("/api/v1/runs?limit=2").headers["etag"] != tag
    Producer(store, "new", run="run-6", name="new").write([("loss", 1, 1, 1.0)])
    changed = client.get("/api/v1/runs", headers={"If-None-Match": tag})
    assert changed.status_code == 200 and changed.json()["total"] == 6


def test_goodput_is_noted_beside_the_list(tmp_path: Path) -> None:
    head = LocalHead(tmp_path)
    try:
        run = Producer(head.store, "p")
        steps = [(i, 10 + i, 10.9 + i) for i in range(20)]
        batch = run.write(
            events=[("run_start", 0, {}), ("run_end", 40, {"status": "completed"})], steps=steps
        )
        head.board.stored([batch])
        with TestClient(head.app, base_url="http://localhost") as client:
            deadline = time.monotonic() + 100
            while (found := get(client, "runs")["runs"][0])["goodput"] is None:
                assert time.monotonic() < deadline
            share = get(client, "runs/run-1/goodput")["goodput"]
        assert found["goodput"]["share"] == pytest.approx(share) and share > 0
    finally:
        head.close()
    assert not [t for t in threading.enumerate() if t.name == "runwatch-goodput"]


def test_long_runs_are_not_read_for_a_list(store: Store) -> None:
    run = Producer(store, "p")
    run.write(steps=[(i, i, i + 0.5) for i in range(20)])
    accounts = Accounts(Reading(store, clock=FakeClock(NOW)))
    assert accounts.short(RunId("run-1"), 39) is None
    found = accounts.short(RunId("run-1"), 40)
    assert found is not None and found.steps == 20


def test_a_keeper_that_was_closed_begins_nothing(store: Store) -> None:
    fill(store)
    reading = Reading(store, clock=FakeClock(NOW))
    board = RunBoard(reading)
    accounts = Accounts(reading)
    keeper = GoodputKeeper(accounts, board)
    accounts.close()
    with browser(store, board=board, notes=keeper) as client:
        get(client, "runs")
    assert board.noted(RunId("run-1")) is None


# ── the timeline ───────────────────────────────────────────────────────────────────────────────


def story(store: Store) -> None:
    """Twice twenty steps with a kill between them, a checkpoint, a capture, a hang, an XID."""
    first = Producer(store, "p1", start_ns=when(0))
    first.write(
        [("step_seconds", 11 + i, i, 0.9) for i in range(20)],
        [("run_start", 0, {"argv": ["x"], "pid": 1}), ("log", 3, {"name": "n", "value": "v"})],
        steps=[(i, 10.1 + i, 11 + i) for i in range(20)],
    )
    agent(store).write(
        events=[
            exited("p1", 31, signal=9),
            exited("stranger", 32, signal=9),
            ("gpu_xid", 25, {"device": "gpu0", "xid": 79, "meaning": "fell off the bus"}),
        ],
        scope=0,
    )
    agent(store, "agent-b", "host-b").write(events=[("gpu_xid", 26, {"xid": 1})], scope=0)
    second = Producer(store, "p2", start_ns=when(50))
    profile = {"session": "s1", "framework": "torch", "files": [], "start_ns": when(70)}
    incident = {
        "id": "i1", "kind": "hang", "state": "closed", "since_ns": when(80),
        "detected_ns": when(85), "named_ns": when(86), "closed_ns": when(88), "text": "rank 0",
        "confidence": "sure", "ranks": [0],
    }  # fmt: skip
    second.write(
        [("step_seconds", 61 + i, 15 + i, 0.9) for i in range(20)],
        [
            ("run_start", 50, {}),
            ("profile", 70, profile | {"state": "started"}),
            ("profile", 72, profile | {"state": "done", "end_ns": when(72)}),
            ("incident", 88, incident),
            ("run_end", 100, {"status": "completed", "explicit": True}),
        ],
        steps=[(15 + i, 60.1 + i, 61 + i) for i in range(20)],
    )


def test_a_timeline(store: Store, client: TestClient) -> None:
    story(store)
    found = get(client, "runs/run-1/timeline")
    assert (found["state"], found["live"], found["pending"]) == ("completed", False, False)
    assert (found["start_ns"], found["end_ns"]) == (when(0), when(100))
    assert [(a["attempt"], a["state"]) for a in found["attempts"]] == [
        (1, "killed"), (2, "completed"),
    ]  # fmt: skip
    goodput = found["goodput"]
    assert goodput["total_ns"] == when(100) - when(0) == sum(goodput["spent_ns"].values())
    assert goodput["spent_ns"] == {
        spent["name"]: spent["ns"]
        for spent in get(client, "runs/run-1/goodput")["spent"]
        if spent["ns"]
    }
    assert [d["time_ns"] for d in found["disruptions"]] == [when(31)]
    assert sum(found["steps"]["count"]) == 40
    assert set(found["steps"]["mean_seconds"]) == {0.9}
    events = [(e["kind"], e["time_ns"]) for e in found["events"]]
    assert events == [
        ("run_start", when(0)), ("log", when(3)), ("gpu_xid", when(25)), ("process_exit", when(31)),
        ("run_start", when(50)), ("run_end", when(100)),
    ]  # fmt: skip
    assert found["events"][0]["body"] == {"pid": 1}
    assert (found["left_out"], found["more"]) == ({}, False)
    (profile,) = found["profiles"]
    assert (profile["session"], profile["state"], profile["start_ns"], profile["end_ns"]) == (
        "s1", "done", when(70), when(72),
    )  # fmt: skip
    (incident,) = found["incidents"]
    assert (incident["id"], incident["since_ns"], incident["text"]) == ("i1", when(80), "rank 0")


@pytest.mark.parametrize("pixels", [1, 7, 10_000])
def test_its_intervals_are_the_account(store: Store, client: TestClient, pixels: int) -> None:
    story(store)
    found = get(client, "runs/run-1/timeline", pixels=pixels)["goodput"]
    drawn = found["intervals"]
    assert drawn["exact"] == (pixels == 10_000)
    ends = list(zip(drawn["start_ns"], drawn["end_ns"], strict=True))
    assert ends[0][0] == when(0) and ends[-1][1] == when(100)
    assert all(a[1] == b[0] for a, b in zip(ends, ends[1:], strict=False))
    spent = dict.fromkeys(drawn["classes"], 0)
    for i, (start, end) in enumerate(ends):
        if drawn["exact"]:
            spent[drawn["classes"][drawn["class"][i]]] += end - start
            continue
        row = drawn["spent_ns"][i]
        assert sum(row) == end - start
        for name, ns in zip(drawn["classes"], row, strict=True):
            spent[name] += ns
    assert spent == found["spent_ns"]


def test_an_exit_that_is_told_under_no_run_has_the_rank_of_its_process(
    store: Store, client: TestClient
) -> None:
    for rank in (0, 5):
        Producer(store, f"p{rank}", start_ns=when(0), rank=rank).write(
            [("step_seconds", 11, 1, 0.9)], [("run_start", 0, {})]
        )
    agent(store).write(events=[exited("p0", 30, code=0), exited("p5", 31, signal=9)], scope=0)
    found = get(client, "runs/run-1/timeline")["events"]
    exits = [(e["rank"], e["body"]["journal"]) for e in found if e["kind"] == "process_exit"]
    assert exits == [(0, "p0"), (5, "p5")]


def test_a_window_of_it(store: Store, client: TestClient) -> None:
    story(store)
    found = get(client, "runs/run-1/timeline", start=when(30), end=when(60))
    assert (found["run_start_ns"], found["start_ns"]) == (when(0), when(30))
    assert found["goodput"]["total_ns"] == when(60) - when(30)
    assert [e["kind"] for e in found["events"]] == ["process_exit", "run_start"]
    assert found["profiles"] == found["incidents"] == []
    assert len(found["attempts"]) == 2
    inside = get(client, "runs/run-1/timeline", start=when(71), end=when(82))
    assert [p["session"] for p in inside["profiles"]] == ["s1"]
    assert [i["id"] for i in inside["incidents"]] == ["i1"]
    beside = get(client, "runs/run-1/timeline", start=when(1000), end=when(2000))
    assert beside["goodput"]["total_ns"] == 0 and beside["goodput"]["intervals"]["class"] == []
    reply = client.get("/api/v1/runs/run-1/timeline", params={"start": 5, "end": 5})
    assert reply.status_code == 422


def test_checkpoints_are_told(store: Store, client: TestClient) -> None:
    run = Producer(store, "p1", start_ns=when(0))
    origin = run.write(steps=[(i, 10 + i, 10.9 + i) for i in range(5)]).origin
    saving = Batch(origin, Position(run.at), Position(run.at + 20), [SpanName(2, SAVE, scope=1)])
    saving.spans.append(2, 900, BEGIN, when(15), 4)
    saving.spans.append(2, 900, END, when(18), 4)
    (verdict,) = store.write([saving])
    run.at = verdict.position
    run.write(steps=[(5, 20, 21)])
    found = get(client, "runs/run-1/timeline")["checkpoints"]
    assert found == {
        "start_ns": [when(15)], "end_ns": [when(18)], "class": [SAVE], "left_out": 0,
    }  # fmt: skip
    clipped = get(client, "runs/run-1/timeline", start=when(16), end=when(17))["checkpoints"]
    assert (clipped["start_ns"], clipped["end_ns"]) == ([when(16)], [when(17)])
    beside = get(client, "runs/run-1/timeline", start=when(5), end=when(15))["checkpoints"]
    assert beside["start_ns"] == []


def test_too_many_events_are_thinned_and_counted(store: Store, client: TestClient) -> None:
    run = Producer(store, "p1", start_ns=when(0))
    run.write(events=[("log", 1 + i / 10, {"name": "n", "value": i}) for i in range(50)])
    run.write([("loss", 9, 1, 1.0)], [("run_start", 0, {}), ("warning", 2, {"what": "x"})])
    found = get(client, "runs/run-1/timeline", events=6)
    kinds = [event["kind"] for event in found["events"]]
    assert len(kinds) == 6 and kinds[0] == "run_start"
    assert sum(found["left_out"].values()) == 52 - 6 and not found["more"]
    times = [event["time_ns"] for event in found["events"]]
    assert times == sorted(times) and times[-1] > when(4)
    none = get(client, "runs/run-1/timeline", events=0)
    assert none["events"] == [] and none["left_out"] == {"log": 50, "run_start": 1, "warning": 1}


def test_thinning_takes_from_all_over() -> None:
    assert thinned(list(range(10)), 5) == [0, 2, 4, 6, 8]
    assert thinned([1, 2], 5) == [1, 2]
    assert thinned([1, 2], 0) == []


def test_nobody_waits_for_a_long_account(tmp_path: Path) -> None:
    head = LocalHead(tmp_path)
    try:
        batch = Producer(head.store, "p1", start_ns=when(0)).write(
            events=[("run_start", 0, {}), ("run_end", 40, {"status": "completed"})],
            steps=[(i, 10 + i, 10.9 + i) for i in range(5)],
        )
        head.board.stored([batch])
        asked = {"run": "run-1", "start": None, "end": None, "pixels": 100, "events": 10}
        timelines = Timelines(Reading(head.store), head.accounts, head.board)
        fold = head.accounts._fold(RunId("run-1"))
        with fold.lock:  # it takes its time
            early = timelines.of(asked)
        assert early.pending and early.goodput is None
        assert early.progress == 0.0
        assert early.attempts and early.events and early.start_ns == when(0)
        deadline = time.monotonic() + 100
        while (found := timelines.of(asked)).pending:
            assert time.monotonic() < deadline
        assert found.goodput is not None and found.goodput.total_ns == when(40) - when(0)
        assert found.progress == 1.0
    finally:
        head.close()


def test_a_run_that_has_not_begun_by_our_clock(store: Store) -> None:
    Producer(store, "p1", start_ns=when(500)).write([("loss", 501, 1, 1.0)])
    with browser(store) as client:
        found = get(client, "runs/run-1/timeline")
    assert found["goodput"] is None and not found["pending"]
    assert found["start_ns"] < found["end_ns"]
