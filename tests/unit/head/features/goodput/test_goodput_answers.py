"""What `/runs/{run}/goodput` and `/runs/{run}/goodput/entries` answer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from runwatch.head.features.goodput import answers as goodput_answers
from runwatch.record import Batch, Event, JournalId, Origin, Position, RunId, RunScope, Series
from runwatch.store.duck.engine import DuckSettings, DuckStore
from runwatch.store.store import Store
from runwatch.testing import FakeClock
from tests.apps import app_of
from tests.unit.views.goodput.story import RUN, SECOND, Notebook

with warnings.catch_warnings():  # it would rather have another client library
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

T0 = 1_700_000_000
CLOCK = FakeClock((T0 + 200) * SECOND)


@pytest.fixture
def store() -> Iterator[Store]:
    opened = DuckStore.open(None, settings=DuckSettings(threads=1))
    yield opened
    opened.close()


def ask(store: Store, path: str = f"{RUN}/goodput", *, status: int = 200, **given: Any) -> Any:
    client = TestClient(app_of(store, clock=CLOCK), base_url="http://localhost")
    reply = client.get(f"/api/v1/runs/{path}", params=given)
    assert reply.status_code == status, reply.text
    return reply.json() if status == 200 else reply.json()["error"]["message"]


def at(seconds: float) -> int:
    return round((T0 + seconds) * SECOND)


def book(rank: int, attempt: int, start: int, first: int, *edges: int) -> Notebook:
    made = Notebook(rank, attempt, T0 + start)
    return made.steps(first, *(T0 + edge for edge in edges))


def end(store: Store, **ends: tuple[float, dict[str, Any]]) -> None:
    """What an agent saw: when each journal's process ended, and how."""
    origin = Origin(JournalId("agent"), "host-a", 9, 0, role="agent")
    batch = Batch(origin, Position(0), Position(100))
    for journal, (when, how) in ends.items():
        body = {"journal": journal.replace("_", " ")} | how
        batch.events.append(Event(at(when), "process_exit", body))
    store.write([batch])


@pytest.fixture
def disrupted(store: Store) -> Store:
    """Steps of 1 s from second 10 on, killed at 20; from 30 on again, back to step 5, until 50."""
    books = [
        book(0, 1, 0, 0, *range(10, 21)),
        book(0, 2, 30, 5, *range(32, 51)),
    ]
    store.write([made.batch() for made in books])
    end(store, attempt_1_rank_0=(20, {"signal": 9}), attempt_2_rank_0=(50, {"code": 0}))
    return store


# ── the account ────────────────────────────────────────────────────────────────────────────────


def test_the_whole_account(disrupted: Store) -> None:
    found = ask(disrupted)
    spent = {s["name"]: s["ns"] / SECOND for s in found["spent"] if s["ns"]}
    assert spent == {
        "productive": 23,
        "training_preparation": 12,
        "wasted_progress": 5,
        "infrastructure_recovery": 10,
    }
    assert sum(s["ns"] for s in found["spent"]) == found["total_ns"] == 50 * SECOND
    assert sum(s["share"] for s in found["spent"]) == pytest.approx(1)
    assert (found["goodput"], found["live"]) == (23 / 50, False)
    assert (found["start_ns"], found["end_ns"]) == (at(0), at(50))
    assert (found["steps"], found["max_productive_step"]) == (23, 22)
    assert found["ideal_step_ns"] == SECOND
    [disruption] = found["disruptions"]
    assert "killed by SIGKILL" in disruption.pop("cause")
    assert disruption == {
        "attempt": 1,
        "time_ns": at(20),
        "hung": False,
        "lost_steps": 5,
        "wasted_ns": 5 * SECOND,
        "recovery_ns": 10 * SECOND,
        "back_ns": 12 * SECOND,
        "hang_ns": 0,
        "warm_up_ns": disruption["warm_up_ns"],
        "cost_ns": 17 * SECOND,
    }
    assert found["mean_time_between_failures_ns"] == 40 * SECOND
    assert found["mean_time_to_recovery_ns"] == 12 * SECOND
    assert [(a["first_step"], a["last_step"], a["steps"]) for a in found["attempts"]] == [
        (0, 9, 10),
        (5, 22, 18),
    ]
    [rank] = found["ranks"]
    assert (rank["rank"], rank["steps"], rank["mean_step_ns"]) == (0, 28, SECOND)
    assert (found["over_time"], found["intervals"]) == (None, None)


