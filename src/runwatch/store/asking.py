"""Whether anybody still waits for an answer: a question can be given up while the engine works.

Who asks for somebody else puts a `Question` in charge (`with question.asked()`); whatever the
thread then asks of a store ends with `Abandoned` soon after `give_up` was called, from any thread.
Work that others share must not be asked in somebody's name: he may leave, and they need it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from runwatch.errors import Abandoned


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

    def check(self) -> None:
        if self.why:
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
