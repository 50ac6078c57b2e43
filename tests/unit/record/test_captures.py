"""The event `profile`: SDK and agent write one shape, and every body of before is read."""

from __future__ import annotations

from typing import Any

import pytest

from runwatch.errors import UsageError
from runwatch.record import Event
from runwatch.record.captures import DONE, STARTED, ProfileEvent, checked_name, is_profile_name
from runwatch.record.door import BODIES, event_problem

WHOLE = ProfileEvent(
    session="s1", state=DONE, why="so", framework="jax+torch", files=("a.xplane.pb",),
    directory="/p", bytes=7, start_ns=1, end_ns=2, first_step=3, last_step=4, origin="demand",
    command="c", problems=("late",), rank=5, host="h", pid=6, run="r", way="port",
)  # fmt: skip
# As an SDK and an agent wrote it before both wrote the same.
OF_THE_SDK: dict[str, Any] = {
    "session": "s1", "state": "done", "why": "", "framework": "jax+torch",
    "frameworks": ["jax", "torch"], "files": ["a"], "directory": "/p", "bytes": 7, "start_ns": 1,
    "end_ns": 2, "first_step": 3, "last_step": 4, "origin": "program", "command": "",
    "problems": [], "rank": 5, "host": "h",
}  # fmt: skip
OF_THE_AGENT: dict[str, Any] = {
    **OF_THE_SDK, "frameworks": ["jax+torch"], "first_step": None, "last_step": None,
    "origin": "demand", "pid": 6, "run": "r", "way": "port",
}  # fmt: skip


def test_what_is_written_is_read_back() -> None:
    assert ProfileEvent.read(WHOLE.body()) == WHOLE
    assert event_problem(Event(1, ProfileEvent.KIND, WHOLE.body())) == ""
    assert set(WHOLE.body()) == set(BODIES[ProfileEvent.KIND])


def test_what_has_just_begun_has_no_end() -> None:
    assert ProfileEvent("s1", STARTED, end_ns=9).body()["end_ns"] == 0


@pytest.mark.parametrize("body", [OF_THE_SDK, OF_THE_AGENT])
def test_bodies_of_before_are_read(body: dict[str, Any]) -> None:
    found = ProfileEvent.read(body)
    assert found is not None and found.frameworks == ("jax", "torch")
    assert (found.state, found.files, found.rank, found.end_ns) == (DONE, ("a",), 5, 2)
    assert found.first_step == body["first_step"] and found.way == body.get("way", "")


@pytest.mark.parametrize(
    "body",
    [{}, {"session": 1, "state": "done"}, {"session": "s"}, {"session": "s", "state": ["done"]}],
)
def test_what_is_told_of_no_session_is_left_out(body: dict[str, Any]) -> None:
    assert ProfileEvent.read(body) is None


def test_odd_fields_are_as_if_absent() -> None:
    odd = {"files": ["a", 1, ""], "bytes": -1, "rank": True, "start_ns": "x", "framework": None}
    assert ProfileEvent.read({"session": "s", "state": "done", **odd}) == ProfileEvent(
        "s", DONE, files=("a",)
    )


def test_long_texts_are_cut_when_they_are_written() -> None:
    body = ProfileEvent("s" * 300, DONE, "w" * 5_000, problems=("p" * 2_000,) * 30).body()
    assert (len(body["session"]), len(body["why"])) == (200, 4_000)
    assert (len(body["problems"]), len(body["problems"][0])) == (20, 1_000)
    assert len(ProfileEvent.of({"why": "w" * 5_000}).why) == 4_000


@pytest.mark.parametrize("name", ["a", "2026_11_15-10.09", "x" * 128])
def test_names_that_may_be_folders(name: str) -> None:
    assert is_profile_name(name) and checked_name(name) == name


@pytest.mark.parametrize("name", ["", ".a", "a..b", "a/b", "x" * 129, "ä", None, 3])
def test_names_that_may_not(name: object) -> None:
    assert not is_profile_name(name)
    with pytest.raises(UsageError, match="run .*: a name has up to"):
        checked_name(name, "run")
