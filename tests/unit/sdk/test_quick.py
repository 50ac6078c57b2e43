"""Steps that are recorded without a detour say the same as those that take one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runwatch.record import BEGIN, END
from runwatch.sdk import front, quick
from runwatch.sdk.guard import tally
from runwatch.sdk.identity import identify
from runwatch.sdk.quick import QuickStep
from runwatch.sdk.run import Run
from runwatch.testing import FakeClock, Story, read_stories
from tests.integration.sdk_programs import run_program
from tests.unit.journal.journal_help import (
    SECOND,
)

Tell = Callable[[], Story]
Take = Callable[[range], None]
BEGUN, ENDED = [BEGIN], [BEGIN, END]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def run(clock: FakeClock) -> Run:
    """A run whose time passes only when a test says so, and whose steps are quick by now."""
    made = front.begin(identify("quick"), lambda who: Run(who, clock=clock), {}, Run)
    for _ in made.steps(range(2), start=-2):
        pass
    assert made._quick is not None
    return made


@pytest.fixture(params=["with", "for"])
def take(request: pytest.FixtureRequest, run: Run, clock: FakeClock) -> Take:
    """Takes steps of which each waits 1 s for its item and lasts as many seconds as its number."""

    def slow(numbers: range) -> Iterator[int]:
        for number in numbers:
            clock.advance(1)
            yield number

    def with_step(numbers: range) -> None:
        for number in slow(numbers):
            with run.step(number):
                clock.advance(number)

    def for_steps(numbers: range) -> None:
        for number, _ in run.steps(slow(numbers), start=numbers.start):
            clock.advance(number)

    return with_step if request.param == "with" else for_steps


def edges(story: Story, step: int | None) -> list[int]:
    return [e.edge for e in story.edges if e.name == "step" and e.step == step]


def times(story: Story, metric: str = "step_seconds") -> dict[int | None, float]:
    """Of the steps that a test took."""
    mine = [n for n in story.numbers if n.metric == metric and (n.step is None or n.step >= 0)]
    return {number.step: number.value for number in mine}


def test_quick_or_not_the_journal_says_the_same(take: Take, run: Run, story: Tell) -> None:
    take(range(1, 3))
    seen: list[tuple[int, bool]] = []
    run._at_step = lambda number, begins: seen.append((number, begins))  # as a profile does
    take(range(3, 5))
    run._at_step = None
    take(range(5, 7))
    told = story()
    assert seen == [(3, True), (3, False), (4, True), (4, False)]
    assert times(told) == {number: float(number) for number in range(1, 7)}
    assert [edges(told, number) for number in range(1, 7)] == [ENDED] * 6
    begins = {e.step: e.time_ns for e in told.edges if e.edge == BEGIN}
    ends = {e.step: e.time_ns for e in told.edges if e.edge == END}
    assert [ends[n] - begins[n] for n in range(1, 7)] == [n * SECOND for n in range(1, 7)]
    assert len({e.span for e in told.edges}) == 2 + 6
    units = {n.unit for n in told.numbers}
    assert units == {"s"}


def test_waits_are_told_with_the_steps(run: Run, clock: FakeClock, story: Tell) -> None:
    def slow() -> Iterator[int]:
        for seconds in (3, 4, 5):
            clock.advance(seconds)
            yield seconds

    assert [number for number, _ in run.steps(slow())] == [0, 1, 2]
    assert times(story(), "data_wait_seconds") == {0: 3.0, 1: 4.0, 2: 5.0}


def test_one_object_serves_step_after_step(run: Run) -> None:
    used = set()
    for number in range(4):
        step = run.step(number)
        used.add(id(step))
        with step:
            assert run._step == number
    assert len(used) == 1
    assert isinstance(step, QuickStep)


def test_a_step_inside_a_step(run: Run, clock: FakeClock, story: Tell) -> None:
    for number in (1, 3):
        with run.step(number):
            clock.advance(1)
            with run.step(number + 1):
                clock.advance(2)
    told = story()
    assert times(told) == {1: 3.0, 2: 2.0, 3: 3.0, 4: 2.0}
    assert [edges(told, number) for number in (1, 2, 3, 4)] == [ENDED] * 4


def test_steps_in_two_threads_at_once(story: Tell) -> None:
    """With real time, in which no two steps begin at once."""
    run = front.init("threads")
    for _ in run.steps(range(2), start=-2):
        pass
    both = threading.Barrier(2)

    def train(first: int) -> None:
        for number in range(first, first + 50):
            both.wait(100)
            with run.step(number):
                both.wait(100)

    threads = [threading.Thread(target=train, args=(first,)) for first in (0, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = story()
    steps = [*range(50), *range(1000, 1050)]
    assert [edges(told, number) for number in steps] == [ENDED] * 100
    assert sorted(number for number in times(told) if number is not None) == steps
    assert len({e.span for e in told.edges}) == 2 + 100


def test_a_quick_step_cut_short_has_an_end_and_no_time(run: Run, story: Tell) -> None:
    with pytest.raises(ZeroDivisionError), run.step(1):
        raise ZeroDivisionError
    with run.step(2):
        pass
    told = story()
    assert [edges(told, 1), edges(told, 2)] == [ENDED, ENDED]
    assert list(times(told)) == [2]


def test_leaving_the_loop_ends_the_quick_step(run: Run, story: Tell) -> None:
    for number, _ in run.steps(range(10)):
        if number == 3:
            break
    told = story()
    assert edges(told, 3) == ENDED
    assert list(times(told)) == [0, 1, 2, 3]


def test_a_step_that_is_never_entered_is_no_step(run: Run, story: Tell) -> None:
    run.step(1)
    kinds = []
    for number in (2, 3):
        step = run.step(number)
        kinds.append(type(step))
        with step:
            pass
    assert kinds[-1] is QuickStep  # the one that never came back is not waited for
    assert list(times(story())) == [2, 3]


def test_a_decorated_function_keeps_its_step(run: Run, clock: FakeClock, story: Tell) -> None:
    @run.step(7)
    def train() -> None:
        clock.advance(7)

    with run.step(1):
        clock.advance(1)
    train()
    assert times(story()) == {1: 1.0, 7: 7.0}


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**200])
def test_a_number_too_large_is_none(number: int, run: Run, clock: FakeClock, story: Tell) -> None:
    with run.step(number):
        clock.advance(3)
    with run.step(1):
        pass
    told = story()
    assert edges(told, None) == ENDED
    assert times(told) == {None: 3.0, 1: 0.0}


def test_steps_that_are_sealed_say_the_same(run: Run, clock: FakeClock, story: Tell) -> None:
    """As where stores may be seen out of order."""
    writer = run._writer
    assert writer is not None
    writer._plain_room = 0
    for number in (1, 2**63):
        with run.step(number):
            clock.advance(2)
    with pytest.raises(ZeroDivisionError), run.step(3):
        raise ZeroDivisionError
    for _ in run.steps(range(4, 6), start=4):
        clock.advance(4)
    assert isinstance(run._quick, QuickStep) and run._quick.idle
    told = story()
    assert times(told) == {1: 2.0, None: 2.0, 4: 4.0, 5: 4.0}
    assert [edges(told, number) for number in (1, None, 3, 4, 5)] == [ENDED] * 5
    assert told.bodies("journal_gap") == [] and tally.counts == {}


def test_counting_beyond_64_bits_harms_nothing(run: Run) -> None:
    taken = [number for number, _ in run.steps("abc", start=2**63 - 2)]
    assert taken == [2**63 - 2, 2**63 - 1, 2**63]


def test_steps_go_on_in_the_next_segment(take: Take, run: Run, place: Path, story: Tell) -> None:
    count = 70_000  # of 64 bytes each; a segment has 4 MiB
    writer = run._writer
    assert writer is not None
    take(range(count))
    assert len(list(writer.directory.glob("0*.seg"))) == 2
    told = story()
    assert told.bodies("journal_gap") == []  # the count in the second segment's header is right
    assert list(times(told)) == list(range(count))
    assert sum(e.edge == END for e in told.edges) == 2 + count


@pytest.mark.parametrize("way", ["with", "for"])
def test_a_run_that_ends_inside_a_step(way: str, run: Run, place: Path) -> None:
    for number in range(3) if way == "with" else (n for n, _ in run.steps(range(3))):
        if way == "with":
            with run.step(number):
                run.finish() if number == 1 else None
        elif number == 1:
            run.finish()
    (told,) = read_stories(place)
    assert [edges(told, number) for number in range(3)] == [ENDED, BEGUN, []]
    assert list(times(told)) == [0]
    assert tally.counts == {}


def test_an_interpreter_without_one_lock_has_no_quick_steps(
    monkeypatch: pytest.MonkeyPatch, story: Tell
) -> None:
    monkeypatch.setattr(quick, "ONE_THREAD_AT_A_TIME", False)
    run = front.init("free")
    for number in range(3):
        with run.step(number):
            pass
    for _ in run.steps(range(3), start=3):
        pass
    assert run._quick is None
    assert list(times(story())) == list(range(6))


# ── in processes of their own ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "loop",
    [
        "for n in range(1000):\n    with run.step(n):\n        kill(n)",
        "for n, _ in run.steps(range(1000)):\n    kill(n)",
    ],
)
def test_a_killed_process_leaves_every_step_it_took(loop: str, tmp_path: Path) -> None:
    program = (
        "import os, runwatch\n"
        "run = runwatch.init('killed')\n"
        "def kill(n):\n"
        "    if n == 500: os.kill(os.getpid(), 9)\n" + loop
    )
    done = run_program(program, tmp_path)
    assert done.returncode == -signal.SIGKILL
    (told,) = read_stories(tmp_path)
    assert list(times(told)) == list(range(500))
    assert [edges(told, 499), edges(told, 500)] == [ENDED, BEGUN]


@pytest.mark.parametrize(
    "loop",
    [
        "for n in range(6):\n    with run.step(n):\n        fork(n)",
        "for n, _ in run.steps(range(6)):\n    fork(n)",
    ],
)
def test_a_child_takes_its_own_steps(loop: str, tmp_path: Path) -> None:
    program = (
        "import os, runwatch, warnings\n"
        "warnings.simplefilter('ignore')  # Python 3.12 warns of forks beside threads\n"
        "run = runwatch.init('forked')\n"
        "def fork(n):\n"
        "    global child\n"
        "    if n == 3: child = os.fork()\n" + loop + "\n"
        "if child: os.waitpid(child, 0)\n"
    )
    done = run_program(program, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    parent, child = sorted(read_stories(tmp_path), key=lambda told: len(told.edges), reverse=True)
    assert list(times(parent)) == list(range(6))
    assert list(times(child)) == [4, 5]
    assert [edges(child, number) for number in (3, 4, 5)] == [[], ENDED, ENDED]
