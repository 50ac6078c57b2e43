"""`Trainer(callbacks=[RunwatchCallback()])` of Hugging Face: steps, metrics, epochs, evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from runwatch.callbacks.told import teller_without
from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.trainers.transformers import SOURCE, Events
from runwatch.sdk.kinds import EVALUATION
from runwatch.sdk.stepping import OpenSpan


class RunwatchCallback(TrainerCallback):  # type: ignore[misc]  # where it is not installed
    """Tells the run of `runwatch.init`, which comes first."""

    def __init__(self) -> None:
        self._evaluation: OpenSpan | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._note(Events.on_train_begin, state)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._note(Events.on_epoch_begin, state)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._note(Events.on_step_begin, state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._note(Events.on_step_end, state)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self._note(Events.on_log, logs)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._note(Events.on_train_end, state)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A callback does not hear of an evaluation before its first batch is done."""
        self._note(self._evaluates)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._note(self._evaluated)

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **_: Any) -> None:
        self._note(self._evaluated)

    def _evaluates(self, events: Events) -> None:
        run = events.tell.run
        if self._evaluation is None and run is not None:
            self._evaluation = run.begin_span(EVALUATION)

    def _evaluated(self, events: Events) -> None:
        span, self._evaluation = self._evaluation, None
        if span is not None:
            span.end()

    @guarded("note what a trainer does")
    def _note(self, what: Callable[..., None], *said: Any) -> None:
        tell = teller_without(SOURCE)
        if tell is not None:
            what(Events(tell), *said)
