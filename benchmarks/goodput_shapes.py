"""Logs of jobs in the four shapes that goodput is measured with, entry by entry.

Every job begins eleven times: ten disruptions each take back five steps.  A step takes about two
seconds, the first of an attempt thirty more, an outage thirty.  What `shape` adds:

steps       nothing: one entry a step
full        a load of data before every step: three entries a step
checkpoint  a save of two hosts after every hundredth step
custom      an evaluation after every hundredth step

`PUBLISHED` holds published totals of the original for such jobs of 1,000 to 1,000,000 steps (and
100 more); `published` is a job that has them: its pace and three of its times are moved a little.

The same arguments give the same log.  It imports nothing but the standard library, so that the
interpreter in which another library lives can use it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

Entry = dict[str, Any]

SHAPES: Final = ("steps", "full", "checkpoint", "custom")
DISRUPTIONS: Final = 10
BEGIN: Final = 1_700_000_000.0


# Seconds that the original counted in each class of such a job, after 100 more steps.
PUBLISHED: Final = {
    1_000: {"productive": 2258.485, "wasted": 81.60, "infrastructure": 320.90, "startup": 329.46},
    10_000: {"productive": 20797.903, "wasted": 82.29, "infrastructure": 320.65, "startup": 329.98},
    100_000: {
        "productive": 206197.934, "wasted": 82.43, "infrastructure": 320.62, "startup": 329.94,
    },
    1_000_000: {
        "productive": 2060198.243, "wasted": 82.40, "infrastructure": 321.10, "startup": 329.64,
    },
}  # fmt: skip
# By how much steps are slower, and seconds more for a lost step, the first outage, the first step.
_MOVES: Final = {0: "startup", -3: "wasted"}
_MOVED: Final = {
    1_000: {
        "productive": -0.0017225666, "wasted": -0.3775, "infrastructure": 0.3799,
        "startup": -0.3209,
    },
    10_000: {
        "productive": -0.0004799218, "wasted": -0.0249, "infrastructure": -0.1831,
        "startup": 0.1296,
    },
    100_000: {
        "productive": -0.0001113443, "wasted": -0.0285, "infrastructure": -0.0152,
        "startup": -0.097,
    },
    1_000_000: {
        "productive": 1.50594e-05, "wasted": -0.1396, "infrastructure": 0.4695,
        "startup": -0.1981,
    },
}  # fmt: skip


def published(steps: int) -> Job:
    """A job of shape `steps` with the totals of `PUBLISHED`."""
    return Job("steps", steps, moved=_MOVED[steps])


class Job:
    """`run(n)` goes on with the log for n steps more; disruptions lie within the first `steps`."""

    def __init__(
        self,
        shape: str,
        steps: int,
        seed: int = 0,
        *,
        name: str = "job",
        moved: dict[str, float] | None = None,
    ) -> None:
        if shape not in SHAPES:
            raise ValueError(f"shape is one of {', '.join(SHAPES)}, not {shape!r}")
        self.shape = shape
        self.name = name
        self.now = BEGIN
        self._random = random.Random(f"{shape} {steps} {seed}")
        self._step = 0
        self._between = max(steps // (DISRUPTIONS + 1), 6)
        self._left = DISRUPTIONS
        self._is_first = True
        self._moved = dict(moved or {})
        self._pace = 1 + self._moved.pop("productive", 0.0)

    def run(self, steps: int) -> Iterator[Entry]:
        end = self._step + steps
        if self._step == 0:
            yield from self._begin()
        while self._step < end:
            yield from self._one_step(self._step)
            self._step += 1
            if self._left and self._step == self._between * (DISRUPTIONS + 1 - self._left):
                self._left -= 1
                self.now += 30 + self._moved.pop("infrastructure", 0.0)
                yield from self._begin()
                for step in range(self._step - 5, self._step):
                    yield from self._one_step(step)

    def finish(self) -> Entry:
        return {"job_name": self.name, "job_end_time": self.now}

    def _begin(self) -> Iterator[Entry]:
        yield self._at("job_start_time")
        for what, seconds in (("tpu_init", 20), ("training_prep", 40)):
            yield self._at(f"{what}_start_time")
            self.now += seconds
            yield self._at(f"{what}_end_time", 1e-4)
        self._is_first = True

    def _one_step(self, step: int) -> Iterator[Entry]:
        if self.shape == "full":
            yield self._at("data_loading_start_time", 1e-4)
            self.now += self._random.uniform(0.01, 0.05)
            yield self._at("data_loading_end_time", 1e-4)
        yield {"job_name": self.name, "step_count": step, "step_start_time": self.now}
        self.now += self._random.uniform(2.0, 2.12) * self._pace + (30 if self._is_first else 0)
        self._is_first = False
        if self._moved:
            self.now += self._moved.pop(_MOVES.get(step - self._between, _MOVES.get(step, "")), 0.0)
        if step % 100 == 99:
            yield from self._after_a_hundred(step)

    def _after_a_hundred(self, step: int) -> Iterator[Entry]:
        if self.shape == "checkpoint":
            begin = self.now
            for host in range(2):
                yield self._save(step, begin + host * 1e-3, self._random.uniform(0.5, 1.5))
            self.now += 2
        elif self.shape == "custom":
            yield self._at("custom_badput_event_start_time", custom_badput_event_type="eval")
            self.now += self._random.uniform(5, 10)
            yield self._at("custom_badput_event_end_time", 1e-4, custom_badput_event_type="eval")

    def _at(self, field: str, pause: float = 0.0, **more: str) -> Entry:
        entry = {"job_name": self.name, **more, field: self.now}
        self.now += pause  # a program never records two things in one instant
        return entry

    def _save(self, step: int, begin: float, seconds: float) -> Entry:
        return {
            "job_name": self.name,
            "event_type": "save",
            "step": step,
            "directory": "gs://bucket/checkpoints",
            "wait_for_prev_start_time": begin,
            "wait_for_prev_duration_secs": 0.0,
            "checkpointer_blocking_start_time": begin,
            "checkpointer_blocking_duration_secs": seconds,
            "get_old_steps_start_time": begin,
            "get_old_steps_duration_secs": 0.0,
            "checkpoint_manager_blocking_start_time": begin,
            "checkpoint_manager_blocking_duration_secs": seconds,
            "synchronous": False,
        }
