"""Nobody waits long for an account that takes long to draw up."""

from __future__ import annotations

import logging
import threading
from typing import Final

from runwatch.clock import Clock
from runwatch.errors import Abandoned, RunwatchError
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.record import RunId
from runwatch.store.asking import LOOK_SECONDS, look, question
from runwatch.store.asking import Question as Asked

PATIENCE_SECONDS: Final = 0.7
WANTED_SECONDS: Final = 10.0
"""A page that is told to come again does so every second or two."""
logger = logging.getLogger("runwatch.head")


class _Wanted(Asked):
    """What was asked for a moment ago: who is told to come again has not gone."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._until_ns: dict[Asked | None, int] = {}
        """By who asked."""

    def by(self, caller: Asked | None) -> None:
        now_ns = self._clock.mono_ns()
        known = {one: until_ns for one, until_ns in self._until_ns.items() if until_ns > now_ns}
        self._until_ns = known | {caller: now_ns + int(WANTED_SECONDS * 1e9)}

    @property
    def is_over(self) -> bool:
        now_ns = self._clock.mono_ns()
        asked = self._until_ns.items()
        if all(until_ns < now_ns or (one and one.is_over) for one, until_ns in asked):
            self.why = f"nobody has asked for it for {WANTED_SECONDS:g} s"
        return bool(self.why)


class Warming:
    """Nobody waits long for the account of a run with millions of records: it is begun beside, and
    goes on while somebody asks for it now and then."""

    def __init__(self, accounts: Accounts, clock: Clock) -> None:
        self._accounts = accounts
        self._clock = clock
        self._lock = threading.Lock()
        self._threads: dict[RunId, tuple[threading.Thread, _Wanted]] = {}

    def wait(self, run: RunId) -> bool:
        """Whether it can be asked for now."""
        if not self._accounts.keeps or self._accounts.at_hand(run):
            return True
        with self._lock:
            if run not in self._threads:
                wanted = _Wanted(self._clock)
                wanted.by(question())
                thread = threading.Thread(
                    target=self._begin, args=(run, wanted), name="runwatch-account", daemon=True
                )
                self._threads[run] = thread, wanted
                thread.start()
            thread, wanted = self._threads[run]
            wanted.by(question())
        until_ns = self._clock.mono_ns() + int(PATIENCE_SECONDS * 1e9)
        while thread.is_alive() and self._clock.mono_ns() < until_ns:
            thread.join(LOOK_SECONDS)
            look()
        return not thread.is_alive()

    def _begin(self, run: RunId, wanted: _Wanted) -> None:
        try:
            with wanted.asked(), self._accounts.of(run):
                pass
        except Abandoned as error:
            logger.info("account of run %s: %s", run, error)
        except RunwatchError as error:  # whoever asks will be told
            logger.warning("account of run %s: %s", run, error)
        finally:
            with self._lock:
                del self._threads[run]
