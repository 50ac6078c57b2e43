"""What a logger was given, told to the run.

A name belongs to the logger that tells it first, in a run.  What another logger, or the same one
for another purpose, says under that name is left out and counted: programs often log one number to
two places, and a curve of both would be neither.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from runwatch.sdk.guard import attempt, guarded, tally, text_of
from runwatch.sdk.hooks.numbered import number
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.run import Run
from runwatch.sdk.values.plain import config_values, mapping

P = ParamSpec("P")
R = TypeVar("R")

DEPTH: Final = 8

_owners: Final[WeakKeyDictionary[Run, dict[str, str]]] = WeakKeyDictionary()
"""By run: the logger that each name belongs to."""


class Logger:
    """One logger's words to the run."""

    def __init__(self, tell: Teller, name: str) -> None:
        self._tell = tell
        self._name = name
        self._settings: set[str] = set()
        """Those that the run has from this logger, which may change them."""

    def noting(
        self, note: Callable[..., None], *, result: bool = False
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """For `Teller.replace`: a function, and after it `note` with the same arguments.

        With `result`, what the function returned comes before them.
        """
        return lambda function: self._after(function, note, result)

    def _after(
        self, function: Callable[P, R], note: Callable[..., None], result: bool
    ) -> Callable[P, R]:
        careful = guarded(f"note what {self._name} logs")(note)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            returned = function(*args, **kwargs)
            if self._tell.listens or self._tell.expects:
                careful(*((returned, *args) if result else args), **kwargs)
            return returned

        return call

    def knows(self, function: Callable[..., Any], *names: str) -> bool:
        """Whether this version's function takes these arguments; if not, that is said."""
        nothing: tuple[str, ...] = ()
        taken = attempt(f"look at {self._name}", nothing, lambda: _positional(function))
        if taken[: len(names)] == names:
            return True
        module = sys.modules.get(function.__module__.partition(".")[0])
        self._tell.unknown_version(self._name, text_of(getattr(module, "__version__", "?")))
        return False

    def row(
        self, values: Mapping[Any, Any], step: Any, prefix: str = "", *, counts: bool = True
    ) -> None:
        """Record the numbers among these values.  `counts`: the program said the step itself."""
        run = self._tell.begun()
        if counts:
            number(self._tell, self._name, step)
        if run is None or self._tell.is_alone:
            return
        owners = _owners.setdefault(run, {})
        mine = {
            name: value
            for name, value in _numbers(values, prefix)
            if self._is_mine(owners, run, name)
        }
        self._tell.metrics(mine, step)

    def _is_mine(self, owners: dict[str, str], run: Run, name: str) -> bool:
        owner = owners.get(name)
        if owner is None:
            # Somebody has logged it, but no logger: the program itself, or its trainer's hook.
            owner = owners[name] = "the program" if name in run._series else self._name
        if owner == self._name:
            return True
        tally.count(f"told by {self._name} too", quiet=True)
        return False

    def config(self, values: Any) -> None:
        """Record settings that the run's configuration does not have from somebody else."""
        run = self._tell.begun()
        if run is None:
            return
        known, mine = run.config, self._settings
        new = {k: v for k, v in config_values(values).items() if k not in known or k in mine}
        if any(k not in known or known[k] is not v for k, v in new.items()):
            mine.update(new)
            known.update(new)

    def summary(self, values: Mapping[str, Any]) -> None:
        """Record what the program says of the run as a whole."""
        run = self._tell.begun()
        if run is not None and not self._tell.is_alone:
            run._config_event("user", {"summary": mapping(values)})

    def no_number(self, kind: str) -> None:
        """Pictures, histograms and the like stay with the logger."""
        tally.count(f"{self._name} {kind}"[:200], quiet=True)


def _numbers(
    values: Mapping[Any, Any], prefix: str, depth: int = DEPTH
) -> Iterator[tuple[str, Any]]:
    """{"train": {"loss": 1}} is train.loss, as wandb shows it."""
    for key, value in values.items():
        name = prefix + (key if isinstance(key, str) else text_of(key))
        if isinstance(value, Mapping):
            if depth:
                yield from _numbers(value, f"{name}.", depth - 1)
        elif type(value) is float or is_number(value):
            yield name, value.item() if _is_here(value) else value


def is_number(value: Any) -> bool:
    """By its description alone: a device may still be computing it."""
    if isinstance(value, float | int):
        return True
    if isinstance(value, str | bytes | list | tuple | None):
        return False
    kind = getattr(getattr(value, "dtype", None), "kind", "f")
    if kind in "cmMOSU":
        return False
    count = getattr(value, "numel", None) or getattr(value, "size", None)
    if count is None:
        return hasattr(type(value), "__float__")
    return attempt("count numbers", 0, lambda: count() if callable(count) else count) == 1


def _is_here(value: Any) -> bool:
    """Whether it is a number in host memory that says so: a plain one is recorded much faster."""
    kind = type(value)
    if kind.__module__ == "torch":
        return kind.__name__ == "Tensor" and value.device.type == "cpu" and not value.is_complex()
    return kind.__module__ == "numpy"


def _positional(function: Callable[..., Any]) -> tuple[str, ...]:
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in signature(function).parameters.values() if p.kind in kinds)
