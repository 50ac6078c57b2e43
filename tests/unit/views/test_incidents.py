"""Incidents, folded from the events that tell of them."""

from __future__ import annotations

from typing import Any

from runwatch.record import JournalId, RunId
from runwatch.record.stacks import Incident
from runwatch.rows import EventRow
from runwatch.views.incidents import incidents_of

RUN = RunId("llama")


def incident(id: str, **more: Any) -> Incident:
    fields: dict[str, Any] = {
        "kind": "hang", "state": "open", "since_ns": 5, "detected_ns": 6,
        "named_ns": 7, "text": "rank 7 sleeps", "confidence": "likely", "ranks": (7,),
        "rounds": 2, "report": {"rule": "elsewhere"},
    }  # fmt: skip
    return Incident(id=id, **{**fields, **more})


def row(time_ns: int, body: dict[str, Any], kind: str = "incident") -> EventRow:
    return EventRow(JournalId("head"), RUN, "h", -1, time_ns, None, kind, body)


def test_an_incident_survives_its_event() -> None:
    told = incident("a").closed(99, "it went on")
    assert incidents_of([row(100, told.body())]) == [(RUN, told)]


def test_the_newest_word_holds_and_the_newest_incident_is_first() -> None:
    first, second = incident("a"), incident("b", detected_ns=50, kind="crash")
    rows = [
        row(30, first.closed(30, "it went on").body()),
        row(51, second.body()),
        row(10, first.body()),
    ]
    found = incidents_of(rows)
    assert [(run, i.id) for run, i in found] == [(RUN, "b"), (RUN, "a")]
    assert [i.is_open for _, i in found] == [True, False]


def test_odd_bodies_are_passed_over() -> None:
    rows = [
        row(1, {}),
        row(2, {"id": 5}),
        row(3, {"id": "x", "ranks": ["one", 2], "report": 7, "closed_ns": "later"}),
        row(4, {"id": "y"}, kind="stacks"),
    ]
    ((_, found),) = incidents_of(rows)
    assert (found.id, found.ranks, found.report, found.closed_ns) == ("x", (2,), {}, None)
    assert (found.state, found.kind, found.since_ns) == ("closed", "hang", 3)


def test_an_event_of_before_there_were_severities_is_an_alarm() -> None:
    """The body is a contract: this is one as heads have stored it until now."""
    old = {
        "id": "a", "kind": "hang", "state": "open", "since_ns": 5, "detected_ns": 6, "named_ns": 7,
        "closed_ns": None, "why": "", "text": "rank 7 sleeps", "confidence": "likely",
        "ranks": [7], "rounds": 2, "report": {"rule": "elsewhere"},
    }  # fmt: skip
    ((_, found),) = incidents_of([row(10, old)])
    assert found == incident("a") and found.severity == "incident" and found.is_alarm
    note = incident("b", severity="note")
    assert incidents_of([row(10, note.body())]) == [(RUN, note)] and not note.is_alarm
