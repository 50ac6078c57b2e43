"""Whose data it is: resource attributes as run, rank and host.  docs/otlp.md has the table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runwatch.record import JournalId, RunId
from runwatch.record.checks import LONGEST_NAME, MOST_RANKS
from runwatch.record.door import is_host_name
from runwatch.record.names import slug
from runwatch.record.otlp import OTLP
from runwatch.wire.otlp_values import text

WHEEL: Final = "diagon_sdk_workload"
"""The service name that google-cloud-mldiagnostics gives; its `host.name` is the run's id."""
QUIET_SECONDS: Final = 150.0
"""OpenTelemetry programs send every 60 s unless told otherwise: two and a half times that."""
LONGEST: Final = 200
_UNKNOWN: Final = "unknown_service"
_NAMES: Final = (
    "k8s.job.name", "k8s.statefulset.name", "k8s.deployment.name", "k8s.daemonset.name",
    "k8s.cronjob.name",
)  # fmt: skip
_HOSTS: Final = ("host.name", "k8s.pod.name", "k8s.node.name")
_RANKS: Final = (
    "runwatch.rank",
    "k8s.pod.label.batch.kubernetes.io/job-completion-index",
    "k8s.pod.label.apps.kubernetes.io/pod-index",
)


@dataclass(frozen=True, slots=True)
class Sender:
    """A process, as its data names it."""

    run: RunId
    name: str
    host: str
    pid: int = 0
    rank: int | None = None
    """None: it does not say."""
    world_size: int = 1
    group: str = ""
    attempt_key: str = ""
    instance: str = ""
    """What tells it from others of its host and rank."""
    is_wheel: bool = False
    quiet_seconds: float = QUIET_SECONDS

    @property
    def journal(self) -> JournalId:
        """The same whenever the same process sends."""
        said = (self.run, self.host, self.rank, self.attempt_key, self.instance or self.pid)
        return JournalId(OTLP + hashlib.sha256(repr(said).encode()).hexdigest()[:24])


def sender_of(resource: Mapping[str, Any], peer: str) -> Sender:
    """`peer`: the host that the data came from, for programs that do not name theirs."""
    service = _text(resource, "service.name")
    if service == WHEEL and (run := _text(resource, "host.name")):
        return Sender(slug(run), run, peer, is_wheel=True)
    name = _text(resource, "runwatch.run") or _named(resource, service)
    id = _text(resource, "runwatch.run_id")
    host = next((h for h in _texts(resource, _HOSTS) if is_host_name(h)), peer)
    return Sender(
        slug(id or name),
        name,
        host,
        _number(resource, ("process.pid",), (1 << 31) - 1) or 0,
        _number(resource, _RANKS, MOST_RANKS),
        _number(resource, ("runwatch.world_size",), MOST_RANKS) or 1,
        _text(resource, "runwatch.group"),
        _text(resource, "runwatch.attempt"),
        _text(resource, "service.instance.id") or _text(resource, "k8s.pod.uid"),
        quiet_seconds=_seconds(resource.get("runwatch.quiet_seconds")),
    )


def _named(resource: Mapping[str, Any], service: str) -> str:
    if service and not service.startswith(_UNKNOWN):
        space = _text(resource, "service.namespace")
        return f"{space}/{service}" if space else service
    return next(_texts(resource, _NAMES), "") or service or _UNKNOWN


def _texts(resource: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    return filter(None, (_text(resource, name) for name in names))


def _text(resource: Mapping[str, Any], name: str) -> str:
    """Cut to what a name may be, and printable."""
    value = resource.get(name)
    if value is None:
        return ""
    said = text(value)[:LONGEST_NAME].encode("utf-8", "replace").decode()
    return "".join(c if c.isprintable() else " " for c in said[:LONGEST]).strip()


def _number(resource: Mapping[str, Any], names: Iterable[str], most: int) -> int | None:
    for said in _texts(resource, names):
        if said.isascii() and said.isdigit() and len(said) < 12 and int(said) <= most:
            return int(said)
    return None


def _seconds(said: Any) -> float:
    try:
        seconds = float(said)
    except (TypeError, ValueError):
        return QUIET_SECONDS
    return seconds if 0 < seconds <= 30 * 86_400 else QUIET_SECONDS