def test_a_window_and_what_is_excluded(disrupted: Store) -> None:
    found = ask(disrupted, since=at(15), until=at(35))
    spent = {s["name"]: s["ns"] / SECOND for s in found["spent"] if s["ns"]}
    assert spent == {
        "wasted_progress": 5,
        "infrastructure_recovery": 10,
        "training_preparation": 2,
        "productive": 3,
    }
    assert (found["goodput"], len(found["disruptions"])) == (3 / 20, 1)
    assert ask(disrupted, since=at(40))["disruptions"] == []
    out = [f"{at(20)}/{at(30)}", f"{at(25)}/{at(32)}"]
    found = ask(disrupted, exclude=out)
    assert (found["counted_ns"], found["goodput"]) == (38 * SECOND, 23 / 38)
    assert {s["name"]: s["ns"] for s in found["spent"]}["excluded"] == 12 * SECOND
    shares = {s["name"]: s["share"] for s in found["spent"]}
    assert (shares["productive"], shares["excluded"]) == (found["goodput"], 0)
    assert sum(shares.values()) == pytest.approx(1)


def test_a_window_reaches_as_far_as_the_run(disrupted: Store) -> None:
    assert ask(disrupted, since=0, until=2**62)["total_ns"] == 50 * SECOND
    assert ask(disrupted, since=at(50))["total_ns"] == 0


def test_excluding_everything_leaves_nothing_to_share(disrupted: Store) -> None:
    found = ask(disrupted, exclude=f"{at(-5)}/{at(90)}")
    assert (found["goodput"], found["counted_ns"], found["total_ns"]) == (None, 0, 50 * SECOND)


def test_a_window_of_no_length(disrupted: Store) -> None:
    found = ask(disrupted, since=at(12), until=at(12), buckets=5, intervals=5)
    assert (found["total_ns"], found["goodput"]) == (0, None)
    assert found["over_time"] == []
    assert found["intervals"] == {"exact": True, "start_ns": [], "end_ns": [], "name": []}


@pytest.mark.parametrize(
    ("given", "status", "part"),
    [
        ({"since": at(30), "until": at(20)}, 422, "is after until"),
        ({"since": at(51)}, 422, "nothing of the run lies in this window"),
        ({"until": at(-1)}, 422, "nothing of the run lies in this window"),
        ({"exclude": f"{at(30)}/{at(20)}"}, 422, "ends before it begins"),
        ({"exclude": "yesterday"}, 400, "START/END"),
        ({"exclude": f"{at(30)}/"}, 400, "START/END"),
        ({"since": "noon"}, 400, "whole number"),
        ({"buckets": 0}, 400, "from 1 to 2000"),
        ({"intervals": 20_001}, 400, "from 1 to 20000"),
        ({"until_when": 1}, 400, "unknown parameter"),
    ],
)
def test_what_cannot_be_asked(
    disrupted: Store, given: dict[str, Any], status: int, part: str
) -> None:
    assert part in ask(disrupted, status=status, **given)


def test_no_such_run(store: Store) -> None:
    assert "nope" in ask(store, "nope/goodput", status=404)
    assert "nope" in ask(store, "nope/goodput/entries", status=404)


