"""What people are told of runs beyond their states: one that stands still, a loss that is NaN."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from runwatch.record import JournalId
from runwatch.store.duck.engine import DuckStore
from runwatch.testing import FakeClock
from tests.apps import app_of
from tests.integration.head_history import Producer, when

with warnings.catch_warnings():  # it would rather have another client library
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

NOW = when(1000)
NAN, INF = math.nan, math.inf


@pytest.fixture
def store() -> Iterator[DuckStore]:
    opened = DuckStore.open(None)
    yield opened
    opened.close()


class World:
    def __init__(self, store: DuckStore) -> None:
        self.store = store
        self.alive: set[JournalId] = set()

    def run(self, name: str, points: list[tuple[str, float, int | None, float]], *,
            end: str = "", rank: int = 0, start: float = 0, journal: str = "",
            incident: dict[str, Any] | None = None, role: str = "process",
            key: str = "") -> None:  # fmt: skip
        journal = journal or f"j-{name}-{rank}"
        producer = Producer(
            self.store, journal, run=name, name=name, rank=rank, start_ns=when(start), role=role,
            attempt_key=key,
        )  # fmt: skip
        events: list[tuple[str, float, dict[str, Any]]] = [("run_start", start, {})]
        if incident is not None:
            events.append(("incident", 990, {"id": "i1", "state": "open", **incident}))
        if end:
            events.append(("run_end", 999, {"status": end, "explicit": True}))
        else:
            self.alive.add(JournalId(producer.journal))
        producer.write(points, events)

    def ask(self, path: str, **parameters: Any) -> Any:
        app = app_of(self.store, clock=FakeClock(NOW), alive=lambda: self.alive)
        with TestClient(app, base_url="http://localhost") as client:
            reply = client.get(path, params=parameters)
        assert reply.status_code == 200, reply.text
        return reply.json() if path.startswith("/api") else reply.text

    def runs(self, **parameters: Any) -> dict[str, Any]:
        return {run["run"]: run for run in self.ask("/api/v1/runs", **parameters)["runs"]}


@pytest.fixture
def world(store: DuckStore) -> World:
    return World(store)


def losses(*values: float, metric: str = "loss") -> list[tuple[str, float, int | None, float]]:
    return [(metric, step, step, value) for step, value in enumerate(values)]


# ── one that stands still ──────────────────────────────────────────────────────────────────────


def test_a_run_that_stands_still_is_stalled(world: World) -> None:
    world.run("well", losses(1.0))
    world.run("hung", losses(1.0), incident={"text": "all wait for rank 3"})
    world.run("slow", losses(1.0), incident={"text": "it compiles", "severity": "note"})
    world.run("was-hung", losses(1.0), end="completed", incident={"text": "it hung"})
    found = world.runs()
    assert {name: run["shown_state"] for name, run in found.items()} == {
        "well": "running",
        "hung": "stalled",
        "slow": "running",
        "was-hung": "completed",
    }
    assert found["hung"]["state"] == "running" and "rank 3" in found["hung"]["reason"]
    assert world.ask("/api/v1/runs/hung")["shown_state"] == "stalled"
    assert set(world.runs(state="stalled")) == {"hung"}
    assert set(world.runs(state="running")) == {"well", "hung", "slow"}
    assert set(world.runs(state=["stalled", "completed"])) == {"hung", "was-hung"}


def test_a_scrape_tells_how_runs_stand(world: World) -> None:
    world.run("well", losses(1.0))
    world.run("hung", losses(1.0), incident={"text": "all wait for rank 3"})
    world.run("nan", losses(1.0, NAN, NAN, NAN))
    world.run("done", losses(1.0, NAN), end="completed")
    text = world.ask("/metrics")
    assert 'runwatch_runs{state="running"} 2.0' in text
    assert 'runwatch_runs{state="stalled"} 1.0' in text
    assert 'runwatch_runs{state="completed"} 1.0' in text
    assert 'runwatch_runs{state="failed"} 0.0' in text
    assert 'runwatch_run_stalled{run="hung"} 1.0' in text
    assert 'runwatch_run_stalled{run="well"} 0.0' in text
    assert 'runwatch_run_stalled{run="done"}' not in text
    assert 'runwatch_run_warning{code="loss_nonfinite",run="nan"} 1.0' in text
    assert text.count("runwatch_run_warning{") == 1


# ── a loss that is NaN ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", ["", "completed", "failed"])
def test_a_loss_that_became_nan(world: World, end: str) -> None:
    world.run("nan", losses(3.0, 2.0, NAN, NAN, NAN, NAN), end=end)
    (warning,) = world.runs()["nan"]["warnings"]
    assert warning == {
        "code": "loss_nonfinite",
        "text": "loss is NaN since step 2",
        "time_ns": when(2),
        "step": 2,
        "weight": "warning",
    }
    assert world.ask("/api/v1/runs/nan")["warnings"] == [warning]
    events = world.ask("/api/v1/runs/nan/timeline")["events"]
    (mark,) = [event for event in events if event["kind"] == "loss_nonfinite"]
    assert (mark["time_ns"], mark["step"], mark["rank"]) == (when(2), 2, 0)
    body = {"metric": "loss", "value": "NaN", "text": "loss is NaN since step 2"}
    assert mark["body"] == body


@pytest.mark.parametrize(
    "points",
    [
        losses(3.0, 2.0, NAN, 1.9, 1.8),
        losses(3.0, NAN, NAN, 1.9),
        losses(3.0, 2.0, NAN),
        losses(3.0, 2.0, INF, INF),
        losses(NAN, NAN, NAN, NAN, metric="val_loss"),
        losses(*([NAN] * 50), metric="eval/loss"),
        losses(INF, INF, INF, INF, INF, metric="grad_norm"),
        losses(INF, INF, INF, INF, INF, metric="amp/loss_scale"),
        losses(INF, INF, INF, INF, metric="best_val_loss"),
        losses(NAN, 5.0, 4.0),
        losses(3.0, 2.0, 1.0),
    ],
)
def test_healthy_look_alikes(world: World, points: Any) -> None:
    world.run("well", points)
    assert world.runs()["well"]["warnings"] == []
    events = world.ask("/api/v1/runs/well/timeline")["events"]
    assert not [event for event in events if event["kind"] == "loss_nonfinite"]


def test_only_the_newest_attempt_counts(world: World) -> None:
    """It was started again from a good checkpoint."""
    world.run("nan", losses(3.0, NAN, NAN, NAN), end="failed", journal="first")
    later = [("loss", 500 + at, step, value) for _, at, step, value in losses(2.0, 2.0, 2.0, 2.0)]
    world.run("nan", later, start=499, journal="second")
    assert world.runs()["nan"]["warnings"] == []
    events = world.ask("/api/v1/runs/nan/timeline")["events"]
    assert [e["step"] for e in events if e["kind"] == "loss_nonfinite"] == [1]


def test_a_rank_of_several(world: World) -> None:
    world.run("nan", losses(3.0, 2.0, 1.0, 1.0), rank=0)
    world.run("nan", losses(3.0, NAN, NAN, NAN), rank=1)
    (warning,) = world.runs()["nan"]["warnings"]
    assert warning["text"] == "loss is NaN since step 1 on rank 1"


# ── what could not be seen ─────────────────────────────────────────────────────────────────────

UNSEEN: list[tuple[str, float, int | None, float]] = [("lr", 1.0, None, 0.1)]


def notes(run: Any) -> list[tuple[str, str]]:
    return [(each["weight"], each["text"]) for each in run["warnings"]]


def test_a_command_without_a_known_loop_says_that_no_steps_were_seen(world: World) -> None:
    world.run("script", UNSEEN, role="launcher", key="exec-1", end="completed")
    world.run("late", UNSEEN, role="launcher", key="exec-2")
    world.run("new", UNSEEN, role="launcher", key="exec-3", start=990)
    unseen = [("note", "no steps seen: no known framework loop")]
    found = world.runs()
    assert {name: notes(run) for name, run in found.items()} == {
        "script": unseen,
        "late": unseen,
        "new": [],
    }
    account = world.ask("/api/v1/runs/script/goodput")
    assert (account["steps"], account["remark"]) == (0, unseen[0][1])
    (command,) = world.ask("/api/v1/runs/script/processes")["processes"]
    assert command["role"] == "launcher" and found["script"]["ranks"] == 0


def test_a_program_that_marks_no_steps_is_told_how(world: World) -> None:
    world.run("plain", UNSEEN, end="completed")
    world.run("stepping", losses(1.0, 0.5), end="completed")
    world.run("hooked", UNSEEN, role="launcher", key="exec-4", end="completed")
    world.run("hooked", losses(1.0, 0.5), key="exec-4", journal="rank-0", end="completed")
    found = world.runs()
    ((weight, text),) = notes(found["plain"])
    assert weight == "note" and "run.steps" in text and "runwatch exec" in text
    assert notes(found["stepping"]) == [] and notes(found["hooked"]) == []
