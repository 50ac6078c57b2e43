"""Entries of a goodput log in a journal, and what each means in Runwatch's terms.

Programs for ml-goodput-measurement write such a log (`compat/goodput`); journals and stores hold it
as it was written.  A point `goodput.<time field>` says when something began or ended: its value is
that time.  An event `goodput_entry` holds any other entry whole.  Both name the log they belong to.
No other file of the core spells the fields' names.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from runwatch.record import NO_STEP

IMPORTED: Final = "imported"
"""The host of journals that were made of somebody else's log."""
PREFIX: Final = "goodput."
LOGGER: Final = "logger"
TYPE: Final = "type"

JOB_START, JOB_END, STEP_START = "job_start_time", "job_end_time", "step_start_time"
_BEGIN, _END = "_start_time", "_end_time"
_ELASTIC_WAIT: Final = "elastic_wait"
_TYPE_FIELDS: Final = (
    ("custom_badput_event", "custom_badput_event_type"),
    (_ELASTIC_WAIT, "elastic_wait_event_type"),
)
_SPANS: Final[Mapping[str, str]] = {
    "tpu_init": "accelerator_init",
    "training_prep": "training_preparation",
    "data_loading": "data_loading",
    "elastic_reinit": "elastic_reinitialization",
}


# ── what a point says ──────────────────────────────────────────────────────────────────────────


def begins(field: str) -> bool:
    """Whether the field is the time at which the job, a step or a span begins."""
    return field.endswith(_BEGIN)


def ends(field: str) -> bool:
    return field.endswith(_END)


@lru_cache(maxsize=4096)
def span_name(field: str, kind: str = "") -> str:
    """The span that begins or ends; `kind` is the type of a custom or elastic event."""
    stem = field.removesuffix("_time").removesuffix("_start").removesuffix("_end")
    if stem in _SPANS:
        return _SPANS[stem]
    if stem == _ELASTIC_WAIT:
        return "elastic_scale_up" if "scale_up" in kind.lower() else "elastic_slice_down"
    return kind.lower() or stem


# ── what an event says ─────────────────────────────────────────────────────────────────────────


class Checkpoint(NamedTuple):
    """How long a save or a restore held the program up, as Orbax tells it."""

    is_save: bool
    start_seconds: float
    took_seconds: float


def checkpoint(entry: Mapping[str, Any]) -> Checkpoint | None:
    """None for an entry about something else, or one with missing or wrong fields."""
    is_save = entry.get("event_type") == "save"
    if not is_save and entry.get("event_type") not in ("restore", "emergency_restore"):
        return None
    stem = "checkpoint_manager_blocking" if is_save else "checkpoint_manager"
    start, took = entry.get(f"{stem}_start_time"), entry.get(f"{stem}_duration_secs")
    if not isinstance(start, int | float) or not isinstance(took, int | float) or took < 0:
        return None
    return Checkpoint(is_save, start, took)


# ── records as the entries that were written ───────────────────────────────────────────────────


def entry_of_point(
    metric: str, labels: Mapping[str, str], step: int, value: float, job_name: str
) -> dict[str, Any]:
    what = metric.removeprefix(PREFIX)
    entry: dict[str, Any] = {"job_name": job_name}
    if step != NO_STEP:
        entry["step_count"] = step
    for stem, field in _TYPE_FIELDS:
        if what.startswith(stem):
            entry[field] = labels.get(TYPE, "")
    return entry | {what: value}
