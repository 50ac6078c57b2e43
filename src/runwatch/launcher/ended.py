"""How a command ended."""

from __future__ import annotations

from typing import NamedTuple


class Ended(NamedTuple):
    """As `wait4` says.  The wrapper tells the scribe, as JSON."""

    code: int | None
    signal: str | None
    max_rss_bytes: int | None = None

    @property
    def status(self) -> str:
        return "killed" if self.signal else "failed" if self.code else "completed"

    @property
    def reason(self) -> str | None:
        if self.signal:
            return f"killed by {self.signal}"
        return f"exit code {self.code}" if self.code else None
