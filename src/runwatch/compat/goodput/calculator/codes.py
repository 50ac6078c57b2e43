"""A log entry as a code, a time and, for some kinds, a note."""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from runwatch.compat.goodput import fields
from runwatch.compat.goodput.goodput_utils import is_seconds, stated_seconds

STEP: Final = 0
JOB_START: Final = 1
JOB_END: Final = 2
INIT_START: Final = 3
INIT_END: Final = 4
PREPARATION_START: Final = 5
PREPARATION_END: Final = 6
LOAD_START: Final = 7
LOAD_END: Final = 8
REINIT_START: Final = 9
REINIT_END: Final = 10
CUSTOM_START: Final = 11
CUSTOM_END: Final = 12
WAIT_START: Final = 13
WAIT_END: Final = 14
SLICES: Final = 15
SAVE: Final = 16
RESTORE: Final = 17
FOREIGN: Final = 18
"""Something else, at some time: it still shows that the job was there."""

PLAIN: Final = frozenset(range(JOB_START, CUSTOM_START))
"""Entries that say a time and no more."""

ORDER_FREE: Final = frozenset((SLICES, SAVE, RESTORE, FOREIGN))
"""Entries that count the same wherever in the log they lie."""

TIME_FIELDS: Final[Mapping[str, int]] = {
    fields._STEP_START_TIME: STEP,
    fields._JOB_START_TIME: JOB_START,
    fields._JOB_END_TIME: JOB_END,
    fields._TPU_INIT_START_TIME: INIT_START,
    fields._TPU_INIT_END_TIME: INIT_END,
    fields._TRAINING_PREPARATION_START_TIME: PREPARATION_START,
    fields._TRAINING_PREPARATION_END_TIME: PREPARATION_END,
    fields._DATA_LOADING_START_TIME: LOAD_START,
    fields._DATA_LOADING_END_TIME: LOAD_END,
    fields._ELASTIC_REINIT_START_TIME: REINIT_START,
    fields._ELASTIC_REINIT_END_TIME: REINIT_END,
    fields._CUSTOM_BADPUT_EVENT_START_TIME: CUSTOM_START,
    fields._CUSTOM_BADPUT_EVENT_END_TIME: CUSTOM_END,
    fields._ELASTIC_WAIT_START_TIME: WAIT_START,
    fields._ELASTIC_WAIT_END_TIME: WAIT_END,
    fields._ELASTIC_SLICE_COUNTS_TIMESTAMP: SLICES,
}
_TIMED: Final = frozenset(TIME_FIELDS)
FIELD_OF: Final = {code: field for field, code in TIME_FIELDS.items()}

_TYPE_FIELDS: Final = {TIME_FIELDS[time]: kind for time, kind in fields.TYPE_FIELDS.items()}
TYPED: Final = frozenset(_TYPE_FIELDS)
"""Entries that say a time and of what type their event is."""

_CHECKPOINTS: Final = {
    "save": (SAVE, "checkpoint_manager_blocking_duration_secs"),
    "restore": (RESTORE, "checkpoint_manager_duration_secs"),
    "emergency_restore": (RESTORE, "checkpoint_manager_duration_secs"),
}


class Checkpoint(NamedTuple):
    """One host's part in saving or restoring a checkpoint."""

    key: str
    """Its step and whether it is a local or a persistent one."""
    start: float
    """When the training began to wait for it."""
    seconds: float
    fingerprint: int
    """Of the whole entry: two hosts may take equally long."""


class SliceCounts(NamedTuple):
    active: int
    total: int
    available: int


Note = int | str | Checkpoint | SliceCounts | None


class Item(NamedTuple):
    """An entry as the rules see it; the note is a step's number, an event's type and so on."""

    code: int
    time: float
    note: Note = None


def item_of(entry: Mapping[str, Any]) -> Item | None:
    """None for what states no time, and so cannot be placed."""
    if type(entry) is not dict and not isinstance(entry, Mapping):  # the first is quick to tell
        return None
    if not _TIMED.isdisjoint(entry):
        field = next(field for field in TIME_FIELDS if field in entry)
        if is_seconds(entry[field]):
            return _timed(TIME_FIELDS[field], float(entry[field]), entry)
    time = stated_seconds(entry)
    if time is None:
        return None
    return _checkpoint(time, entry) or Item(FOREIGN, time)


def _timed(code: int, time: float, entry: Mapping[str, Any]) -> Item:
    if code == STEP:
        number = _whole(entry.get(fields._STEP_COUNT))
        return Item(FOREIGN, time) if number is None else Item(STEP, time, number)
    if code in _TYPE_FIELDS:
        return Item(code, time, str(entry.get(_TYPE_FIELDS[code]) or "unknown"))
    if code == SLICES:
        counts = [_whole(entry.get(name)) for name in fields.SLICE_FIELDS]
        known = [count for count in counts if count is not None]
        return Item(SLICES, time, SliceCounts(*known)) if len(known) == 3 else Item(FOREIGN, time)
    return Item(code, time)


def _whole(value: object) -> int | None:
    if not isinstance(value, int | float) or value != value or not -(2**62) < value < 2**62:
        return None
    return int(value)


def _checkpoint(time: float, entry: Mapping[str, Any]) -> Item | None:
    known = _CHECKPOINTS.get(str(entry.get("event_type")))
    if known is None:
        return None
    code, field = known
    seconds = entry.get(field)
    if not is_seconds(seconds):
        return None
    stated = entry.get(_start_of(field))
    start = float(stated) if is_seconds(stated) else time
    return Item(code, time, Checkpoint(checkpoint_key(entry), start, seconds, _fingerprint(entry)))


def _start_of(duration: str) -> str:
    return duration.replace("duration_secs", "start_time")


def _fingerprint(entry: Any) -> int:
    try:
        # Like `repr` it distinguishes 1 from 1.0 and -0.0 from 0.0, and it is quicker.  From
        # version 3 on, its output depends on how many references an object has.
        return hash(marshal.dumps(entry, 2))
    except ValueError:  # not made of plain objects
        return hash(repr(entry))


def checkpoint_key(entry: Mapping[str, Any]) -> str:
    """All hosts' entries of one checkpoint have the same.

    Where a bucket is not named the checkpoint is local, as the original has it.
    """
    persistent = str(entry.get("directory") or "").startswith("gs://")
    return f"{entry.get('step')}-{'persistent' if persistent else 'local'}"


def entry_of(item: Item) -> dict[str, Any]:
    """The fields of the entry that became this item."""
    code, time, note = item
    if code == STEP:
        return {fields._STEP_COUNT: note, fields._STEP_START_TIME: time}
    if code in _TYPE_FIELDS:
        return {_TYPE_FIELDS[code]: note, FIELD_OF[code]: time}
    if isinstance(note, SliceCounts):
        return {**dict(zip(fields.SLICE_FIELDS, note, strict=True)), FIELD_OF[code]: time}
    if isinstance(note, Checkpoint):
        return _checkpoint_entry(code, note)
    return {FIELD_OF.get(code, "time"): time}


def _checkpoint_entry(code: int, checkpoint: Checkpoint) -> dict[str, Any]:
    kind = "save" if code == SAVE else "restore"
    duration = _CHECKPOINTS[kind][1]
    step, _, place = checkpoint.key.rpartition("-")
    return {
        "event_type": kind,
        "step": int(step) if step.lstrip("-").isdigit() else step,
        "directory": "gs://" if place == "persistent" else "",
        _start_of(duration): checkpoint.start,
        duration: checkpoint.seconds,
    }
