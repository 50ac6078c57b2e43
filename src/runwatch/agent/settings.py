"""The settings of an agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runwatch.address import split_token
from runwatch.errors import UsageError
from runwatch.journal.segment import MIN_SEGMENT_BYTES
from runwatch.settings import read_token, runwatch_dir, setting

LEAST_SECONDS = 0.05
LEAST_BYTES = 3 * MIN_SEGMENT_BYTES


@dataclass(frozen=True, slots=True)
class AgentSettings:
    dir: Path | None = setting(None, env="RUNWATCH_DIR", help="where journals are")
    head: str = setting(
        "", env="RUNWATCH_HEAD", help="address of the head, as people open it: http://host:8090"
    )
    token: str = setting("", env="RUNWATCH_TOKEN", help="the head's token", secret=True)
    token_file: Path | None = setting(
        None,
        env="RUNWATCH_TOKEN_FILE",
        help="file with the token, readable by its owner only (0600)",
    )
    ca: Path | None = setting(
        None, env="RUNWATCH_CA", help="CA certificate to verify the head with"
    )
    host: str = setting("", env="RUNWATCH_HOST", help="this node's name, if not the host name")
    inherit_seconds: float = setting(
        60.0,
        env="RUNWATCH_INHERIT_SECONDS",
        help="send another host's journals after so many seconds without a change; 0 = never",
    )
    retry_seconds: float = setting(
        60.0,
        env="RUNWATCH_RETRY_SECONDS",
        help="longest pause before an absent head is tried again: 1, 2, 4 … up to so many seconds",
    )
    all_hosts: bool = setting(False, help="take every host's journals, not just this one's")
    period_seconds: float = setting(1.0, help="how often the host is sampled")
    device_hz: float = setting(
        1.0,
        env="RUNWATCH_DEVICE_HZ",
        help="samples of accelerators per second, up to 20; 0 = none",
    )
    device_pcie: bool = setting(
        False,
        env="RUNWATCH_DEVICE_PCIE",
        help="measure PCIe also on GPUs without counters for it: 40 ms each, every 10 s",
    )
    device_replay: Path | None = setting(
        None, env="RUNWATCH_DEVICE_REPLAY", help="play this recording in place of real devices"
    )
    device_replay_count: int = setting(
        0,
        env="RUNWATCH_DEVICE_REPLAY_COUNT",
        help="how many devices to play; 0 = as many as recorded",
    )
    device_replay_speed: float = setting(
        1.0, env="RUNWATCH_DEVICE_REPLAY_SPEED", help="how many times as fast as recorded"
    )
    idle_seconds: float = setting(
        60.0, env="RUNWATCH_AGENT_IDLE", help="end after so many seconds without a run; 0 = never"
    )
    last_seconds: float = setting(
        0.0,
        env="RUNWATCH_LAST_SECONDS",
        help="told to end, wait up to so many seconds until the head has all: in a pod no other "
        "agent sends it; 0 = end, the next one does",
    )
    budget_bytes: int = setting(
        8 << 30, env="RUNWATCH_NODE_BYTES", help="disk for all journals of this node"
    )
    own_bytes: int = setting(
        1 << 30,
        env="RUNWATCH_AGENT_BYTES",
        help="disk for the agent's own records until a head has them; then the oldest are dropped",
    )
    sync_seconds: float = setting(
        5.0,
        env="RUNWATCH_SYNC_SECONDS",
        help="seconds between syncs of journals to the disk, against power loss; 0 = never",
    )
    keep_acknowledged_seconds: float = setting(
        3600.0, help="how long segments that the head has are kept, in case it loses its store"
    )

    def __post_init__(self) -> None:
        if self.token_file is not None:
            object.__setattr__(self, "token", read_token(self.token_file))
        head, token = split_token(self.head)
        object.__setattr__(self, "head", head)
        object.__setattr__(self, "token", self.token or token)
        if not self.period_seconds >= LEAST_SECONDS:
            raise UsageError(
                f"period_seconds (--period) is {self.period_seconds:g}: at least {LEAST_SECONDS}"
            )
        if not LEAST_SECONDS <= self.retry_seconds < float("inf"):
            raise UsageError(
                f"retry_seconds (RUNWATCH_RETRY_SECONDS) is {self.retry_seconds:g}: must be a "
                f"number of seconds, at least {LEAST_SECONDS}"
            )
        for name in ("inherit_seconds", "sync_seconds", "last_seconds"):
            if not 0 <= (value := getattr(self, name)) < float("inf"):
                raise UsageError(
                    f"{name} (RUNWATCH_{name.upper()}) is {value:g}: must be a number of "
                    "seconds, or 0 (never)"
                )
        most = 1 / LEAST_SECONDS
        if not 0 <= self.device_hz <= most:
            raise UsageError(
                f"device_hz (--device-hz, RUNWATCH_DEVICE_HZ) is {self.device_hz:g}: must be a "
                f"number from 0 (off) to {most:g}"
            )
        if self.own_bytes < LEAST_BYTES:
            raise UsageError(
                f"own_bytes (RUNWATCH_AGENT_BYTES) is {self.own_bytes}: an agent needs at least "
                f"{LEAST_BYTES} bytes for its own records"
            )
        if not 0 < self.device_replay_speed < float("inf") or self.device_replay_count < 0:
            raise UsageError(
                f"device_replay_speed is {self.device_replay_speed:g} and device_replay_count is "
                f"{self.device_replay_count}: the speed must be above 0, the count 0 or more"
            )

    @property
    def root(self) -> Path:
        return self.dir if self.dir is not None else runwatch_dir()
