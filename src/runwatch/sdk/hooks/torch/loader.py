"""torch's DataLoader: waits for batches, and evaluations.

What is asked for without gradients, once steps have been taken, is evaluated: the time from there
until the loader has no more, or is left, is evaluation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from threading import get_ident, main_thread
from typing import Any, Final
from weakref import ref

from runwatch.clock import system_clock, tick_of, tick_shift
from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.loop import OPTIMIZERS, Loop
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.kinds import DATA_LOADING, EVALUATION
from runwatch.sdk.step import Span

MODULE: Final = "torch.utils.data.dataloader"


def install(tell: Teller) -> None:
    module: Any = sys.modules[MODULE]
    loaders = Loaders(tell, sys.modules["torch"].is_grad_enabled)
    tell.replace("__next__", [module._BaseDataLoaderIter], loaders.around_next)
    tell.replace("__iter__", [module.DataLoader], partial(tell.timed, DATA_LOADING))
    tell.at_the_end.append(loaders.evaluated)


class Loaders:
    def __init__(self, tell: Teller, trains: Callable[[], bool]) -> None:
        self._tell = tell
        self._trains = trains
        self._now = tick_of(system_clock if tell.run is None else tell.run._clock)
        self._main = main_thread().ident
        self._evaluation: Span | None = None
        self._evaluated_by: ref[Any] | None = None
        self._wait: Span | None = None
        """For a batch that is asked for inside a step or an evaluation."""

    def around_next(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        tell, now, trains = self._tell, self._now, self._trains

        @wraps(function)
        def __next__(iterator: Any) -> Any:
            loop = tell.loop
            run = None if loop is None else loop.run
            if tell.deaf or get_ident() != (self._main if run is None else run._thread):
                return function(iterator)
            if run is not None:
                if run._awaits_data:  # the program tells its waits itself
                    return function(iterator)
                run._awaits_data = True
            asked, training = now(), trains() and not tell.evaluates
            self._asks(loop, iterator, asked, training)
            try:
                item = function(iterator)
            except StopIteration:
                self._over(loop, asked, training)
                raise
            finally:
                if run is not None:
                    run._awaits_data = False
            self._comes(loop, asked, training)
            return item

        return __next__

    @guarded("note that a batch is asked for", quiet=True)
    def _asks(self, loop: Loop | None, iterator: Any, asked: int, training: bool) -> None:
        if loop is None:
            return
        if training:
            if self._evaluation is not None:
                self.evaluated()
            loop.asks(asked)
        elif (
            self._evaluation is None
            and loop.leader == OPTIMIZERS
            and not (loop.explicit or self._tell.evaluates)
        ):
            loop.pauses()
            self._evaluation = Span(loop.run, EVALUATION)
            self._evaluation.begin(loop.run._step)
            self._evaluated_by = ref(iterator, self._left)
        if loop.is_open or self._evaluation is not None or self._tell.evaluates:
            self._wait = Span(loop.run, DATA_LOADING)
            self._wait.begin(loop.run._step)

    @guarded("note that a batch came", quiet=True)
    def _comes(self, loop: Loop | None, asked: int, training: bool) -> None:
        came = self._now()
        if self._has_waited():
            return
        if loop is not None:
            if training:
                loop.comes(asked, came)
        elif training and not self._tell.batch[1]:
            self._tell.batch = (asked, came)
        else:
            self._waited_early(asked, came)

    @guarded("note that a loader has no more", quiet=True)
    def _over(self, loop: Loop | None, asked: int, training: bool) -> None:
        over = self._now()
        waited = self._has_waited()
        if loop is None:
            self._tell.batch = (0, 0)
            self._waited_early(asked, over)
        elif not training:
            self.evaluated()
        elif not waited:
            loop.over(asked, over)

    def _has_waited(self) -> bool:
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.end(wait._run._step)
        return wait is not None

    def _waited_early(self, asked: int, came: int) -> None:
        shift = tick_shift(system_clock)
        self._tell.elapsed(
            DATA_LOADING, asked + shift, came + shift, beside=False, source="torch.DataLoader"
        )

    @guarded("note that an evaluation is over", quiet=True)
    def _left(self, _: object) -> None:
        self.evaluated()

    def evaluated(self) -> None:
        span, self._evaluation, self._evaluated_by = self._evaluation, None, None
        run = self._tell.run
        if span is not None and run is not None:
            span.end(run._step)
