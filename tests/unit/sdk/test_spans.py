from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

import runwatch
from runwatch.record import BEGIN, END
from runwatch.sdk import front
from runwatch.sdk.guard import tally
from runwatch.sdk.identity import identify
from runwatch.sdk.kinds import BACKGROUND, USEFUL
from runwatch.sdk.run import Run
from runwatch.testing import Edge, FakeClock, Story
from runwatch.views.goodput.classes import Kind
from tests.unit.journal.journal_help import (
    SECOND,
)

Tell = Callable[[], Story]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def run(clock: FakeClock) -> Run:
    """A run whose time passes only when a test says so."""
    return front.begin(identify("clocked"), lambda who: Run(who, clock=clock), {}, Run)


def named(story: Story, name: str) -> list[Edge]:
    return [edge for edge in story.edges if edge.name == name]


def lengths(story: Story, name: str) -> list[int]:
    """Of the spans of that name, in the order of their ends."""
    begins = {e.span: e.time_ns for e in named(story, name) if e.edge == BEGIN}
    return [e.time_ns - begins[e.span] for e in named(story, name) if e.edge == END]


def in_thread(function: Callable[[], Any]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


# ── kinds ─────────────────────────────────────────────────────────────────────────────────────


def test_the_known_kinds() -> None:
    assert get_args(Kind) == (
        "accelerator_init",
        "training_preparation",
        "data_loading",
        "checkpoint_save",
        "checkpoint_restore",
        "evaluation",
        "compile",
        "elastic_slice_down",
        "elastic_scale_up",
        "elastic_reinitialization",
    )


@pytest.mark.parametrize("name", [*get_args(Kind), "eval", "save", "my/own kind"])
def test_a_span_has_the_name_it_was_given(name: str, run: Run, story: Tell) -> None:
    with run.span(name):
        pass
    assert [(e.name, e.edge) for e in story().edges] == [(name, BEGIN), (name, END)]


def test_spans_nest_and_end_when_an_exception_ends_them(
    run: Run, clock: FakeClock, story: Tell
) -> None:
    with pytest.raises(ZeroDivisionError), run.span("evaluation"):
        clock.advance(2)
        with run.span("checkpoint_restore"):
            clock.advance(3)
            raise ZeroDivisionError
    told = story()
    assert [e.edge for e in told.edges] == [BEGIN, BEGIN, END, END]
    assert lengths(told, "evaluation") == [5 * SECOND]
    assert lengths(told, "checkpoint_restore") == [3 * SECOND]


# ── decorators ────────────────────────────────────────────────────────────────────────────────


def test_a_decorated_function_is_itself_in_a_span(run: Run, clock: FakeClock, story: Tell) -> None:
    @run.span("evaluation")
    def evaluate(seconds: int, *, accuracy: float = 0.5) -> float:
        """How good it is."""
        clock.advance(seconds)
        return accuracy

    assert evaluate(2) == 0.5
    assert evaluate(3, accuracy=0.75) == 0.75
    assert (evaluate.__name__, evaluate.__doc__) == ("evaluate", "How good it is.")
    assert lengths(story(), "evaluation") == [2 * SECOND, 3 * SECOND]


def test_calls_of_a_decorated_function_may_be_inside_one_another(
    run: Run, clock: FakeClock, story: Tell
) -> None:
    @run.span("descent")
    def descend(depth: int) -> None:
        clock.advance(1)
        if depth:
            descend(depth - 1)

    descend(2)
    assert lengths(story(), "descent") == [1 * SECOND, 2 * SECOND, 3 * SECOND]


def test_a_decorated_function_raises_what_it_raises(run: Run, story: Tell) -> None:
    @run.span("evaluation")
    def fail() -> None:
        raise KeyError("no such metric")

    with pytest.raises(KeyError, match="no such metric"):
        fail()
    assert [e.edge for e in story().edges] == [BEGIN, END]


def test_a_decorated_coroutine_is_in_a_span_until_it_is_done(
    run: Run, clock: FakeClock, story: Tell
) -> None:
    @run.span("evaluation")
    async def evaluate() -> int:
        await asyncio.sleep(0)
        clock.advance(4)
        return 7

    assert asyncio.run(evaluate()) == 7
    assert lengths(story(), "evaluation") == [4 * SECOND]


def test_calls_in_two_threads_at_once_have_an_end_each(run: Run, story: Tell) -> None:
    both = threading.Barrier(2, timeout=100)

    @run.span("upload")
    def upload() -> None:
        both.wait()

    threads = [threading.Thread(target=upload) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    edges = story().edges
    assert [e.edge for e in edges] == [BEGIN, BEGIN, END, END]
    assert {e.span for e in edges[:2]} == {e.span for e in edges[2:]}
    assert len({e.span for e in edges}) == 2


def test_a_function_decorated_before_there_is_a_run_records_in_the_one_there_is(
    story: Tell,
) -> None:
    @runwatch.span("evaluation")
    def evaluate() -> int:
        return 1

    assert evaluate() == 1
    assert tally.counts == {"no run": 1}
    runwatch.init("later")
    assert evaluate() == 1
    with runwatch.span("compile"):
        pass
    assert [e.name for e in story().edges] == ["evaluation"] * 2 + ["compile"] * 2


def test_a_useful_span_says_so_in_its_name(run: Run, story: Tell) -> None:
    @runwatch.span("rollout", useful=True)
    def collect() -> None: ...

    with run.span("rollout", useful=True):
        pass
    collect()
    with run.span("data_loading", useful=True), run.span("rollout/useful", useful=True):
        pass
    in_thread(collect)
    assert [e.name for e in story().edges if e.edge == BEGIN] == [
        "rollout" + USEFUL,
        "rollout" + USEFUL,
        "data_loading" + USEFUL,
        "rollout" + USEFUL,
        "rollout" + USEFUL + BACKGROUND,
    ]


# ── threads ───────────────────────────────────────────────────────────────────────────────────


def test_what_another_thread_does_is_beside_the_steps(run: Run, story: Tell) -> None:
    def write() -> None:
        with run.span("checkpoint_save"):
            pass

    in_thread(write)
    write()
    assert [e.name for e in story().edges] == ["checkpoint_save" + BACKGROUND] * 2 + [
        "checkpoint_save"
    ] * 2


@pytest.mark.parametrize("way", ["steps", "step"])
def test_the_thread_that_takes_the_steps_is_the_one_that_counts(
    way: str, run: Run, story: Tell
) -> None:
    def train() -> None:
        if way == "steps":
            for _ in run.steps(range(1)):
                with run.span("evaluation"):
                    pass
        else:
            with run.step(0), run.span("evaluation"):
                pass

    in_thread(train)
    with run.span("evaluation"):
        pass
    names = [e.name for e in story().edges if e.name != "step"]
    assert names == ["evaluation"] * 2 + ["evaluation" + BACKGROUND] * 2


# ── waiting for data ──────────────────────────────────────────────────────────────────────────


class Loader:
    """Takes 2 s to start, 1 s for each item and 4 s to find that there are no more."""

    def __init__(self, clock: FakeClock, items: str = "ab") -> None:
        self.clock, self.items = clock, items
        self.batch_size = 8

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[str]:
        self.clock.advance(2)
        return self._all()

    def _all(self) -> Iterator[str]:
        for item in self.items:
            self.clock.advance(1)
            yield item
        self.clock.advance(4)


def test_a_step_begins_where_its_wait_for_data_ends(
    run: Run, clock: FakeClock, story: Tell
) -> None:
    began = clock.wall_ns()
    for _ in run.steps(Loader(clock)):
        clock.advance(10)
    told = story()
    begins = [e.time_ns - began for e in told.edges if e.edge == BEGIN]
    waits = [round(seconds * 1e9) for seconds in told.values("data_wait_seconds")]
    assert begins == [3 * SECOND, 14 * SECOND]
    assert waits == [3 * SECOND, 1 * SECOND]  # the loader's start is part of the first


def test_learning_that_the_loader_has_no_more_is_a_wait_too(
    run: Run, clock: FakeClock, story: Tell
) -> None:
    began = clock.wall_ns()
    for _ in run.steps(Loader(clock)):
        pass
    (event,) = (e for e in story().events if e.kind == "elapsed")
    assert event.body == {"name": "data_loading", "seconds": 4.0}
    assert event.time_ns - began == 8 * SECOND


def test_a_short_end_of_a_loader_is_not_recorded(run: Run, story: Tell) -> None:
    for _ in run.steps("abc"):
        pass
    assert story().bodies("elapsed") == []


def test_waits_of_a_loader_are_spans(run: Run, clock: FakeClock, story: Tell) -> None:
    seen = []
    for number, item in enumerate(run.data(Loader(clock))):
        with run.step(number):
            clock.advance(10)
            seen.append(item)
    told = story()
    assert seen == ["a", "b"]
    assert lengths(told, "data_loading") == [2 * SECOND, 1 * SECOND, 1 * SECOND, 4 * SECOND]
    assert lengths(told, "step") == [10 * SECOND] * 2
    assert told.values("data_wait_seconds") == []


def test_a_loader_can_be_iterated_once_per_epoch_and_asked_things(
    run: Run, clock: FakeClock
) -> None:
    loader: Any = run.data(Loader(clock))
    assert [list(loader) for _ in range(3)] == [["a", "b"]] * 3
    assert (len(loader), loader.batch_size, bool(loader)) == (2, 8, True)
    assert list(copy.copy(loader)) == ["a", "b"]
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = loader.no_such_thing


def test_an_iterator_is_iterated_once(run: Run, clock: FakeClock, story: Tell) -> None:
    items: Any = run.data(iter(Loader(clock)))
    assert next(items) == "a"
    assert list(items) == ["b"]
    assert list(items) == []
    assert lengths(story(), "data_loading")[1] == 1 * SECOND


def test_a_loader_that_fails_fails_in_the_program_and_its_wait_has_an_end(
    run: Run, story: Tell
) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("no more data")

    with pytest.raises(OSError, match="no more data"):
        list(run.data(broken()))
    edges = story().edges
    assert [e.edge for e in edges] == [BEGIN, END] * 3


def test_a_loader_without_a_run_is_just_a_loader(clock: FakeClock) -> None:
    loader = front.data(Loader(clock))
    assert list(loader) == ["a", "b"]
    assert tally.counts == {"no run": 1}


def test_a_loader_wrapped_before_there_is_a_run_is_recorded_in_the_one_there_is(
    story: Tell,
) -> None:
    loader = front.data([1, 2])
    runwatch.init("later")
    assert list(loader) == [1, 2]
    assert len(named(story(), "data_loading")) == 8


def test_loading_ahead_in_another_thread_is_beside_the_steps(run: Run, story: Tell) -> None:
    waiting: list[bool] = []

    def look() -> Iterator[int]:
        waiting.append(run._awaits_data)
        yield 1

    in_thread(lambda: list(run.data(look())))
    assert {e.name for e in story().edges} == {"data_loading" + BACKGROUND}
    assert waiting == [False]


@pytest.mark.parametrize("way", ["steps", "data", "span"])
def test_it_is_known_when_a_loader_is_waited_for(way: str, run: Run) -> None:
    waiting: list[bool] = []

    def look() -> Iterator[int]:
        for number in range(2):
            waiting.append(run._awaits_data)
            yield number

    if way == "steps":
        inside = [run._awaits_data for _ in run.steps(look())]
    elif way == "data":
        inside = [run._awaits_data for _ in run.data(look())]
    else:
        with run.span("data_loading"):
            inside = [False for _ in look()]
    assert waiting == [True, True]
    assert [*inside, run._awaits_data] == [False] * 3


def test_leaving_a_loop_or_failing_in_it_ends_the_wait(run: Run) -> None:
    for _ in run.steps(range(5)):
        break
    assert not run._awaits_data
    with pytest.raises(ZeroDivisionError):
        list(run.steps(1 // 0 for _ in range(2)))
    assert not run._awaits_data


# ── pairs of calls ────────────────────────────────────────────────────────────────────────────


def test_steps_and_spans_as_pairs_of_calls(begin: Callable[..., Run], story: Tell) -> None:
    run = begin("pairs")
    for number in (4, None, None):
        run.begin_step(number)
        span = run.begin_span("forward")
        span.end()
        span.end()
        if number is None:
            run.end_step()
    runwatch.begin_step(9)
    runwatch.begin_span("evaluation").end()
    runwatch.end_step()
    runwatch.end_step()
    assert tally.counts == {"end_step": 1}
    told = story()
    assert [(e.name, e.step, e.edge) for e in told.edges if e.name == "step"] == [
        ("step", step, edge) for step in (4, 5, 6, 9) for edge in (BEGIN, END)
    ]
    assert [e.name for e in told.edges].count("forward") == 6
    assert [e.name for e in told.edges].count("evaluation") == 2


def test_pairs_of_calls_without_a_run_do_nothing() -> None:
    runwatch.begin_step(1)
    runwatch.begin_span("evaluation").end()
    runwatch.end_step()
    assert tally.counts == {"no run": 3}
