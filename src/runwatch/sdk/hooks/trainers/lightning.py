"""Lightning, as `pytorch_lightning` and as `lightning.pytorch`, by the callbacks that it calls.

A step is one or more batches, up to the one that an optimizer steps with.  Its number is how many
there were before: Lightning's own x-axis.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Final

from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.hooks.versions import is_known
from runwatch.sdk.kinds import CHECKPOINT_RESTORE, CHECKPOINT_SAVE

SOURCE: Final = "lightning"
PACKAGES: Final = ("pytorch_lightning", "lightning.pytorch")


def install(tell: Teller) -> None:
    for package in PACKAGES:
        loaded = f"{package}.trainer.trainer" in sys.modules and package not in tell.done
        if loaded and is_known(tell, package.partition(".")[0]):
            tell.done.add(package)
            _install(tell, package)


def _install(tell: Teller, package: str) -> None:
    def module(name: str) -> Any:
        return sys.modules[f"{package}.{name}"]

    events = Events(tell)
    tell.replace("_call_callback_hooks", [module("trainer.call")], events.around_callbacks)
    connectors = "trainer.connectors"
    logger = module(f"{connectors}.logger_connector.logger_connector")._LoggerConnector
    tell.replace("log_metrics", [logger], events.around_log)
    evaluation = module("loops.evaluation_loop")._EvaluationLoop
    tell.replace("run", [evaluation], tell.evaluating)
    trainer = module("trainer.trainer").Trainer
    tell.replace("save_checkpoint", [trainer], partial(tell.spanned, CHECKPOINT_SAVE))
    checkpoints = module(f"{connectors}.checkpoint_connector")._CheckpointConnector
    if "resume_start" in vars(checkpoints):  # versions differ
        tell.replace("resume_start", [checkpoints], partial(tell.timed, CHECKPOINT_RESTORE))


class Events:
    """What a Trainer says, told to a run."""

    def __init__(self, tell: Teller) -> None:
        self.tell = tell
        self._updates = 0

    def on_train_start(self, trainer: Any) -> None:
        self.tell.steps_begin(SOURCE, trainer.fit_loop.epoch_loop._batches_that_stepped)

    def on_train_epoch_start(self, trainer: Any) -> None:
        self.tell.epoch(trainer.current_epoch)

    def on_train_batch_start(self, trainer: Any) -> None:
        self._updates = trainer.global_step
        self.tell.step_began(SOURCE)

    def on_train_batch_end(self, trainer: Any) -> None:
        if trainer.global_step != self._updates:
            self.tell.step_ended(SOURCE)

    def on_train_end(self, trainer: Any) -> None:
        self.tell.steps_over(SOURCE, done=not getattr(trainer, "interrupted", False))

    @guarded("tell what a trainer logs", quiet=True)
    def on_log(self, metrics: Any) -> None:
        values = dict(metrics or {})
        values.pop("step", None)  # it says where to draw the others
        self.tell.metrics(values)

    def around_callbacks(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Before the callbacks when something begins, and when it ended: they may take long."""
        say: dict[str, Callable[[Any], None]] = {
            name: guarded("tell what a trainer does", quiet=True)(getattr(self, name))
            for name in vars(Events)
            if name.startswith("on_train_")
        }

        @wraps(function)
        def call_callback_hooks(trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> Any:
            tell = say.get(hook_name)
            if tell is not None:
                tell(trainer)
            return function(trainer, hook_name, *args, **kwargs)

        return call_callback_hooks

    def around_log(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def log_metrics(connector: Any, *args: Any, **kwargs: Any) -> Any:
            self.on_log(args[0] if args else kwargs.get("metrics"))
            with self.tell.alone():
                return function(connector, *args, **kwargs)

        return log_metrics
