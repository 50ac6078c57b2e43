"""Steps as hooks tell them.  The frameworks themselves are in the integration tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from runwatch.compat.goodput.log.recorder import GoodputRecorder
from runwatch.journal.segment import MIN_SEGMENT_BYTES
from runwatch.record import BEGIN, END
from runwatch.sdk import front
from runwatch.sdk.hooks.loop import MANY, OPTIMIZERS, Loop
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.hooks.torch.optim import Optimizers
from runwatch.sdk.identity import identify
from runwatch.sdk.run import Run
from runwatch.testing import FakeClock, Story

Tell = Callable[[], Story]


class Optimizer:
    pass


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def run(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("RUNWATCH_HOOKS", "off")
    monkeypatch.setenv("RUNWATCH_SEGMENT_BYTES", str(MIN_SEGMENT_BYTES))
    return front.begin(identify("clocked"), lambda who: Run(who, clock=clock), {}, Run)


class Program:
    """Does what a program does that hooks see."""

    def __init__(self, run: Run, clock: FakeClock) -> None:
        self.tell, self.clock = Teller(run), clock
        assert self.tell.loop is not None
        self.loop: Loop = self.tell.loop

    def batch(self, seconds: float = 0.0) -> None:
        asked = self.clock.mono_ns()
        self.clock.advance(seconds)
        self.loop.batch(asked, self.clock.mono_ns())

    def no_more(self) -> None:
        self.loop.no_batch(self.clock.mono_ns())

    def update(self, optimizer: object, seconds: float = 1.0) -> None:
        self.loop.begins_at(self.clock.mono_ns())
        self.clock.advance(seconds)
        self.loop.updated(optimizer)


@pytest.fixture
def program(run: Run, clock: FakeClock) -> Program:
    return Program(run, clock)


def steps(story: Story) -> dict[int | None, float]:
    """Number and seconds of the steps that ended, each of which has begun once."""
    begun = [e.step for e in story.edges if e.name == "step" and e.edge == BEGIN]
    ended = [e.step for e in story.edges if e.name == "step" and e.edge == END]
    assert begun[: len(ended)] == ended
    return {n.step: n.value for n in story.numbers if n.metric == "step_seconds"}


def test_a_step_is_from_its_batch_to_the_next_as_in_the_explicit_loop(
    program: Program, clock: FakeClock, story: Tell
) -> None:
    one = Optimizer()
    for _ in range(3):
        program.batch(0.5)
        program.update(one)
        clock.advance(0.25)  # it reads its loss, and shows it
    program.no_more()
    program.tell.finish_steps()
    told = story()
    assert steps(told) == {0: 1.25, 1: 1.25, 2: 1.25}
    assert told.values("data_wait_seconds") == [0.5] * 3


def test_gradients_of_several_batches_are_one_step(
    program: Program, clock: FakeClock, story: Tell
) -> None:
    one = Optimizer()
    for _ in range(2):
        for _ in range(4):
            program.batch(0.5)
            clock.advance(1)
        program.update(one)
    program.no_more()
    told = story()
    assert steps(told) == {0: 6.5, 1: 6.5}
    waits = [e.edge for e in told.edges if e.name == "data_loading"]
    assert waits == [BEGIN, END] * 6  # and the first of each step is the step's own


def test_steps_go_on_where_a_segment_of_the_journal_ends(program: Program, story: Tell) -> None:
    one, many = Optimizer(), 35_000
    writer = program.loop.run._writer
    assert writer is not None and many * 64 > 2 * writer.segment_bytes
    for _ in range(many):
        program.batch(0.001)
        program.update(one, 0.004)
    program.tell.finish_steps()
    assert list(steps(story())) == list(range(many))


@pytest.mark.parametrize("wait, spans", [(20e-6, 6), (100e-6, 25), (1e-3, 200)])
def test_short_waits_inside_steps_are_told_together(
    wait: float, spans: int, program: Program, clock: FakeClock, story: Tell
) -> None:
    """Also those of several steps: a span for each would cost more than it tells."""
    one = Optimizer()
    for _ in range(100):
        for _ in range(3):
            program.batch(wait)
            clock.advance(1.5e-3)
        program.update(one, 0.5e-3)
    program.tell.finish_steps()
    told = story()
    edges = [e for e in told.edges if e.name == "data_loading"]
    seconds = sum(e.time_ns * (1 if e.edge == END else -1) for e in edges) / 1e9
    assert seconds == pytest.approx(100 * 2 * wait, abs=60e-6)
    assert len(edges) // 2 == pytest.approx(spans, abs=1)


@pytest.mark.parametrize("batches", [True, False])
def test_several_optimizers_in_turn_are_one_step(
    batches: bool, program: Program, story: Tell
) -> None:
    discriminator, generator = Optimizer(), Optimizer()
    for _ in range(4):
        if batches:
            program.batch()
        program.update(discriminator)
        program.update(generator)
    program.tell.finish_steps()
    assert steps(story()) == {0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0}


def test_a_second_optimizer_that_steps_now_and_then_adds_no_steps(
    program: Program, story: Tell
) -> None:
    critic, generator = Optimizer(), Optimizer()
    for number in range(20):
        program.update(critic)
        if number % 5 == 4:
            program.update(generator)
    program.tell.finish_steps()
    told = steps(story())
    assert list(told) == list(range(20))
    assert sum(told.values()) == 24.0


def test_inner_optimizers_that_come_and_go_add_no_steps(program: Program, story: Tell) -> None:
    outer = Optimizer()
    program.update(outer)
    for _ in range(5):
        for _ in range(3):
            inner = Optimizer()
            for _ in range(4):
                program.update(inner, 0.0625)
        program.update(outer, 0.25)
    program.tell.finish_steps()
    told = steps(story())
    assert list(told) == list(range(6))


def test_many_updates_by_one_batch_are_one_step_unless_batches_come_from_elsewhere(
    program: Program, story: Tell
) -> None:
    one = Optimizer()
    for _ in range(3):
        program.batch()
        program.update(one)
        program.update(one)
    program.batch()
    for _ in range(MANY + 10):
        program.update(one)
    program.tell.finish_steps()
    told = steps(story())
    assert list(told.values()) == [2.0] * 3 + [MANY] + [1.0] * 10


def test_a_trainer_leads_and_its_optimizer_is_silent(
    program: Program, clock: FakeClock, story: Tell
) -> None:
    one = Optimizer()
    tell = program.tell
    for number in (7, 8):
        program.batch(0.5)
        tell.step_began("transformers", number)
        clock.advance(1)
        program.update(one)
        tell.step_ended("transformers", number)
    tell.step_ended("accelerate", 70)
    tell.steps_over("transformers")
    assert steps(story()) == {7: 2.0, 8: 2.0}


def test_what_training_waits_for_is_no_part_of_a_step(
    program: Program, clock: FakeClock, story: Tell
) -> None:
    one = Optimizer()
    save = program.tell.timed("checkpoint_save", lambda: clock.advance(4))
    sure = program.tell.spanned("checkpoint_save", lambda: clock.advance(4))
    evaluate = program.tell.evaluating(lambda: clock.advance(8))
    for wait in (save, sure, evaluate):
        program.batch()
        program.update(one)
        clock.advance(0.5)
        wait()
    program.no_more()
    program.tell.finish_steps()
    assert steps(story()) == {0: 1.5, 1: 1.5, 2: 1.5}


def test_a_new_loop_goes_on_counting_and_a_resumed_one_knows_its_step(
    program: Program, story: Tell
) -> None:
    tell = program.tell
    for after in (0, 0, 7):
        tell.steps_begin("transformers", after)
        for number in (after + 1, after + 2):
            tell.step_began("transformers", number)
            tell.step_ended("transformers", number)
        tell.steps_over("transformers")
    assert list(steps(story())) == [1, 2, 3, 4, 8, 9]


def test_a_source_that_only_says_that_steps_end(
    program: Program, clock: FakeClock, story: Tell
) -> None:
    for number in (None, None, 5):
        clock.advance(1)
        program.tell.step_ended("deepspeed", number)
    assert steps(story()) == {0: 0.0, 1: 1.0, 5: 1.0}


def test_another_loop_may_follow_one_that_is_over(program: Program, story: Tell) -> None:
    one = Optimizer()
    program.tell.step_began("keras", 0)
    program.tell.step_ended("keras", 0)
    program.tell.steps_over("keras")
    for _ in range(3):
        program.update(one)
    program.tell.finish_steps()
    assert list(steps(story())) == [0, 1, 2, 3]


def test_steps_that_the_program_takes_silence_the_hooks(
    run: Run, program: Program, clock: FakeClock, story: Tell
) -> None:
    one = Optimizer()
    for _ in run.steps(range(3)):
        program.batch()
        program.update(one)
    program.tell.step_ended("transformers", 9)
    program.tell.finish_steps()
    assert steps(story()) == {0: 1.0, 1: 1.0, 2: 1.0}


def test_steps_that_the_program_begins_to_take_later_silence_the_hooks(
    run: Run, program: Program, story: Tell
) -> None:
    """Its optimizer steps inside them, as one did in the steps that hooks told."""
    one, stepped = Optimizer(), Optimizers(program.tell).after_step()
    for number in range(6):
        program.batch(0.5)
        program.clock.advance(1)
        with run.step(number + 50) if number > 3 else nullcontext():
            stepped(one, (), {})
    program.no_more()
    program.tell.finish_steps()
    assert story().steps("step_seconds") == [0, 1, 2, 3, 54, 55]


def test_steps_that_a_goodput_recorder_tells_silence_the_hooks(
    clock: FakeClock, story: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = front.init("recorded", auto=True)
    tell = run._hooks._tell
    recorder = GoodputRecorder("recorded", "log", logging_enabled=True)
    one = Optimizer()
    for number in range(3):
        recorder.record_step_start_time(number)
        assert tell.loop is not None
        tell.loop.updated(one)
    told = story()
    assert steps(told) == {}
    assert len(told.values("goodput.step_start_time")) == 3


def test_optimizers_of_other_threads_are_not_steps(program: Program, story: Tell) -> None:
    one, other = Optimizer(), Optimizer()
    program.update(one)
    thread = threading.Thread(target=program.update, args=(other,))
    thread.start()
    thread.join()
    program.update(one)
    program.tell.finish_steps()
    assert list(steps(story())) == [0, 1]


def test_a_step_without_its_end_is_not_completed(program: Program, story: Tell) -> None:
    program.update(Optimizer())
    program.loop.began(OPTIMIZERS)
    program.tell.finish_steps()
    assert list(steps(story())) == [0]


def test_profiles_hear_of_hooked_steps(run: Run, program: Program) -> None:
    seen: list[tuple[int, bool]] = []
    run._at_step = lambda number, begins: seen.append((number, begins))
    for number in (0, 1):
        program.tell.step_began("lightning", number)
        program.tell.step_ended("lightning", number)
    assert seen == [(0, True), (0, False), (1, True), (1, False)]


def test_what_is_told_inside_a_trainers_own_logging_is_told_once(
    run: Run, program: Program, story: Tell
) -> None:
    tell = program.tell
    tell.metrics({"loss": 1.0}, step=3)
    with tell.alone():
        tell.metrics({"train/loss": 1.0}, step=3)
    tell.epoch(2)
    with tell.span("evaluation"):
        pass
    told = story()
    assert told.values("loss") == [1.0]
    assert told.values("train/loss") == []
    assert told.values("epoch") == [2.0]
    assert [e.name for e in told.edges] == ["evaluation"] * 2
