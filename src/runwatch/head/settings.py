"""What can be set about a head."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from runwatch.errors import UsageError
from runwatch.settings import runwatch_dir, setting


@dataclass(frozen=True, slots=True)
class HeadSettings:
    dir: Path | None = setting(None, env="RUNWATCH_DIR", help="where journals, store and blobs are")
    bind: str = setting("127.0.0.1", env="RUNWATCH_BIND", help="address to listen on")
    grpc_port: int = setting(8090, help="port for agents; 0 = any free one, -1 = none")
    http_port: int = setting(8091, help="port for people; 0 = any free one, -1 = none")
    token: str = setting(
        "", env="RUNWATCH_TOKEN", help="what callers must know; made when needed", secret=True
    )
    tls_certificate: Path | None = setting(None, help="PEM file; turns TLS on")
    tls_key: Path | None = setting(None, help="PEM file of its key")
    points_days: float | None = setting(90.0, help="how long raw points are kept")
    rollup_days: float | None = setting(730.0, help="how long one-minute roll-ups are kept")
    events_days: float | None = setting(730.0, help="how long events are kept")
    device_period_ms: int = setting(
        1000, help="how far apart frames of a session are, and what gsprof's clients are told"
    )
    device_bandwidth: bool = setting(True, help="bandwidths are in sessions")
    device_nvlink: bool = setting(True, help="NVLink rates are in sessions")
    session_dir: Path | None = setting(
        None, help="sessions end with the head, and each is written here as NAME.json"
    )

    def __post_init__(self) -> None:
        if not 1 <= self.device_period_ms <= 3_600_000:
            raise UsageError(
                f"device_period_ms is {self.device_period_ms}: a number from 1 to 3600000"
            )
        for name in ("grpc_port", "http_port"):
            port = getattr(self, name)
            if not -1 <= port <= 65535:
                raise UsageError(f"{name} is {port}: a port is a number from 0 to 65535")

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
