"""What `runwatch status` says of services that a head sends to."""

from __future__ import annotations

from typing import Any

from runwatch.cli.status.head import _facts, _health_words
from runwatch.cli.status.types import Answer

WELL = {"to": "cloud_logging", "name": "Cloud Logging", "sent": 12_204}
HELD = WELL | {
    "waiting": 96,
    "waiting_since_ns": 1_700_000_000_000_000_000,
    "problem": "the service refuses (403)",
    "problem_since_ns": 1_700_000_003_000_000_000,
    "todo": "grant roles/logging.logWriter",
}


def words(*forwards: dict[str, Any]) -> tuple[list[str], list[tuple[str, str]]]:
    health = {"status": "ok", "version": "1", "forwards": list(forwards)}
    lines, problems = _health_words("http://head", Answer("well", health=health), health, "here")
    return lines[2:], [(problem.what, problem.todo) for problem in problems]


def test_a_service_that_takes_everything_is_no_problem() -> None:
    assert words(WELL) == (["Cloud Logging: 12,204 sent"], [])
    assert words() == ([], [])


def test_one_that_refuses_is_and_the_way_out_is_named() -> None:
    lines, ((what, todo),) = words(HELD)
    assert lines == ["Cloud Logging: 12,204 sent"]
    assert what.startswith("nothing goes to Cloud Logging since ")
    assert ": the service refuses (403); 96 wait, the oldest of " in what
    assert todo == "grant roles/logging.logWriter"


def test_what_is_lost_and_what_is_left_out_is_said() -> None:
    more = {"lost": 3, "lost_why": "too old", "note": "figures of 2 runs are not sent"}
    (line,), problems = words(WELL | more)
    assert line == "Cloud Logging: 12,204 sent, 3 lost: too old; figures of 2 runs are not sent"
    assert problems == []


def test_whatever_answers_may_send_anything() -> None:
    for odd in (None, 7, ["x"], [{"sent": "many", "problem": None}]):
        health: dict[str, Any] = {"status": "ok", "version": "1", "forwards": odd}
        assert _facts("a", "b", Answer("well", health=health))["health"]["forwards"] in (
            [],
            [dict.fromkeys(("to", "name", "lost_why", "problem", "todo", "note"), "")
             | dict.fromkeys(("sent", "waiting", "lost"), 0)
             | dict.fromkeys(("waiting_since_ns", "problem_since_ns"))],
        )  # fmt: skip
