"""Incidents of runs, from the events that tell of them: the newest event of an incident holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from runwatch.record import RunId
from runwatch.record.stacks import Incident
from runwatch.rows import EventRow


def incidents_of(events: Iterable[EventRow]) -> list[tuple[RunId, Incident]]:
    """Each with its run, the newest first."""
    newest: dict[tuple[RunId, str], Incident] = {}
    for row in sorted(events, key=lambda row: row.time_ns):
        if row.kind == Incident.KIND and (incident := incident_of(row)) is not None:
            newest[row.run, incident.id] = incident
    pairs = [(run, incident) for (run, _), incident in newest.items()]
    return sorted(pairs, key=lambda pair: (-pair[1].detected_ns, pair[1].id))


def incident_of(row: EventRow) -> Incident | None:
    """A time that the event does not tell is when it was recorded.  None: it has no id."""
    incident = Incident.of(row.body)
    if not incident.id:
        return None
    return replace(
        incident,
        since_ns=incident.since_ns or row.time_ns,
        detected_ns=incident.detected_ns or row.time_ns,
        named_ns=incident.named_ns or row.time_ns,
    )
