"""Shares Python's one faulthandler: the last to ask is served, and then the one before again.

faulthandler has one file for faults and one per signal.  A program may use it itself; a run uses
it; a `diagnose` block uses it, and blocks can be nested.  Each kind of use is a desk.  A user of a
desk adds its file and removes it later, in any order and from any thread.

faulthandler does not tell which file it has.  So what a program had enabled before us is restored
to standard error, where `faulthandler.enable()` and PYTHONFAULTHANDLER write.  If the program
enables it while we use it, we notice (our handle is dropped) and leave it alone.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import weakref
from collections.abc import Mapping
from typing import Final, NamedTuple

from runwatch.capture.dispositions import (
    DEFAULT,
    NOBODYS,
    UNKNOWN,
    handler,
    ignore,
    let_go,
)

FATAL: Final = (signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL)


class Handle:
    """A file for faulthandler, which alone holds it: if it is gone, it was replaced."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def flush(self) -> None:
        pass


class _Guest(NamedTuple):
    fd: int
    weight: int
    pid: int


class Desk:
    """One use of faulthandler.  Respects what the program does with faulthandler meanwhile."""

    def __init__(self) -> None:
        self._guests: list[_Guest] = []
        self._served: weakref.ref[Handle] | None = None
        self._lock = threading.RLock()
        self._ours: Mapping[int, int] = {}
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()

    @property
    def is_ours(self) -> bool:
        """Whether faulthandler now writes to one of our guests' files."""
        return self._served is not None and self._served() is not None

    def add(self, fd: int, *, weight: int = 0) -> bool:
        """Returns False if we cannot use faulthandler.

        Heavier guests go first, then later ones; a forked child's go before its parent's.
        """
        with self._lock:
            if not self._guests and not self._begin():
                return False
            before = self._first()
            self._guests.append(_Guest(fd, weight, os.getpid()))
            try:
                self._serve(before)
            except (OSError, RuntimeError, ValueError):  # faulthandler refuses
                self._drop(fd)
                return False
            return True

    def remove(self, fd: int) -> None:
        with self._lock:
            before = self._first()
            self._drop(fd)
            if not self.is_ours:
                return  # the program replaced or disabled it: leave it alone
            if self._guests:
                self._serve(before)
            else:
                self._served = None
                self._finish()

    def _drop(self, fd: int) -> None:
        """Removes the last guest with this file: nested blocks share a file."""
        for place in reversed(range(len(self._guests))):
            if self._guests[place].fd == fd:
                del self._guests[place]
                return

    def _first(self) -> _Guest | None:
        own = os.getpid()
        return max(
            enumerate(self._guests),
            key=lambda entry: (entry[1].pid == own, entry[1].weight, entry[0]),
            default=(0, None),
        )[1]

    def _serve(self, before: _Guest | None) -> None:
        first = self._first()
        if first is None or first == before:
            return
        handle = Handle(first.fd)
        self._use(handle)
        self._served = weakref.ref(handle)

    def _begin(self) -> bool:
        """Whether we may use faulthandler at all."""
        raise NotImplementedError

    def _use(self, handle: Handle) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError


class FaultDesk(Desk):
    """Where the stacks of all threads go when the process dies of a fault."""

    _was_enabled = False

    def _begin(self) -> bool:
        self._was_enabled = faulthandler.is_enabled()
        return True

    def _use(self, handle: Handle) -> None:
        installed = faulthandler.is_enabled()
        faulthandler.enable(handle, all_threads=True)
        if not installed:
            self._ours = {number: handler(number) for number in FATAL}

    def _finish(self) -> None:
        if self._was_enabled and _is_open(2):
            faulthandler.enable(2, all_threads=True)
        else:
            let_go(self._ours, faulthandler.disable)


class SignalDesk(Desk):
    """Where stacks go when the process gets a signal.  The previous handler is called too."""

    def __init__(self, number: int, *, shared: bool = True, all_threads: bool = True) -> None:
        """Not `shared`: only a signal that nobody handles and nobody will miss.

        `all_threads`: only for a signal sent to a process whose Python stands still.  If threads
        run on, their frames are freed while they are read, and that kills the process.
        """
        super().__init__()
        self._number = number
        self._shared = shared
        self._all_threads = all_threads
        self._chain = False

    def _begin(self) -> bool:
        current = handler(self._number)
        self._chain = current not in NOBODYS
        if current == UNKNOWN or (self._chain and not (self._shared and self._is_strange(current))):
            return False
        if current == DEFAULT and not self._shared:
            # A signal that arrives after we are done must not kill the process.
            ignore(self._number)
        return True

    def _is_strange(self, address: int) -> bool:
        """Whether the handler is not faulthandler's: the program's own registration would lose its
        file to us."""
        return address != _own_handler()

    def _use(self, handle: Handle) -> None:
        faulthandler.register(
            self._number, handle, all_threads=self._all_threads, chain=self._chain
        )
        if not self._ours:
            self._ours = {self._number: handler(self._number)}

    def _finish(self) -> None:
        let_go(self._ours, lambda: faulthandler.unregister(self._number))
        self._ours = {}


def _own_handler() -> int:
    """The address of faulthandler's handler, found by registering a signal that nobody uses."""
    for number in range(signal.SIGRTMAX - 6, signal.SIGRTMIN, -1):
        if handler(number) in NOBODYS:
            faulthandler.register(number, 2)
            try:
                return handler(number)
            finally:
                faulthandler.unregister(number)
    return UNKNOWN


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


faults: Final = FaultDesk()
