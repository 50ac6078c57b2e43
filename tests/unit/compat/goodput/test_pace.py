from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.goodput_utils import compute_step_deviation_from_baseline
from runwatch.compat.goodput.monitor import pace as pace_module
from runwatch.compat.goodput.monitor.pace import Pace
from tests.unit.compat.goodput.monitor_help import START, HandClock, MemoryLog


def history(seed: int, attempts: int) -> Iterator[tuple[int, float]]:
    """(step, when it began) of a job that loses a few steps at each of its restarts."""
    chance = random.Random(seed)
    step, at = 0, START + 10.0
    for _ in range(attempts):
        for _ in range(chance.randint(1, 60)):
            yield step, at
            step += 1
            at += chance.choice((1.5, 2.0, 2.0, 2.1, 9.0))
        step = max(step - chance.randint(0, 9), 0)
        at += 100


def job() -> tuple[MemoryLog, GoodputCalculator]:
    log = MemoryLog()
    log.start()
    return log, GoodputCalculator("job", "logger", log, clock=HandClock(START + 10**6))


@pytest.mark.parametrize("seed", range(20))
def test_followed_in_any_portions_it_is_what_the_calculator_says(seed: int) -> None:
    log, calculator = job()
    pace, chance = Pace(), random.Random(seed)
    for step, at in history(seed, attempts=1 + seed % 5):
        log.add(step_count=step, step_start_time=at)
        log.add(data_loading_start_time=at + 0.1)
        if chance.random() < 0.1:
            pace.follow(calculator)
    pace.follow(calculator)
    try:
        expected = calculator.get_step_deviation()
    except ValueError:
        expected = {}
    assert dict(pace.deviations(None)) == pytest.approx(expected)
    late = compute_step_deviation_from_baseline(expected) if expected else None
    assert pace.deviation() == (None if late is None else pytest.approx(late))


def test_only_what_is_new_is_told() -> None:
    log, calculator = job()
    log.steps(0, 9, at=10)
    pace = Pace(2.5)
    pace.follow(calculator)
    assert dict(pace.deviations(5)) == {6: 0.5, 7: 0.5, 8: 0.5}
    assert list(pace.deviations(8)) == []
    log.steps(10, 11, at=40)
    pace.follow(calculator)
    assert [step for step, _ in pace.deviations(8)] == [9, 10]


def test_before_there_are_two_steps_nothing_is_known() -> None:
    log, calculator = job()
    pace = Pace()
    for _ in range(2):
        pace.follow(calculator)
        assert pace.ideal is None
        assert pace.deviation() is None
        assert list(pace.deviations(None)) == []
        log.steps(7, 7, at=10)


def test_a_step_that_came_late_changes_what_was_told() -> None:
    log, calculator = job()
    pace = Pace(3.0)
    log.steps(0, 4, at=10)
    log.steps(6, 9, at=28)
    pace.follow(calculator)
    assert 5 not in dict(pace.deviations(None))
    log.entries.insert(6, {"job_name": "job", "step_count": 5, "step_start_time": START + 26.0})
    log.read_again = True
    pace.follow(calculator)
    assert dict(pace.deviations(None)) == pytest.approx(calculator.get_step_deviation(3.0))
    assert dict(pace.deviations(None))[4] == pytest.approx(1.0)


def test_a_long_jobs_ideal_comes_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_module, "_SAMPLE", 100)
    log, calculator = job()
    for step, at in history(3, attempts=1):
        log.add(step_count=step, step_start_time=at)
    log.steps(1000, 3000, at=5000, seconds=2.0)
    pace = Pace()
    pace.follow(calculator)
    assert len(pace._sample()) < 300
    assert pace.ideal == pytest.approx(2.0, rel=0.01)
