"""What can be set about telemetry: the section [telemetry]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from runwatch.errors import UsageError
from runwatch.settings import setting

_HTTP: Final = ("http", "https")


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    remote_write: str = setting(
        "",
        env="RUNWATCH_REMOTE_WRITE",
        help="send every point and the state of runs to this address of Prometheus, like "
        "http://prometheus:9090/api/v1/write",
    )
    remote_write_headers: str = setting(
        "",
        env="RUNWATCH_REMOTE_WRITE_HEADERS",
        help="headers of these requests, like Authorization=Bearer x,X-Scope-OrgID=team",
        secret=True,
    )
    otlp_export: str = setting(
        "",
        env="RUNWATCH_OTLP_EXPORT",
        help="send the same to this OpenTelemetry collector: http://collector:4318 or "
        "grpc://collector:4317 (grpcs:// with TLS)",
    )
    otlp_headers: str = setting(
        "", env="RUNWATCH_OTLP_HEADERS", help="headers of these requests", secret=True
    )
    interval_seconds: float = setting(15.0, help="how often something new is sent")
    backlog_hours: float = setting(
        24.0, help="what a receiver could not take for so long is not sent any more"
    )
    timeout_seconds: float = setting(30.0, help="a request without an answer by then is repeated")
    retry_seconds: float = setting(60.0, help="the longest pause after failures")

    def __post_init__(self) -> None:
        for name in ("interval_seconds", "backlog_hours", "timeout_seconds", "retry_seconds"):
            if not getattr(self, name) > 0:
                raise UsageError(
                    f"telemetry.{name} is {getattr(self, name)}: it must be more than 0"
                )
        _check("remote_write", self.remote_write, _HTTP)
        _check("otlp_export", self.otlp_export, (*_HTTP, "grpc", "grpcs"))
        for name in ("remote_write_headers", "otlp_headers"):
            headers_of(getattr(self, name), f"telemetry.{name}")

    @property
    def is_on(self) -> bool:
        return bool(self.remote_write or self.otlp_export)


def _check(name: str, address: str, schemes: tuple[str, ...]) -> None:
    if not address:
        return
    try:
        parts = urlsplit(address)
        fine = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise UsageError(
            f"telemetry.{name} is {without_password(address)[:200]!r}: an address that begins with "
            f"{', '.join(f'{scheme}://' for scheme in schemes)}"
        )


def headers_of(words: str, name: str = "headers") -> dict[str, str]:
    """`a=b,c=d`, as OTEL_EXPORTER_OTLP_HEADERS writes them."""
    headers = {}
    for part in words.split(","):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        key, value = key.strip(), value.strip()
        if not equals or not key.replace("-", "").replace("_", "").isalnum() or "\n" in value:
            raise UsageError(f"{name}: write them as Name=value,Other=value")
        headers[key] = value
    return headers


def without_password(address: str) -> str:
    """For people: an address may hold a name and a password."""
    scheme, separator, rest = address.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}{separator}{place.rpartition('@')[2]}{slash}{path}"
