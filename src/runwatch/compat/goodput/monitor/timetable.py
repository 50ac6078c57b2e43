"""One background thread that runs several errands, each at its own interval.

The thread exists only while there is an errand.  It is a daemon: it ends with the process, and a
forked child has none.  Nobody waits for it longer than they asked to, whatever an errand does.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.sdk.guard import attempt

_NEVER: Final = 1 << 62
_JOIN_SECONDS: Final = 0.5


@dataclass(slots=True, eq=False)
class _Errand:
    name: str
    run: Callable[[], None]
    period_ns: int
    due_ns: int
    once_more: bool | None = None
    """None: goes on.  Otherwise it is to end, after running once more or at once."""
    ended: threading.Event = field(default_factory=threading.Event)

    def urgency(self) -> int:
        return self.due_ns if self.once_more is None else -1


class Timetable:
    def __init__(
        self,
        name: str,
        *,
        at_rest: Callable[[], None],
        exit_seconds: float | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """`at_rest` runs in the thread when its last errand has ended.  When the program exits
        with errands left, each runs once more, and all together for `exit_seconds` at most; with
        None they are dropped."""
        self.pid = os.getpid()
        self._name = name
        self._at_rest = at_rest
        self._exit_seconds = exit_seconds
        self._clock = clock
        # Reentrant, and a lock used as a flag: a signal handler may call `end` during `add`.
        self._lock: Any = threading.RLock()
        self._wake = threading.Lock()
        self._errands: dict[str, _Errand] = {}
        self._thread: threading.Thread | None = None
        self._abandoned = False

    def add(self, name: str, seconds: float, run: Callable[[], None]) -> bool:
        """Run it every `seconds`, the first time after `seconds`; False if it is running."""
        with self._lock:
            known = self._errands.get(name)
            if known is not None and known.once_more is None:
                return False
            period = max(int(seconds * 1e9), 1)
            self._put(_Errand(name, run, period, self._clock.mono_ns() + period))
        self._rouse()
        return True

    def runs(self, name: str) -> bool:
        errand = self._errands.get(name)
        return errand is not None and errand.once_more is None

    def end(self, name: str, *, once_more: bool, seconds: float | None) -> bool:
        """End it, after a last time if `once_more`; False if that took longer than `seconds`."""
        errand = self._errands.get(name)
        if errand is None:
            return True
        errand.once_more = once_more
        return self._see_out(errand, seconds)

    def once(self, name: str, run: Callable[[], None], seconds: float | None) -> bool:
        """Run it now, once; False if that took longer than `seconds`."""
        errand = _Errand(name, run, _NEVER, _NEVER, once_more=True)
        with self._lock:
            self._put(errand)
        return self._see_out(errand, seconds)

    def abandon(self) -> None:
        """End everything soon.  Takes no lock: a garbage collection may call it anywhere."""
        self._abandoned = True
        self._rouse()

    def _see_out(self, errand: _Errand, seconds: float | None) -> bool:
        thread = self._thread
        self._rouse()
        if thread is threading.current_thread() or self._lock._is_owned():
            return False  # within an errand, or a signal within `add`: it ends when we return
        ended = errand.ended.wait(seconds)
        if ended and not self._errands and thread is not None:
            thread.join(_JOIN_SECONDS)
        return ended

    def _put(self, errand: _Errand) -> None:
        self._errands[errand.name] = errand
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
            atexit.unregister(self._at_exit)
            atexit.register(self._at_exit)

    def _rouse(self) -> None:
        with suppress(RuntimeError):  # roused already
            self._wake.release()

    def _woken(self, seconds: float) -> bool:
        return self._wake.acquire(timeout=seconds)

    def _work(self) -> None:
        while (errand := self._next()) is not None:
            if errand.once_more is None:
                self._run(errand)
                self._postpone(errand)
            if errand.once_more is not None:  # perhaps since a moment ago
                if errand.once_more:
                    self._run(errand)
                self._remove(errand)

    def _run(self, errand: _Errand) -> None:
        attempt(f"do the {errand.name}", None, errand.run)

    def _next(self) -> _Errand | None:
        """The errand to do now, waited for; None when there is none left."""
        while True:
            with self._lock:
                if self._abandoned:
                    self._end_all()
                first = min(self._errands.values(), key=_Errand.urgency, default=None)
                if first is None:
                    self._thread = None
                    atexit.unregister(self._at_exit)
                    return None
            wait = first.urgency() - self._clock.mono_ns()
            if first.once_more is not None or wait <= 0:
                return first
            self._clock.wait(wait / 1e9, self._woken)

    def _end_all(self) -> list[_Errand]:
        with self._lock:
            errands = list(self._errands.values())
            for errand in errands:
                if errand.once_more is None:
                    errand.once_more = self._exit_seconds is not None
        return errands

    def _postpone(self, errand: _Errand) -> None:
        """The next time that is not past: a slow errand leaves times out, it does not drift."""
        late = max(self._clock.mono_ns() - errand.due_ns, 0)
        errand.due_ns += (late // errand.period_ns + 1) * errand.period_ns

    def _remove(self, errand: _Errand) -> None:
        with self._lock:
            if self._errands.get(errand.name) is errand:  # else it was started anew meanwhile
                del self._errands[errand.name]
            last = not self._errands
        if last:
            attempt("put the outlets away", None, self._at_rest)
        errand.ended.set()

    def _at_exit(self) -> None:
        if os.getpid() != self.pid:
            return  # a forked child: the thread is the parent's
        errands = self._end_all()
        self._rouse()
        deadline = self._clock.mono_ns() + int((self._exit_seconds or 0.0) * 1e9)
        for errand in errands:
            errand.ended.wait(max(deadline - self._clock.mono_ns(), 0) / 1e9)
