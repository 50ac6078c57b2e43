"""What all hooks use: wrapping a framework's functions, and recording in the run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeVar

from runwatch.clock import system_clock, tick_shift
from runwatch.sdk.guard import attempt, guarded, tally
from runwatch.sdk.hooks.loop import Inside, Loop
from runwatch.sdk.kinds import BACKGROUND, CHECKPOINT_SAVE, EVALUATION
from runwatch.sdk.step import SHORT_NS, Span, elapsed

if TYPE_CHECKING:
    from runwatch.sdk.run import Run

P = ParamSpec("P")
R = TypeVar("R")
Counts = Callable[[tuple[Any, ...], dict[str, Any], Any], bool]

# How sure we are that what a thread does is what we take it for.  A nested call is recorded only if
# we are surer of it: torch.save inside a distributed checkpoint is part of that checkpoint.
_NOTHING, _PERHAPS, _SURELY = range(3)


_PAUSES: Final = (CHECKPOINT_SAVE, EVALUATION)
MOST_EARLY: Final = 100


class Early(NamedTuple):
    """What took time before there was a run."""

    kind: str
    begin_ns: int
    end_ns: int
    source: str


class Teller:
    """Tells a run what hooks see.

    Where the program does not begin a run itself, `begin` does, at the first sign of training or
    logging (`sdk/auto.py`).  What took time before is told then.
    """

    def __init__(
        self, run: Run | None = None, begin: Callable[[], Run | None] | None = None
    ) -> None:
        self.run: Run | None = None
        self.loop: Loop | None = None
        """The steps of the run, if there is one."""
        self.inside: Final = Inside()
        self.now: Final = (system_clock if run is None else run._clock).mono_ns
        self.deaf = False
        """The run has finished, but somebody may still hold a function of ours."""
        self.every_second: list[Callable[[], None]] = []
        self.at_the_end: list[Callable[[], None]] = []
        """To remove the hooks."""
        self.when_run_ends: list[Callable[[], None]] = []
        self.batch = (0, 0)
        """When a batch was asked for and came, before there was a run; in ticks."""
        self.evaluates = False
        """A framework says that it evaluates."""
        self.directs = False
        """Other processes train for this one, which is no part of their run."""
        self.done: set[str] = set()
        """What hooks have set that may be asked to set it again."""
        self._begin = begin
        self._early: list[Early] = []
        self._inside = threading.local()
        if run is not None:
            self.attach(run)

    # ── the run ───────────────────────────────────────────────────────────────────────────────

    @property
    def listens(self) -> bool:
        """False in a forked child: its files and compilations do not take the run's time."""
        return not self.deaf and self.run is not None and not self.run._is_child

    @property
    def expects(self) -> bool:
        """There is no run yet, but there may be one."""
        has_none = not self.deaf and self.run is None
        return has_none and not self.directs and self._begin is not None

    @property
    def beside(self) -> bool:
        """Whether this is another thread than the one that takes the steps."""
        run = self.run
        mine = threading.main_thread().ident if run is None else run._thread
        return threading.get_ident() != mine

    def begun(self) -> Run | None:
        """The run.  Call it at a sign of training or logging: it begins a run if there is none."""
        if self.run is None and self.expects and self._begin is not None:
            self._begin()  # which attaches it
        return self.run if self.listens else None

    def attach(self, run: Run) -> None:
        self.run, self.deaf = run, False
        self.loop = Loop(run, self.batch, self.inside)
        early, self._early, self.batch = self._early, [], (0, 0)
        for stretch in early:
            elapsed(run, stretch.kind, stretch.begin_ns, stretch.end_ns, source=stretch.source)

    @guarded("end the last step", quiet=True)
    def finish_steps(self) -> None:
        if self.loop is not None and self.listens:
            self.loop.finish()
            for function in self.when_run_ends:
                function()

    def leave(self) -> None:
        """The run ends, and there will be no other unless the program begins it."""
        self.run, self.loop, self.deaf = None, None, True
        self.inside.leave()

    # ── what hooks tell ───────────────────────────────────────────────────────────────────────

    @guarded("tell that a step began", quiet=True)
    def step_began(self, source: str, number: int | None = None) -> None:
        """`source` is the framework.  One source tells the steps of a run: `loop.py` says which."""
        self.begun()
        if self.loop is not None and self.listens:
            self.loop.began(source, None if number is None else int(number))

    @guarded("tell that a step ended", quiet=True)
    def step_ended(self, source: str, number: int | None = None) -> None:
        """It began where the one before ended, or when its batch came."""
        self.begun()
        if self.loop is not None and self.listens:
            self.loop.ended(source, None if number is None else int(number))

    @guarded("tell that a loop begins", quiet=True)
    def steps_begin(self, source: str, after: int = 0) -> None:
        """The source has a loop, and goes on after this step, 0 if the loop is new."""
        run = self.begun()
        if run is not None and self.loop is not None and self.loop.begins(source, int(after)):
            run._exhausted = False

    @guarded("tell that a loop is over", quiet=True)
    def steps_over(self, source: str, *, done: bool = True) -> None:
        """The source's loop has ended; another source may tell steps from now on.

        `done`: there was no more to do, as with a loop over `run.steps` that reached its end.
        """
        if self.run is not None and self.loop is not None and self.listens:
            if done and self.loop.leader == source:
                self.run._exhausted = True
            self.loop.rests(source)

    @guarded("tell metrics", quiet=True)
    def metrics(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """What the program logs.  Silent inside another call that tells the same (`alone`)."""
        if values and not getattr(self._inside, "alone", False):
            run = self.begun()
            if run is not None:
                run.log(values, step)

    def epoch(self, number: float) -> None:
        self.metrics({"epoch": number})

    def span(self, kind: str) -> AbstractContextManager[None]:
        """`with tell.span("evaluation"):`; nothing is told if there is no run."""
        run = self.run
        return Span(run, kind) if run is not None and self.listens else nullcontext()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Around a framework's own logging, which hands the same values to one logger or more."""
        outer = getattr(self._inside, "alone", False)
        self._inside.alone = True
        try:
            yield
        finally:
            self._inside.alone = outer

    @property
    def is_alone(self) -> bool:
        """Somebody else tells what is logged in this call."""
        return bool(getattr(self._inside, "alone", False))

    def unknown_version(self, framework: str, version: str) -> None:
        """The hook is not set."""
        message = f"{framework} {version} is not known: nothing is recorded of what it does"
        tally.count(f"hook of {framework} {version}", message)

    # ── wrapping ──────────────────────────────────────────────────────────────────────────────

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

    def replace_in(
        self, module: str, kind: str, name: str, wrap: Callable[..., Callable[..., Any]]
    ) -> None:
        """Wrap a method of a class, `wrap(tell, function)`, where this version of the framework has
        it.  Once, however often that is asked for."""
        owner: Any = getattr(sys.modules.get(module), kind, None)
        place = f"{module}.{kind}.{name}"
        if name in vars(owner or object) and place not in self.done:
            self.done.add(place)
            self.replace(name, [owner], partial(wrap, self))

    def spanned(self, kind: str, function: Callable[P, R]) -> Callable[P, R]:
        """`function` in a span: it shows while it runs, even if it never ends."""
        source = _name(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            outer = self._level()
            if outer >= _SURELY or not (self.listens or self.expects):
                return function(*args, **kwargs)
            run = self.begun() if kind == CHECKPOINT_SAVE else self.run
            self._pauses(kind)
            self._inside.level = _SURELY
            begin = self.now()
            try:
                if run is not None:
                    with Span(run, kind):
                        return function(*args, **kwargs)
                return function(*args, **kwargs)
            finally:
                self._inside.level = outer
                if run is None and not self.beside:
                    self.elapsed(kind, begin, self.now(), beside=False, source=source)

        return call

    def evaluating(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function` in a span of evaluation.  Batches that it asks for are not trained with."""

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if self.beside or not (self.listens or self.expects):
                return function(*args, **kwargs)
            run, begin, outer = self.run, self.now(), self.evaluates
            self._pauses(EVALUATION)
            self.evaluates = True
            self.inside.iterator = 0
            try:
                with self.span(EVALUATION):
                    try:
                        return function(*args, **kwargs)
                    finally:
                        if self.loop is not None and self.listens:
                            self.loop.tell_waits()
            finally:
                self.evaluates = outer
                if run is None:
                    source = _name(function)
                    self.elapsed(EVALUATION, begin, self.now(), beside=False, source=source)

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
        source = _name(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            outer, run = self._level(), self.run
            awaits_data = run is not None and run._awaits_data
            if outer >= _PERHAPS or awaits_data or self.beside:
                return function(*args, **kwargs)
            if not (self.listens or self.expects):
                return function(*args, **kwargs)
            self._inside.level = _PERHAPS
            begin = self.now()
            try:
                result = function(*args, **kwargs)
            finally:
                self._inside.level = outer
            end = self.now()
            if end - begin >= short_ns and attempt(
                f"look at a call of {source}",
                False,
                lambda: counts(args, kwargs, result),
                quiet=True,
            ):
                if kind == CHECKPOINT_SAVE:
                    self.begun()
                self._pauses(kind, begin)
                self.elapsed(kind, begin, end, beside=False, source=source)
            return result

        return call

    def elapsed(self, kind: str, begin_ns: int, end_ns: int, *, beside: bool, source: str) -> None:
        run = self.run
        if run is not None and self.listens:
            name = kind + BACKGROUND if beside else kind
            elapsed(run, name, begin_ns, end_ns, source=source)
        elif self.expects and not beside and end_ns - begin_ns >= SHORT_NS:
            self._early = [*self._early, Early(kind, begin_ns, end_ns, source)][-MOST_EARLY:]

    @guarded("end a step", quiet=True)
    def _pauses(self, kind: str, begin_ns: int | None = None) -> None:
        """Training waits for this, from now on or since then: it is no part of the last step."""
        loop = self.loop
        if loop is not None and self.listens and not self.beside and kind in _PAUSES:
            shift = 0 if begin_ns is None else tick_shift(loop.run._clock)
            loop.pauses(None if begin_ns is None else begin_ns - shift)

    def _level(self) -> int:
        level: int = getattr(self._inside, "level", _NOTHING)
        return level


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _restore(place: object, name: str, replacement: object, original: object) -> None:
    """If somebody has wrapped our wrapper since, ours stays inside and does nothing."""
    if vars(place).get(name) is replacement:
        setattr(place, name, original)
