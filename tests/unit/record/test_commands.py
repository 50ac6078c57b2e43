"""Commands and answers: agents and heads of before and of now understand each other.

`tests/fixtures/messages/captures.json` has bodies as they were written before each had a dataclass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from runwatch.errors import UsageError
from runwatch.record import Event
from runwatch.record.captures import CaptureRequested, ProfileDeleted, ProfileEvent, Target
from runwatch.record.commands import (
    CaptureResult,
    CommandResult,
    PingResult,
    PreflightResult,
    ProfileCommand,
    TargetPreflight,
    TargetProfile,
)
from runwatch.record.control import ProfilePreflight, ProfileReply, ProfileStart, ProfileStatus
from runwatch.record.door import event_problem
from runwatch.record.message import Message, read_strictly

_FILE: Final = Path(__file__).parents[2] / "fixtures" / "messages" / "captures.json"
BODIES: Final[Mapping[str, dict[str, Any]]] = json.loads(_FILE.read_text())
SHAPES: Final[Mapping[str, type[Message]]] = {
    "profile_of_an_sdk": ProfileEvent,
    "profile_of_an_agent": ProfileEvent,
    "profile_deleted": ProfileDeleted,
    "capture": CaptureRequested,
    "command_preflight": ProfileCommand,
    "command_capture": ProfileCommand,
    "command_steps": ProfileCommand,
    "result_preflight": PreflightResult,
    "result_capture": CaptureResult,
    "result_nobody": CaptureResult,
    "result_ping": PingResult,
    "result_too_late": CommandResult,
    "process_preflight": ProfilePreflight,
    "process_status": ProfileStatus,
    "process_start": ProfileStart,
    "process_start_steps": ProfileStart,
    "process_reply": ProfileReply,
    "process_refusal": ProfileReply,
    "process_status_unknown": ProfileEvent,
}
EVENTS: Final = ("profile_of_an_sdk", "profile_deleted", "capture", "result_preflight",
                 "result_capture", "result_ping", "result_too_late")  # fmt: skip


def has_all_of(new: Any, old: Any) -> bool:
    """Whether a reader of before finds everything that it knows.  It takes null for absent."""
    if isinstance(old, dict):
        known = {name: value for name, value in old.items() if value is not None}
        return isinstance(new, dict) and all(
            name in new and has_all_of(new[name], value) for name, value in known.items()
        )
    if isinstance(old, list):
        return len(new) == len(old) and all(map(has_all_of, new, old))
    return type(new) is type(old) and bool(new == old)


def test_every_body_of_before_has_a_shape() -> None:
    assert BODIES.keys() == SHAPES.keys()


@pytest.mark.parametrize("name", SHAPES)
def test_a_reader_of_before_reads_what_is_written_now(name: str) -> None:
    message = SHAPES[name].of(BODIES[name])
    body = json.loads(json.dumps(message.body()))
    assert has_all_of(body, BODIES[name])
    assert SHAPES[name].of(body) == message


@pytest.mark.parametrize("name", EVENTS)
def test_the_door_lets_in_what_is_written_now_and_before(name: str) -> None:
    kind = SHAPES[name].KIND
    assert event_problem(Event(1, kind, BODIES[name])) == ""
    assert event_problem(Event(1, kind, SHAPES[name].of(BODIES[name]).body())) == ""


def test_what_was_written_before_is_read() -> None:
    asked = CaptureRequested.of(BODIES["capture"])
    assert asked.processes[0] == Target("pod-3", "node-a", 3, 4711, way="sdk")
    assert (asked.duration_ms, asked.steps, asked.ahead_ns) == (2000, None, {"node-a": 1_500_000})
    assert PreflightResult.of(BODIES["result_preflight"]).processes[0] == TargetPreflight(
        "pod-3", "", 3, 4711, "run-1", "port", "", ("jax",), "127.0.0.1:9012", 40
    )
    done, lost = CaptureResult.of(BODIES["result_capture"]).processes
    assert (done.state, done.files, done.bytes) == ("done", ("node-a.xplane.pb",), 7)
    assert lost == TargetProfile(rank=-1, state="failed", why="a fault in the agent: see its log")
    assert PingResult.of(BODIES["result_ping"]).processes == 8
    assert CommandResult.of(BODIES["result_too_late"]).state == "failed"
    command = read_strictly(ProfileCommand, BODIES["command_capture"])
    assert (command.plain, command.ranks, command.pids, command.preflight) == (
        True, None, (4711,), False
    )  # fmt: skip


def test_a_result_of_another_kind_has_no_targets() -> None:
    assert CaptureResult.of(BODIES["result_ping"]).processes == ()
    assert CommandResult.of({}).state == "done"


@pytest.mark.parametrize(
    "body", [{"ranks": "all"}, {"pids": [1.5]}, {"duration_ms": True}, {"steps": 0}, {"plain": 1}]
)
def test_a_wrong_command_is_refused_and_not_guessed_at(body: dict[str, Any]) -> None:
    (name,) = body
    with pytest.raises(UsageError, match=f"^{name} .*: not "):
        read_strictly(ProfileCommand, body)


def test_a_null_and_a_newer_field_are_passed_over() -> None:
    body = {"ranks": None, "steps": None, "colour": "red"}
    assert read_strictly(ProfileCommand, body) == ProfileCommand()


def test_a_request_without_an_end_or_too_far_ahead_is_refused() -> None:
    ProfileStart(session="s", steps=1, start_ns=601 * 10**9).check(now_ns=10**9)
    with pytest.raises(UsageError, match="more than 600 s ahead"):
        ProfileStart(session="s", steps=1, start_ns=602 * 10**9).check(now_ns=10**9)
    with pytest.raises(UsageError, match="duration_ms or steps"):
        ProfileStart(session="s").check(now_ns=0)
