"""Where a head can be reached: it leaves a note in its directory.

Who only asks reads the note here, and need not import all that a head is made of.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from runwatch.files import Folder

ADDRESS_FILE: Final = "head.json"


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a head can be reached."""

    http: str
    """Empty when it has no page."""
    grpc: str
    """Empty when it takes no agents."""
    token: str
    pid: int
    host: str = ""
    """Where it runs; empty: an older head did not say."""
    since_ns: int = 0
    """When it began to listen, wall clock; 0: not said."""

    @property
    def link(self) -> str:
        return f"{self.http}/?token={self.token}" if self.token and self.http else self.http


def read_address(root: Path) -> Listening | None:
    """The head that said it serves this directory, if one did; it may be gone."""
    try:
        with Folder.at(root) as folder:  # by another's we would tell him our token
            text = folder.text(ADDRESS_FILE, owners=folder.trusted())
        fields: dict[str, Any] = json.loads(text)
        known = {name: fields[name] for name in ("http", "grpc", "token", "pid")}
        more = {name: fields[name] for name in ("host", "since_ns") if name in fields}
        return Listening(**known, **more)
    except (OSError, ValueError, KeyError, TypeError):
        return None
