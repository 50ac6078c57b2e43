"""Stacks, incidents and the command for stacks: as they are written, and as they were before.

`fixtures/messages/stacks.json` has bodies that agents, heads and processes wrote before these
messages had a shape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runwatch.record import Event
from runwatch.record.commands import StacksResult, StacksWanted
from runwatch.record.door import event_problem
from runwatch.record.kinds import BY_KIND, COMMANDS
from runwatch.record.message import Message
from runwatch.record.stacks import AsyncTask, Beat, Frame, Incident, Pulse, Stacks, Thread
from tests.integration.sdk_programs import run_program

FIXTURES = Path(__file__).parents[2] / "fixtures"
OLD: Mapping[str, dict[str, Any]] = json.loads((FIXTURES / "messages" / "stacks.json").read_text())
RECORDED = sorted(
    path for path in (FIXTURES / "stacks").glob("*.json") if '"threads"' in path.read_text()
)

WRITTEN: Mapping[str, type[Message]] = {
    "answer": Stacks, "looked": Stacks, "child_not_seen": Stacks, "fault": Stacks,
    "periodic": Stacks, "incident_open": Incident, "incident_closed": Incident,
    "command": StacksWanted, "command_all": StacksWanted, "result": StacksResult,
}  # fmt: skip
FRAMES = (Frame("recv", "libc.so.6", 0, native=True), Frame("Loader.next", "/a/data.py", 41))
TASK = AsyncTask("Task-1", ("Task-2",), True, FRAMES[1:])
THREAD = Thread(
    "MainThread", 12, 99, is_main=True, holds_gil=True, idle=True, frames=FRAMES, tasks=(TASK,)
)
STACKS = Stacks(12, 5, "signalled", "S", ("one", "two"), (THREAD, Thread("t", spins=True)))


def test_the_fixture_has_a_body_of_each_writer() -> None:
    assert set(OLD) == set(WRITTEN)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_was_written_before_is_written_field_for_field(name: str) -> None:
    """Only a null is left out now: it always stood for a field that is not there."""
    before = {key: value for key, value in OLD[name].items() if value is not None}
    written = WRITTEN[name].of(OLD[name]).body()
    assert written == before
    if name != "result":  # it begins with what every result has
        assert list(written) == list(before), "the order is what a person reads"


def test_there_and_back() -> None:
    assert Stacks.of(json.loads(json.dumps(STACKS.body()))) == STACKS


def test_what_is_not_so_is_left_out() -> None:
    plain = STACKS.body()["threads"]
    assert [("tasks" in each, "spins" in each) for each in plain] == [(True, False), (False, True)]
    assert [("native" in frame) for frame in plain[0]["frames"]] == [True, False]
    assert not {"rank", "host", "fault", "pulse", "answers"} & set(STACKS.body())


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_stacks_recorded_on_real_machines_are_read(path: Path) -> None:
    ranks = json.loads(path.read_text())["ranks"].values()
    bodies = [body for rank in ranks for body in (*rank["outside"], rank.get("asked")) if body]
    assert bodies
    for body in bodies:
        stacks = Stacks.of(body)
        assert len(stacks.threads) == len(body["threads"])
        for thread, plain in zip(stacks.threads, body["threads"], strict=True):
            assert thread.name == plain["name"]
            assert [frame.line for frame in thread.frames] == [f["line"] for f in plain["frames"]]


def test_a_later_versions_words_are_passed_over() -> None:
    frame = {"function": "f", "file": "a.py", "line": 3, "column": 8}
    plain = {
        "pid": 1, "time_ns": 2, "how": "by magic", "weather": "fine", "problems": None,
        "threads": [{"name": "t", "frames": [frame, "nonsense"], "mood": 1}, None],
    }  # fmt: skip
    thread = Thread("t", frames=(Frame("f", "a.py", 3),))
    assert Stacks.of(plain) == Stacks(1, 2, "by magic", threads=(thread,))
    assert Stacks.of({}) == Stacks()


def test_odd_fields_read_as_absent() -> None:
    odd = {
        "pid": "12", "time_ns": -5, "how": 3, "state": None, "problems": ["one", 2], "rank": True,
        "host": ["gpu-1"], "round": 1.5, "child_of": "0", "answers": "no",
        "threads": [{"name": 7, "frames": [{"line": "a", "native": 1}], "tasks": "none"}, 3],
    }  # fmt: skip
    assert Stacks.of(odd) == Stacks(problems=("one",), threads=(Thread(frames=(Frame(),)),))
    beat = Beat.of({"ns": 4, "all": "none", "threads": {"7": [1, 2], "8": 3, "9": ["a"]}})
    assert beat == Beat(4, threads={"7": [1, 2]})
    assert Stacks.of({"pulse": 7}) == Stacks() and Pulse.of({"after": [1]}) == Pulse()


@pytest.mark.parametrize(
    "stacks",
    [Stacks(), STACKS, *(Stacks.of(OLD[name]) for name, kind in WRITTEN.items() if kind is Stacks)],
)
def test_the_door_takes_stacks_as_they_are_written(stacks: Stacks) -> None:
    assert event_problem(Event(1, stacks.KIND, stacks.body())) == ""


@pytest.mark.parametrize("name", ["incident_open", "incident_closed"])
def test_the_door_takes_incidents_as_they_are_and_were_written(name: str) -> None:
    for body in (OLD[name], Incident.of(OLD[name]).body()):
        assert event_problem(Event(1, Incident.KIND, body)) == ""


def test_stacks_are_for_a_command_or_an_incident() -> None:
    body = OLD["looked"]
    assert Stacks.was_for(body, command=None, incident=None)
    assert Stacks.was_for(body, command="c1", incident="i1")
    assert not Stacks.was_for(body, command="c1", incident="i2")
    assert not Stacks.was_for(OLD["answer"], command="c1", incident=None)


def test_a_training_process_loads_them_only_when_somebody_asks(tmp_path: Path) -> None:
    done = run_program(
        """
        import sys, runwatch
        from runwatch.sdk.control import _stacks
        shapes = "runwatch.record.stacks"
        with runwatch.init("light") as run:
            run.log(loss=1.0)
            before = shapes in sys.modules
            answer = _stacks({})
        print(before, shapes in sys.modules, answer["how"], list(answer))
        """,
        tmp_path,
    )
    fields = ["pid", "time_ns", "how", "state", "problems", "threads"]
    assert done.stdout == f"False True asked {fields}\n", done.stderr


# ── incidents ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        ("note", "note"),
        ("warning", "warning"),
        (None, "incident"),
        (3, "incident"),
        ("", "incident"),
    ],
)
def test_what_was_stored_without_a_severity_was_an_alarm(stored: object, read: str) -> None:
    incident = Incident.of({"id": "a", "severity": stored})
    assert incident.severity == read
    assert incident.is_alarm == (read != "note")


def test_a_kind_or_state_that_we_do_not_know() -> None:
    incident = Incident.of({"id": "a", "kind": "flood", "state": "asleep"})
    assert (incident.kind, incident.state) == ("hang", "closed")
    assert event_problem(Event(1, Incident.KIND, {"kind": "flood"})) == "", "a newer head's"


def test_an_incident_is_closed_once_and_stays_what_it_was() -> None:
    before = Incident.of(OLD["incident_open"])
    after = before.closed(99, "it went on")
    assert before.is_open and not after.is_open
    assert (after.closed_ns, after.why, after.report) == (99, "it went on", before.report)


# ── the command ───────────────────────────────────────────────────────────────────────────────


def test_a_command_for_everybody_names_no_ranks() -> None:
    assert "ranks" not in StacksWanted().body()
    assert StacksWanted(ranks=()).body()["ranks"] == [], "nobody is not everybody"
    assert StacksWanted.of(StacksWanted(ranks=()).body()).ranks == ()


def test_each_kind_is_listed_once() -> None:
    assert BY_KIND["stacks"] is Stacks and BY_KIND["incident"] is Incident
    assert {message.KIND: message for message in COMMANDS}["stacks"] is StacksWanted
