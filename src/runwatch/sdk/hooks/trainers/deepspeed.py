"""DeepSpeed: its engine knows which of its steps were updates, and counts them.

A program may have several engines, as one for the policy and one for its critic: the first that
steps counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, Final
from weakref import ref

from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.hooks.versions import is_known
from runwatch.sdk.kinds import CHECKPOINT_RESTORE, CHECKPOINT_SAVE

SOURCE: Final = "deepspeed"
_PIPELINES: Final = "deepspeed.runtime.pipe.engine"


def install(tell: Teller) -> None:
    if not is_known(tell, SOURCE):
        return
    engine: Any = sys.modules["deepspeed.runtime.engine"].DeepSpeedEngine
    steps = Steps(tell)
    tell.replace("step", [engine], steps.around)
    tell.replace("save_checkpoint", [engine], partial(tell.spanned, CHECKPOINT_SAVE))
    tell.replace("load_checkpoint", [engine], partial(tell.spanned, CHECKPOINT_RESTORE))
    pipeline: Any = getattr(sys.modules.get(_PIPELINES), "PipelineEngine", None)
    if pipeline is not None:
        tell.replace("train_batch", [pipeline], steps.around)  # which does not call `step`
        tell.replace("eval_batch", [pipeline], tell.evaluating)
    monitor: Any = getattr(sys.modules.get("deepspeed.monitor.monitor"), "MonitorMaster", None)
    if monitor is not None:
        tell.replace("write_events", [monitor], partial(_around_events, tell, steps))


class Steps:
    def __init__(self, tell: Teller) -> None:
        self._tell = tell
        self._first: ref[Any] | None = None
        """The engine that counts."""

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Called for every batch; only now and then is it an update."""

        @wraps(function)
        def step(engine: Any, *args: Any, **kwargs: Any) -> Any:
            self._begins(engine)
            before = getattr(engine, "global_steps", 0)
            result = function(engine, *args, **kwargs)
            self._ended(engine, before, getattr(engine, "global_steps", 0))
            return result

        return step

    @guarded("tell that DeepSpeed takes steps", quiet=True)
    def _begins(self, engine: Any) -> None:
        """Before the first one, since the optimizer inside would count it, too."""
        if self._first is None or self._first() is None:
            self._first = ref(engine)
            run, loop = self._tell.begun(), self._tell.loop
            if run is not None and loop is not None:
                loop.begins(SOURCE, int(engine.global_steps))

    def taken(self) -> int | None:
        """How many updates there were; None: no engine has stepped."""
        engine = None if self._first is None else self._first()
        return getattr(engine, "global_steps", None)

    @guarded("tell a step of DeepSpeed", quiet=True)
    def _ended(self, engine: Any, done_before: int, done: int) -> None:
        if done != done_before and self._first is not None and self._first() is engine:
            self._tell.step_ended(SOURCE, done)


def _around_events(tell: Teller, steps: Steps, function: Callable[..., Any]) -> Callable[..., Any]:
    """Its monitors get (name, value, samples so far) for each value, after an update."""

    @guarded("tell what DeepSpeed logs", quiet=True)
    def say(events: Iterable[Any] = (), *_: Any) -> None:
        tell.metrics({event[0]: event[1] for event in events}, steps.taken())

    @wraps(function)
    def write_events(self: Any, *args: Any, **kwargs: Any) -> Any:
        say(*args, *kwargs.values())
        with tell.alone():
            return function(self, *args, **kwargs)

    return write_events
