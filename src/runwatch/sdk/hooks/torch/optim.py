"""torch.optim: an optimizer that steps is the first sign of training, and the end of a step's work.

Torch calls us before and after each step of every optimizer.  An update that a `GradScaler` leaves
out, since gradients overflowed, ends a step as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any, Final, ParamSpec, TypeVar

from runwatch.clock import system_clock, tick_of
from runwatch.record import NO_STEP
from runwatch.sdk.guard import attempt, guarded
from runwatch.sdk.hooks.loop import OPTIMIZERS, Loop
from runwatch.sdk.hooks.teller import Teller

P = ParamSpec("P")
R = TypeVar("R")

_SCALER: Final = "torch.amp.grad_scaler"


def install(tell: Teller) -> None:
    optimizers = Optimizers(tell)
    module: Any = sys.modules["torch.optim.optimizer"]
    optimizers.first = module.register_optimizer_step_pre_hook(optimizers.before)
    after = module.register_optimizer_step_post_hook(optimizers.after_step())
    tell.at_the_end += [optimizers.forget_first, after.remove]
    scaler = getattr(sys.modules.get(_SCALER), "GradScaler", None)
    if scaler is not None:
        tell.replace("step", [scaler], optimizers.around_scaler)


class Optimizers:
    def __init__(self, tell: Teller) -> None:
        self._tell = tell
        self._now = tick_of(system_clock if tell.run is None else tell.run._clock)
        self._others = 0
        """Steps that were looked at closely."""
        self.first: Any = None
        """The hook before a step, until there was one."""

    @guarded("note that an optimizer steps", quiet=True)
    def before(self, optimizer: Any, args: object, kwargs: object) -> None:
        tell = self._tell
        if tell.run is None and tell.expects:
            untraced(tell.begun)
        if tell.loop is not None:
            tell.loop.begins_at(tell.loop.now())

    def after_step(self) -> Callable[[Any, object, object], None]:
        """The hook after a step."""
        inside, now, me, slowly = self._tell.inside, self._now, get_ident, self._after

        def after(optimizer: Any, args: object, kwargs: object) -> None:
            if inside.quick and not inside.is_over and me() == inside.thread:  # nearly always
                inside.since = now()
                inside.is_over = True
                inside.updates += 1
            else:
                slowly(optimizer)

        return after

    def _after(self, optimizer: Any) -> None:
        self._others += 1
        loop = self._tell.loop
        if loop is not None:
            if loop.number == NO_STEP or self.first is not None:
                self._at_first(loop, optimizer)
            loop.updated(optimizer)

    @property
    def _stepped(self) -> int:
        """Grows with every step of an optimizer."""
        return self._others + self._tell.inside.updates

    @guarded("note that an optimizer steps for the first time", quiet=True)
    def _at_first(self, loop: Loop, optimizer: Any) -> None:
        self.forget_first()
        if loop.number == NO_STEP and not loop.is_open:
            self._resume(loop, optimizer)

    def forget_first(self) -> None:
        first, self.first = self.first, None
        if first is not None:
            first.remove()

    def around_scaler(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def step(*args: P.args, **kwargs: P.kwargs) -> R:
            stepped = self._stepped
            result = function(*args, **kwargs)
            if stepped == self._stepped and len(args) > 1:
                self._after(args[1])
            return result

        return step

    def _resume(self, loop: Loop, optimizer: Any) -> None:
        """A program that goes on from a checkpoint has an optimizer that knows its last step."""
        question = "ask an optimizer for its step"
        done = attempt(question, None, lambda: steps_of(optimizer), quiet=True)
        if done is not None and done > 1 and loop.leads(OPTIMIZERS):
            loop.number = done - 2  # of the step before this one


def untraced(function: Callable[[], object]) -> None:
    """Call it so that a compiler that compiles an optimizer's step does not look into it."""
    disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
    (function if disable is None else disable(function))()


def steps_of(optimizer: Any) -> int | None:
    """How often it has stepped, also before it was saved and loaded.  None: it does not count, or
    counts on a device, which we would have to wait for."""
    for state in optimizer.state.values():
        step = state.get("step") if isinstance(state, dict) else None
        if isinstance(step, int | float):
            return int(step)
        device = getattr(step, "device", None)
        return int(step) if step is not None and str(device) == "cpu" else None
    return None
