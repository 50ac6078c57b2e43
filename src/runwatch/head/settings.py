"""What can be set about a head."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from runwatch.settings import runwatch_dir, setting


@dataclass(frozen=True, slots=True)
class HeadSettings:
    dir: Path | None = setting(None, env="RUNWATCH_DIR", help="where journals, store and blobs are")
    bind: str = setting("127.0.0.1", env="RUNWATCH_BIND", help="address to listen on")
    grpc_port: int = setting(8090, help="port for agents; 0 = any free one, -1 = none")
    http_port: int = setting(8091, help="port for people; 0 = any free one")
    token: str = setting(
        "", env="RUNWATCH_TOKEN", help="what callers must know; made when needed", secret=True
    )
    tls_certificate: Path | None = setting(None, help="PEM file; turns TLS on")
    tls_key: Path | None = setting(None, help="PEM file of its key")
    points_days: float | None = setting(90.0, help="how long raw points are kept")
    rollup_days: float | None = setting(730.0, help="how long one-minute roll-ups are kept")
    events_days: float | None = setting(730.0, help="how long events are kept")

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
