"""Goodput for the list of runs: drawn up beside, by and by, never while somebody waits for a list.

Of runs that are listed.  One with few records is read for this alone; the account of a long one is
drawn up and saved beside, so that it is there when somebody asks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.head.state.board import GoodputNote, RunBoard
from runwatch.record import RunId
from runwatch.views.goodput.account import Account, Goodput
from runwatch.views.goodput.figures import shares

MOST_RECORDS: Final = 100_000
MOST_WANTED: Final = 200
AGAIN_SECONDS: Final = 60.0
"""A run that goes on is looked at again after so long."""
REST: Final = 4.0
"""It rests so many times as long as it worked."""
logger = logging.getLogger("runwatch.head")


class GoodputKeeper:
    def __init__(self, accounts: Accounts, board: RunBoard, *, clock: Clock = system_clock) -> None:
        self._accounts = accounts
        self._board = board
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted: dict[RunId, int] = {}
        """And when it had last been heard of."""
        self._looked: dict[RunId, tuple[int, int]] = {}
        """When we last did, and what it had been heard of by then."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        accounts.on_account = self._told

    def want(self, listed: Iterable[tuple[str, int]]) -> None:
        """Runs, each with the time at which it was last heard of."""
        with self._lock:
            for run, last_ns in listed:
                if len(self._wanted) >= MOST_WANTED:
                    break
                if self._is_due(RunId(run), last_ns):
                    self._wanted[RunId(run)] = last_ns
            if self._wanted and self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="runwatch-goodput-notes", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _is_due(self, run: RunId, last_ns: int) -> bool:
        looked = self._looked.get(run)
        if looked is None:
            return True
        at_ns, had_ns = looked
        return last_ns > had_ns and self._clock.mono_ns() - at_ns > AGAIN_SECONDS * 1e9

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                if not self._wanted:
                    self._thread = None
                    return
                run, last_ns = self._wanted.popitem()
            began_ns = self._clock.mono_ns()
            self._note(run)
            ended_ns = self._clock.mono_ns()
            with self._lock:
                self._looked[run] = ended_ns, last_ns
            self._stop.wait((ended_ns - began_ns) / 1e9 * REST)

    def _note(self, run: RunId) -> None:
        try:
            goodput = self._accounts.short(run, MOST_RECORDS)
        except RunwatchError as error:  # a store that cannot be read now
            logger.warning("goodput of run %s for the list: %s", run, error)
            return
        if goodput is not None:
            self._told(run, goodput)
        else:
            self._accounts.want(run)

    def _told(self, run: RunId, goodput: Goodput) -> None:
        self._board.note(run, noted(goodput.account()))


def noted(account: Account) -> GoodputNote:
    return GoodputNote(account.end_ns, account.goodput, shares(account.spent_ns))
