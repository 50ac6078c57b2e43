"""The head without its ports: store, ingest, features and the HTTP application of one directory.

Commands put it together to answer from a directory; `main.py` adds the ports.  Nothing here needs a
server, and imports none: that would take as long as the answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from runwatch.clock import Clock, system_clock
from runwatch.exports.prometheus import HeadMetrics, HeadNumbers
from runwatch.files import private
from runwatch.head.access.audit import Audit
from runwatch.head.access.given_tokens import GivenTokens
from runwatch.head.access.main_token import MainToken
from runwatch.head.access.shares import FILE as SHARES_FILE
from runwatch.head.access.shares import Shares
from runwatch.head.access.tokens import FILE as TOKENS_FILE
from runwatch.head.access.tokens import Tokens
from runwatch.head.context import NOWHERE, Context, Feature, Gate, WayToNodes
from runwatch.head.feature_table import features_of
from runwatch.head.features.goodput.figures import LOOKED_UP
from runwatch.head.features.stacks.hangs import FRESH_SECONDS
from runwatch.head.forward.report import Forwarding, Report
from runwatch.head.http.access import AccessSettings
from runwatch.head.http.app import create_app
from runwatch.head.http.live import Live
from runwatch.head.http.types import Where
from runwatch.head.ingest import Ingest
from runwatch.head.local import LocalTail
from runwatch.head.nodes import Nodes
from runwatch.head.outbox import Outbox
from runwatch.head.own_journal import OwnJournal
from runwatch.head.quotas import NO_LIMITS, Quotas, QuotaSettings
from runwatch.head.reading import LeftAlone, Reading, Standing
from runwatch.head.settings import ServingSettings
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.head.state.accounts.notes import GoodputKeeper
from runwatch.head.state.board import RunBoard
from runwatch.head.state.clients import Clients
from runwatch.head.state.deletions import Deletions
from runwatch.head.state.gathering import Gathering
from runwatch.head.state.profiles import Profiles
from runwatch.head.state.session_room import SessionRoom
from runwatch.head.state.sessions import SessionDefaults, Sessions
from runwatch.journal.liveness import this_host
from runwatch.journal.moved import told_of
from runwatch.journal.reader import READ_BYTES
from runwatch.journal.segment import journal_directories
from runwatch.record import Batch, JournalId, RunId
from runwatch.record.door import refused_records
from runwatch.record.losses import LimitReached
from runwatch.store.engines import engine_in_use, open_store
from runwatch.store.folds import FoldFiles
from runwatch.store.journals import JournalStore, stretch_bytes
from runwatch.store.store import Retention

if TYPE_CHECKING:  # it needs gRPC
    from runwatch.head.stream import AgentState

F = TypeVar("F", bound=Feature)


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """How a head is put together: who may ask, what it keeps, how it answers."""

    retention: Retention | None = None
    quotas: QuotaSettings | None = None
    access: AccessSettings = field(default_factory=AccessSettings)
    main: MainToken | None = None
    session_defaults: SessionDefaults | None = None
    session_dir: Path | None = None
    profiles: tuple[Path, ...] = ()
    """Where profiles are; empty: in the head's directory."""
    loose_profiles: bool = False
    """Show traces outside a profile's own folder, too."""
    serving: ServingSettings = field(default_factory=ServingSettings)
    engine: str = field(default_factory=engine_in_use)
    """Of the store."""
    given: GivenTokens | None = None


