"""Keras 3, with any backend: what `fit` and `evaluate` do, and models that are saved or loaded.

The list of callbacks is told everything, so we listen to its methods.  A callback of our own would
change how Keras calls the others.  Metrics of a batch are taken as Keras has them: a value that a
device is still computing is read when it is there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TypeVar

from runwatch.record import NO_STEP
from runwatch.sdk.guard import guarded
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.hooks.versions import is_known
from runwatch.sdk.kinds import CHECKPOINT_RESTORE, CHECKPOINT_SAVE, DATA_LOADING, EVALUATION
from runwatch.sdk.step import Span

P = ParamSpec("P")
R = TypeVar("R")

SOURCE: Final = "keras"
WAIT_NS: Final = 1_000_000
"""A shorter wait for data is not told."""
_BEFORE: Final = ("on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_test_begin")
_AFTER: Final = ("on_test_end", "on_train_batch_end", "on_epoch_end", "on_train_end")


def install(tell: Teller) -> None:
    keras: Any = sys.modules["keras"]
    if not is_known(tell, "keras"):
        return
    fit = Fit(tell)
    callbacks = keras.callbacks.CallbackList
    for name in _BEFORE:
        tell.replace(name, [callbacks], partial(_before, tell, getattr(fit, name)))
    for name in _AFTER:
        tell.replace(name, [callbacks], partial(_after, tell, getattr(fit, name)))
    for name in ("save", "save_weights"):
        tell.replace(name, [keras.Model], partial(tell.spanned, CHECKPOINT_SAVE))
    tell.replace("load_weights", [keras.Model], partial(tell.spanned, CHECKPOINT_RESTORE))
    places = [keras.saving, keras.models, *_loaded("keras.src.saving.saving_api")]
    tell.replace("load_model", places, partial(tell.spanned, CHECKPOINT_RESTORE))
    for module in _loaded("keras.src.backend.jax.trainer"):
        iterator = module.JAXEpochIterator
        if "_get_iterator" in vars(iterator):
            tell.replace("_get_iterator", [iterator], partial(_awaited, tell, fit))
    listening.add(tell)
    tell.at_the_end.append(partial(listening.discard, tell))


listening: Final[set[Teller]] = set()
"""Those that hear of Keras through this hook: a callback of ours need not tell them."""


class Fit:
    """One training at a time, as the list of callbacks is told of it."""

    def __init__(self, tell: Teller) -> None:
        self.tell = tell
        self.trains = False
        self._first: int | None = None
        """The first step of this training, counted as Keras does; None: it has not begun."""
        self._start = 0
        """The same step, as it is told."""
        self._count = 0
        self._per_epoch: int | None = None
        self._in_batches: frozenset[str] = frozenset()
        """The metrics that batches have."""
        self._evaluation: Span | None = None

    def on_train_begin(self, params: Mapping[str, Any], *_: Any, **__: Any) -> None:
        self._end_evaluation()
        steps = params.get("steps")
        self._per_epoch = steps if isinstance(steps, int) and steps > 0 else None
        self._first = None
        run, loop = self.tell.begun(), self.tell.loop
        if run is not None and loop is not None and not loop.explicit:
            run._exhausted = False
        self.trains = True

    def on_epoch_begin(self, params: Mapping[str, Any], epoch: Any = 0, *_: Any, **__: Any) -> None:
        """Where Keras knows how many steps an epoch has, those of earlier epochs count too."""
        here = int(epoch) * (self._per_epoch or 0)
        if self._first is None:
            self._first = here
            self._start = self._count = self._begins_at(here)
        elif self._per_epoch is not None:
            self._count = self._start + here - self._first

    def _begins_at(self, first: int) -> int:
        """A training that is resumed counts on.  Another one comes after those before it."""
        loop = self.tell.loop
        taken = 0 if loop is None or loop.number == NO_STEP else loop.number + 1
        start = max(first, taken)
        if start > 0:
            self.tell.steps_begin(SOURCE, start - 1)
        return start

    def on_train_batch_begin(self, *_: Any, **__: Any) -> None:
        self.tell.step_began(SOURCE, self._count)

    def on_train_batch_end(
        self, params: Mapping[str, Any], batch: Any = 0, logs: Any = None, *_: Any, **__: Any
    ) -> None:
        if isinstance(logs, Mapping):
            self._in_batches = frozenset(logs)
            self.tell.metrics(logs, self._count)
        self.tell.step_ended(SOURCE, self._count)
        self._count += 1

    def on_epoch_end(
        self, params: Mapping[str, Any], epoch: Any = 0, logs: Any = None, *_: Any, **__: Any
    ) -> None:
        """What batches do not have: validation, and what other callbacks add."""
        more = logs if isinstance(logs, Mapping) else {}
        new = {name: value for name, value in more.items() if name not in self._in_batches}
        self.tell.metrics({**new, "epoch": int(epoch)}, max(0, self._count - 1))

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._end_evaluation()
        self.trains = False
        self.tell.steps_over(SOURCE)

    def on_test_begin(self, *_: Any, **__: Any) -> None:
        self._end_evaluation()
        run, loop = self.tell.begun(), self.tell.loop
        if run is not None and loop is not None:
            loop.pauses()
            self.tell.evaluates = True
            self._evaluation = Span(run, EVALUATION)
            self._evaluation.begin(run._step)

    def on_test_end(self, params: Mapping[str, Any], logs: Any = None, *_: Any, **__: Any) -> None:
        self._end_evaluation()
        if not self.trains and isinstance(logs, Mapping):
            self.tell.metrics({f"test_{name}": value for name, value in logs.items()})

    @property
    def evaluates(self) -> bool:
        return self._evaluation is not None

    def _end_evaluation(self) -> None:
        span, self._evaluation = self._evaluation, None
        if span is None:
            return
        self.tell.evaluates = False
        run = self.tell.run
        if run is not None and self.tell.listens:
            span.end(run._step)


def _before(tell: Teller, note: Callable[..., None], function: Callable[P, R]) -> Callable[P, R]:
    """A method of the list of callbacks; `note` gets the list's parameters in its place."""
    careful = guarded("note what Keras does")(note)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if tell.listens or tell.expects:
            careful(_params(args[0]), *args[1:], **kwargs)
        return function(*args, **kwargs)

    return call


def _after(tell: Teller, note: Callable[..., None], function: Callable[P, R]) -> Callable[P, R]:
    careful = guarded("note what Keras does")(note)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        if tell.listens or tell.expects:
            careful(_params(args[0]), *args[1:], **kwargs)
        return result

    return call


def _params(callbacks: Any) -> Mapping[str, Any]:
    params = getattr(callbacks, "params", None)
    return params if isinstance(params, Mapping) else {}


def _awaited(tell: Teller, fit: Fit, function: Callable[P, Any]) -> Callable[P, Any]:
    """With JAX, batches come inside a step: a wait for one is told by itself."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        batches = function(*args, **kwargs)
        return _Batches(tell, fit, batches) if tell.listens or tell.expects else batches

    return call


class _Batches:
    def __init__(self, tell: Teller, fit: Fit, batches: Any) -> None:
        self._tell, self._fit = tell, fit
        self._batches: Iterator[Any] = iter(batches)

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        begin = self._tell.now()
        try:
            return next(self._batches)
        finally:
            end = self._tell.now()
            if end - begin >= WAIT_NS and self._fit.trains and not self._fit.evaluates:
                self._tell.elapsed(DATA_LOADING, begin, end, beside=False, source=SOURCE)


def _loaded(*names: str) -> list[Any]:
    return [sys.modules[name] for name in names if name in sys.modules]
