"""Sessions folded from events: a name and the time that it covers."""

from __future__ import annotations

from typing import Any

import pytest

from runwatch.record import JournalId, RunId
from runwatch.rows import EventRow
from runwatch.views.sessions import (
    KINDS,
    LONGEST_NAME,
    BadName,
    Stretch,
    active,
    check_name,
    find,
    fold,
)

START, STOP, RESUME, CLOCK, FILE = KINDS


def event(time_ns: int, kind: str, **body: Any) -> EventRow:
    return EventRow(JournalId("j"), RunId(""), "head", 0, time_ns, None, kind, body)


def start(time_ns: int, id: str, name: str) -> EventRow:
    return event(time_ns, START, id=id, name=name)


def test_sessions_overlap_and_a_name_is_used_again() -> None:
    found = fold(
        [
            start(1, "1", "a"),
            start(2, "2", "b"),
            event(5, STOP, id="1"),
            start(6, "3", "a"),
            event(9, STOP, id="2"),
        ]
    )
    assert [(s.name, s.start_ns, s.end_ns) for s in found.values()] == [
        ("a", 1, 5),
        ("b", 2, 9),
        ("a", 6, None),
    ]
    assert [session.id for session in active(found)] == ["3"]
    newest, oldest = find(found, "a"), find(found, "1")
    assert newest is not None and newest.id == "3"
    assert oldest is not None and oldest.start_ns == 1
    assert find(found, "nobody") is None


def test_how_a_file_stands_holds_until_the_session_goes_on() -> None:
    events = [
        start(1, "1", "a"),
        event(2, FILE, id="1", state="partial"),
        event(5, STOP, id="1"),
        event(5, FILE, id="1", folder="/work"),
        event(6, FILE, id="1", folder="/work", state="partial", missing=["n"]),
    ]
    assert fold(events[:2])["1"].saved is None, "it goes on"
    due, partial = fold(events[:4])["1"].saved, fold(events)["1"].saved
    assert due is not None and (due.state, due.folder) == ("due", "/work")
    assert partial is not None and (partial.state, partial.missing) == ("partial", ("n",))
    assert fold([*events, event(8, RESUME, id="1")])["1"].saved is None


def test_one_that_is_resumed_has_a_gap() -> None:
    found = fold([start(1, "1", "a"), event(5, STOP, id="1"), event(8, RESUME, id="1")])
    assert found["1"].stretches == (Stretch(1, 5), Stretch(8))
    assert found["1"].is_active


def test_what_makes_no_sense_changes_nothing() -> None:
    sound = [start(1, "1", "a"), event(5, STOP, id="1")]
    odd = [
        event(2, RESUME, id="1"),  # it goes on
        event(6, STOP, id="1"),  # it was stopped
        event(7, STOP, id="nobody"),
        start(8, "1", "again"),
        event(9, START, name="no id"),
        event(9, START, id="no name"),
    ]
    assert fold(sound + odd) == fold(sound)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_newest_event_told_twice_is_told_once(count: int) -> None:
    events = [start(1, "1", "a"), event(5, STOP, id="1"), event(8, RESUME, id="1")][:count]
    assert fold(events[-1:], fold(events)) == fold(events)


def test_a_clock_that_went_back_ends_nothing_before_it_began() -> None:
    found = fold([start(10, "1", "a")])
    assert fold([event(4, STOP, id="1")], found)["1"].stretches == (Stretch(10, 10),)


def test_clocks_are_known_to_sessions_that_go_on() -> None:
    found = fold(
        [
            start(1, "1", "a"),
            event(2, STOP, id="1"),
            start(3, "2", "b"),
            event(4, CLOCK, host="n", ahead_ns=600),
        ]
    )
    assert (found["1"].clocks, found["2"].clocks) == ({}, {"n": 600})


@pytest.mark.parametrize(
    "name",
    [
        "",
        "  ",
        "..",
        "a/b",
        "/abs",
        "..\\x",
        "a..b",
        "a\0b",
        "a\nb",
        ".hidden",
        "x" * 201,
        "é" * 150,
    ],
)
def test_e2_21_names_that_no_file_may_have(name: str) -> None:
    with pytest.raises(BadName):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "train run 1", "x" * LONGEST_NAME, "v1.2-β", "50%"])
def test_names_that_do(name: str) -> None:
    assert check_name(name) == name
