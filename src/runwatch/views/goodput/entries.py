"""Records of a GoodputRecorder as the log entries that they stand for.

A point `goodput.<time field>` says when something began or ended: its value is that time.  An event
`goodput_entry` holds any other entry whole.  Both name the log they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from runwatch.record import NO_STEP
from runwatch.views.goodput.facts import ENTRY_PREFIX

LOGGER: Final = "logger"
_TYPE_FIELDS: Final = (
    ("custom_badput_event", "custom_badput_event_type"),
    ("elastic_wait", "elastic_wait_event_type"),
)


def entry_of_point(
    metric: str, labels: Mapping[str, str], step: int, value: float, job_name: str
) -> dict[str, Any]:
    what = metric.removeprefix(ENTRY_PREFIX)
    entry: dict[str, Any] = {"job_name": job_name}
    if step != NO_STEP:
        entry["step_count"] = step
    for stem, field in _TYPE_FIELDS:
        if what.startswith(stem):
            entry[field] = labels.get("type", "")
    return entry | {what: value}


def entry_of_event(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """None when the entry was too long to be kept."""
    entry = body.get("entry")
    return dict(entry) if isinstance(entry, Mapping) else None
