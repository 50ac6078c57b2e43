"""How long to wait, and where the viewers on this machine are listed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runwatch.errors import UsageError

API: Final = "https://hypercomputecluster.googleapis.com"


@dataclass(frozen=True, slots=True)
class Settings:
    home: Path
    """XPROFILER_HOME: one file for each viewer on this machine."""
    command_seconds: float = 120.0
    """XPROFILER_COMMAND_SECONDS: no gcloud, kubectl or ssh may take longer, captures apart."""
    ready_seconds: float = 300.0
    """XPROFILER_READY_SECONDS: how long a new instance may take to answer."""
    poll_seconds: float = 20.0
    """XPROFILER_POLL_SECONDS: how often it is looked at meanwhile."""
    api: str = API
    """XPROFILER_API: where `register` posts."""


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    home = environment.get("XPROFILER_HOME") or "~/.runwatch/xprofiler"
    return Settings(
        home=Path(home).expanduser().absolute(),
        command_seconds=_seconds(environment, "XPROFILER_COMMAND_SECONDS", 120.0),
        ready_seconds=_seconds(environment, "XPROFILER_READY_SECONDS", 300.0),
        poll_seconds=_seconds(environment, "XPROFILER_POLL_SECONDS", 20.0),
        api=environment.get("XPROFILER_API") or API,
    )


def _seconds(environment: Mapping[str, str], name: str, usual: float) -> float:
    text = environment.get(name)
    if not text:
        return usual
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 86_400:
        raise UsageError(f"{name}={text!r} is not a number of seconds from 0 to 86400")
    return value
