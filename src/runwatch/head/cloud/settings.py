"""What can be set about Google Cloud: the section [gcp]."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from runwatch.errors import UsageError
from runwatch.settings import setting

SHORTEST_INTERVAL_SECONDS: Final = 5.0
"""The service takes a point of a series every five seconds at most."""
_PROJECT: Final = re.compile(r"[A-Za-z0-9.:_-]*", re.ASCII)
_YES: Final = ("true", "yes", "on", "1")
_NO: Final = ("", "false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class GcpSettings:
    logging: str = setting(
        "",
        env="RUNWATCH_GCP_LOGGING",
        help="send stack dumps and goodput entries to Cloud Logging: true, or a project's id",
    )
    monitoring: str = setting(
        "",
        env="RUNWATCH_GCP_MONITORING",
        help="send the goodput of runs to Cloud Monitoring: true, or a project's id",
    )
    project: str = setting(
        "",
        env="RUNWATCH_GCP_PROJECT",
        help="the project where those say true (default: the credentials' project)",
    )
    runs: str = setting(
        "*",
        env="RUNWATCH_GCP_RUNS",
        help="only runs whose name or id is one of these, like llama-*,eval-7",
    )
    stacks: bool = setting(True, help="log stack dumps")
    goodput: bool = setting(True, help="log the entries of GoodputRecorder")
    metrics: str = setting(
        "", help="log the points of these metrics, too, like loss,learning_rate or *"
    )
    location: str = setting(
        "global",
        env="RUNWATCH_GCP_LOCATION",
        help="where the runs are, as resources name it: us-central1-a",
    )
    replica_id: str = setting("0", help="which replica of the workload, in Cloud Monitoring")
    accelerator_type: str = setting("UNKNOWN", help="the label of series with that name")
    cluster_name: str = setting("", help="the label of series with that name; none if empty")
    interval_seconds: float = setting(60.0, help="time between two points of a series")
    rolling_windows: str = setting(
        "", help="goodput of the last so many seconds, too, like 3600,86400"
    )
    account: bool = setting(
        False, help="Runwatch's own classes of time, too, as custom.googleapis.com/runwatch/…"
    )
    logging_endpoint: str = setting(
        "", help="HOST:PORT in place of logging.googleapis.com: a private one, or an emulator"
    )
    monitoring_endpoint: str = setting(
        "", help="HOST:PORT in place of monitoring.googleapis.com: a private one, or an emulator"
    )
    insecure: bool = setting(
        False, help="neither TLS nor credentials at those endpoints, for an emulator"
    )
    timeout_seconds: float = setting(30.0, help="a request without an answer by then is repeated")
    retry_seconds: float = setting(300.0, help="the longest pause after failures")
    backfill_hours: float = setting(
        24.0, help="what was recorded so long before the first start is sent, too"
    )

    def __post_init__(self) -> None:
        for name in ("timeout_seconds", "retry_seconds"):
            if not getattr(self, name) > 0:
                raise UsageError(f"gcp.{name} is {getattr(self, name)}: it must be more than 0")
        if not self.interval_seconds >= SHORTEST_INTERVAL_SECONDS:
            raise UsageError(
                f"gcp.interval_seconds is {self.interval_seconds}: Cloud Monitoring takes a point "
                f"every {SHORTEST_INTERVAL_SECONDS:.0f} s at most"
            )
        if not 0 <= self.backfill_hours <= 30 * 24:
            raise UsageError(f"gcp.backfill_hours is {self.backfill_hours}: from 0 to 720")
        for name in ("logging", "monitoring", "project"):
            given = getattr(self, name)
            if not _PROJECT.fullmatch(given):
                raise UsageError(f"gcp.{name} is {given!r}: not a project's id, like my-team-7")
        self.windows  # noqa: B018  say now what is wrong with them
        for service in ("logging", "monitoring"):
            self._check_endpoint(service)

    def _check_endpoint(self, service: str) -> None:
        name, endpoint = f"{service}_endpoint", getattr(self, f"{service}_endpoint")
        if "//" in endpoint:
            raise UsageError(f"gcp.{name} is {endpoint!r}: HOST:PORT, without a scheme")
        if self.insecure and _is_on(getattr(self, service)) and not endpoint:
            raise UsageError(
                f"gcp.insecure needs gcp.{name}: Google's own takes no request without credentials"
            )

    @property
    def logs(self) -> bool:
        return _is_on(self.logging)

    @property
    def monitors(self) -> bool:
        return _is_on(self.monitoring)

    @property
    def logging_project(self) -> str:
        """Empty: the credentials say which."""
        return self.project if self.logging.lower() in _YES else self.logging

    @property
    def monitoring_project(self) -> str:
        return self.project if self.monitoring.lower() in _YES else self.monitoring

    @property
    def windows(self) -> list[int]:
        parts = split(self.rolling_windows)
        try:
            windows = [int(part) for part in parts]
        except ValueError:
            windows = [0]
        if any(window <= 0 for window in windows):
            raise UsageError(
                f"gcp.rolling_windows is {self.rolling_windows!r}: seconds, like 3600,86400"
            )
        return windows

    def takes(self, run: str, name: str) -> bool:
        """Whether the run is chosen."""
        return is_like(self.runs, run) or is_like(self.runs, name)


def _is_on(text: str) -> bool:
    return text.lower() not in _NO


def split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def is_like(patterns: str, name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in split(patterns))