class LocalHead:
    """Store, ingest and journals of one directory in this process, without a port.

    `bare`: nothing is stored, and steps stay in the journals (`store/journals.py`).  That is enough
    for goodput and costs much less.  Curves and spans are mostly missing then.
    """

    def __init__(
        self,
        root: Path,
        *,
        in_memory: bool = False,
        bare: bool = False,
        agents: Callable[[], Mapping[str, AgentState]] = dict,
        where: Callable[[], Where] = lambda: NOWHERE,
        settings: LocalSettings | None = None,
        clock: Clock = system_clock,
    ) -> None:
        settings = settings or LocalSettings()
        self._root = root
        self._where = where
        self.live = Live()
        self.forwarding: list[Forwarding] = []
        """What sends stored records on; a head that listens adds it."""
        self.tokens = Tokens(given=settings.given, clock=clock)
        self.audit = Audit(clock=clock)
        lasts = writable(root) and not (in_memory or bare)
        if lasts:
            private(root)
            self.tokens = Tokens(root / TOKENS_FILE, given=settings.given, clock=clock)
            self.audit = Audit(root, clock=clock)
        self.store = (
            JournalStore(root, keeps=LOOKED_UP.__contains__, clock=clock)
            if bare
            else open_store(settings.engine, root / "store" if lasts else None, clock=clock)
        )
        self.quotas = Quotas(
            settings.quotas or NO_LIMITS, self.store, tell=self._reached, clock=clock
        )
        self.ingest = Ingest(
            self.store,
            retention=settings.retention,
            on_stored=self._stored,
            quotas=self.quotas if settings.quotas is not None else None,
            clock=clock,
        )
        at_once = stretch_bytes(len(journal_directories(root))) if bare else READ_BYTES
        self.tail = LocalTail(root, self.ingest, clock=clock, read_bytes=at_once)
        self._agents = agents
        self.clock = clock
        self._lag_seconds: float | None = None
        self._refused = 0
        self.features: Sequence[Feature] = ()
        self.nodes = Nodes(agents, self.tail, self.store, clock=clock)
        self.outbox = Outbox(
            root if lasts else None,
            self.nodes.agents,
            self.tail.agents,
            self.nodes.node_of,
            project_of=self.ingest.projects.of,
            clock=clock,
        )
        self._own = OwnJournal(self.ingest, clock=clock)
        self.context = self._made(settings, lasts)
        self.deletions.on_due = self.ingest.keep_soon
        self.ingest.also = self.deletions.purge
        self.context.metrics.forwards = self.reports
        self.features = features_of(self.context)
        self.app = create_app(self.context, self.features)

    def _made(self, settings: LocalSettings, lasts: bool) -> Context:
        root, clock = self._root, self.clock
        reading = Reading(
            self.store,
            clock=clock,
            alive=self.alive,
            gone=self.gone,
            clock_offsets=self.nodes.clock_offsets,
            standing=self._standing,
        )
        folds = FoldFiles(root / "store" / "folds") if lasts else None
        self.accounts = Accounts(reading, self.ingest.still, folds)
        self.board = RunBoard(reading, told=True)
        self.sessions = Sessions(
            self.store,
            self.ingest if lasts else None,
            defaults=settings.session_defaults,
            clock=clock,
        )
        self.clients = Clients(self.store, told=True, clock=clock)
        self.clients.ahead_ns = self.nodes.clock_offsets
        profiles = Profiles(
            reading,
            settings.profiles or (root / "profiles",),
            record=self._own.record if lasts else None,
            loose=settings.loose_profiles,
            journals=root / "journals",
        )
        self.deletions = Deletions(
            reading,
            self.accounts,
            self.board,
            profiles,
            root=root,
            lasts=lasts,
            on_changed=self._runs_changed,
            clock=clock,
        )
        return Context(
            reading,
            self.live,
            HeadMetrics(
                self.store.health, self._numbers, self.accounts.brief, self.board.standings
            ),
            self.board,
            self.accounts,
            SessionRoom(
                self.sessions,
                self.clients,
                Gathering(self.clients, self.outbox, self._read_until_ns, clock=clock),
                folder=settings.session_dir,
                clock=clock,
            ),
            profiles,
            self.deletions,
            Gate(
                settings.access,
                settings.main or MainToken(settings.access.token),
                self.tokens,
                Shares(root / SHARES_FILE if lasts else None, clock=clock),
                self.audit,
            ),
            GoodputKeeper(self.accounts, self.board, clock=clock),
            WayToNodes(self.outbox, self._own, self.nodes.names, self._known_ns, self.ingest.still),
            settings.serving,
            self._where,
            self.ingest if lasts else None,
        )

    def feature(self, kind: type[F]) -> F:
        return next(feature for feature in self.features if isinstance(feature, kind))

    def alive(self) -> frozenset[JournalId]:
        """Journals whose processes are alive, as agents and the kernel say."""
        said = [agent.alive for agent in self.nodes.agents()]
        return self.tail.alive().union(*said, *(each.alive() for each in self.features))

    def gone(self) -> frozenset[JournalId]:
        return self.tail.gone().union(*(each.gone() for each in self.features))

    def _runs_changed(self) -> None:
        """A run was deleted, or restored."""
        self.ingest.projects.look_again()
        self.quotas.recount()
        self.live.changed([JournalId("")])

    def _standing(self) -> Standing:
        host = this_host()
        aside = [
            LeftAlone(host, a.journal, a.why, a.version, a.since_ns) for a in self.tail.aside()
        ]
        problem = self.ingest.problem or self.ingest.neglected
        said = (self.ingest.steady.why, told_of(self._root), self.deletions.problem)
        notes = [why for why in said if why] + self.quotas.notes()
        return Standing(
            problem, aside, self._refused, notes, self.quotas.of_run, forwards=self.reports()
        )

    def reports(self) -> list[Report]:
        return [report for each in self.forwarding for report in each.reports()]

    def _reached(self, run: RunId, what: str, why: str) -> None:
        self._own.record([LimitReached(what, why)], run)

    def _known_ns(self, host: str) -> int | None:
        """The time up to which all records of a host have arrived here; None: not known."""
        agent = self.nodes.agent_of(host)
        if agent is not None:
            # An agent that was away first sends what it kept meanwhile.
            is_new = self.clock.wall_ns() - agent.connected_ns < FRESH_SECONDS * 1e9
            return None if is_new else agent.heard_ns
        return self.tail.read_until_ns if host in self.tail.hosts() else None

    def _read_until_ns(self, host: str) -> int | None:
        """Up to when this head itself has read the journals of a host; None: an agent sends them,
        or nobody."""
        is_here = self.nodes.agent_of(host) is None and host in self.tail.hosts()
        return self.tail.read_until_ns if is_here else None

    def close(self) -> None:
        self.live.close()
        for each in self.forwarding:
            each.close()
        for feature in self.features:
            feature.close()
        self.tail.close()
        self.context.sessions.close()
        self.ingest.close()
        self.accounts.close()
        self.store.close()

    def _stored(self, batches: Sequence[Batch]) -> None:
        newest = max((b.points.time_ns[-1] for b in batches if len(b.points)), default=None)
        if newest is not None:
            self._lag_seconds = (self.clock.wall_ns() - newest) / 1e9
        told = chain.from_iterable(batch.events for batch in batches)
        self._refused += sum(refused_records(event) for event in told)
        self.outbox.stored(batches)
        self.clients.stored(batches)
        self.sessions.stored(batches)
        self.context.sessions.stored(batches)
        self.accounts.stored(batches)
        self.board.stored(batches)
        for feature in self.features:
            feature.stored(batches)
        for each in self.forwarding:
            each.stored(batches)
        self.live.stored(batches)

    def _numbers(self) -> HeadNumbers:
        return HeadNumbers(
            points_stored=self.ingest.points_stored,
            batches_stored=self.ingest.batches_stored,
            batches_refused=self.ingest.batches_refused,
            waiting_points=self.ingest.waiting_points,
            agents_connected=len(self._agents()),
            ingest_lag_seconds=self._lag_seconds,
            live_subscribers=self.live.subscribers,
        )


def writable(root: Path) -> bool:
    """A directory that we can only read is served from memory."""
    return os.access(root if root.exists() else root.parent, os.W_OK)
