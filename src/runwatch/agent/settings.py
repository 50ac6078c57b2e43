"""What can be set about an agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runwatch.settings import runwatch_dir, setting


@dataclass(frozen=True, slots=True)
class AgentSettings:
    dir: Path | None = setting(None, env="RUNWATCH_DIR", help="where journals are")
    head: str = setting("", env="RUNWATCH_HEAD", help="address of the head, host:8090")
    token: str = setting("", env="RUNWATCH_TOKEN", help="the head's token", secret=True)
    ca: Path | None = setting(None, env="RUNWATCH_CA", help="certificate to check the head's by")
    host: str = setting("", env="RUNWATCH_HOST", help="this node's name, if not the host name")
    all_hosts: bool = setting(False, help="take every host's journals, not just this one's")
    period_seconds: float = setting(1.0, help="how often the host is sampled")
    idle_seconds: float = setting(
        60.0, env="RUNWATCH_AGENT_IDLE", help="ends after so long without a run; 0 = never"
    )
    budget_bytes: int = setting(
        8 << 30, env="RUNWATCH_NODE_BYTES", help="disk for all journals of this node"
    )
    keep_acknowledged_seconds: float = setting(
        3600.0, help="how long stored segments are kept, in case the head loses its store"
    )

    @property
    def root(self) -> Path:
        return self.dir if self.dir is not None else runwatch_dir()
