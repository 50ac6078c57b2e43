"""Steps of JAX loops.

JAX has no optimizer that we could listen to: a jitted function is traced once, and then runs
without Python.  What tells a step is what the program says for its profiler, `StepTraceAnnotation`
(MaxText and others have it).  Where there is none, `numbered.py` looks for other signs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Final

from runwatch.sdk.guard import guarded, text_of
from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.hooks.versions import is_known

SOURCE: Final = "jax.profiler"
_OTHER_LOOPS: Final = ("eval", "test", "valid", "predict", "infer")


def install(tell: Teller) -> None:
    if not is_known(tell, "jax"):
        return
    annotation: Any = sys.modules["jax"].profiler.StepTraceAnnotation
    steps = Annotated(tell)
    tell.replace("__init__", [annotation], steps.around_init)
    # These are inherited from compiled code, so there is nothing to put back but their absence.
    for name, wrap in (("__enter__", steps.around_enter), ("__exit__", steps.around_exit)):
        wrapper = wrap(getattr(annotation, name))
        if name not in vars(annotation):
            setattr(annotation, name, wrapper)
            tell.at_the_end.append(partial(_remove, annotation, name, wrapper))


class Annotated:
    """Blocks of the name that came first are steps, unless the name is an evaluation's."""

    def __init__(self, tell: Teller) -> None:
        self._tell = tell
        self._name = ""

    def around_init(self, function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def __init__(annotation: Any, *args: Any, **kwargs: Any) -> None:
            function(annotation, *args, **kwargs)
            self._remember(annotation, *args, **kwargs)

        return __init__

    def around_enter(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def __enter__(annotation: Any) -> Any:
            self._begin(annotation)
            return function(annotation)

        return __enter__

    def around_exit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def __exit__(annotation: Any, *error: Any) -> Any:
            result = function(annotation, *error)
            self._end(annotation)
            return result

        return __exit__

    @guarded("note an annotated step")
    def _remember(self, annotation: Any, name: Any = "", **given: Any) -> None:
        if self._tell.listens or self._tell.expects:
            annotation._runwatch_step = (text_of(name), given.get("step_num"))

    @guarded("note that an annotated step begins")
    def _begin(self, annotation: Any) -> None:
        name, number = getattr(annotation, "_runwatch_step", ("", None))
        if self._is_the_loop(name):
            self._tell.step_began(SOURCE, number)

    @guarded("note that an annotated step has ended")
    def _end(self, annotation: Any) -> None:
        name, number = getattr(annotation, "_runwatch_step", ("", None))
        if name and name == self._name:
            self._tell.step_ended(SOURCE, number)

    def _is_the_loop(self, name: str) -> bool:
        if not name or not (self._tell.listens or self._tell.expects) or self._tell.beside:
            return False
        if not self._name and not any(word in name.lower() for word in _OTHER_LOOPS):
            self._name = name
        return name == self._name


def _remove(place: Any, name: str, wrapper: object) -> None:
    if vars(place).get(name) is wrapper:
        delattr(place, name)
