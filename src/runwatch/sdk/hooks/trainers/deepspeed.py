"""DeepSpeed: its engine knows which of its steps were updates, and counts them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, Final

from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.hooks.versions import is_known
from runwatch.sdk.kinds import CHECKPOINT_RESTORE, CHECKPOINT_SAVE

SOURCE: Final = "deepspeed"


def install(tell: Teller) -> None:
    if not is_known(tell, SOURCE):
        return
    engine: Any = sys.modules["deepspeed.runtime.engine"].DeepSpeedEngine
    tell.replace("step", [engine], partial(_around_step, tell))
    tell.replace("save_checkpoint", [engine], partial(tell.spanned, CHECKPOINT_SAVE))
    tell.replace("load_checkpoint", [engine], partial(tell.spanned, CHECKPOINT_RESTORE))
    monitor: Any = getattr(sys.modules.get("deepspeed.monitor.monitor"), "MonitorMaster", None)
    if monitor is not None:
        tell.replace("write_events", [monitor], partial(_around_events, tell))


def _around_step(tell: Teller, function: Callable[..., Any]) -> Callable[..., Any]:
    """Called for every batch; only now and then is it an update."""

    @guarded("tell a step of DeepSpeed", quiet=True)
    def say(done_before: int, done: int) -> None:
        if done != done_before:
            tell.step_ended(SOURCE, done)

    @wraps(function)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = getattr(self, "global_steps", 0)
        result = function(self, *args, **kwargs)
        say(before, getattr(self, "global_steps", 0))
        return result

    return step


def _around_events(tell: Teller, function: Callable[..., Any]) -> Callable[..., Any]:
    """Its monitors get (name, value, samples so far) for each value."""

    @guarded("tell what DeepSpeed logs", quiet=True)
    def say(events: Iterable[Any] = (), *_: Any) -> None:
        tell.metrics({event[0]: event[1] for event in events})

    @wraps(function)
    def write_events(self: Any, *args: Any, **kwargs: Any) -> Any:
        say(*args, *kwargs.values())
        with tell.alone():
            return function(self, *args, **kwargs)

    return write_events
