"""Goodput for the list of runs: drawn up when there is time, never while somebody waits for a list.

Only for runs that are listed.  One with few records is read for this alone.  The account of a long
one is drawn up and saved, so that it is there when somebody asks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.head.state.accounts.accounts import FEW_RECORDS, Accounts
from runwatch.head.state.accounts.slices import WORKED, Slices
from runwatch.head.state.accounts.worker import Priority
from runwatch.head.state.board import GoodputNote, RunBoard
from runwatch.record import RunId
from runwatch.views.goodput.account import Account, Goodput
from runwatch.views.goodput.figures import shares

MOST_WANTED: Final = 200
AGAIN_SECONDS: Final = 60.0
"""A run that goes on is looked at again after so long."""


class GoodputKeeper:
    def __init__(self, accounts: Accounts, board: RunBoard, *, clock: Clock = system_clock) -> None:
        self._accounts = accounts
        self._board = board
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted: set[RunId] = set()
        self._looked: dict[RunId, tuple[int, int]] = {}
        """When we last looked at a run, and when it had last been heard of by then."""
        accounts.on_account = self._note

    def want(self, listed: Iterable[tuple[str, int]]) -> None:
        """Runs, each with the time at which it was last heard of."""
        with self._lock:
            for name, last_ns in listed:
                if len(self._wanted) >= MOST_WANTED:
                    break
                run = RunId(name)
                if run not in self._wanted and self._is_due(run, last_ns):
                    self._wanted.add(run)
                    self._accounts.worker.want(
                        f"goodput of run {run} for the list",
                        partial(self._look, run, last_ns),
                        lambda: Priority.LISTED,
                    )

    def _is_due(self, run: RunId, last_ns: int) -> bool:
        looked = self._looked.get(run)
        if looked is None:
            return True
        at_ns, had_ns = looked
        return last_ns > had_ns and self._clock.mono_ns() - at_ns > AGAIN_SECONDS * 1e9

    def _look(self, run: RunId, last_ns: int) -> Slices[None]:
        try:
            goodput = self._accounts.short(run, FEW_RECORDS)
        finally:
            with self._lock:
                self._wanted.discard(run)
                self._looked[run] = self._clock.mono_ns(), last_ns
        if goodput is not None:
            self._note(run, goodput)
        else:
            self._accounts.want(run)
        yield WORKED

    def _note(self, run: RunId, goodput: Goodput) -> None:
        self._board.note(run, noted(goodput.account()))


def noted(account: Account) -> GoodputNote:
    return GoodputNote(account.end_ns, account.goodput, shares(account.spent_ns))
