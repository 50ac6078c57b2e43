"""No alarm while a run is well, and one within its limit when it is not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.record import BEGIN, END
from runwatch.views.diagnosis.progress import Ended, Progress, Stall, ranks_in_words
from runwatch.views.pace import Limits

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


@dataclass
class Job:
    """A job in lock step: every step takes as long as its slowest rank."""

    seed: int
    world: int = 4
    step_seconds: float = 1.0
    sigma: float = 0.2
    slow_rank: float = 1.0
    checkpoint_every: int = 0
    checkpoint_seconds: float = 0.0
    announced: bool = True
    evaluate_every: int = 0
    evaluate_seconds: float = 0.0
    compile_at: tuple[int, ...] = ()
    compile_seconds: float = 0.0
    garbage_every: int = 0
    growth: float = 1.0

    def __post_init__(self) -> None:
        self.progress = Progress()
        self.now = START
        self.false_alarms: list[Stall] = []
        self._random = random.Random(self.seed)
        for rank in range(self.world):
            self.progress.saw_start(rank, START, 1)

    def run(self, seconds: float) -> None:
        self._pass(60.0)  # start-up
        step = 0
        while self.now < START + seconds * SECOND:
            self._step(step)
            step += 1

    def _step(self, step: int) -> None:
        self._pass(0.01 * self.step_seconds)  # the data
        begin = self.now
        for rank in range(self.world):
            self.progress.saw_step_begin(rank, begin)
        if step in self.compile_at:
            self._span("compile", range(self.world), self.compile_seconds)
        usual = self.step_seconds * self.growth**step
        took = max(
            usual * self._random.lognormvariate(0, self.sigma) * (self.slow_rank if not rank else 1)
            for rank in range(self.world)
        )
        took += 3.0 if self.garbage_every and step % self.garbage_every == 7 else 0.0
        if not self.announced and self.checkpoint_every and step % self.checkpoint_every == 9:
            took += self.checkpoint_seconds
        self._pass(took)
        for rank in range(self.world):
            self.progress.saw_step(rank, step, begin, self.now)
        if self.announced and self.checkpoint_every and step % self.checkpoint_every == 9:
            self._span("checkpoint_save", [0], self.checkpoint_seconds)
        if self.evaluate_every and step % self.evaluate_every == 11:
            self._span("evaluation", range(self.world), self.evaluate_seconds)

    def _span(self, name: str, ranks: range | list[int], seconds: float) -> None:
        for rank in ranks:
            self.progress.saw_span(rank, name, BEGIN, self.now)
        self._pass(seconds)
        for rank in ranks:
            self.progress.saw_span(rank, name, END, self.now)

    def _pass(self, seconds: float) -> None:
        """Nothing happens for so long; whoever watches, looks just before something does."""
        self.now += int(seconds * SECOND)
        alarm = self.progress.verdict(self.now)
        if alarm is not None:
            self.false_alarms.append(alarm)


HEALTHY = {
    "short steps": Job(1, step_seconds=0.2),
    "jitter": Job(2, sigma=0.5),
    "long steps": Job(3, step_seconds=40.0, sigma=0.3),
    "straggler": Job(4, slow_rank=1.5, sigma=0.3),
    "checkpoints": Job(5, checkpoint_every=100, checkpoint_seconds=90.0),
    "short checkpoints that nobody announces": Job(
        6, step_seconds=0.5, checkpoint_every=50, checkpoint_seconds=8.0, announced=False
    ),
    "evaluation": Job(7, evaluate_every=200, evaluate_seconds=240.0),
    "compiles": Job(8, compile_at=(0, 1, 2, 300, 500), compile_seconds=180.0),
    "garbage": Job(9, step_seconds=0.3, garbage_every=90),
    "growing steps": Job(10, step_seconds=0.5, growth=1.005),
    "all of it": Job(
        11,
        sigma=0.4,
        slow_rank=1.5,
        checkpoint_every=100,
        checkpoint_seconds=60.0,
        evaluate_every=250,
        evaluate_seconds=120.0,
        compile_at=(0, 1, 400),
        compile_seconds=60.0,
        garbage_every=70,
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_thirty_minutes_of_a_healthy_run_raise_no_alarm(name: str) -> None:
    job = HEALTHY[name]
    job.run(1800)
    assert job.false_alarms == []
    limit = job.progress.limit_ns()
    assert job.progress.verdict(job.now + limit + SECOND) is not None
    assert limit < 600 * SECOND


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_healthy_runs_of_any_kind_raise_no_alarm(seed: int) -> None:
    chance = random.Random(seed)
    job = Job(
        seed,
        world=chance.choice([1, 2, 8]),
        step_seconds=10 ** chance.uniform(-1, 1.5),
        sigma=chance.uniform(0.01, 0.5),
        slow_rank=chance.uniform(1, 2),
        checkpoint_every=chance.choice([0, 20, 200]),
        checkpoint_seconds=chance.uniform(1, 300),
        evaluate_every=chance.choice([0, 150]),
        evaluate_seconds=chance.uniform(1, 500),
        compile_at=(0, chance.randrange(3, 500)),
        compile_seconds=chance.uniform(1, 500),
    )
    job.run(1800)
    assert job.false_alarms == []


def test_an_unannounced_pause_alarms_once_and_is_then_known() -> None:
    job = Job(12, step_seconds=0.5, checkpoint_every=200, checkpoint_seconds=40.0, announced=False)
    job.run(1800)
    assert len(job.false_alarms) == 1


def trained(steps: int = 20, world: int = 4, limits: Limits | None = None) -> tuple[Progress, int]:
    progress, now = Progress(limits), START
    for rank in range(world):
        progress.saw_start(rank, now, 1)
    for step in range(steps):
        begin, now = now, now + SECOND
        for rank in range(world):
            progress.saw_step_begin(rank, begin)
            progress.saw_step(rank, step, begin, now)
    return progress, now


def first_alarm(progress: Progress, now: int, seconds: int = 3600) -> tuple[int, Stall]:
    for later in range(seconds):
        if (stall := progress.verdict(now + later * SECOND)) is not None:
            return later, stall
    raise AssertionError("no alarm")


def test_a_run_that_stands_still_is_stalled_after_its_limit() -> None:
    progress, now = trained()
    later, stall = first_alarm(progress, now)
    assert stall.kind == "run" and stall.ranks == (0, 1, 2, 3)
    assert (later - 1) * SECOND <= stall.limit_ns <= later * SECOND == 11 * SECOND
    assert stall.since_ns == now
    assert stall.last_steps == {0: 19, 1: 19, 2: 19, 3: 19}
    assert "no rank has made progress since 2023-11-14T22:13:40Z" in stall.text
    assert stall.to_json()["usual_seconds"] == pytest.approx(1.0)


def test_long_steps_are_given_five_times_what_they_usually_take() -> None:
    progress, now = Progress(), START
    for step in range(20):
        begin, now = now, now + 30 * SECOND
        progress.saw_step(0, step, begin, now)
    assert first_alarm(progress, now)[0] == 151


def test_nothing_is_said_of_a_run_that_starts_until_it_takes_very_long() -> None:
    progress = Progress()
    progress.saw_start(0, START, 1)
    later, stall = first_alarm(progress, START)
    assert later == 901
    assert stall.usual_ns is None and stall.limit_ns == 900 * SECOND


def test_the_first_steps_do_not_say_what_is_usual() -> None:
    progress, now = Progress(), START
    for step, took in enumerate([300, 60, 60, *[1] * 10]):
        begin, now = now, now + took * SECOND
        progress.saw_step(0, step, begin, now)
    assert progress.limit_ns() == 10 * SECOND


def test_a_checkpoint_of_one_rank_excuses_all() -> None:
    progress, now = trained()
    progress.saw_span(0, "checkpoint_save", BEGIN, now)
    assert progress.verdict(now + 599 * SECOND) is None
    stall = progress.verdict(now + 601 * SECOND)
    assert stall is not None and stall.open_spans[0] == {"checkpoint_save": now}


def test_a_kind_of_span_that_takes_long_is_given_longer() -> None:
    progress, now = trained()
    for number in range(4):
        progress.saw_span(0, "evaluation", BEGIN, now, number)
        now += 300 * SECOND
        progress.saw_span(0, "evaluation", END, now, number)
    progress.saw_span(0, "evaluation", BEGIN, now, 9)
    assert progress.verdict(now + 1490 * SECOND) is None
    assert progress.verdict(now + 1510 * SECOND) is not None


def test_a_span_of_the_users_own_is_learned() -> None:
    progress, now = trained()
    progress.saw_span(0, "render", BEGIN, now, 1)
    assert progress.verdict(now + 300 * SECOND) is None, "never seen to end"
    for number in range(2, 6):
        progress.saw_span(0, "render", END, now + 4 * SECOND, number - 1)
        now += 4 * SECOND
        progress.saw_span(0, "render", BEGIN, now, number)
    assert progress.verdict(now + 19 * SECOND) is None
    assert progress.verdict(now + 21 * SECOND) is not None


def test_a_span_around_the_steps_is_no_excuse() -> None:
    progress = Progress()
    now = START
    progress.saw_span(0, "epoch", BEGIN, now)
    for step in range(20):
        begin, now = now, now + SECOND
        progress.saw_step_begin(0, begin)
        progress.saw_step(0, step, begin, now)
    assert first_alarm(progress, now)[0] == 11


def test_long_spans_inside_others_do_not_raise_the_limit() -> None:
    progress = Progress()
    now = START
    progress.saw_span(0, "epoch", BEGIN, now)
    for step in range(30):
        begin, now = now, now + SECOND
        progress.saw_step_begin(0, begin)
        progress.saw_span(0, "forward", BEGIN, begin, "forward")
        if step == 15:
            progress.saw_span(0, "compile", BEGIN, now, "compile")
            now += 200 * SECOND
            progress.saw_span(0, "compile", END, now, "compile")
        progress.saw_span(0, "forward", END, now, "forward")
        progress.saw_step(0, step, begin, now)
        if step == 20:
            progress.saw_span(0, "checkpoint_save", BEGIN, now, "save")
            now += 100 * SECOND
            progress.saw_span(0, "checkpoint_save", END, now, "save")
    assert progress.limit_ns() == 10 * SECOND


def test_waiting_for_data_is_no_excuse() -> None:
    progress, now = trained()
    progress.saw_span(2, "data_loading", BEGIN, now)
    assert first_alarm(progress, now)[0] == 11


def test_a_span_in_the_background_neither_excuses_nor_counts() -> None:
    progress, now = trained()
    progress.saw_span(0, "checkpoint_save/background", BEGIN, now)
    assert first_alarm(progress, now)[0] == 11


def test_a_compilation_that_is_told_at_its_end_does_not_raise_the_limit() -> None:
    progress, now = trained()
    before = progress.limit_ns()
    begin, now = now, now + 100 * SECOND
    progress.saw_elapsed(0, "compile", now, 99 * SECOND)
    progress.saw_step(0, 20, begin, now)
    assert progress.limit_ns() == before


def test_ranks_that_have_ended_do_not_stall_but_those_that_wait_for_them_do() -> None:
    progress, now = trained()
    progress.saw_end(3, Ended(now, ok=False, signal="SIGKILL"))
    later, stall = first_alarm(progress, now)
    assert later == 11 and stall.ranks == (0, 1, 2)
    assert "rank 3 was killed by SIGKILL" in stall.text


def test_a_run_that_has_ended_is_not_stalled() -> None:
    progress, now = trained()
    for rank in range(4):
        progress.saw_end(rank, Ended(now))
    assert progress.verdict(now + 3600 * SECOND) is None


def test_one_rank_stands_still_while_the_others_go_on() -> None:
    progress, now = trained()
    for step in range(20, 40):
        begin, now = now, now + SECOND
        for rank in (0, 1, 3):
            progress.saw_step(rank, step, begin, now)
    stall = progress.verdict(now)
    assert stall is not None and stall.kind == "rank" and stall.ranks == (2,)
    assert stall.text.startswith("rank 2 made no progress since")


def test_a_rank_that_never_takes_a_step_is_not_waited_for() -> None:
    progress, now = trained(world=2)
    progress.saw_start(7, now, 1)
    assert first_alarm(progress, now)[0] == 11
    progress.saw_span(7, "evaluation", BEGIN, now)
    assert progress.verdict(now + 60 * SECOND) is None, "but it may have a reason"


def test_ranks_that_are_out_of_reach_are_not_stalled() -> None:
    progress, now = trained()
    for rank in range(4):
        progress.saw(rank, now, heartbeat=True)
    for later in range(200):
        for rank in (0, 1):
            progress.saw(rank, now + later * SECOND, heartbeat=True)
    stall = progress.verdict(now + 200 * SECOND)
    assert stall is not None and stall.ranks == (0, 1) and stall.silent == (2, 3)
    assert progress.verdict(now + 400 * SECOND) is None, "nobody is heard: contact is lost"


def test_a_new_attempt_begins_afresh_but_knows_what_is_usual() -> None:
    progress, now = trained()
    progress.saw_start(0, now, 2)
    assert progress.ranks() == [0]
    assert progress.verdict(now + 60 * SECOND) is None
    progress.saw_start(1, now, 1)
    assert progress.ranks() == [0], "a late word of the attempt before"
    assert progress.limit_ns() == 10 * SECOND


def test_the_limits_are_settings() -> None:
    progress, now = trained(limits=Limits(factor=20.0, floor_seconds=1.0))
    assert first_alarm(progress, now)[0] == 21


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.001, 50.0), min_size=4, max_size=80),
    st.integers(1, 5),
    st.integers(0, 1000),
)
def test_an_alarm_comes_exactly_after_the_limit(
    took: list[float], world: int, wait_seconds: int
) -> None:
    progress, now = Progress(), START
    for step, seconds in enumerate(took):
        begin, now = now, now + int(seconds * SECOND)
        for rank in range(world):
            progress.saw_step(rank, step, begin, now)
    later = now + wait_seconds * SECOND
    stalled = progress.verdict(later) is not None
    assert stalled == (later - now > progress.limit_ns())
    assert progress.limit_ns() >= 10 * SECOND


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(6)), st.integers(4, 30))
def test_the_order_in_which_ranks_tell_of_a_step_does_not_matter(
    order: list[int], steps: int
) -> None:
    def told(ranks: Callable[[], Iterator[int]]) -> Progress:
        progress = Progress()
        for step in range(steps):
            for rank in ranks():
                begin = START + step * SECOND
                progress.saw_step(rank, step, begin, begin + SECOND - rank * 1000)
        return progress

    one, other = told(lambda: iter(range(6))), told(lambda: iter(order))
    assert one.limit_ns() == other.limit_ns()
    for later in (5, 11, 600):
        now = START + (steps + later) * SECOND
        assert one.verdict(now) == other.verdict(now)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([7], "rank 7"),
        ([0, 1], "ranks 0, 1"),
        ([0, 1, 2, 6, 5, 9], "ranks 0–2, 5, 6, 9"),
        (range(1024), "ranks 0–1023"),
    ],
)
def test_ranks_in_words(ranks: list[int], words: str) -> None:
    assert ranks_in_words(ranks) == words


def test_a_useful_span_goes_by_its_plain_name() -> None:
    progress = Progress()
    progress.saw_start(0, 0)
    progress.saw_span(0, "rollout/useful", BEGIN, 5, span=1)
    assert progress.open_spans(0) == {"rollout": 5}
    progress.saw_span(0, "rollout/useful", END, 9, span=1)
    assert progress.open_spans(0) == {}
