"""The door: what has its shape passes whole, what has not is named."""

from __future__ import annotations

from typing import Any

import pytest

from runwatch.record import Batch, Event, JournalId, Origin, Position, RunId, RunScope, Series
from runwatch.record.checks import LATEST_NS, MOST_ITEMS, MOST_RANKS
from runwatch.record.door import (
    BODIES,
    DEEPEST,
    MOST_KINDS,
    Rejected,
    definition_problem,
    event_problem,
    in_unicode,
    origin_problem,
    refused_records,
)
from tests.fuzz import hostile


def nested(depth: int) -> Any:
    made: Any = 1
    for _ in range(depth):
        made = {"x": made}
    return made


@pytest.mark.parametrize("kind", hostile.BODIES)
def test_what_is_written_passes(kind: str) -> None:
    assert event_problem(Event(hostile.NOW, kind, hostile.BODIES[kind])) == ""
    nothing = dict.fromkeys(hostile.BODIES[kind])
    assert event_problem(Event(hostile.NOW, kind, nothing)) == ""


def test_every_kind_is_tried_by_the_fuzzers() -> None:
    assert hostile.BODIES.keys() == BODIES.keys()


def test_what_a_newer_writer_says_passes_within_bounds() -> None:
    assert event_problem(Event(5, "of tomorrow", nested(DEEPEST - 2))) == ""
    assert event_problem(Event(5, "run_end", {"status": "failed", "of tomorrow": [1, {}]})) == ""
    assert "deeper" in event_problem(Event(5, "of tomorrow", nested(DEEPEST + 1)))
    assert "more than" in event_problem(Event(5, "x", {"x": [0] * (MOST_ITEMS + 1)}))
    assert "64 bits" in event_problem(Event(5, "x", {"x": [2**64]}))
    assert event_problem(Event(5, "x" * 5_000, {})) != ""


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("run_start", {"rank": True}, "its rank is not a whole number"),
        ("run_start", {"world_size": 2**31 - 1}, f"from 0 to {MOST_RANKS}"),
        ("run_end", {"exception": {"type": 5}}, "its exception is not"),
        ("stacks", {"threads": [{"frames": [{"line": "a"}]}]}, "whose line is"),
        ("profile", {"files": "abc"}, "its files is not a list"),
        ("capture", {"ahead_ns": {"h": "x"}}, "its ahead_ns is not"),
        ("session_start", {"period_ns": 0}, "its period_ns is not"),
        ("elapsed", {"seconds": float("nan")}, "its seconds is not a number"),
    ],
)
def test_what_is_wrong_is_named(kind: str, body: Any, words: str) -> None:
    assert words in event_problem(Event(5, kind, body))


@pytest.mark.parametrize("time_ns", [-1, LATEST_NS + 1, 2**63 - 1])
def test_times_have_an_end(time_ns: int) -> None:
    assert "its time" in event_problem(Event(time_ns, "note", {}))


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({}, ""),
        ({"role": "launcher"}, ""),
        ({"journal": "../x"}, "its id"),
        ({"host": "../../x"}, "its host"),
        ({"host": "a\x1b[31m"}, "its host"),
        ({"pid": "7"}, "its pid"),
        ({"pid": 2**31}, "its pid"),
        ({"start_ns": 1.5}, "its start_ns"),
        ({"role": "root"}, "its role"),
        ({"boot": None}, "its boot"),
        ({"boot": "\ud800"}, "its boot"),
        ({"version": "\ud800"}, "its version"),
        ({"version": "1\x1b[2J"}, "its version"),
    ],
)
def test_origins(claims: dict[str, Any], words: str) -> None:
    fields: dict[str, Any] = {"journal": JournalId("a-1"), "host": "node", "pid": 7, "start_ns": 5}
    problem = origin_problem(Origin(**fields | claims))
    assert problem.startswith(words) and bool(problem) is bool(words)


def test_definitions() -> None:
    run = RunScope(1, RunId("r"), "r", 3, 4)
    assert definition_problem(run) == ""
    assert "its rank" in definition_problem(RunScope(1, RunId("r"), "r", MOST_RANKS + 1))
    assert "its id" in definition_problem(Series(2**32, "loss"))
    labels: Any = [["a", "b"]]
    assert "its labels" in definition_problem(Series(1, "loss", labels=labels))


def test_lone_surrogates_become_something_that_can_be_sent() -> None:
    odd = RunScope(1, RunId("r"), "é", attempt_key="a\udcff")
    assert in_unicode(odd) == RunScope(1, RunId("r"), "é", attempt_key="a?")
    assert in_unicode(Series(1, "m", labels={"k\ud800": "v"})).labels == {"k?": "v"}  # type: ignore[union-attr]


def test_a_flood_is_few_words() -> None:
    refused, batch = Rejected(), Batch(Origin(JournalId("j"), "h", 1, 0), Position(0), Position(9))
    for number in range(10_000):
        refused.add(f"kind {number}", "it is wrong")
    refused.tell(batch, 5)
    assert len(batch.events) == MOST_KINDS + 1
    assert batch.skipped_records == 10_000 == sum(map(refused_records, batch.events))
    assert all(event_problem(event) == "" for event in batch.events)
