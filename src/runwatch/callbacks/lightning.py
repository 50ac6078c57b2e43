"""`Trainer(callbacks=[RunwatchCallback()])` of Lightning: steps, metrics, epochs, validation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runwatch.callbacks.told import teller_without
from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.hooks.trainers.lightning import PACKAGES, Events
from runwatch.sdk.kinds import EVALUATION
from runwatch.sdk.stepping import OpenSpan

# The program's own: the two packages have classes of the same names that do not fit each other.
if TYPE_CHECKING or "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


class RunwatchCallback(Callback):  # type: ignore[misc]  # where it is not installed
    """Tells the run of `runwatch.init`, which comes first."""

    def __init__(self) -> None:
        self._events: Events | None = None
        self._evaluation: OpenSpan | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._note(Events.on_train_start, trainer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._note(Events.on_train_epoch_start, trainer)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self._note(Events.on_train_batch_start, trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self._note(Events.on_train_batch_end, trainer)
        if trainer.global_step and trainer.global_step % trainer.log_every_n_steps == 0:
            self._note(Events.on_log, trainer.callback_metrics)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._note(Events.on_train_end, trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._note(self._evaluates)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._note(self._evaluated)
        if not trainer.sanity_checking:
            self._note(Events.on_log, trainer.callback_metrics)

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
        tell: Teller | None = teller_without(*PACKAGES)
        if tell is None:
            return
        if self._events is None or self._events.tell is not tell:
            self._events = Events(tell)
        what(self._events, *said)