def test_over_time(disrupted: Store) -> None:
    found = ask(disrupted, buckets=7, exclude=f"{at(0)}/{at(10)}")
    parts = found["over_time"]
    assert len(parts) == 7
    assert parts[0]["goodput"] is None
    assert [part["start_ns"] for part in parts[1:]] == [part["end_ns"] for part in parts[:-1]]
    for name in ("productive", "excluded", "infrastructure_recovery"):
        whole = next(s["ns"] for s in found["spent"] if s["name"] == name)
        assert sum(part["spent_ns"].get(name, 0) for part in parts) == whole


def test_intervals(disrupted: Store) -> None:
    found = ask(disrupted, intervals=20, exclude=f"{at(31)}/{at(33)}")["intervals"]
    rows = zip(found["start_ns"], found["end_ns"], found["name"], strict=True)
    assert found["exact"] is True
    assert [((a - at(0)) // SECOND, (b - at(0)) // SECOND, name) for a, b, name in rows] == [
        (0, 10, "training_preparation"),
        (10, 15, "productive"),
        (15, 20, "wasted_progress"),
        (20, 30, "infrastructure_recovery"),
        (30, 31, "training_preparation"),
        (31, 33, "excluded"),
        (33, 50, "productive"),
    ]


def test_more_intervals_than_asked_for_are_merged(disrupted: Store) -> None:
    found = ask(disrupted, intervals=3)["intervals"]
    assert found["exact"] is False
    assert (found["start_ns"][0], found["end_ns"][-1]) == (at(0), at(50))
    assert found["start_ns"][1:] == found["end_ns"][:-1]
    assert found["name"] == ["training_preparation", "infrastructure_recovery", "productive"]


def test_a_run_without_steps(store: Store) -> None:
    store.write([Notebook(0, 1, T0).span("evaluation", T0 + 1, T0 + 4).batch()])
    end(store, attempt_1_rank_0=(5, {"code": 0}))
    found = ask(store)
    spent = {s["name"]: s["ns"] // SECOND for s in found["spent"] if s["ns"]}
    assert spent == {"evaluation": 3, "unattributed": 2}
    assert (found["goodput"], found["steps"], found["ideal_step_ns"]) == (0, 0, None)
    assert (found["max_productive_step"], found["mean_time_between_failures_ns"]) == (None, None)


def test_a_run_of_no_length(store: Store) -> None:
    store.write([Notebook(0, 1, T0).event("run_start", {}, T0).batch()])
    end(store, attempt_1_rank_0=(0, {"code": 0}))
    found = ask(store, buckets=3, intervals=3)
    assert (found["total_ns"], found["goodput"], found["attempts"][0]["steps"]) == (0, None, 0)


def test_a_run_whose_clock_is_ahead_of_ours(store: Store) -> None:
    store.write([Notebook(0, 1, T0 + 999).event("run_start", {}, T0 + 999).batch()])
    found = ask(store)
    assert (found["total_ns"], found["goodput"], found["live"]) == (0, None, True)
    assert {s["ns"] for s in found["spent"]} == {0}


# ── entries ────────────────────────────────────────────────────────────────────────────────────


class Recorder:
    """A journal with entries, as a GoodputRecorder writes them."""

    def __init__(self, store: Store, name: str, logger: str = "log") -> None:
        self.store = store
        self.origin = Origin(JournalId(name), "h", 1, at(0))
        self.logger = logger
        self.at = 0

    def write(self, *entries: tuple[float, str, int | None, float] | dict[str, Any]) -> None:
        batch = Batch(self.origin, Position(self.at), Position(self.at + 100))
        batch.definitions.append(RunScope(1, RunId("job"), "My job"))
        fields = {e[1]: None for e in entries if isinstance(e, tuple)}
        for number, field in enumerate(fields, 1):
            labels = {"logger": self.logger} | ({"type": "eval"} if "custom" in field else {})
            batch.definitions.append(Series(number, f"goodput.{field}", 1, "s", labels=labels))
        for entry in entries:
            if isinstance(entry, dict):
                body = {"logger": self.logger, "entry": entry}
                batch.events.append(Event(at(entry["at"]), "goodput_entry", body, scope=1))
            else:
                when, field, step, value = entry
                number = list(fields).index(field) + 1
                batch.points.append(number, at(when), -(2**63) if step is None else step, value)
        self.at += 100
        (verdict,) = self.store.write([batch])
        assert verdict.accepted


def entries(store: Store, after: str = "", **given: Any) -> tuple[list[dict[str, Any]], str]:
    if after:
        given["after"] = after
    found = ask(store, "job/goodput/entries", **given)
    return found["entries"], found["next"]


def test_entries_are_the_payloads_that_were_recorded(store: Store) -> None:
    Recorder(store, "j").write(
        (1, "job_start_time", None, 1.5),
        (2, "step_start_time", 0, 2.5),
        (3, "custom_badput_event_start_time", None, 3.5),
        {"at": 2.5, "job_name": "My job", "event_type": "save", "step": 0},
    )
    assert entries(store)[0] == [
        {"job_name": "My job", "job_start_time": 1.5},
        {"job_name": "My job", "step_count": 0, "step_start_time": 2.5},
        {"at": 2.5, "job_name": "My job", "event_type": "save", "step": 0},
        {
            "job_name": "My job",
            "custom_badput_event_type": "eval",
            "custom_badput_event_start_time": 3.5,
        },
    ]


def test_page_by_page_gives_the_same(store: Store) -> None:
    for name in ("a", "b"):
        recorder = Recorder(store, name)
        for part in range(3):
            seconds = [part * 10 + i // 2 for i in range(10)]  # two of each instant
            recorder.write(*((s, "step_start_time", i, float(i)) for i, s in enumerate(seconds)))
    everything, last = entries(store)
    assert len(everything) == 60
    paged: list[dict[str, Any]] = []
    cursor = ""
    while page := entries(store, cursor, limit=7):
        paged += page[0]
        if not page[0]:
            break
        assert len(page[0]) <= 7
        cursor = page[1]
    assert paged == everything
    assert entries(store, last) == ([], last)
    assert entries(store, cursor) == ([], cursor)


def test_what_a_journal_ships_late_is_not_missed(store: Store) -> None:
    Recorder(store, "a").write((5, "step_start_time", 1, 5.0))
    first, cursor = entries(store)
    Recorder(store, "b").write((2, "step_start_time", 0, 2.0))
    second, cursor = entries(store, cursor)
    assert [e["step_count"] for e in first + second] == [1, 0]
    assert entries(store, cursor)[0] == []


def test_only_one_log(store: Store) -> None:
    Recorder(store, "a", "x").write((1, "step_start_time", 1, 1.0), {"at": 2, "of": "x"})
    Recorder(store, "b", "y").write((1, "step_start_time", 2, 1.0), {"at": 2, "of": "y"})
    assert [e.get("step_count", e.get("of")) for e in entries(store, logger="y")[0]] == [2, "y"]
    assert len(entries(store)[0]) == 4
    assert entries(store, logger="z") == ([], "")


@pytest.mark.parametrize(("cursor", "status"), [("zz", 422), ("AAAA", 422), ("a b", 400)])
def test_a_cursor_that_is_none(store: Store, cursor: str, status: int) -> None:
    Recorder(store, "a").write((1, "step_start_time", 1, 1.0))
    assert "cursor" in ask(store, "job/goodput/entries", after=cursor, status=status) or (
        status == 400
    )


def test_a_cursor_stays_short(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goodput_answers, "MOST_MARKS", 4)
    for number in range(9):
        Recorder(store, f"j{number}").write((number, "step_start_time", number, 1.0))
    found, cursor = entries(store)
    assert [e["step_count"] for e in found] == list(range(9))
    assert len(cursor) <= 100
    Recorder(store, "new").write((20, "step_start_time", 20, 1.0))
    found, cursor = entries(store, cursor)
    assert [e["step_count"] for e in found] == [20]
