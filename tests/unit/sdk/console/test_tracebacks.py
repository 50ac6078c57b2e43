"""What is recorded of an exception."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from runwatch.record import Event
from runwatch.record.console import ExceptionTold
from runwatch.record.door import event_problem
from runwatch.sdk.console.tracebacks import END_FRAMES, LONGEST_TEXT, described
from runwatch.sdk.values.masking import MASK

NOTHING: dict[str, str] = {}


def raised(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def told(function: Callable[[], Any], **environment: str) -> ExceptionTold:
    found = described(raised(function), "MainThread", environment)
    assert event_problem(Event(1, ExceptionTold.KIND, found.body())) == ""
    assert ExceptionTold.of(found.body()) == found
    return found


def test_the_text_is_what_the_interpreter_prints() -> None:
    def fail() -> None:
        try:
            raise KeyError("weights")
        except KeyError as cause:
            try:
                raise ValueError("no weights") from cause
            except ValueError:
                raise OSError("cannot load")  # noqa: B904

    error = raised(fail)
    found = described(error, "MainThread", NOTHING)
    assert found.text == "".join(traceback.format_exception(error)).rstrip("\n")
    for words in ("KeyError: 'weights'", "direct cause", "During handling", "OSError: cannot load"):
        assert words in found.text
    assert (found.type, found.message, found.line) == (
        "OSError", "cannot load", "OSError: cannot load",
    )  # fmt: skip
    assert found.frames[-1].split(":")[0] == __file__
    assert found.frames[-1].endswith(":fail")


def test_a_group_has_all_its_members() -> None:
    def fail() -> None:
        raise ExceptionGroup("two ranks", [ValueError("rank 0"), TypeError("rank 1")])

    found = told(fail)
    assert "ValueError: rank 0" in found.text and "TypeError: rank 1" in found.text
    assert found.line == "ExceptionGroup: two ranks (2 sub-exceptions)"


def test_of_a_deep_recursion_there_are_the_first_and_the_last_frames() -> None:
    def down(depth: int) -> None:
        if depth:
            up(depth - 1)
        raise RecursionError("too deep")

    def up(depth: int) -> None:
        down(depth)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(30_000)
    try:
        found = told(lambda: down(5_000))
    finally:
        sys.setrecursionlimit(limit)
    assert len(found.frames) == 2 * END_FRAMES
    assert found.left_out_frames > 9_000
    assert f"[{found.left_out_frames:,} frames are left out]" in found.text
    assert "in raised" in found.text and found.text.endswith("RecursionError: too deep")


def test_a_long_chain_and_a_circle_end() -> None:
    def fail() -> None:
        error: BaseException | None = None
        for number in range(1000):
            try:
                raise ValueError(number) from error
            except ValueError as next_error:
                error = next_error
        assert error is not None
        raise error

    found = told(fail)
    assert "earlier exceptions are left out" in found.text
    assert found.text.endswith("ValueError: 999")

    def circle() -> None:
        one, two = ValueError("one"), ValueError("two")
        one.__cause__, two.__cause__ = two, one
        raise one

    assert "ValueError: one" in told(circle).text


def test_a_huge_message_is_cut_in_the_middle() -> None:
    def fail() -> None:
        raise ValueError("begin " + "x" * 1_000_000 + " end")

    found = told(fail)
    assert len(found.text) < LONGEST_TEXT + 100 and found.text.endswith(" end")
    assert "characters are left out" in found.text
    assert len(found.message) <= 2_000


class Awkward(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_without_words() -> None:
    def fail() -> None:
        raise Awkward

    found = told(fail)
    assert found.type == f"{__name__}.Awkward"
    assert "Awkward" in found.text


def test_secrets_are_masked() -> None:
    def fail() -> None:
        raise PermissionError("401 for key=abc with api_key='hunter2' and s3cr3t-value")

    found = told(fail, MY_TOKEN="s3cr3t-value")
    assert "hunter2" not in found.text + found.message
    assert "s3cr3t-value" not in found.text


def test_local_variables_only_if_asked_for() -> None:
    class Tensor:
        shape = (3, 4)

        def __repr__(self) -> str:
            raise AssertionError("a repr may wait for a device")

    def fail() -> None:
        batch, rank, password, words = Tensor(), 7, "hunter2", "x" * 10_000
        raise ValueError(rank, len(password), len(words), batch is None)

    assert told(fail).local_variables == ()
    inner = told(fail, RUNWATCH_LOCALS="1").local_variables[-1]
    assert (inner["rank"], inner["password"], inner["batch"]) == ("7", MASK, "<Tensor (3, 4)>")
    assert len(inner["words"]) <= 200


@pytest.mark.parametrize("value", ["0", "off", ""])
def test_local_variables_are_not_told_otherwise(value: str) -> None:
    assert told(lambda: 1 / 0, RUNWATCH_LOCALS=value).local_variables == ()
