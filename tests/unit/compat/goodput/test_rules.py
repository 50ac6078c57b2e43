"""The original's rules, one by one, and that batches do not matter."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.calculator.rules import Figures, Fold, accounted, checked, shares
from runwatch.compat.goodput.goodput_utils import BadputType, UnproductiveTimeDict
from tests.unit.compat.goodput.support import (
    BEGIN,
    DISRUPTED,
    Entry,
    by_name,
    step,
    stories,
    told,
)


def folded(entries: list[Entry], *cuts: int) -> Figures:
    history = History()
    fold = Fold(history)
    for start, end in pairwise((0, *sorted(cuts), len(entries))):
        history.add(entries[start:end])
        fold.advance()
    return fold.figures()


def seconds(figures: Figures) -> dict[str, Any]:
    """What there is of each kind."""
    badput = {name: amount for name, amount in by_name(figures.badput).items() if amount}
    return {"productive": figures.productive, **badput}


class TestWorkedExamples:
    def test_1_a_plain_job(self) -> None:
        figures = folded(told("J 0; S 0 5; S 1 8; S 2 11; S 3 14; S 4 17; j 20"))
        assert seconds(figures) == {"productive": 15}
        assert figures.max_productive_step == 4
        assert figures.start == BEGIN and figures.end == BEGIN + 20

    def test_2_a_slow_firststep(self) -> None:
        figures = folded(told("J 0; S 0 5; S 1 13; S 2 16; S 3 19; S 4 22; j 25"))
        assert seconds(figures) == {"productive": 15, "PROGRAM_STARTUP": 5}

    def test_3_a_disruption(self) -> None:
        figures = folded(told(DISRUPTED))
        assert seconds(figures) == {
            "productive": 15,
            "PROGRAM_STARTUP": 10,
            "WASTED_PROGRESS_FROM_DISRUPTION": 6,
            "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION": 8,
            "TPU_INITIALIZATION": 1,
            "TRAINING_PREP": 2,
            "DATA_LOADING_SYNC": 4,  # the one load of 2 s counts again at the restart (B19)
            "DATA_LOADING_ASYNC": -2,
        }
        assert figures.disruptions == 1 and figures.max_productive_step == 4

    def test_4_a_custom_event(self) -> None:
        steps = "; ".join(f"S {n} {5 + 3 * n + (5 if n > 4 else 0)}" for n in range(10))
        figures = folded(told(f"J 0; {steps}; C eval_step 18; c eval_step 23; j 40"))
        assert figures.productive == 30
        assert by_name(figures.badput)["CUSTOM_BADPUT_EVENTS"] == {"EVAL_STEP": 5}

    def test_5_checkpoints(self) -> None:
        story = "J 0; S 0 5; S 1 8; V 1 gs://a 6 9; S 2 17; T 2 gs://a 2 18; S 3 20; j 23"
        assert seconds(folded(told(story))) == {
            "productive": 18 - 6,
            "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME": 6,
            "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME": 2,
        }


class TestSteps:
    @pytest.mark.parametrize(
        ("story", "productive", "last"),
        [
            pytest.param("J 0; S 7 5; j 9", 4, 7, id="one step, and the end"),
            pytest.param("J 0; S 7 5", 0, 0, id="one step is not known to be done"),
            pytest.param("J 0; S 0 5; S 1 8; S 2 11", 6, 1, id="the last one goes on"),
            pytest.param("J 0; S 0 5; S 1 8; S 5 20; S 6 27; j 30", 13, 6, id="a gap"),
            pytest.param("J 0; S 0 5; S 5 8; S 10 20; j 30", 10, 10, id="every fifth (B13)"),
            pytest.param("J 0; S 5 5; S 6 8; S 3 20; S 4 23", 6, 3, id="numbers that go back"),
            pytest.param("J 0; S 0 5; S 1 8; S 2 6; S 3 9; j 12", 9, 3, id="a clock set back"),
            pytest.param("J 0; I 1; i 2; j 9", 0, 0, id="no steps"),
        ],
    )
    def test_productive_time(self, story: str, productive: float, last: int) -> None:
        figures = folded(told(story))
        startup = by_name(figures.badput)["PROGRAM_STARTUP"]
        assert figures.productive + startup == productive
        assert figures.max_productive_step == last

    def test_what_is_redone_is_wasted_once(self) -> None:
        first = "J 0; S 0 0; S 1 10; S 2 20; S 3 30; "
        figures = folded(told(first + "S 2 40; S 3 50; S 4 60; S 3 70; S 4 80; S 5 90"))
        assert figures.disruptions == 2
        assert figures.productive == 20 + 10 + 20
        assert by_name(figures.badput)["WASTED_PROGRESS_FROM_DISRUPTION"] == 10 + 10

    def test_a_run_that_meets_steps_already_done_is_a_disruption(self) -> None:
        story = "J 0; S 5 0; S 6 10; S 3 20; S 4 30; S 5 40; S 6 50"
        figures = folded(told(story))
        assert figures.disruptions == 1
        assert by_name(figures.badput)["WASTED_PROGRESS_FROM_DISRUPTION"] == 10

    def test_a_job_that_starts_all_over_loses_it_to_nothing(self) -> None:
        """B10: pinned; it falls to OTHER."""
        figures = folded(told("J 0; S 0 0; S 1 10; S 2 20; S 0 30; S 1 40; j 50"))
        assert seconds(figures) == {"productive": 20}

    def test_resuming_with_the_next_step_is_no_disruption(self) -> None:
        """B4: pinned; an outage of 890 s counts as productive."""
        figures = folded(told("J 0; S 0 0; S 1 10; J 900; S 2 910; S 3 920; j 930"))
        assert figures.disruptions == 0
        assert figures.productive == 930

    @given(st.lists(st.integers(0, 30), max_size=60))
    def test_any_order_of_steps_is_cut_where_one_comes_again(self, numbers: list[int]) -> None:
        entries = [step(number, second) for second, number in enumerate(numbers)]
        seen: set[int] = set()
        disruptions = 0
        for number in numbers:
            if number in seen:
                disruptions, seen = disruptions + 1, set()
            seen.add(number)
        figures = folded(entries)
        assert figures.disruptions == disruptions
        assert figures.last_step == max(seen, default=0)


class TestPairs:
    def test_a_start_holds_until_its_end_or_another_start(self) -> None:
        figures = folded(told("J 0; I 1; I 3; i 4; i 9; P 5; I 6; i 8; j 10"))
        assert seconds(figures) == {"productive": 0, "TPU_INITIALIZATION": 3}

    def test_recovery_is_from_the_last_step_to_the_next_start(self) -> None:
        figures = folded(told("J 0; S 1 1; S 2 5; J 20; J 25; S 2 30; j 31"))
        assert by_name(figures.badput)["INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"] == 20

    def test_loads_in_the_loop_are_told_apart(self) -> None:
        """B6: pinned; they are not taken from productive time."""
        figures = folded(told("J 0; L 0; l 2; S 0 2; L 3; l 6; S 1 7; L 8; l 9; S 2 12; j 17"))
        assert seconds(figures) == {
            "productive": 15,
            "DATA_LOADING_SYNC": 2,
            "DATA_LOADING_ASYNC": 4,
        }

    @pytest.mark.parametrize(
        ("events", "counted"),
        [
            pytest.param("C e 12; c e 15", 3, id="in a step"),
            pytest.param("C e 10; c e 20", 10, id="all of a step"),
            pytest.param("C e 12; C e 13; c e 15; c e 16", 2, id="the last start counts"),
            pytest.param("C e 15; c e 12", 0, id="backwards"),
            pytest.param("C e 12", 0, id="without an end"),
            pytest.param("c e 12", 0, id="without a start"),
        ],
    )
    def test_custom_events(self, events: str, counted: float) -> None:
        figures = folded(told(f"J 0; S 0 0; S 1 10; {events}; S 2 20; S 3 30; j 40"))
        told_of = by_name(figures.badput)["CUSTOM_BADPUT_EVENTS"]
        assert told_of == ({"E": counted} if counted else {})
        assert figures.productive == pytest.approx(40 - counted - _startup(figures))

    @pytest.mark.parametrize("where", ["S 2 20; C e 18; c e 22", "C e 18; S 2 20; c e 22"])
    def test_events_across_steps_are_left_out(self, where: str) -> None:
        """B20: pinned."""
        figures = folded(told(f"J 0; S 0 0; S 1 10; {where}; S 3 30; j 40"))
        assert by_name(figures.badput)["CUSTOM_BADPUT_EVENTS"] == {}

    def test_events_recorded_later_still_count(self) -> None:
        in_time = told("J 0; S 1 1; S 2 10; C e 12; c e 15; S 3 20; S 4 30; S 3 41; S 4 50; j 60")
        events = [entry for entry in in_time if "custom_badput_event_type" in entry]
        others = [entry for entry in in_time if entry not in events]
        assert folded([*others, *events]) == folded(in_time)

    def test_events_in_wasted_steps_are_wasted(self) -> None:
        figures = folded(told("J 0; S 1 1; S 2 10; C e 12; c e 15; S 3 20; S 2 30; S 3 40; j 50"))
        assert by_name(figures.badput)["CUSTOM_BADPUT_EVENTS"] == {}
        assert by_name(figures.badput)["WASTED_PROGRESS_FROM_DISRUPTION"] == 10

    def test_hosts_that_save_together_are_averaged(self) -> None:
        story = "J 0; S 0 0; V 0 gs://a 4 1; V 0 gs://b 8 1; V 0 /a 3 1; V 1 s3://c 1 11; j 20"
        figures = folded(told(story))
        assert by_name(figures.badput)["UNPRODUCTIVE_CHECKPOINT_SAVE_TIME"] == 6 + 3 + 1


def _startup(figures: Figures) -> float:
    startup = figures.badput[BadputType.PROGRAM_STARTUP]
    assert isinstance(startup, float)
    return startup


class TestWhatIsMadeOfThem:
    def test_what_does_not_fit_is_nothing_and_the_rest_is_other(self) -> None:
        badput: UnproductiveTimeDict = {
            BadputType.TPU_INITIALIZATION: 101.0,
            BadputType.TRAINING_PREP: -1.0,
            BadputType.PROGRAM_STARTUP: 10.0,
            BadputType.DATA_LOADING_ASYNC: 30.0,
            BadputType.CUSTOM_BADPUT_EVENTS: {"A": 5.0, "B": 200.0},
        }
        assert by_name(accounted(60, badput, 100)) == {
            "TPU_INITIALIZATION": 0,
            "TRAINING_PREP": 0,
            "PROGRAM_STARTUP": 10,
            "DATA_LOADING_ASYNC": 30,  # told, but beside the rest
            "CUSTOM_BADPUT_EVENTS": {"A": 5, "B": 0},
            "OTHER": 25,
        }

    def test_other_is_never_below_nothing(self) -> None:
        """B9: pinned; kinds overlap, and their sum may pass the total."""
        badput = {BadputType.TPU_INITIALIZATION: 50.0, BadputType.TRAINING_PREP: 50.0}
        assert accounted(60, badput, 100)[BadputType.OTHER] == 0

    def test_what_fills_everything_shows_as_nothing(self) -> None:
        badput: UnproductiveTimeDict = {BadputType.OTHER: 100.0, BadputType.TRAINING_PREP: 99.0}
        assert by_name(shares(badput, 100)) == {"OTHER": 0, "TRAINING_PREP": 99}

    def test_productive_time_fits_into_the_total(self) -> None:
        assert checked(100.0, 100.0) == 100
        with pytest.raises(ValueError, match=r"101\.000 s of a total of 100\.000 s.*job_end_time"):
            checked(101, 100)
        with pytest.raises(ValueError, match=r"-1\.000 s"):
            checked(-1, 100)


# ── batches ───────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=200)
@given(stories(), st.data())
def test_batches_do_not_matter(entries: list[Entry], data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(entries)), max_size=10))
    in_batches, afresh = folded(entries, *cuts), folded(entries)
    assert in_batches == afresh


@given(stories(), st.data())
def test_asking_in_between_does_not_matter(entries: list[Entry], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(entries)))
    history = History()
    fold = Fold(history)
    history.add(entries[:cut])
    fold.advance()
    fold.figures()
    history.add(entries[cut:])
    fold.advance()
    assert fold.figures() == folded(entries)


@given(stories())
def test_entries_that_come_twice_count_once(entries: list[Entry]) -> None:
    twice = [entry for entry in entries for _ in range(2)]
    assert folded(twice) == folded(entries)
    assert folded(entries + entries) == folded(entries)
