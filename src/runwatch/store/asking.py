"""Whether anybody still waits for an answer: a question can be given up while the engine works.

Who asks for somebody else puts a `Question` in charge (`with question.asked()`); whatever the
thread then asks of a store ends with `Abandoned` soon after `give_up` was called, from any thread.
What takes long outside the engine calls `look` now and then, or goes through `heeded` rows.
Work that several share is asked in the name of all of them (`Shared`): one may leave, and it is
given up when the last has gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from runwatch.errors import Abandoned

HEEDED_ROWS: Final = 1000
"""After so many a row's reader looks whether anybody waits."""
LOOK_SECONDS: Final = 0.05
"""So often who waits for others looks whether he is still waited for."""
Row = TypeVar("Row")


class Question:
    def __init__(self) -> None:
        self.why = ""
        """Why it was given up; empty while somebody waits."""
        self._lock = threading.Lock()
        self._interrupts: set[Callable[[], None]] = set()

    @contextmanager
    def asked(self) -> Iterator[None]:
        """What this thread asks meanwhile belongs to the question."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def give_up(self, why: str) -> bool:
        """Whether the engine was at work on it.  An engine may miss that between two steps: ask
        again until it is not."""
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
        """The engine is at work, and can be interrupted so."""
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
    """The one that this thread asks for."""
    return _current.get()


@contextmanager
def working(interrupt: Callable[[], None]) -> Iterator[None]:
    """As `at_work`, of the question that this thread asks for, if it asks for one."""
    current = question()
    if current is None:
        yield
        return
    with current.at_work(interrupt):
        yield


def look() -> None:
    """Raises `Abandoned` if this thread asks for a question that was given up."""
    current = question()
    if current is not None:
        current.check()


def heeded(rows: Iterable[Row]) -> Iterator[Row]:
    """The same, with a look now and then: it costs next to nothing."""
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
    """A lock around work whose result is there for whoever waits for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._gate = threading.Lock()
        self._together = _Together()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for the lock, or has it, by `held`."""
        return bool(self._together.members) and not self._together.is_over

    @contextmanager
    def held(self) -> Iterator[Question]:
        """The lock, and the question of all who want it: what is asked in its name is given up
        when the last of them has gone."""
        mine = question() or Question()
        mine.check()
        with self._gate:
            if self._together.is_over:  # that work ends; who comes now has it done anew
                self._together = _Together()
            together = self._together
            together.members.append(mine)
        try:
            with mine.at_work(together.look):
                while not self.lock.acquire(timeout=LOOK_SECONDS):
                    mine.check()
                try:
                    mine.check()
                    # What was given up meanwhile was not ours: we still wait.
                    yield together if not together.is_over else mine
                finally:
                    self.lock.release()
        finally:
            with self._gate:
                together.members.remove(mine)


class _Together(Question):
    """Given up when all who are members are; without any it is nobody's."""

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
        """One of them has gone."""
        if self.is_over:
            self.give_up(self.why)
