"""What can be set about a head."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

from runwatch.address import GRPC_PORT, HTTP_PORT, Address
from runwatch.errors import UsageError
from runwatch.head.access.origins import EVERYWHERE, check_origins
from runwatch.head.quotas import QuotaSettings
from runwatch.settings import read_token, runwatch_dir, setting
from runwatch.views.pace import Limits

MOST_EXPENSIVE: Final = 10**9
ANSWER_SECONDS: Final = 120.0
_BASE_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class HangSettings:
    on: bool = True
    limits: Limits = field(default_factory=Limits)
    look_again_seconds: float = 300.0
    """How long until an open incident is looked at again."""
    sample_seconds: float = 0.0
    """How often stacks of healthy runs are taken; 0: never."""


@dataclass(frozen=True, slots=True)
class ViewerSettings:
    memory_bytes: int = 4 << 30
    idle_seconds: float = 600.0
    summarises_at_once: bool = False
    """Summarise a profile when it ends; else when somebody opens it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often an open page gets news."""

    run_seconds: float = 0.25
    """The least time between two messages about one run."""
    all_seconds: float = 1.0
    """… about all runs."""
    keep_alive_seconds: float = 15.0
    """After this long without news a stream says so, and looks for runs that fell silent."""


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """How a head answers people."""

    base_path: str = ""
    answer_seconds: float = ANSWER_SECONDS
    price_per_device_hour: float | None = None
    hangs: HangSettings = field(default_factory=HangSettings)
    viewer: ViewerSettings = field(default_factory=ViewerSettings)
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True, slots=True)
class HeadSettings:
    dir: Path | None = setting(None, env="RUNWATCH_DIR", help="where journals, store and blobs are")
    bind: str = setting("127.0.0.1", env="RUNWATCH_BIND", help="address to listen on")
    http_port: int = setting(HTTP_PORT, help="port for people; 0 = any free one, -1 = none")
    grpc_port: int = setting(GRPC_PORT, help="port for agents; 0 = any free one, -1 = none")
    grpc_address: str = setting(
        "",
        help="where agents connect, if not at the page's host: grpcs://host:8091 (behind a proxy)",
    )
    otlp_grpc_port: int = setting(
        -1, help="another port for OTLP by gRPC, usually 4317; -1 = only the port for agents"
    )
    otlp_http_port: int = setting(
        -1, help="another port for OTLP by HTTP, usually 4318; -1 = only the port for people"
    )
    open_ingest: bool = setting(
        False, help="programs on this machine may send OTLP without a token (127.0.0.1 only)"
    )
    token: str = setting(
        "",
        env="RUNWATCH_TOKEN",
        help="the token of callers; made at the first start",
        secret=True,
    )
    token_file: Path | None = setting(
        None,
        env="RUNWATCH_TOKEN_FILE",
        help="file with the token, readable by its owner alone",
    )
    tokens_directory: Path | None = setting(
        None,
        env="RUNWATCH_TOKENS_DIR",
        help="folder with more tokens, in files named main or ROLE-NAME, like ingest-agents",
    )
    gswarm_open: str = setting(
        "",
        env="RUNWATCH_GSWARM_OPEN",
        help="address at which gswarm's programs, which know no token, are let in; only they",
    )
    cors_origins: str = setting(
        "",
        env="RUNWATCH_CORS_ORIGINS",
        help="origins whose pages may ask this head, with commas: https://dashboard.example:3000",
    )
    tls_certificate: Path | None = setting(None, help="PEM file; turns TLS on")
    tls_key: Path | None = setting(None, help="PEM file of its key")
    points_days: float | None = setting(90.0, help="how long raw points are kept")
    rollup_days: float | None = setting(730.0, help="how long one-minute roll-ups are kept")
    events_days: float | None = setting(730.0, help="how long events are kept")
    device_period_ms: int = setting(
        1000, help="time between two frames of a session; gsprof's clients use it too"
    )
    device_bandwidth: bool = setting(True, help="record bandwidths in sessions")
    device_nvlink: bool = setting(True, help="record NVLink rates in sessions")
    session_dir: Path | None = setting(
        None, help="sessions end with the head; each is written to this folder as NAME.json"
    )

    hang_watch: bool = setting(True, help="find out who is to blame when a run stands still")
    stall_floor_seconds: float = setting(
        10.0, help="a run that made no progress for less than this does not stand still"
    )
    stall_factor: float = setting(5.0, help="nor for fewer of its usual steps than this")
    stack_sample_seconds: float = setting(
        0.0, help="how often to take stacks of every run, for a flame graph; 0 = never"
    )

    base_path: str = setting("", help="the path of the page behind a proxy, like /team/runwatch")
    profiles: Path | None = setting(
        None, help="where profiles are, in sessions or loose (default: profiles in the directory)"
    )
    viewer_memory: int = setting(4 << 30, help="how much memory XProf may use before it is ended")
    viewer_idle_seconds: float = setting(600.0, help="how long an unused XProf stays")
    price_per_device_hour: float | None = setting(
        None,
        env="RUNWATCH_PRICE_PER_DEVICE_HOUR",
        help="the price of an accelerator for an hour; goodput then shows costs",
    )

    answer_seconds: float = setting(
        ANSWER_SECONDS,
        help="a question without an answer by then is given up, with the reason",
    )
    run_series: int = setting(2_000_000, help="the most series of one run; 0 = no limit")
    run_events: int = setting(20_000_000, help="and so many events")
    run_bytes: int = setting(1 << 40, help="the most bytes of one run, as sent; 0 = no limit")
    client_runs: int = setting(10_000, help="the most runs from one address in a day; 0 = no limit")
    client_series: int = setting(2_000_000, help="and so many new series")
    client_events: int = setting(20_000_000, help="and so many events")
    client_bytes: int = setting(1 << 40, help="and so many bytes")
    project_runs: int = setting(
        0, help="the most runs of one project (the runs' group); 0 = no limit"
    )
    project_series: int = setting(0, help="and so many series")
    project_events: int = setting(0, help="and so many events")
    project_bytes: int = setting(0, help="the most bytes of one project, as sent; 0 = no limit")

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_path", check_base_path(self.base_path))
        if self.token_file is not None:
            object.__setattr__(self, "token", read_token(self.token_file))
        if self.grpc_address:
            Address.parse(self.grpc_address)  # say now what is wrong with it
        if not 1 <= self.device_period_ms <= 3_600_000:
            raise UsageError(
                f"device_period_ms is {self.device_period_ms}: a number from 1 to 3600000"
            )
        if self.stack_sample_seconds < 0:
            raise UsageError(
                f"stack_sample_seconds is {self.stack_sample_seconds}: seconds, or 0 for never"
            )
        for limit in fields(QuotaSettings):
            if getattr(self, limit.name) < 0:
                raise UsageError(
                    f"{limit.name} is {getattr(self, limit.name)}: a number, or 0 for no limit"
                )
        price = self.price_per_device_hour
        if price is not None and not 0 <= price <= MOST_EXPENSIVE:
            raise UsageError(f"price_per_device_hour is {price}: it must be 0 or more")
        for name in ("stall_floor_seconds", "stall_factor", "answer_seconds"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} is {getattr(self, name)}: it must be more than 0")
        check_origins(self.cors_origins)
        self._check_gswarm()
        if self.open_ingest and not self.is_loopback:
            raise UsageError(
                f"open_ingest with bind {self.bind!r}: where others can reach the head, programs "
                "send a token (OTEL_EXPORTER_OTLP_HEADERS, or http://HEAD/t/TOKEN as the address)"
            )
        if self.otlp_grpc_port >= 0 and self.grpc_port < 0:
            raise UsageError("otlp_grpc_port needs a port for agents: grpc_port is -1, none")
        for name in ("grpc_port", "http_port", "otlp_grpc_port", "otlp_http_port"):
            port = getattr(self, name)
            if not -1 <= port <= 65535:
                raise UsageError(f"{name} is {port}: a port is a number from 0 to 65535")

    def _check_gswarm(self) -> None:
        opened, own = self.gswarm_open.strip("[]"), self.bind.strip("[]")
        if not opened:
            return
        if opened != own and {opened, own} & EVERYWHERE:
            raise UsageError(
                f"gswarm_open {opened!r} and bind {own!r} overlap: name two addresses of this "
                "machine, or the same one twice"
            )
        if opened == own and self.tls_certificate is not None:
            raise UsageError(
                f"gswarm_open {opened!r}: gswarm's programs know no TLS; name another address of "
                "this machine than the head's own"
            )

    @property
    def gswarm_apart(self) -> bool:
        """Whether the address for gswarm's programs is another than the head's own."""
        return bool(self.gswarm_open) and self.gswarm_open.strip("[]") != self.bind.strip("[]")

    @property
    def quotas(self) -> QuotaSettings:
        return QuotaSettings(**{f.name: getattr(self, f.name) for f in fields(QuotaSettings)})

    @property
    def hangs(self) -> HangSettings:
        limits = Limits(factor=self.stall_factor, floor_seconds=self.stall_floor_seconds)
        return HangSettings(self.hang_watch, limits, sample_seconds=self.stack_sample_seconds)

    @property
    def serving(self) -> ServingSettings:
        viewer = ViewerSettings(self.viewer_memory, self.viewer_idle_seconds, True)
        return ServingSettings(
            self.base_path, self.answer_seconds, self.price_per_device_hour, self.hangs, viewer
        )

    @property
    def root(self) -> Path:
        return self.dir if self.dir is not None else runwatch_dir()

    @property
    def is_loopback(self) -> bool:
        if self.bind == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.bind.strip("[]")).is_loopback
        except ValueError:
            return False


def check_base_path(base: str) -> str:
    """`/team/x` in one spelling: no slash at the end, empty for none."""
    base = base.rstrip("/")
    base = base if not base or base.startswith("/") else f"/{base}"
    if not _BASE_PATH.fullmatch(base) or ".." in base:
        raise UsageError(
            f"base path {base[:80]!r}: parts of letters, digits, '.', '_', '~' and '-', "
            "like /team/runwatch"
        )
    return base
