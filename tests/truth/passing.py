"""What makes time pass: tasks that sleep and wait, one at a time, in whole nanoseconds."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from functools import partial
from itertools import count

SECOND = 1_000_000_000


def ns(seconds: float) -> int:
    return round(seconds * SECOND)


class Gate:
    """Closed until somebody opens it; who waits there goes on then."""

    def __init__(self) -> None:
        self.is_open = False
        self.waiting: list[Callable[[], None]] = []


Moves = Generator[int | Gate, None, None]


class Ending(Exception):
    """How a program stops itself."""


class Crash(Ending):
    """An exception that nobody catches."""


class Killed(Ending):
    """A signal; the process says nothing more."""


class PeerLost(Exception):
    """What a collective raises in an elastic program when a member is gone."""


class World:
    def __init__(self) -> None:
        self.now = 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = count()

    def at(self, time_ns: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (time_ns, next(self._serial), call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self.now + ns(seconds), call)

    def open(self, gate: Gate) -> None:
        gate.is_open = True
        for call in gate.waiting:
            self.at(self.now, call)
        gate.waiting.clear()

    def run(self) -> None:
        while self._agenda:
            self.now, _, call = heapq.heappop(self._agenda)
            call()


class Task:
    def __init__(
        self, world: World, moves: Moves, ended: Callable[[Ending | None], None] | None = None
    ) -> None:
        self._world = world
        self._moves = moves
        self._ended = ended
        self._turn = 0
        self.over = False
        world.at(world.now, partial(self._go, 0))

    def _go(self, turn: int, error: Exception | None = None) -> None:
        if self.over or turn != self._turn:
            return
        self._turn += 1
        try:
            wish = next(self._moves) if error is None else self._moves.throw(error)
        except StopIteration:
            self._finish(None)
        except Ending as ending:
            self._finish(ending)
        else:
            self._wait(wish)

    def _finish(self, ending: Ending | None) -> None:
        self.over = True
        if self._ended is not None:
            self._ended(ending)

    def _wait(self, wish: int | Gate) -> None:
        go = partial(self._go, self._turn)
        if isinstance(wish, int):
            self._world.at(self._world.now + wish, go)
        elif wish.is_open:
            self._world.at(self._world.now, go)
        else:
            wish.waiting.append(go)

    def throw(self, error: Exception) -> None:
        """Whatever it waits for, this happens to it instead."""
        self._go(self._turn, error)

    def cancel(self) -> None:
        if not self.over:
            self.over = True
            self._moves.close()
