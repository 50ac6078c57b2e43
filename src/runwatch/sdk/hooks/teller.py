"""What all hooks use: wrapping a framework's functions, and recording in the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from runwatch.sdk.guard import attempt
from runwatch.sdk.kinds import BACKGROUND
from runwatch.sdk.step import SHORT_NS, Span, elapsed

if TYPE_CHECKING:
    from runwatch.sdk.run import Run

P = ParamSpec("P")
R = TypeVar("R")
Counts = Callable[[tuple[Any, ...], dict[str, Any], Any], bool]

# How sure we are that what a thread does is what we take it for.  A nested call is recorded only if
# we are surer of it: torch.save inside a distributed checkpoint is part of that checkpoint.
_NOTHING, _PERHAPS, _SURELY = range(3)


class Teller:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.now: Final = run._clock.mono_ns
        self.deaf = False
        """The run has finished, but somebody may still hold a function of ours."""
        self.every_second: list[Callable[[], None]] = []
        self.at_the_end: list[Callable[[], None]] = []
        self._inside = threading.local()

    @property
    def listens(self) -> bool:
        """False in a forked child: its files and compilations do not take the run's time."""
        return not self.deaf and not self.run._is_child

    @property
    def beside(self) -> bool:
        """Whether this is another thread than the one that takes the steps."""
        return threading.get_ident() != self.run._thread

    def replace(
        self,
        name: str,
        places: Sequence[object],
        wrap: Callable[[Callable[..., Any]], Callable[..., Any]],
    ) -> None:
        """Wrap one function everywhere it is kept: in a package and in the module that defines it.

        With the same object in all places, since pickle looks functions up by name.
        """
        original = vars(places[0])[name]
        replacement = wrap(original)
        for place in places:
            if vars(place).get(name) is original:
                setattr(place, name, replacement)
                self.at_the_end.append(partial(_restore, place, name, replacement, original))

    def spanned(self, kind: str, function: Callable[P, R]) -> Callable[P, R]:
        """`function` in a span: it shows while it runs, even if it never ends."""

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            outer = self._level()
            if outer >= _SURELY or not self.listens:
                return function(*args, **kwargs)
            self._inside.level = _SURELY
            try:
                with Span(self.run, kind):
                    return function(*args, **kwargs)
            finally:
                self._inside.level = outer

        return call

    def timed(
        self,
        kind: str,
        function: Callable[P, R],
        *,
        short_ns: int = SHORT_NS,
        counts: Counts = lambda args, kwargs, result: True,
    ) -> Callable[P, R]:
        """`function`, recorded afterwards if it took long in the thread that takes the steps.

        `counts` decides, by arguments, keywords and result, whether such a call is recorded.
        """
        source = f"{function.__module__}.{function.__qualname__}"

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            outer, run = self._level(), self.run
            if outer >= _PERHAPS or run._awaits_data or self.beside or not self.listens:
                return function(*args, **kwargs)
            self._inside.level = _PERHAPS
            begin = self.now()
            try:
                result = function(*args, **kwargs)
            finally:
                self._inside.level = outer
            end = self.now()
            if end - begin >= short_ns and attempt(
                f"look at a call of {source}", False, lambda: counts(args, kwargs, result)
            ):
                elapsed(run, kind, begin, end, source=source)
            return result

        return call

    def elapsed(self, kind: str, begin_ns: int, end_ns: int, *, beside: bool, source: str) -> None:
        if self.listens:
            name = kind + BACKGROUND if beside else kind
            elapsed(self.run, name, begin_ns, end_ns, source=source)

    def _level(self) -> int:
        level: int = getattr(self._inside, "level", _NOTHING)
        return level


def _restore(place: object, name: str, replacement: object, original: object) -> None:
    """If somebody has wrapped our wrapper since, ours stays inside and does nothing."""
    if vars(place).get(name) is replacement:
        setattr(place, name, original)
