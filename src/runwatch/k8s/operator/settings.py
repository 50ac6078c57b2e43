"""The settings of the operator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runwatch.address import split_token
from runwatch.errors import UsageError
from runwatch.settings import read_token, runwatch_dir, setting


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    head: str = setting(
        "", env="RUNWATCH_HEAD", help="address of the head, as people open it: http://host:8090"
    )
    token: str = setting("", env="RUNWATCH_TOKEN", help="a token of the head", secret=True)
    token_file: Path | None = setting(
        None, env="RUNWATCH_TOKEN_FILE", help="file with a token of the role operate"
    )
    ingest_token_file: Path | None = setting(
        None,
        env="RUNWATCH_INGEST_TOKEN_FILE",
        help="file with a token of the role ingest, if the other one may not send records",
    )
    ca: Path | None = setting(
        None, env="RUNWATCH_CA", help="CA certificate to verify the head with"
    )
    link: str = setting(
        "", env="RUNWATCH_LINK", help="address of the head in links, if people open another"
    )
    dir: Path | None = setting(None, env="RUNWATCH_DIR", help="where the operator's journal is")
    port: int = setting(
        8081, env="RUNWATCH_OPERATOR_PORT", help="port of /healthz, /readyz and /metrics; 0 = any"
    )
    bind: str = setting("0.0.0.0", env="RUNWATCH_OPERATOR_BIND", help="address of that port")  # noqa: S104
    identity: str = setting("", env="POD_NAME", help="this operator's name in the lease")
    namespaces: str = setting(
        "", env="RUNWATCH_NAMESPACES", help="with commas: only these namespaces; empty = all"
    )
    wide: str = setting(
        "",
        env="RUNWATCH_WIDE_NAMESPACES",
        help="with commas: objects there may name what runs in any namespace; ours is one of them",
    )
    files: Path | None = setting(
        None,
        env="RUNWATCH_FILES",
        help="connections may store profiles in this folder and below; empty = in no folder",
    )
    schemes: str = setting(
        "gs,gcs,s3,s3a,abfs,abfss,az,adl,hdfs,oss",
        env="RUNWATCH_STORAGE_SCHEMES",
        help="with commas: kinds of URL at which connections may store profiles",
    )
    ttl_seconds: float = setting(
        7 * 86400.0,
        env="RUNWATCH_TTL_SECONDS",
        help="captures and connections are deleted so long after they end; 0 = never",
    )
    runs_seconds: float = setting(
        5.0, env="RUNWATCH_RUNS_SECONDS", help="how often the head is asked about a workload's runs"
    )
    progress_seconds: float = setting(
        30.0,
        env="RUNWATCH_PROGRESS_SECONDS",
        help="how often a Run is written for its step and its goodput alone",
    )
    sweep_seconds: float = setting(
        300.0, env="RUNWATCH_SWEEP_SECONDS", help="how often all pods are listed anew"
    )
    lease_seconds: float = setting(
        15.0, env="RUNWATCH_LEASE_SECONDS", help="how long a silent operator counts as alive"
    )
    first_delay_seconds: float = setting(
        1.0, env="RUNWATCH_RETRY_FIRST_SECONDS", help="pause after a first failure"
    )
    retry_seconds: float = setting(
        60.0, env="RUNWATCH_RETRY_SECONDS", help="longest pause: 1, 2, 4 … up to so many seconds"
    )
    answer_seconds: float = setting(
        45.0, env="RUNWATCH_ANSWER_SECONDS", help="how long an answer is waited for"
    )

    def __post_init__(self) -> None:
        head, token = split_token(self.head)
        object.__setattr__(self, "head", head)
        object.__setattr__(self, "token", self.token or token)
        if not 0 <= self.port < 65536:
            raise UsageError(f"port (RUNWATCH_OPERATOR_PORT) is {self.port}: 0 to 65535")
        for name in ("runs_seconds", "sweep_seconds", "lease_seconds", "retry_seconds"):
            if not (value := getattr(self, name)) > 0:
                raise UsageError(f"{name} is {value:g}: more than 0")

    @property
    def root(self) -> Path:
        return self.dir or runwatch_dir()

    @property
    def only(self) -> tuple[str, ...]:
        """These namespaces; none: all."""
        return _words(self.namespaces)

    @property
    def wide_namespaces(self) -> tuple[str, ...]:
        return _words(self.wide)

    @property
    def link_base(self) -> str:
        return (self.link or self.head).rstrip("/")

    def operate_token(self) -> str:
        """Read anew each time: a Secret's file changes when its token does."""
        return read_token(self.token_file) if self.token_file else self.token

    def ingest_token(self) -> str:
        file = self.ingest_token_file
        return read_token(file) if file else self.operate_token()

    def ca_bytes(self) -> bytes | None:
        return self.ca.read_bytes() if self.ca else None


def _words(listed: str) -> tuple[str, ...]:
    return tuple(word for each in listed.split(",") if (word := each.strip()))
