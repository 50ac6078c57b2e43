"""What the parts of a head share: made once, handed to every feature.

A feature is one part of what a head does, with its routes under /api/v1.  It takes what it needs
from the context, and knows no other feature.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.routing import Route

from runwatch.exports.prometheus import HeadMetrics
from runwatch.head.access.audit import Audit
from runwatch.head.access.main_token import MainToken
from runwatch.head.access.shares import Shares
from runwatch.head.access.tokens import Tokens
from runwatch.head.http.access import AccessSettings
from runwatch.head.http.live import Live
from runwatch.head.http.openapi import Operation
from runwatch.head.http.types import Where
from runwatch.head.ingest import Ingest
from runwatch.head.outbox import Outbox
from runwatch.head.own_journal import OwnJournal
from runwatch.head.reading import Reading
from runwatch.head.settings import ServingSettings
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.head.state.accounts.notes import GoodputKeeper
from runwatch.head.state.board import RunBoard
from runwatch.head.state.clients import Clients
from runwatch.head.state.deletions import Deletions
from runwatch.head.state.profiles import Profiles
from runwatch.head.state.session_room import SessionRoom
from runwatch.head.state.sessions import Sessions
from runwatch.record import Batch, JournalId

NOWHERE: Final = Where(None, False)


class Feature:
    """One part of a head.  A method that it does not override does nothing."""

    def operations(self) -> Sequence[Operation]:
        """Its routes under /api/v1."""
        return ()

    def routes(self) -> Sequence[Route]:
        """Its pages and routes beside /api/v1."""
        return ()

    def stored(self, batches: Sequence[Batch]) -> None:
        """Called by the one writer, after the store has them."""

    def alive(self) -> Iterable[JournalId]:
        """Processes that it sees alive; their journals are none of this machine's."""
        return ()

    def gone(self) -> Iterable[JournalId]:
        """Of those, the ones that have ended."""
        return ()

    def close(self) -> None:
        """Ends its threads and processes."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Who may ask, and with which token."""

    settings: AccessSettings
    main: MainToken
    tokens: Tokens
    shares: Shares
    audit: Audit


@dataclass(frozen=True, slots=True)
class WayToNodes:
    """How a head asks its nodes for something, and records the answers."""

    outbox: Outbox
    own: OwnJournal
    names: Callable[[], Collection[str]]
    """The hosts that can be asked."""
    known_ns: Callable[[str], int | None]
    """Up to when all records of a host have arrived, by our clock; None: not known."""
    still: threading.Lock
    """While it is held, nothing is stored."""


@dataclass(frozen=True, slots=True)
class Context:
    reading: Reading
    live: Live
    metrics: HeadMetrics
    board: RunBoard
    accounts: Accounts
    sessions: SessionRoom
    profiles: Profiles
    deletions: Deletions
    gate: Gate
    notes: GoodputKeeper | None = None
    """Without it the list shows goodput only of runs that somebody has opened."""
    nodes: WayToNodes | None = None
    """None: no node can be asked, and the store can only be read."""
    serving: ServingSettings = field(default_factory=ServingSettings)
    where: Callable[[], Where] = lambda: NOWHERE
    """Where agents connect."""
    ingest: Ingest | None = None
    """None: the store can only be read."""

    @classmethod
    def of(cls, reading: Reading) -> Context:
        """For a store that can only be read."""
        store, clock = reading.store, reading.clock
        board, accounts, profiles = RunBoard(reading), Accounts(reading), Profiles(reading, ())
        settings = AccessSettings()
        return cls(
            reading,
            Live(),
            HeadMetrics(store.health, runs=board.standings),
            board,
            accounts,
            SessionRoom(Sessions(store, clock=clock), Clients(store, clock=clock), clock=clock),
            profiles,
            Deletions(reading, accounts, board, profiles),
            Gate(
                settings,
                MainToken(settings.token),
                Tokens(clock=clock),
                Shares(clock=clock),
                Audit(clock=clock),
            ),
        )

    def access_changed(self) -> None:
        """Open pages look whether they may stay."""
        self.live.changed([JournalId("")])
