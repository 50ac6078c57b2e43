"""Puts a head together: store, ingest, the two ports, and a clean end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import uvicorn

from runwatch.address import Address, Listening, leave_note, take_note_back
from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError, UsageError
from runwatch.exports.prometheus import HeadMetrics, HeadNumbers
from runwatch.files import private
from runwatch.head.access.admission import Admission
from runwatch.head.access.audit import Audit
from runwatch.head.access.main_token import MainToken, kept_token, new_token
from runwatch.head.access.shares import FILE as SHARES_FILE
from runwatch.head.access.shares import Shares
from runwatch.head.access.tokens import FILE as TOKENS_FILE
from runwatch.head.access.tokens import Tokens
from runwatch.head.context import NOWHERE, Context, Feature, Gate, WayToNodes
from runwatch.head.feature_table import features_of
from runwatch.head.features.goodput.figures import LOOKED_UP
from runwatch.head.features.gswarm.api import GswarmApi
from runwatch.head.features.gswarm.grpc import ProfilerService
from runwatch.head.features.profiles.api import ProfilesApi
from runwatch.head.features.stacks.api import StacksApi
from runwatch.head.features.stacks.hangs import FRESH_SECONDS
from runwatch.head.http.access import AccessSettings
from runwatch.head.http.app import create_app
from runwatch.head.http.door import Door, limits_here
from runwatch.head.http.live import Live
from runwatch.head.http.types import Where
from runwatch.head.ingest import Ingest
from runwatch.head.keeping import Keeping
from runwatch.head.local import LocalTail
from runwatch.head.nodes import Nodes
from runwatch.head.outbox import Outbox
from runwatch.head.own_id import kept_id
from runwatch.head.own_journal import OwnJournal
from runwatch.head.quotas import NO_LIMITS, Quotas, QuotaSettings
from runwatch.head.reading import LeftAlone, Reading, Standing
from runwatch.head.settings import HeadSettings, ServingSettings
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.head.state.accounts.notes import GoodputKeeper
from runwatch.head.state.board import RunBoard
from runwatch.head.state.clients import Clients
from runwatch.head.state.deletions import Deletions
from runwatch.head.state.profiles import Profiles
from runwatch.head.state.session_room import SessionRoom
from runwatch.head.state.sessions import SessionDefaults, Sessions
from runwatch.head.stream import AgentState, SpineService, serve_grpc
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

CLOCK_ROUNDS: Final = 20
F = TypeVar("F", bound=Feature)
logger = logging.getLogger("runwatch.head")


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
        self.tokens = Tokens(clock=clock)
        self.audit = Audit(clock=clock)
        lasts = _writable(root) and not (in_memory or bare)
        if lasts:
            private(root)
            self.tokens = Tokens(root / TOKENS_FILE, clock=clock)
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
        self.features = features_of(self.context)
        self.app = create_app(self.context, self.features)

    def _made(self, settings: LocalSettings, lasts: bool) -> Context:
        root, clock = self._root, self.clock
        reading = Reading(
            self.store,
            clock=clock,
            alive=self.alive,
            gone=self.tail.gone,
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
            SessionRoom(self.sessions, self.clients, folder=settings.session_dir, clock=clock),
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
        )

    def feature(self, kind: type[F]) -> F:
        return next(feature for feature in self.features if isinstance(feature, kind))

    def alive(self) -> frozenset[JournalId]:
        """Journals whose processes are alive, as agents and the kernel say."""
        said = [agent.alive for agent in self.nodes.agents()]
        return self.tail.alive().union(*said)

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
        return Standing(problem, aside, self._refused, notes, self.quotas.of_run)

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

    def close(self) -> None:
        self.live.close()
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
        self.accounts.stored(batches)
        self.board.stored(batches)
        for feature in self.features:
            feature.stored(batches)
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


class Head:
    """A head that listens.  `tail_journals` makes it follow the directory's journals itself;
    `open_gswarm` lets clients of gswarm in that know no token, on loopback."""

    def __init__(
        self,
        settings: HeadSettings,
        *,
        tail_journals: bool = False,
        open_gswarm: bool = False,
        clock: Clock = system_clock,
    ) -> None:
        # Somebody who names a token wants it to be asked for.
        open_gswarm = open_gswarm and settings.is_loopback and not settings.token
        self.main = _main_token(settings)
        self.main.on_renewed = self._renewed
        self.settings = settings = replace(settings, token=self.main.now.word)
        self.local = LocalHead(
            settings.root,
            agents=lambda: self.service.agents,
            where=lambda: self._where,
            settings=self._local_settings(open_gswarm),
            clock=clock,
        )
        self.service = SpineService(
            self.local.ingest,
            keeping=Keeping(
                settings.root / "profiles",
                self.local.feature(ProfilesApi).kept,
                self.local.deletions.drops,
                self.local.ingest.projects.of_folder,
            ),
            clock=clock,
        )
        self._guests = ProfilerService(
            self.local.feature(GswarmApi).profiler,
            self.local.ingest,
            on_exit=self.stop,
            clock=clock,
        )
        self._admission = Admission(
            self.main,
            tokens=self.local.tokens,
            audit=self.local.audit,
            open_gswarm=open_gswarm,
        )
        self.local.tokens.on_revoked = self._admission.look_soon
        self.door = Door(limits_here())
        self._tails = tail_journals
        self._server: uvicorn.Server | None = None
        self._at: Listening | None = None
        self._where = NOWHERE

    def _local_settings(self, open_gswarm: bool) -> LocalSettings:
        settings = self.settings
        tls = settings.tls_certificate is not None
        return LocalSettings(
            Retention(
                points_days=settings.points_days,
                rollup_days=settings.rollup_days,
                spans_days=settings.events_days,
                events_days=settings.events_days,
            ),
            settings.quotas,
            AccessSettings(
                settings.token, settings.is_loopback, tls, settings.base_path, open_gswarm
            ),
            self.main,
            SessionDefaults(
                settings.device_period_ms * 1_000_000,
                settings.device_bandwidth,
                settings.device_nvlink,
            ),
            settings.session_dir,
            (settings.profiles or settings.root / "profiles",),
            settings.profiles is not None,
            settings.serving,
        )

    def _renewed(self) -> None:
        self._leave_note()
        self._admission.look_soon()

    def _leave_note(self) -> bool:
        """False: try again later.  A full disk must not keep the head from answering."""
        if self._at is None:
            return True
        return leave_note(self.settings.root, replace(self._at, token=self.main.now.word))

    def run(self, on_ready: Callable[[Listening], None] = lambda _: None) -> None:
        """Serve until a signal, `stop`, or a store that failed: then that failure is raised."""
        try:
            asyncio.run(self._serve(on_ready))
        finally:
            self.local.close()
        if self.local.ingest.failure is not None:
            raise self.local.ingest.failure

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True

    async def _serve(self, on_ready: Callable[[Listening], None]) -> None:
        settings = self.settings
        certificate = _certificate(settings)
        # Without a port the server still takes signals and runs the loop.
        http = [_listen(settings.bind, settings.http_port)] if settings.http_port >= 0 else []
        grpc_server, grpc_port = None, 0
        if settings.grpc_port >= 0:
            address = f"{_bracketed(settings.bind)}:{settings.grpc_port}"
            grpc_server, grpc_port = await serve_grpc(
                self.service,
                address,
                certificate=certificate,
                admission=self._admission,
                others=[self._guests.handler()],
            )
        self._server = server = _Server(self._config())
        self._where = self._told_where(grpc_port)
        at = self._listening(http[0].getsockname()[1] if http else 0, grpc_port)
        watching = asyncio.ensure_future(self._watch(server, at, on_ready))
        if self._tails:
            self.local.tail.start()
        if self.local.deletions.all():  # the last head may have been killed at it
            self.local.ingest.keep_soon()
        self.local.feature(StacksApi).watch()
        warming = asyncio.ensure_future(asyncio.to_thread(self.local.board.warm))
        try:
            await server.serve(sockets=http)
        finally:
            watching.cancel()
            await warming
            self.local.live.close()
            if grpc_server is not None:
                await grpc_server.stop(grace=5.0)
            take_note_back(settings.root, at)

    def _config(self) -> uvicorn.Config:
        certificate, key = self.settings.tls_certificate, self.settings.tls_key
        return uvicorn.Config(
            self.local.app,
            http=self.door.protocol(),  # type: ignore[arg-type]
            backlog=self.door.limits.at_once,
            log_level="warning",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
            timeout_keep_alive=30,
            ssl_certfile=str(certificate) if certificate else None,
            ssl_keyfile=str(key) if key else None,
        )

    async def _watch(
        self, server: uvicorn.Server, at: Listening, on_ready: Callable[[Listening], None]
    ) -> None:
        """Say when the head is ready; stop when the writer has failed; end live pages first."""
        while not server.started:
            await asyncio.sleep(0.01)
        self._at = at
        noted = self._leave_note()
        if not noted:
            logger.warning("no space in %s: commands cannot find this head yet", self.settings.root)
        on_ready(at)
        rounds = 0
        while not server.should_exit:
            if self.local.ingest.failure is not None:
                server.should_exit = True
            rounds += 1
            if rounds % CLOCK_ROUNDS == 0:
                await asyncio.to_thread(self._hear_clocks)
                noted = noted or self._leave_note()
            await asyncio.sleep(0.1)
        self.local.live.close()

    def _hear_clocks(self) -> None:
        try:
            self.local.sessions.hear_clocks(self.local.nodes.clock_offsets())
        except RunwatchError as error:
            logger.warning("the clocks of agents could not be recorded: %s", error)

    def _listening(self, http_port: int, grpc_port: int) -> Listening:
        settings = self.settings
        tls = settings.tls_certificate is not None
        host = settings.bind if settings.bind not in ("0.0.0.0", "::") else socket.gethostname()
        scheme = "https" if tls else "http"
        http = f"{scheme}://{_bracketed(host)}:{http_port}" if http_port else ""
        http += settings.base_path if http else ""
        grpc = f"{'grpcs://' if tls else ''}{_bracketed(host)}:{grpc_port}" if grpc_port else ""
        now_ns = self.local.clock.wall_ns()
        token, id = settings.token, self._where.id
        return Listening(http, grpc, token, os.getpid(), this_host(), now_ns, id)

    def _told_where(self, grpc_port: int) -> Where:
        settings = self.settings
        id = kept_id(settings.root) if grpc_port and _writable(settings.root) else ""
        if settings.grpc_address:
            named = Address.parse(settings.grpc_address)
            host, _, port = named.target.rpartition(":")
            return Where(int(port), named.tls, host, id)
        return Where(grpc_port or None, settings.tls_certificate is not None, "", id)


class _Server(uvicorn.Server):
    """Ends at a signal.  uvicorn would raise the signal again before our own clean end."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        self._captured_signals.clear()


def _writable(root: Path) -> bool:
    """A directory that we can only read is served from memory."""
    return os.access(root if root.exists() else root.parent, os.W_OK)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _listen(bind: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    # asyncio sets TCP_NODELAY only on a socket that says TCP.  Without it, answers on a kept
    # connection wait 40 ms for the client's acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((bind.strip("[]"), port))
    except OSError as error:
        listening.close()
        raise UsageError(
            f"cannot listen on {bind} port {port}: {error.strerror}; choose another with --port "
            "or --http-port (0 takes any free one)"
        ) from error
    listening.listen(1024)
    return listening


def _certificate(settings: HeadSettings) -> tuple[bytes, bytes] | None:
    """(key, certificate) for gRPC."""
    if settings.tls_certificate is None:
        return None
    if settings.tls_key is None:
        raise UsageError("--tls-certificate needs --tls-key")
    try:
        return settings.tls_key.read_bytes(), settings.tls_certificate.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from error


def _main_token(settings: HeadSettings) -> MainToken:
    """A head always has a token: other users of this machine may not use it."""
    if settings.token:
        return MainToken(settings.token)
    if not _writable(settings.root):
        return MainToken(new_token())
    private(settings.root)
    return MainToken(kept_token(settings.root), settings.root)
