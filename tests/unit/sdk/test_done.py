"""What a process says of whether it had done all there was to do, when it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import runwatch
from runwatch.sdk.run import Run
from runwatch.testing import Story

Tell = Callable[[], Story]
MISSING = object()


def said(told: Story) -> object:
    """MISSING: nothing."""
    return told.end.get("done", MISSING)


def exhausted(run: Run) -> None:
    for _ in run.steps(range(3)):
        pass


def left(run: Run) -> None:
    for at, _ in run.steps(range(3)):
        if at == 1:
            break


def nothing(run: Run) -> None:
    for at in range(3):
        with run.step(at):
            pass


def again(run: Run) -> None:
    """A loop that came to its end, and another that did not."""
    exhausted(run)
    left(run)


LOOPS = pytest.mark.parametrize(
    "loop, done", [(exhausted, True), (left, False), (nothing, None), (again, False)]
)


@LOOPS
def test_to_finish_is_to_say_so(
    story: Tell, loop: Callable[[Run], None], done: bool | None
) -> None:
    loop(runwatch.init("said"))
    assert story().end == {"status": "completed", "explicit": True, "done": True}


@LOOPS
def test_the_end_of_a_with_block_says_what_the_loop_knows(
    story: Tell, loop: Callable[[Run], None], done: bool | None
) -> None:
    with runwatch.init("block") as run:
        loop(run)
    assert story().end == {"status": "completed", "explicit": True, "done": done}


@LOOPS
def test_an_exit_without_finish_says_what_the_loop_knows_if_it_knows(
    story: Tell, loop: Callable[[Run], None], done: bool | None
) -> None:
    run = runwatch.init("exit")
    loop(run)
    run._on_exit(None)
    told = story()
    assert (told.end["status"], told.end["explicit"]) == ("completed", False)
    assert said(told) is (MISSING if done is None else done)


@pytest.mark.parametrize("total, done", [(3, True), (2, True), (4, False), (100, False)])
@pytest.mark.parametrize("loop", [exhausted, nothing])
def test_a_number_of_steps_that_was_told_decides(
    story: Tell, loop: Callable[[Run], None], total: int, done: bool
) -> None:
    with runwatch.init("total", total_steps=total) as run:
        loop(run)
    assert said(story()) is done


@pytest.mark.parametrize("total, done", [(3, True), (4, False)])
def test_a_number_of_steps_that_was_told_decides_at_exit_too(
    story: Tell, total: int, done: bool
) -> None:
    run = runwatch.init("total at exit", total_steps=total)
    nothing(run)
    run._on_exit(None)
    assert said(story()) is done


def test_what_failed_says_nothing_of_being_done(story: Tell) -> None:
    with pytest.raises(ValueError), runwatch.init("failed") as run:
        exhausted(run)
        raise ValueError("no")
    told = story()
    assert (told.end["status"], said(told)) == ("failed", MISSING)


def test_to_finish_as_failed_says_nothing_of_being_done(story: Tell) -> None:
    run = runwatch.init("failed by its own word")
    run.finish("failed", "diverged")
    told = story()
    assert (told.end["status"], said(told)) == ("failed", MISSING)
