"""torch's DataLoader: waits for batches, and evaluations.

What is asked for without gradients, once steps have been taken, is evaluated: the time from there
until the loader has no more, or is left, is evaluation.  So is a pass over a loader without any
update, if another loader comes next: programs also switch gradients off batch by batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from threading import get_ident
from typing import Any, Final, NamedTuple
from weakref import ref

from runwatch.clock import system_clock, tick_of, tick_shift
from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.loop import OPTIMIZERS, WAIT_NS, Loop
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.kinds import DATA_LOADING, EVALUATION
from runwatch.sdk.step import Span

MODULE: Final = "torch.utils.data.dataloader"


def install(tell: Teller) -> None:
    module: Any = sys.modules[MODULE]
    loaders = Loaders(tell, sys.modules["torch"].is_grad_enabled)
    tell.replace("__next__", [module._BaseDataLoaderIter], loaders.around_next)
    tell.replace("__iter__", [module.DataLoader], partial(tell.timed, DATA_LOADING))
    tell.when_run_ends.append(loaders.no_more)


class Pass(NamedTuple):
    """Over a loader; times are ticks."""

    iterator: int = 0
    asked: int = 0
    """When its first batch was asked for."""
    updates: int = 0
    """How many there had been then."""
    over: int = 0


class Loaders:
    def __init__(self, tell: Teller, trains: Callable[[], bool]) -> None:
        self._tell = tell
        self._trains = trains
        self._now = tick_of(system_clock if tell.run is None else tell.run._clock)
        self._evaluation: Span | None = None
        self._evaluated_by: ref[Any] | None = None
        self._pass = Pass()
        self._iterator: ref[Any] | None = None
        """Its iterator, if gradients were on when its first batch was asked for."""
        self._passed: Pass | None = None
        """One that may have been an evaluation."""

    def around_next(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        inside, now, me, trains = self._tell.inside, self._now, get_ident, self._trains

        @wraps(function)
        def __next__(iterator: Any) -> Any:
            run, loop = inside.run, inside.loop
            if (
                id(iterator) != inside.iterator
                or run is None
                or loop is None
                or run._awaits_data
                or me() != run._thread
                or (inside.is_over and not trains())
            ):
                return self._next(function, iterator)
            # As nearly always: the loader that brought the last one brings one more.
            run._awaits_data, came, asked = True, 0, now()
            try:
                item = function(iterator)
                came = now()
            finally:
                run._awaits_data = False
                if not came:
                    self._over(asked, True)
            if inside.is_over:
                loop.batch(asked, came)
            else:
                inside.waits += came - asked
                inside.until = came
                if inside.waits >= WAIT_NS:
                    loop.tell_waits()
            return item

        return __next__

    def _next(self, function: Callable[[Any], Any], iterator: Any) -> Any:
        loop = self._tell.loop
        if loop is None:
            return self._early(function, iterator)
        run = loop.run
        if run._awaits_data or get_ident() != run._thread:  # the program tells its waits itself
            return function(iterator)
        training = self._trains() and not self._tell.evaluates
        if not training or self._evaluation is not None:
            self._turns(loop, iterator, training)
        if id(iterator) != self._pass.iterator:
            self._begins(loop, iterator, training)
        run._awaits_data, came, asked = True, 0, self._now()
        try:
            item = function(iterator)
            came = self._now()
        finally:
            run._awaits_data = False
            if not came:
                self._over(asked, training)
        if not training:
            loop.waited(asked, came)
            return item
        loop.batch(asked, came)
        if loop.is_open and not loop.is_over and self._iterator is not None:
            loop.inside.iterator = id(iterator)
        return item

    @guarded("note what a batch is for", quiet=True)
    def _turns(self, loop: Loop, iterator: Any, training: bool) -> None:
        """An evaluation begins, goes on, or is over."""
        if training:
            self.evaluated()
        elif (
            self._evaluation is None
            and loop.leader == OPTIMIZERS
            and not (loop.explicit or self._tell.evaluates)
        ):
            loop.pauses()
            loop.inside.iterator = 0
            self._evaluation = Span(loop.run, EVALUATION)
            self._evaluation.begin(loop.run._step)
            self._evaluated_by = ref(iterator, self._left)

    @guarded("note that a pass over a loader begins", quiet=True)
    def _begins(self, loop: Loop, iterator: Any, training: bool) -> None:
        self._pass = Pass(id(iterator), self._now(), loop.updates)
        loop.inside.iterator, self._iterator = 0, None
        if training:
            self._tell_passed(loop)
            self._iterator = ref(iterator, self._gone)

    def _gone(self, _: object) -> None:
        self._tell.inside.iterator = 0  # another may get its id

    @guarded("note that there are no more passes", quiet=True)
    def no_more(self) -> None:
        self.evaluated()
        if self._tell.loop is not None:
            self._tell_passed(self._tell.loop)

    def _tell_passed(self, loop: Loop) -> None:
        passed, self._passed = self._passed, None
        if passed is not None and passed.updates == loop.updates:
            shift = tick_shift(loop.run._clock)
            begin, end = passed.asked + shift, passed.over + shift
            self._tell.elapsed(EVALUATION, begin, end, beside=False, source="torch.DataLoader")

    def _over(self, asked: int, training: bool) -> None:
        loop = self._tell.loop
        if loop is None:
            return
        made, self._pass, self._iterator, loop.inside.iterator = self._pass, Pass(), None, 0
        steps_are_known = loop.leader == OPTIMIZERS and not loop.explicit and loop.updates
        if training and steps_are_known and made.updates == loop.updates:
            self._passed = made._replace(over=self._now())
        if training:
            loop.no_batch(asked)
        else:
            loop.tell_waits()
            self.evaluated()

    def _early(self, function: Callable[[Any], Any], iterator: Any) -> Any:
        """There is no run.  Perhaps there will be one, and this is its first batch."""
        tell = self._tell
        if not tell.expects or tell.beside:
            return function(iterator)
        training, asked, came = self._trains() and not tell.evaluates, self._now(), 0
        try:
            item = function(iterator)
            came = self._now()
        finally:
            if not came:
                tell.batch = (0, 0)
        if tell.loop is not None:  # it has begun meanwhile
            return item
        if training and not tell.batch[1]:
            tell.batch = (asked, came)
        else:
            self._waited_early(asked, came)
        return item

    @guarded("note a wait for data", quiet=True)
    def _waited_early(self, asked: int, came: int) -> None:
        shift = tick_shift(system_clock)
        self._tell.elapsed(
            DATA_LOADING, asked + shift, came + shift, beside=False, source="torch.DataLoader"
        )

    def _left(self, _: object) -> None:
        self.evaluated()

    @guarded("note that an evaluation is over", quiet=True)
    def evaluated(self) -> None:
        span, self._evaluation, self._evaluated_by = self._evaluation, None, None
        run = self._tell.run
        if span is not None and run is not None:
            span.end(run._step)
