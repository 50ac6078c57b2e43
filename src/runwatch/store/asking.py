"""Questions to a store that can be cancelled while the engine works, because nobody waits any more.

Code that asks on behalf of a client sets a `Question` (`with question.asked()`).  After `give_up`,
which any thread may call, every store call of that thread soon ends with `Abandoned`.  Long work
outside the engine calls `look` now and then, or reads its rows through `heeded`.  Work that several
clients share is asked for all of them (`Shared`): it is given up only when the last one has left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from runwatch.errors import Abandoned

HEEDED_ROWS: Final = 1000
"""`heeded` checks once per this many rows whether anybody still waits."""
LOOK_SECONDS: Final = 0.05
"""A thread that waits for the lock checks this often whether anybody still waits for it."""
Row = TypeVar("Row")


class Question:
    def __init__(self) -> None:
        self.why = ""
        """Why it was given up; empty while somebody waits."""
        self._lock = threading.Lock()
        self._interrupts: set[Callable[[], None]] = set()

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Everything that this thread asks meanwhile belongs to this question."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def give_up(self, why: str) -> bool:
        """Returns whether the engine was at work on it.  An engine may miss an interrupt between
        two steps: call again until this returns False."""
        with self._lock:
            self.why = self.why or why
            for interrupt in self._interrupts:
                interrupt()
            return bool(self._interrupts)

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for it any more."""
        return bool(self.why)

    def check(self) -> None:
        if self.is_over:
            raise Abandoned(self.why)

    @contextmanager
    def at_work(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """While the engine works; `interrupt` stops it."""
        with self._lock:
            self.check()
            self._interrupts.add(interrupt)
        try:
            yield
        finally:
            with self._lock:
                self._interrupts.discard(interrupt)


_current: ContextVar[Question | None] = ContextVar("question", default=None)


def question() -> Question | None:
    """The question that this thread is asking for, if any."""
    return _current.get()


@contextmanager
def working(interrupt: Callable[[], None]) -> Iterator[None]:
    """`at_work` for this thread's question, if it has one."""
    current = question()
    if current is None:
        yield
        return
    with current.at_work(interrupt):
        yield


def look() -> None:
    """Raises `Abandoned` if this thread's question was given up."""
    current = question()
    if current is not None:
        current.check()


def heeded(rows: Iterable[Row]) -> Iterator[Row]:
    """The same rows, with a check now and then whether anybody waits: it costs next to nothing."""
    current = question()
    if current is None:
        yield from rows
        return
    for number, row in enumerate(rows):
        if not number % HEEDED_ROWS:
            current.check()
        yield row


# ── shared ─────────────────────────────────────────────────────────────────────────────────────


class Shared:
    """A lock around work whose result serves everybody who waits for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._gate = threading.Lock()
        self._together = _Together()

    @contextmanager
    def held(self) -> Iterator[Question]:
        """Hold the lock.  Yields the common question of all who wait: it is given up when the last
        of them has left."""
        mine = question() or Question()
        mine.check()
        with self._gate:
            if self._together.is_over:  # that work is being cancelled: later callers start anew
                self._together = _Together()
            together = self._together
            together.members.append(mine)
        try:
            with mine.at_work(together.look):
                while not self.lock.acquire(timeout=LOOK_SECONDS):
                    mine.check()
                try:
                    mine.check()
                    # If the common question was given up meanwhile, we still wait for an answer.
                    yield together if not together.is_over else mine
                finally:
                    self.lock.release()
        finally:
            with self._gate:
                together.members.remove(mine)


class _Together(Question):
    """Given up when all its members are; without members it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.members: list[Question] = []

    @property
    def is_over(self) -> bool:
        members = tuple(self.members)
        if not self.why and members and all(member.is_over for member in members):
            self.why = members[-1].why
        return bool(self.why)

    def look(self) -> None:
        """A member has left: give up if it was the last."""
        if self.is_over:
            self.give_up(self.why)
