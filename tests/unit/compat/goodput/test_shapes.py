"""The jobs that goodput is measured with: the original's recorded answers about them, and ours.

`original-shapes.json` is what the original library answered (scripts/record_goodput_shapes.py):
when all of a job's steps were in the log, and again after a hundred more.
"""

from __future__ import annotations

import json
import math
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.goodput_shapes import BEGIN, DISRUPTIONS, PUBLISHED, SHAPES, Job, published
from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.log.backend import JournalLogger
from tests.unit.compat.goodput.support import FIXTURES, Entry, Fixed, by_name

Answer = dict[str, Any]

LONG = 1_000_000
MORE = 100
CLASSES = {
    "productive": "productive",
    "wasted": "WASTED_PROGRESS_FROM_DISRUPTION",
    "infrastructure": "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
    "startup": "PROGRAM_STARTUP",
}
EXACT = ("max_productive_step", "last_recorded_step", "disruptions")


@cache
def recorded() -> dict[str, dict[str, Answer]]:
    found = json.loads((FIXTURES / "original-shapes.json").read_text())
    assert (found["library"], found["version"]) == ("ml-goodput-measurement", "0.2.3")
    jobs: dict[str, dict[str, Answer]] = found["jobs"]
    return jobs


def cases() -> list[Any]:
    return [
        pytest.param(name, marks=pytest.mark.soak) if name.endswith(f" {LONG}") else name
        for name in recorded()
    ]


def job_of(name: str) -> tuple[Job, int]:
    shape, number = name.split()
    steps = int(number)
    return published(steps) if shape == "published" else Job(shape, steps), steps


class Log:
    """A back end in memory that gives its entries as they were written."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def write_cloud_logging_entry(self, entry: Entry) -> None:
        self.entries.append(entry)

    def read_cloud_logging_entries(self, last_entry_info: Any = None) -> tuple[list[Entry], Any]:
        known = 0 if last_entry_info is None else last_entry_info[1]
        return self.entries[known:], (None, len(self.entries))


class Told:
    """The drop-in, asked as the original was: at the same time of day, after the same entries."""

    def __init__(self, name: str, log: Log | JournalLogger) -> None:
        self._name = name
        self._log = log
        self._clock = Fixed()
        self._calculator = GoodputCalculator("job", "log", log, clock=self._clock)
        self._job, self._steps = job_of(name)

    def check(self) -> None:
        for moment, steps in (("first", self._steps), ("after", MORE)):
            for entry in self._job.run(steps):
                self._log.write_cloud_logging_entry(entry)
            theirs = recorded()[self._name][moment]
            self._clock.seconds = BEGIN + theirs["total"]
            assert_same(f"{self._name}, {moment}", self._answer(), theirs)

    def _answer(self) -> Answer:
        goodput, badput, last = self._calculator.get_job_goodput(True)
        info = self._calculator._goodput_cache.get_goodput_info()
        assert info is not None and info.total_unproductive_time is not None
        details = self._calculator.get_job_goodput_details()
        deviations = details["step_time_deviation"].values()
        return {
            "total": info.total_elapsed_time,
            "percent": {"goodput": goodput, **by_name(badput)},
            "seconds": {
                "productive": info.total_productive_time,
                **by_name(info.total_unproductive_time),
            },
            "max_productive_step": last,
            "last_recorded_step": info.last_recorded_step,
            "disruptions": info.number_of_disruptions,
            "ideal_step_time": details["ideal_step_time"],
            "deviations": {
                "steps": len(deviations),
                "sum": math.fsum(deviations),
                "greatest": max(deviations),
            },
        }


def assert_same(what: str, ours: Answer, theirs: Answer) -> None:
    for name in EXACT:
        assert ours[name] == theirs[name], f"{what}: {name}"
    assert ours["deviations"]["steps"] == theirs["deviations"]["steps"], what
    found, expected = flat(ours), flat(theirs)
    for name in found.keys() | expected.keys():
        # A kind that one of the two does not tell of is none.  Sums of as many floats as there
        # are steps are not the same to the last digit in any two orders.
        amount = expected.get(name, 0.0)
        assert found.get(name, 0.0) == pytest.approx(amount, rel=1e-10, abs=1e-6), f"{what}: {name}"


def flat(answer: Answer, prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in answer.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name} ")
        else:
            found[prefix + name] = value
    return found


# ── the original's own answers ────────────────────────────────────────────────────────────────


def test_it_was_asked_about_every_shape_at_every_size_that_it_can_do() -> None:
    sizes = {shape: [1_000, 10_000, 100_000, LONG] for shape in ("published", *SHAPES)}
    sizes["custom"].remove(LONG)  # its rule for custom events is quadratic
    assert list(recorded()) == [f"{shape} {size}" for shape, all_ in sizes.items() for size in all_]


@pytest.mark.parametrize("steps", PUBLISHED)
def test_the_original_gives_its_published_totals(steps: int) -> None:
    """To the digits that were published."""
    theirs = recorded()[f"published {steps}"]["after"]
    seconds = theirs["seconds"]
    for name, amount in PUBLISHED[steps].items():
        assert round(seconds[CLASSES[name]], 3 if name == "productive" else 2) == amount, name
    assert round(seconds["TPU_INITIALIZATION"], 2) == 220
    assert round(seconds["TRAINING_PREP"], 2) == 440
    assert theirs["disruptions"] == DISRUPTIONS


# ── ours ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", cases())
def test_ours_is_the_originals_answer_value_by_value(name: str) -> None:
    Told(name, Log()).check()


@pytest.mark.parametrize("name", [name for name in recorded() if name.endswith(" 1000")])
def test_so_it_is_from_a_journal(name: str, place: Path) -> None:
    with closing(JournalLogger("job", "log")) as journal:
        Told(name, journal).check()
    assert list((place / "journals").iterdir())
