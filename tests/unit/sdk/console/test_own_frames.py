"""An uncaught exception looks as it does without us."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any

from runwatch.sdk.console import own_frames

# Compiled as if it were a file of the SDK.
_CALLS = compile("def call(f):\n    return f()\n", own_frames._SDK + "hooks/some.py", "exec")
_space: dict[str, Any] = {}
exec(_CALLS, _space)
ours: Callable[[Callable[[], object]], object] = _space["call"]


def names(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def caught(function: Callable[[], object]) -> Exception:
    try:
        function()
    except (ValueError, ZeroDivisionError, ExceptionGroup) as error:
        return error
    raise AssertionError("it did not fail")


def fails() -> None:
    raise ValueError("disk")


def test_our_frames_are_left_out_wherever_they_are() -> None:
    error = caught(lambda: ours(lambda: ours(lambda: ours(fails))))
    assert names(error).count("call") == 3
    own_frames.leave_out(error)
    assert names(error) == ["caught", "<lambda>", "<lambda>", "<lambda>", "fails"]


def test_causes_and_groups_too() -> None:
    def both() -> None:
        try:
            ours(fails)
        except ValueError as first:
            raise ExceptionGroup("two", [caught(lambda: ours(fails))]) from first

    error = caught(both)
    assert isinstance(error, ExceptionGroup) and error.__cause__ is not None
    own_frames.leave_out(error)
    for each in (error.__cause__, error.exceptions[0]):
        assert "call" not in names(each) and names(each)[-1] == "fails"


def test_an_error_of_ours_is_seen() -> None:
    space: dict[str, Any] = {}
    exec(compile("def call():\n    1 / 0\n", own_frames._SDK + "run.py", "exec"), space)
    error = caught(space["call"])
    own_frames.leave_out(error)
    assert names(error)[-1] == "call"


def test_errors_that_name_each_other_end() -> None:
    one, two = ValueError(), ValueError()
    one.__context__, two.__context__ = two, one
    own_frames.leave_out(one)


def test_others_frames_stay() -> None:
    @wraps(fails)
    def theirs() -> None:
        fails()

    error = caught(theirs)
    own_frames.leave_out(error)
    assert names(error) == ["caught", "theirs", "fails"]
