"""Incidents of runs: a run stood still, or went down.  A fold over the events that tell of them.

Each event tells an incident whole; the newest of an id holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from runwatch.record import RunId
from runwatch.rows import EventRow
from runwatch.views.severity import Severity, severity_of

INCIDENT: Final = "incident"
STACKS: Final = "stacks"

Kind = Literal["hang", "crash"]
State = Literal["open", "closed"]


@dataclass(frozen=True, slots=True)
class Incident:
    id: str
    run: RunId
    kind: Kind
    state: State
    since_ns: int
    """The last progress, or the first end."""
    detected_ns: int
    """When it was noticed."""
    named_ns: int
    """When it was first told."""
    text: str
    """One sentence: who everyone waits for, as far as that is known."""
    confidence: str
    ranks: tuple[int, ...]
    """Those to blame; empty if that cannot be told."""
    closed_ns: int | None = None
    why: str = ""
    """What closed it."""
    rounds: int = 0
    """How often stacks were taken for it."""
    report: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = "incident"
    """`note`: shown, and no alarm."""

    @property
    def is_open(self) -> bool:
        return self.state == "open"

    @property
    def is_alarm(self) -> bool:
        return self.severity != "note"

    def closed(self, time_ns: int, why: str) -> Incident:
        return replace(self, state="closed", closed_ns=time_ns, why=why)

    def to_body(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.kind,
            "state": self.state,
            "since_ns": self.since_ns,
            "detected_ns": self.detected_ns,
            "named_ns": self.named_ns,
            "closed_ns": self.closed_ns,
            "why": self.why,
            "text": self.text,
            "confidence": self.confidence,
            "severity": self.severity,
            "ranks": list(self.ranks),
            "rounds": self.rounds,
            "report": dict(self.report),
        }

    @classmethod
    def from_row(cls, row: EventRow) -> Incident | None:
        body = row.body
        if not isinstance(body.get("id"), str):
            return None
        ranks, report = body.get("ranks"), body.get("report")
        closed = body.get("closed_ns")
        return cls(
            id=body["id"],
            run=row.run,
            kind="crash" if body.get("kind") == "crash" else "hang",
            state="open" if body.get("state") == "open" else "closed",
            since_ns=_time(body, "since_ns", row.time_ns),
            detected_ns=_time(body, "detected_ns", row.time_ns),
            named_ns=_time(body, "named_ns", row.time_ns),
            text=str(body.get("text", "")),
            confidence=str(body.get("confidence", "")),
            ranks=tuple(r for r in ranks if isinstance(r, int)) if isinstance(ranks, list) else (),
            closed_ns=closed if isinstance(closed, int) else None,
            why=str(body.get("why", "")),
            rounds=_time(body, "rounds", 0),
            report=report if isinstance(report, Mapping) else {},
            severity=severity_of(body.get("severity")),
        )


def incidents_of(events: Iterable[EventRow]) -> list[Incident]:
    """The newest first."""
    found: dict[tuple[RunId, str], Incident] = {}
    for row in sorted(events, key=lambda row: row.time_ns):
        if row.kind == INCIDENT and (incident := Incident.from_row(row)) is not None:
            found[row.run, incident.id] = incident
    return sorted(found.values(), key=lambda incident: (-incident.detected_ns, incident.id))


def _time(body: Mapping[str, Any], key: str, otherwise: int) -> int:
    value = body.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
