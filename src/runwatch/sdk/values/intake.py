"""The slow path of `log` and `record`, for values that the fast path left."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.record import NO_STEP
from runwatch.sdk.guard import Edge, front, guarded, tally, text_of
from runwatch.sdk.values.numbers import metric_name, read, step_number
from runwatch.sdk.values.pending import Logged

MAX_WAITING: Final = 10_000


class Intake(Edge):
    """Checks names, values and labels; a subclass gets only well-formed ones."""

    @guarded("log")
    def _log_slowly(self, data: object, values: Mapping[str, Any], step: object) -> None:
        if data is not None and not isinstance(data, Mapping):
            kind = type(data).__name__
            tally.count(f"log {kind}", f"log() takes a dict or keywords, not a {kind}")
            data = None
        pairs = {**(data or {}), **values}
        for name, value in pairs.items():
            self._say(name, value, step, None, False, False)
        self._remember(pairs)

    def _record_slowly(
        self, name: object, value: object, step: object, labels: object, all_hosts: bool
    ) -> None:
        self._say(name, value, step, labels, bool(all_hosts), True)

    @guarded("record a value")
    def _say(
        self,
        name: object,
        value: object,
        step: object,
        labels: object,
        all_hosts: bool,
        by_record: bool,
    ) -> None:
        clean = metric_name(name)
        if clean is None or not self._listens(all_hosts):
            return
        number = self._step if step is None else step_number(step)
        self._accept(
            Logged(
                clean,
                read(value),
                NO_STEP if number is None else number,
                _labels(labels),
                all_hosts,
                by_record,
            )
        )

    def _listens(self, all_hosts: bool) -> bool:
        return True

    def _accept(self, logged: Logged) -> None:
        raise NotImplementedError

    def _remember(self, names: Mapping[str, Any]) -> None:
        """Prepare the fast path for the next call with these names."""


def _labels(labels: object) -> dict[str, str]:
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        kind = type(labels).__name__
        tally.count(f"labels {kind}", f"labels are a dict of strings, not a {kind}: left out")
        return {}
    pairs = [(text_of(k)[:200], text_of(v)[:1000]) for k, v in list(labels.items())[:64]]
    return {k.encode(errors="replace").decode(): v.encode(errors="replace").decode()
            for k, v in pairs}  # fmt: skip


class Waiting(Intake):
    """Before there is a run: values wait, with their time, until one begins."""

    def __init__(self, clock: Clock = system_clock) -> None:
        super().__init__()
        self._clock = clock
        self.logged: deque[Logged] = deque()

    def _accept(self, logged: Logged) -> None:
        successor = front.edge
        if successor is not self and isinstance(successor, Intake):
            successor._accept(logged)  # a run has begun since the call
            return
        if len(self.logged) >= MAX_WAITING:
            tally.count(
                "before a run", f"more than {MAX_WAITING} records wait for a run: the rest is lost"
            )
            return
        logged.mono_ns = self._clock.mono_ns()
        self.logged.append(logged)
