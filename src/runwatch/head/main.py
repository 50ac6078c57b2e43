"""Puts a head together: what `local_head.py` has, the two ports, and a clean end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import uvicorn

from runwatch.address import Address, Listening, leave_note, take_note_back
from runwatch.clock import Clock, system_clock
from runwatch.errors import RunwatchError, UsageError
from runwatch.files import private
from runwatch.head.access.admission import Admission
from runwatch.head.access.given_tokens import MAIN_FILE, GivenTokens
from runwatch.head.access.main_token import MainToken, kept_token, new_token
from runwatch.head.access.origins import check_origins
from runwatch.head.cloud.exporters import CloudExporters
from runwatch.head.cloud.settings import GcpSettings
from runwatch.head.context import NOWHERE
from runwatch.head.features.gswarm.api import GswarmApi
from runwatch.head.features.gswarm.grpc import ProfilerService
from runwatch.head.features.otlp.api import OtlpApi
from runwatch.head.features.otlp.grpc import OtlpServices
from runwatch.head.features.profiles.api import ProfilesApi
from runwatch.head.features.sessions.api import SessionsApi
from runwatch.head.features.sessions.grpc import SessionsService
from runwatch.head.features.stacks.api import StacksApi
from runwatch.head.http.access import AccessSettings
from runwatch.head.http.door import Door, limits_here
from runwatch.head.http.types import Where
from runwatch.head.keeping import Keeping
from runwatch.head.local_head import LocalHead as LocalHead
from runwatch.head.local_head import LocalSettings as LocalSettings
from runwatch.head.local_head import writable
from runwatch.head.own_id import kept_id
from runwatch.head.settings import HeadSettings
from runwatch.head.state.sessions import SessionDefaults
from runwatch.head.stream import SpineService, serve_grpc
from runwatch.head.telemetry.settings import TelemetrySettings
from runwatch.head.telemetry.telemetry import Telemetry
from runwatch.journal.liveness import this_host
from runwatch.store.store import Retention

CLOCK_ROUNDS: Final = 20
logger = logging.getLogger("runwatch.head")


class Head:
    """A head that listens.  `tail_journals` makes it follow the directory's journals itself;
    `open_gswarm` lets clients of gswarm in that know no token, on loopback."""

    def __init__(
        self,
        settings: HeadSettings,
        *,
        tail_journals: bool = False,
        open_gswarm: bool = False,
        telemetry: TelemetrySettings | None = None,
        gcp: GcpSettings | None = None,
        clock: Clock = system_clock,
    ) -> None:
        # Somebody who names a token wants it to be asked for.
        where = settings.tokens_directory
        named = bool(settings.token) or where is not None
        open_gswarm = open_gswarm and settings.is_loopback and not named
        self._given = GivenTokens(where, clock=clock) if where is not None else None
        self.main = _main_token(settings, self._given)
        self.main.on_renewed = self._renewed
        self.settings = settings = replace(settings, token=self.main.now.word)
        self.local = LocalHead(
            settings.root,
            agents=lambda: self.service.agents,
            where=lambda: self._where,
            settings=self._local_settings(open_gswarm),
            clock=clock,
        )
        if telemetry is not None and telemetry.is_on:
            self._send_telemetry(telemetry)
        if gcp is not None and (gcp.logs or gcp.monitors):
            self._send_to_cloud(gcp)
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
        self._otlp = OtlpServices(self.local.feature(OtlpApi).receiver)
        self._sessions = SessionsService(self.local.feature(SessionsApi))
        is_shared = bool(settings.gswarm_open) and not settings.gswarm_apart
        self._admission = self._admits(open_gswarm or is_shared, settings.open_ingest)
        self._gswarm_admission = self._admits(True)
        self.local.tokens.on_revoked = self._look_soon
        if self._given is not None:
            self._given.on_changed = self._given_changed
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
                settings.token,
                settings.is_loopback,
                tls,
                settings.base_path,
                open_gswarm,
                settings.open_ingest,
                settings.gswarm_open,
                settings.gswarm_apart,
                check_origins(settings.cors_origins),
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
            given=self._given,
        )

    def _send_telemetry(self, telemetry: TelemetrySettings) -> None:
        root, local = self.settings.root, self.local
        if not writable(root):
            logger.warning("no telemetry is sent: this head cannot write to %s", root)
            return
        local.forwarding.append(
            Telemetry(
                telemetry, root, local.store, local.board, local.accounts.brief, clock=local.clock
            )
        )

    def _send_to_cloud(self, gcp: GcpSettings) -> None:
        root, local = self.settings.root, self.local
        if not writable(root):
            logger.warning("nothing is sent to Google Cloud: this head cannot write to %s", root)
            return
        runs = local.board.summaries
        local.forwarding.append(
            CloudExporters(
                gcp, root, local.store, local.accounts, lambda: runs()[0], clock=local.clock
            )
        )

    def _admits(self, open_gswarm: bool, open_ingest: bool = False) -> Admission:
        local = self.local
        return Admission(
            self.main,
            tokens=local.tokens,
            audit=local.audit,
            open_gswarm=open_gswarm,
            open_ingest=open_ingest,
        )

    def _look_soon(self) -> None:
        self._admission.look_soon()
        self._gswarm_admission.look_soon()

    def _given_changed(self) -> None:
        self._look_soon()
        self.local.context.access_changed()

    def _renewed(self) -> None:
        self._leave_note()
        self._look_soon()

    def _leave_note(self) -> bool:
        """False: try again later.  A full disk must not keep the head from answering."""
        if self._at is None:
            return True
        return leave_note(self.settings.root, replace(self._at, token=self.main.told))

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
        if settings.otlp_http_port >= 0:
            http.append(_listen(settings.bind, settings.otlp_http_port, "--otlp-http-port"))
            logger.info("OTLP by HTTP is taken at port %d, too", http[-1].getsockname()[1])
        grpc_servers, grpc_port = [], 0
        if settings.grpc_port >= 0:
            address = f"{_bracketed(settings.bind)}:{settings.grpc_port}"
            grpc_server, grpc_port = await serve_grpc(
                self.service,
                address,
                certificate=certificate,
                admission=self._admission,
                others=[self._guests.handler(), self._sessions.handler(), *self._otlp.handlers()],
                also=self._otlp_address(),
            )
            grpc_servers.append(grpc_server)
        if settings.gswarm_apart:
            opened = settings.gswarm_open
            if grpc_port:
                address = f"{_bracketed(opened)}:{grpc_port}"
                admission, others = self._gswarm_admission, [self._guests.handler()]
                grpc_server, _ = await serve_grpc(None, address, admission=admission, others=others)
                grpc_servers.append(grpc_server)
            http += [_listen(opened, http[0].getsockname()[1])] if settings.http_port >= 0 else []
        self._server = server = _Server(self._config())
        self._where = self._told_where(grpc_port)
        is_open = settings.http_port >= 0
        at = self._listening(http[0].getsockname()[1] if is_open else 0, grpc_port)
        watching = asyncio.ensure_future(self._watch(server, at, on_ready))
        if self._tails:
            self.local.tail.start()
        self.local.context.sessions.start()
        if self.local.deletions.all():  # the last head may have been killed at it
            self.local.ingest.keep_soon()
        for each in self.local.forwarding:
            each.start()
        self.local.feature(StacksApi).watch()
        warming = asyncio.ensure_future(asyncio.to_thread(self.local.board.warm))
        try:
            await server.serve(sockets=http)
        finally:
            watching.cancel()
            await warming
            self.local.live.close()
            await asyncio.to_thread(self.local.context.sessions.end)
            await asyncio.gather(*(server.stop(grace=5.0) for server in grpc_servers))
            take_note_back(settings.root, at)

    def _otlp_address(self) -> str:
        """Where OTLP by gRPC is taken, too; empty: nowhere else."""
        port = self.settings.otlp_grpc_port
        return f"{_bracketed(self.settings.bind)}:{port}" if port >= 0 else ""

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
            _ = self.main.now  # one that has changed is seen, and noted, also if nobody asks
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
        id = kept_id(settings.root) if grpc_port and writable(settings.root) else ""
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


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _listen(bind: str, port: int, option: str = "--port or --http-port") -> socket.socket:
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
            f"cannot listen on {bind} port {port}: {error.strerror}; choose another with {option} "
            "(0 takes any free one)"
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


def _main_token(settings: HeadSettings, given: GivenTokens | None = None) -> MainToken:
    """A head always has a token: other users of this machine may not use it."""
    if given is not None and given.now().main:
        if settings.token:
            raise UsageError(
                f"two main tokens: {given.directory / MAIN_FILE}, and that of --token, "
                "--token-file or RUNWATCH_TOKEN; give one"
            )
        return MainToken(given=given)
    if settings.token:
        return MainToken(settings.token)
    if not writable(settings.root):
        return MainToken(new_token())
    private(settings.root)
    return MainToken(kept_token(settings.root), settings.root)
