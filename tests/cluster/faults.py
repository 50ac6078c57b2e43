"""What goes wrong between a client and the server, as a test wants it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

CUT = 0
"""A status that is none: the connection is cut before anything is done."""


@dataclass(frozen=True)
class Asked:
    """A request that was done.  Of a watch: when it ended."""

    method: str
    """As in HTTP, or `WATCH`."""
    path: str
    query: Mapping[str, str]
    user: str
    status: int
    seconds: float


@dataclass
class _Planned:
    what: Literal["fail", "lose", "conflict", "slow"]
    method: str
    path: re.Pattern[str]
    status: int
    times: int
    seconds: float = 0.0


@dataclass
class Faults:
    """Set from a test's thread at any time; the server looks at each request."""

    latency_seconds: float = 0.0
    """Every request waits so long before it is looked at."""
    gone_as_status: bool = False
    """A watch that asks for what is forgotten is refused with HTTP 410, in place of an ERROR event
    in the stream.  Servers do the one or the other."""
    bookmark_seconds: float = 60.0
    """How often a watch that allows them is sent one."""
    drop_watches: Callable[[], None] = field(default=lambda: None)
    """Cut every watch's connection."""
    end_watches: Callable[[], None] = field(default=lambda: None)
    """End every watch as its timeout does: cleanly."""
    compact: Callable[[], None] = field(default=lambda: None)
    """Forget the history: a watch from a version before now is answered 410."""
    down: Callable[[], None] = field(default=lambda: None)
    """Nobody listens at the port, and every connection is cut.  What is stored stays."""
    up: Callable[[], None] = field(default=lambda: None)
    done: list[Callable[[Asked], None]] = field(default_factory=list)
    """Called in the server's thread for each request, when it is done and not yet answered: here a
    client can be killed between what it did and its knowing of it."""
    _planned: list[_Planned] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def restart(self) -> None:
        self.down()
        self.up()

    def fail(self, method: str, path_regex: str, status: int = 500, times: int = 1) -> None:
        """These requests are answered so and do nothing.  `CUT` (0): the connection is cut.
        `method` "": any; `WATCH`: a watch."""
        self._plan(_Planned("fail", method, re.compile(path_regex), status, times))

    def lose(self, method: str, path_regex: str, times: int = 1) -> None:
        """These requests are done, and the connection is cut before the answer."""
        self._plan(_Planned("lose", method, re.compile(path_regex), CUT, times))

    def conflict(self, path_regex: str, times: int = 1) -> None:
        """These changes meet a 409 Conflict."""
        self._plan(_Planned("conflict", "", re.compile(path_regex), 409, times))

    def slow(self, method: str, path_regex: str, seconds: float, times: int = 1_000_000) -> None:
        """These requests wait so long before they are looked at."""
        self._plan(_Planned("slow", method, re.compile(path_regex), 0, times, seconds))

    def clear(self) -> None:
        with self._lock:
            self._planned.clear()
        self.latency_seconds = 0.0

    def pending(self) -> int:
        """So many requests are still to meet what was planned for them."""
        with self._lock:
            return sum(each.times for each in self._planned)

    def _plan(self, planned: _Planned) -> None:
        with self._lock:
            self._planned.append(planned)

    # ── the server's side ─────────────────────────────────────────────────────────────────────

    def delay_seconds(self, method: str, path: str) -> float:
        slow = self._take("slow", method, path)
        return self.latency_seconds + (slow.seconds if slow else 0.0)

    def failure(self, method: str, path: str) -> int | None:
        planned = self._take("fail", method, path)
        if planned is None and method in ("PUT", "PATCH", "DELETE"):
            planned = self._take("conflict", method, path)
        return None if planned is None else planned.status

    def loses(self, method: str, path: str) -> bool:
        return self._take("lose", method, path) is not None

    def _take(self, what: str, method: str, path: str) -> _Planned | None:
        with self._lock:
            for each in self._planned:
                fits = each.what == what and each.method in ("", method)
                if fits and each.path.search(path):
                    each.times -= 1
                    if each.times <= 0:
                        self._planned.remove(each)
                    return each
        return None
