"""The edge of the SDK.  No failure of ours gets past it into the user's program.

Failures are counted by kind, logged once (logger "runwatch") and recorded as `warning` events.
This file holds the only broad `except` of the SDK.  `Edge.log` and `record` are here because they
are called too often for one more Python frame around them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import wraps
from struct import error as StructError
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from runwatch.interruption import let_pass
from runwatch.record import NO_STEP

if TYPE_CHECKING:
    from runwatch.journal.writer import JournalWriter
    from runwatch.sdk.quick import QuickStep

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("runwatch")

MAX_KINDS: Final = 200
_PLAIN: Final = frozenset((float, int))

# What the fast path cannot take: a new name, an odd value, a step beyond 64 bits.  It raises before
# anything is written; the slow path then looks closely.
_ODD: Final = (LookupError, TypeError, AttributeError, ArithmeticError, StructError)


class Tally:
    """How often each kind of problem occurred in this process."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._reported: dict[str, int] = {}
        self.listener: Callable[[], None] | None = None
        """Called when a kind occurs for the first time."""

    def count(self, what: str, message: str = "", *, by: int = 1, quiet: bool = False) -> None:
        """`quiet`: not a problem; counted for people who look, but not logged."""
        if what not in self.counts and len(self.counts) >= MAX_KINDS:
            what, message = "other", f"more than {MAX_KINDS} kinds of problems: counted together"
        seen = self.counts.get(what, 0)
        self.counts[what] = seen + by
        if seen:
            return
        # Counted first: a log handler that records metrics may bring us here again.
        if not quiet:
            logger.warning("%s (logged once; repeats are only counted)", message or what)
        if self.listener is not None:
            self.listener()

    def news(self) -> list[tuple[str, int]]:
        """Kinds whose count changed since the last call."""
        changed = [(w, n) for w, n in list(self.counts.items()) if self._reported.get(w) != n]
        self._reported.update(changed)
        return changed

    def forget(self) -> None:
        self.counts.clear()
        self._reported.clear()


tally = Tally()


def failed(where: str, error: Exception, *, quiet: bool = False) -> None:
    """Count a failure of ours and log it once.  A user's interruption is raised again."""
    let_pass(error)
    try:
        kind = f"{where}: {type(error).__name__}"
        message = f"runwatch could not {where}: {type(error).__name__}: {error}"
        tally.count(kind, message, quiet=quiet)
    except Exception as another:
        let_pass(another)  # a log handler or a __str__ raised: ignored


def guarded(where: str, *, quiet: bool = False) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """For calls from the user's program that are not hot; `where` completes "could not …".

    `quiet`: the program did not ask for it, so a failure is counted and not logged.
    """

    def wrap(function: Callable[P, None]) -> Callable[P, None]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                function(*args, **kwargs)
            except Exception as error:
                failed(where, error, quiet=quiet)

        return call

    return wrap


def attempt(where: str, default: T, function: Callable[[], T], *, quiet: bool = False) -> T:
    """What `function` returns, or `default` if it fails."""
    try:
        return function()
    except Exception as error:
        failed(where, error, quiet=quiet)
        return default


def text_of(value: object) -> str:
    """str(), for values whose own may fail."""
    try:
        return str(value)
    except Exception as error:
        let_pass(error)
        return f"<{type(value).__name__}>"


class Edge:
    """What the hot calls need.  A run is one; so is `Waiting`, before a run begins."""

    __slots__ = (
        "_at_step", "_awaits_data", "_step", "_thread", "_writer", "_plans", "_point", "_points",
        "_quick", "_recordable", "_series",
    )  # fmt: skip

    _point: Callable[[int, float, int], None]
    _points: Callable[[tuple[int, ...], tuple[float, ...], int], None]
    _series: dict[str, int]
    """Series ids of names that `log` may write at once."""
    _recordable: dict[str, int]
    """The same for `metrics.record`, without the names of system metrics."""
    _plans: dict[tuple[str, ...], Callable[[tuple[float, ...], int], None]]
    """How to write each set of keys that `log` has seen."""
    _quick: QuickStep | None
    """Records steps directly; None while the journal is not open."""
    _step: int
    _thread: int
    """The thread that takes the steps; before the first step, the one that called `init`."""
    _awaits_data: bool
    """Whether that thread is waiting for a loader's next item."""
    _writer: JournalWriter | None
    """The journal of a run, while it is open."""
    _at_step: Callable[[int, bool], None] | None
    """Set while a profile is taken: called at each step's begin (True) and end (False)."""

    def __init__(self) -> None:
        self._forget_ids()
        self._step = NO_STEP
        self._thread = get_ident()
        self._awaits_data = False
        self._writer = None
        self._at_step = None

    def _forget_ids(self) -> None:
        """From here on every call takes the slow path, which knows what to do."""
        self._series, self._recordable, self._plans = {}, {}, {}
        self._quick = None
        self._point = _no_point
        self._points = _no_points

    def log(
        self, data: Mapping[str, Any] | None = None, /, step: int | None = None, **values: Any
    ) -> None:
        """Record numbers of this moment: `log(loss=0.1)` or `log({"loss": 0.1}, step=7)`.

        Without `step`, the current step of `steps()` or `step()`.  Strings and dicts become log
        lines.  Never raises; a value that cannot be recorded is counted and logged once.
        """
        try:
            at = self._step if step is None else step
            mine = values if data is None else {**data, **values} if values else data
            if type(at) is int:
                if len(mine) == 1:
                    for name, value in mine.items():
                        if type(value) is float:
                            self._point(self._series[name], value, at)
                            return
                        if type(value) is int:
                            self._point(self._series[name], float(value), at)
                            return
                else:
                    numbers = tuple(mine.values())
                    if _PLAIN.issuperset(map(type, numbers)):
                        self._plans[tuple(mine)](numbers, at)
                        return
        except _ODD as error:
            let_pass(error)
        except Exception as error:
            failed("log", error)
            return
        self._log_slowly(data, values, step)

    def _log_slowly(self, data: object, values: Mapping[str, Any], step: object) -> None:
        raise NotImplementedError

    def _record_slowly(
        self, name: object, value: object, step: object, labels: object, all_hosts: bool
    ) -> None:
        raise NotImplementedError


def _no_point(series: int, value: float, step: int) -> None:
    raise KeyError(series)


def _no_points(series: tuple[int, ...], values: tuple[float, ...], step: int) -> None:
    raise KeyError(series)


class Front:
    """Holds the edge that `record` and the module-level calls use."""

    __slots__ = ("edge",)

    def __init__(self, edge: Edge) -> None:
        self.edge = edge


front = Front(Edge())


def record(
    metric_name: str,
    value: Any,
    step: int | None = None,
    labels: Mapping[str, str] | None = None,
    record_on_all_hosts: bool = False,
) -> None:
    """Record one value of one metric, with the time of this call.

    `metric_name` is a `MetricType` or any string.  Recorded by rank 0 only, unless
    `record_on_all_hosts`.  Before a run exists the value waits for one.  Never raises.
    """
    edge = front.edge
    try:
        if type(value) is float and labels is None:
            at = edge._step if step is None else step
            if type(at) is int:
                edge._point(edge._recordable[metric_name], value, at)
                return
    except _ODD as error:
        let_pass(error)
    except Exception as error:
        failed("record a metric", error)
        return
    edge._record_slowly(metric_name, value, step, labels, record_on_all_hosts)
