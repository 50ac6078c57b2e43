from __future__ import annotations

from typing import Any

import pytest

from runwatch.errors import UsageError
from runwatch.record import JournalId, RunId
from runwatch.record.captures import checked_name
from runwatch.rows import EventRow
from runwatch.views.life import State
from runwatch.views.profiles import Profile, fold, gone_of
from runwatch.views.runs import ProcessState


def told(
    at: int, state: str, *, rank: int = 0, run: str = "r", kind: str = "profile", **body: Any
) -> EventRow:
    said = {"session": "s", "state": state, "framework": "jax", **body}
    return EventRow(JournalId(f"j{rank}"), RunId(run), f"host-{rank}", rank, at, None, kind, said)


def only(*events: EventRow, states: tuple[State, ...] = ()) -> Profile:
    """`states` are those of the processes, by rank."""
    processes = (
        ProcessState(
            JournalId(f"j{rank}"), RunId("r"), "r", "", f"host-{rank}", 1, rank, 2, 0, state, "", 0,
            None, 0,
        )
        for rank, state in enumerate(states)
    )  # fmt: skip
    (profile,) = fold(events, gone_of(processes)).values()
    return profile


def test_two_ranks_are_one_profile() -> None:
    profile = only(
        told(1, "started", first_step=10, start_ns=1),
        told(2, "started", rank=1, framework="torch", start_ns=2),
        told(8, "done", files=["a.xplane.pb"], bytes=5, last_step=12, end_ns=8, directory="/p"),
        told(9, "done", rank=1, framework="torch", files=["b.json"], bytes=7, end_ns=9),
    )
    assert (profile.state, profile.why) == ("done", "")
    assert (profile.hosts, profile.ranks) == (("host-0", "host-1"), (0, 1))
    assert profile.frameworks == ("jax", "torch")
    assert (profile.files, profile.bytes) == (("a.xplane.pb", "b.json"), 12)
    assert (profile.start_ns, profile.end_ns) == (1, 9)
    assert (profile.first_step, profile.last_step) == (10, 12)
    assert profile.directories == ("/p",)


def test_states() -> None:
    begun = [told(1, "started"), told(1, "started", rank=1)]
    assert only(*begun).state == "running"
    assert only(*begun, told(2, "done")).state == "running"
    assert only(*begun, told(2, "done")).end_ns is None
    mixed = only(*begun, told(2, "done"), told(3, "failed", rank=1, why="disk full"))
    assert (mixed.state, mixed.why) == ("partial", "rank 1: disk full")
    both = only(told(2, "failed", why="busy"), told(3, "failed", rank=1, why="busy"))
    assert (both.state, both.why) == ("failed", "ranks 0, 1: busy")


def test_a_process_that_died_in_mid_capture() -> None:
    events = [told(1, "started"), told(1, "started", rank=1), told(5, "done")]
    profile = only(*events, states=("completed", "killed"))
    assert (profile.state, profile.why) == ("partial", "rank 1: the process ended meanwhile")
    assert profile.end_ns == 5


def test_a_process_that_fell_silent_in_mid_capture_is_not_said_to_have_ended() -> None:
    events = [told(1, "started"), told(2, "started", rank=1)]
    profile = only(*events, states=("lost", "failed"))
    said = "rank 0: the process was not heard of again; rank 1: the process ended meanwhile"
    assert (profile.state, profile.why) == ("failed", said)
    assert only(*events, states=("lost", "running")).state == "running"


def test_the_order_of_arrival_does_not_matter() -> None:
    events = [told(1, "started", start_ns=1), told(4, "done", files=["f"], start_ns=1)]
    assert fold(events) == fold(reversed(events))


def test_deleted_sessions_are_forgotten_until_told_of_again() -> None:
    gone = told(5, "", kind="profile_deleted", run="", session="s")
    gone = EventRow(gone.journal, RunId(""), "head", 0, 5, None, gone.kind,
                    {"run": "r", "session": "s"})  # fmt: skip
    assert fold([told(1, "done"), gone]) == {}
    assert only(told(1, "done", bytes=1), gone, told(6, "done", bytes=2)).bytes == 2


@pytest.mark.parametrize("body", [
    {"session": "../x"}, {"session": 3}, {"session": ""}, {"session": "a/b"}, {"state": "odd"},
])  # fmt: skip
def test_what_makes_no_sense_is_left_out(body: dict[str, Any]) -> None:
    event = told(1, "done")
    assert fold([EventRow(event.journal, event.run, "h", 0, 1, None, "profile",
                          {**event.body, **body})]) == {}  # fmt: skip


def test_odd_values_do_no_harm() -> None:
    profile = only(told(7, "done", files="no", bytes=True, start_ns="x", first_step=1.5, why=None))
    assert (profile.files, profile.bytes, profile.start_ns) == ((), 0, 7)
    assert (profile.first_step, profile.why) == (None, "")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a..b", "-a", "a\0", "x" * 129, "ä", "a\n"])
def test_names_that_are_no_folders(name: str) -> None:
    with pytest.raises(UsageError):
        checked_name(name)


def test_names_that_are() -> None:
    assert checked_name("2026_11_15_10-09.07") == "2026_11_15_10-09.07"
