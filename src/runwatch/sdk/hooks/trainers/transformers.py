"""Hugging Face's Trainer, by the callbacks that it calls in any case.

Steps have the Trainer's own numbers: the first is 1, and `checkpoint-500` is saved after step 500.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from numbers import Number
from typing import Any, Final

from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.hooks.versions import is_known
from runwatch.sdk.kinds import CHECKPOINT_RESTORE, CHECKPOINT_SAVE

SOURCE: Final = "transformers"


def install(tell: Teller) -> None:
    if not is_known(tell, SOURCE):
        return
    tell.done.add(SOURCE)
    trainer: Any = sys.modules["transformers.trainer"].Trainer
    handler: Any = sys.modules["transformers.trainer_callback"].CallbackHandler
    events = Events(tell)
    for name in ("on_train_begin", "on_epoch_begin", "on_step_begin", "on_step_end"):
        tell.replace(name, [handler], partial(_after, getattr(events, name)))
    tell.replace("on_train_end", [handler], partial(_after, events.on_train_end))
    tell.replace("on_log", [handler], events.around_log)
    for name, wrap in (
        ("evaluate", tell.evaluating),
        ("predict", tell.evaluating),
        ("_save_checkpoint", partial(tell.spanned, CHECKPOINT_SAVE)),
        ("_load_from_checkpoint", partial(tell.spanned, CHECKPOINT_RESTORE)),
    ):
        if name in vars(trainer):  # versions differ
            tell.replace(name, [trainer], wrap)


class Events:
    """What a Trainer says, told to a run.  `state` is its `TrainerState`."""

    def __init__(self, tell: Teller) -> None:
        self.tell = tell

    def on_train_begin(self, state: Any) -> None:
        self.tell.steps_begin(SOURCE, state.global_step)

    def on_epoch_begin(self, state: Any) -> None:
        self.tell.epoch(state.epoch or 0.0)

    def on_step_begin(self, state: Any) -> None:
        self.tell.step_began(SOURCE, state.global_step + 1)

    def on_step_end(self, state: Any) -> None:
        self.tell.step_ended(SOURCE, state.global_step)

    def on_train_end(self, state: Any) -> None:
        self.tell.steps_over(SOURCE)

    @guarded("tell what a trainer logs", quiet=True)
    def on_log(self, logs: Any) -> None:
        numbers = {k: v for k, v in dict(logs or {}).items() if isinstance(v, Number)}
        self.tell.metrics(numbers)

    def around_log(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The trainer's own loggers get the same values."""

        @wraps(function)
        def on_log(*args: Any, **kwargs: Any) -> Any:
            self.on_log(args[4] if len(args) > 4 else kwargs.get("logs"))
            with self.tell.alone():
                return function(*args, **kwargs)

        return on_log


def _after(tell: Callable[[Any], None], function: Callable[..., Any]) -> Callable[..., Any]:
    """After the trainer's own callbacks; `state` is the handler's third argument."""
    say = guarded("tell what a trainer does", quiet=True)(tell)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        say(args[2] if len(args) > 2 else kwargs.get("state"))
        return result

    return call
