"""A process of a simulated run: it writes down what it does, as Runwatch or as a recorder does."""

from __future__ import annotations

from random import Random
from typing import Literal

from tests.unit.views.goodput.story import SECOND, Notebook

Form = Literal["native", "entries"]
Span = tuple[str, int, int]
"""Name, from, until."""


class Rank:
    STEMS = {
        "accelerator_init": "tpu_init",
        "training_preparation": "training_prep",
        "data_loading": "data_loading",
    }

    def __init__(self, number: int, attempt: int, start: int, tick: int, form: Form) -> None:
        self.number = number
        self.book = Notebook(number, attempt, start, unit_ns=1)
        self.now = start
        self.begun = start
        self._tick = tick
        self._form = form
        self._step = 0
        self._span = self._inner = self._wait = 0
        if form == "entries":
            self.book.entry("job_start_time", start)

    def _next(self) -> int:
        """When its next record is made."""
        self.now += self._tick
        return self.now

    def rest(self, length: int) -> list[Span]:
        self.now += length
        return []

    def begin(self, step: int) -> None:
        self._step, self.begun = step, self._next()
        if self._form == "native":
            self._span = self.book.begin("step", self.begun, step)
        else:
            self.book.entry("step_start_time", self.begun, step)

    def end(self, at: int) -> None:
        assert at > self.now or not self._tick
        self.now = at
        if self._form == "native":
            self.book.end("step", self._span, at, self._step)
        if self._wait:
            self.book.waited(self._step, self._wait, self._next())
            self._wait = 0

    def wait(self, length: int) -> Span:
        """For data, as `run.steps` does: until the step begins, and said when it is done."""
        asked, self.now = self.now, self.now + length
        self._wait = self.now + self._tick - asked
        return "data_loading", asked, self.now + self._tick

    def span(self, name: str, length: int, until: int | None = None) -> Span:
        """`until`: when it dies, if that is before the end."""
        start = self._next()
        self._edge(name, "start", start)
        end = start + length
        if until is None or end < until:
            self.now = end
            self._edge(name, "end", end)
        return name, start, end

    def open(self, name: str, start: int) -> bool:
        """Begin what will not be ended; a checkpoint by entries is known only at its end."""
        if self._form == "entries" or start <= self.now:
            return False
        self.book.begin(name, start)
        self.now = start
        return True

    def _edge(self, name: str, edge: Literal["start", "end"], at: int) -> None:
        book = self.book
        if self._form == "native" and edge == "start":
            self._inner = book.begin(name, at)
        elif self._form == "native":
            book.end(name, self._inner, at)
        elif name.startswith("checkpoint"):
            if edge == "start":
                self._inner = at
            else:
                book.checkpoint(name.removeprefix("checkpoint_"), self._inner, at - self._inner)
        elif name in self.STEMS:
            book.entry(f"{self.STEMS[name]}_{edge}_time", at)
        else:
            book.entry(f"custom_badput_event_{edge}_time", at, kind=name)

    def stretch(self, name: str, start: int, end: int, dice: Random) -> Span:
        """Within a step: with both edges, or told when it is over."""
        start = max(start, self.now + self._tick)
        if self._form == "native" and (name == "compile" or dice.random() < 0.5):
            self.book.elapsed(name, end - start, end)
        else:
            self._edge(name, "start", start)
            self._edge(name, "end", end)
        self.now = end
        return name, start, end

    def stretch_if_room(self, claim: tuple[str, int], until: int, dice: Random) -> None:
        """The same as the slowest rank does, but it has time for it."""
        name, length = claim
        if dice.random() < 0.5 and self.now + length < until - SECOND:
            self.stretch(name, until - SECOND - length, until - SECOND, dice)

    def maybe_background(self, dice: Random) -> None:
        """Something beside the steps, which takes none of their time."""
        if self._form == "native" and dice.random() < 0.05:
            span = self.book.begin("checkpoint_save/background", self._next())
            self.book.end("checkpoint_save/background", span, self._next())

    def exits(self, at: int, state: Literal["completed", "killed"], *, done: bool = True) -> None:
        """`done`: it has nothing left to do, and says so."""
        self.book.said_done = done
        if self._form == "entries" and state == "completed" and done:
            self.book.entry("job_end_time", at)
        self.book.exits(at, state, "killed by SIGKILL" if state == "killed" else "")
