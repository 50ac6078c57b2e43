"""What was not recorded, or was lost: nothing is missing without a record that says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from runwatch.record.checks import COUNT, NAME, STEP, TEXT
from runwatch.record.message import Message, checked


@dataclass(frozen=True, slots=True)
class JournalGap(Message):
    """A stretch of a journal that its reader could not read, or did not take."""

    KIND: ClassVar[str] = "journal_gap"
    DROPPED: ClassVar[str] = "dropped"
    REFUSED: ClassVar[str] = "refused: "

    reason: str = checked(TEXT, "")
    """DROPPED, REFUSED with what was wrong, or what is damaged."""
    up_to_segment: int | None = checked(COUNT)
    records: int | None = checked(COUNT)
    """None: nobody knows how many."""
    bytes: int | None = checked(COUNT)


@dataclass(frozen=True, slots=True)
class RecordsSkipped(Message):
    """The store writes this where a batch says that records before it can no longer be had."""

    KIND: ClassVar[str] = "records_skipped"

    records: int = checked(COUNT, 0)
    start: int | None = checked(STEP)
    """Positions in the journal."""
    end: int | None = checked(STEP)


@dataclass(frozen=True, slots=True)
class JournalAside(Message):
    """An agent leaves a journal alone, or takes it up again."""

    KIND: ClassVar[str] = "journal_aside"
    ASIDE: ClassVar[str] = "aside"
    BACK: ClassVar[str] = "back"

    journal: str = checked(NAME, "")
    why: str = checked(TEXT, "")
    state: str = checked(NAME, "")
    version: str = checked(NAME, "")
    """The agent's version."""


@dataclass(frozen=True, slots=True)
class SeriesNotRecorded(Message):
    """A host has more series than a journal can define.  This is the first one left out."""

    KIND: ClassVar[str] = "series_not_recorded"

    metric: str = checked(TEXT, "")
    device: str = checked(NAME, "")
    series_recorded: int = checked(COUNT, 0)


@dataclass(frozen=True, slots=True)
class PointsNotRecorded(Message):
    """Points of series that a journal has no room to define."""

    KIND: ClassVar[str] = "points_not_recorded"

    points: int = checked(COUNT, 0)
    """Since the last such record."""
    total: int = checked(COUNT, 0)


@dataclass(frozen=True, slots=True)
class LimitReached(Message):
    """A run has more of something than the head takes."""

    KIND: ClassVar[str] = "limit_reached"

    what: str = checked(NAME, "")
    why: str = checked(TEXT, "")
