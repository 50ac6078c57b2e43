from __future__ import annotations

import gc
from pathlib import Path

import pytest

from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.calculator.elastic import ElasticGoodputCalculator
from runwatch.compat.goodput.calculator.quiet import in_kinds
from runwatch.compat.goodput.goodput_utils import BadputType
from runwatch.compat.goodput.log.recorder import GoodputRecorder
from runwatch.views.goodput.account import Account
from tests.unit.compat.goodput.support import BEGIN, Fixed, MemoryLog, told, when

SECOND = 1_000_000_000


def account(**seconds: float) -> Account:
    spent = {"productive": 0, "excluded": 0}
    spent |= {name.replace("__", ":"): int(s * SECOND) for name, s in seconds.items()}
    return Account(0, sum(spent.values()), spent)


def test_classes_become_kinds_and_none_is_lost() -> None:
    found = in_kinds(
        account(
            productive=40, stall=10, slow_steps=5, checkpoint_save=20, custom__eval=4, excluded=100,
            of_a_later_release=21,
        ),
        [BadputType.TRAINING_PREP],
        may_be_productive=True,
    )  # fmt: skip
    assert (found.productive, found.total, found.goodput_percent) == (40.0, 100.0, 40.0)
    assert found.badput == {
        BadputType.TRAINING_PREP: 0.0,
        BadputType.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME: 20.0,
        BadputType.OTHER: 36.0,
        BadputType.CUSTOM_BADPUT_EVENTS: {"EVAL": 4.0},
    }
    assert found.badput_percent == found.badput


def test_what_fills_a_window_is_all_of_it() -> None:
    found = in_kinds(account(stall=30), [], may_be_productive=True)
    assert found.badput_percent[BadputType.OTHER] == 100.0


def test_a_window_without_time_has_no_shares() -> None:
    for empty in (account(), account(excluded=10)):
        with pytest.raises(ValueError, match="did not run"):
            in_kinds(empty, [], may_be_productive=True)


@pytest.mark.parametrize("kind", [GoodputCalculator, ElasticGoodputCalculator])
def test_the_kinds_are_those_of_the_calculator(kind: type[GoodputCalculator]) -> None:
    log = MemoryLog(told("J 0; S 0 5; S 1 8; S 2 11; S 3 14"))
    asked = kind("job", "log", log, clock=Fixed(BEGIN + 500))
    _, badput, *_ = asked.get_job_goodput_interval(when(-1), when(20))
    assert asked.get_quiet_interval(when(440), when(500)).badput_percent.keys() == badput.keys()
    hung = asked.get_quiet_interval(when(10), when(70))
    assert 4 <= hung.productive < 60 == hung.total  # at least the rest of the step before
    spent = [seconds for seconds in hung.badput.values() if isinstance(seconds, float)]
    assert hung.productive + sum(spent) == pytest.approx(60.0)
    with pytest.raises(ValueError, match="time zone"):
        asked.get_quiet_interval(when(10).replace(tzinfo=None), when(70))


def test_a_hang_that_journals_tell_of(place: Path) -> None:
    recorder = GoodputRecorder("job", "log", True)
    recorder.record_job_start_time(when(0))
    for number in range(10):
        recorder.record_step_start_time(number, when(10 + 3 * number))
    asked = GoodputCalculator("job", "log", clock=Fixed(BEGIN + 500))
    window = when(440), when(500)
    assert asked.get_interval_metric_details(*window)["interval_goodput"] == {}
    assert asked.get_quiet_interval(*window).goodput_percent == 0.0
    del asked
    gc.collect()  # it follows the journal, and the fixture looks for open files
