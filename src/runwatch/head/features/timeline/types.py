"""Timelines and heat maps as the HTTP API answers with them."""

from __future__ import annotations

from typing import Literal

import msgspec

from runwatch.head.http.types import Answer, AttemptInfo, DisruptionInfo, EventFields
from runwatch.record.stacks import IncidentKind, IncidentState, Severity
from runwatch.views.life import State
from runwatch.views.profiles import State as ProfileState


class PieceColumns(Answer):
    """The class of each moment, without gap or overlap; each list has one entry per piece."""

    exact: bool
    """True: the pieces are the account's own intervals.  False: each piece is one or more pixels
    wide, `class` took most of it, and its row of `spent_ns` has every class in it."""
    classes: list[str]
    start_ns: list[int]
    end_ns: list[int]
    class_: list[int] = msgspec.field(name="class")
    """Indices into `classes`."""
    spent_ns: list[list[int]]
    """A row per piece, a number per class; a row sums to the piece's length.  Empty when exact."""


class TimelineGoodput(Answer):
    share: float | None
    total_ns: int
    spent_ns: dict[str, int]
    """Sums to `total_ns` exactly."""
    inferred_ns: int
    intervals: PieceColumns


class StepColumns(Answer):
    """Steps that ended in each bucket, of the lowest rank of each attempt.

    Bucket i lasts from `start_ns` + i × `width_ns`; those without a step are left out.
    """

    start_ns: int
    width_ns: int
    bucket: list[int]
    count: list[int]
    mean_seconds: list[float | None]
    maximum_seconds: list[float | None]


class CheckpointColumns(Answer):
    start_ns: list[int]
    end_ns: list[int]
    class_: list[str] = msgspec.field(name="class")
    """checkpoint_save or checkpoint_restore."""
    left_out: int


class TimelineEvent(EventFields):
    """An event with the numbers and short texts of its body; …/events has the whole body."""


class TimelineProfile(Answer):
    session: str
    state: ProfileState
    why: str
    origin: str
    hosts: list[str]
    ranks: list[int]
    start_ns: int
    end_ns: int | None
    first_step: int | None
    last_step: int | None


class TimelineIncident(Answer):
    id: str
    kind: IncidentKind
    state: IncidentState
    since_ns: int
    detected_ns: int
    closed_ns: int | None
    text: str
    confidence: str
    ranks: list[int]
    severity: Severity


class TimelineInfo(Answer):
    """A run's timeline in a window, without curves and heat maps."""

    run: str
    name: str
    state: State
    live: bool
    time_ns: int
    """Now."""
    run_start_ns: int
    run_end_ns: int
    start_ns: int
    end_ns: int
    pixels: int
    attempts: list[AttemptInfo]
    """All of the run."""
    goodput: TimelineGoodput | None
    """Null: the run has not begun by this head's clock, or …"""
    pending: bool
    """… its account is being drawn up, for the first time: ask again in a moment.  Goodput,
    checkpoints and disruptions come then."""
    progress: float
    """Of that, 0 to 1; 1 if it is not pending."""
    steps: StepColumns
    checkpoints: CheckpointColumns
    disruptions: list[DisruptionInfo]
    events: list[TimelineEvent]
    left_out: dict[str, int]
    """Kind → how many more events there are."""
    more: bool
    """There are even more events than were counted."""
    profiles: list[TimelineProfile]
    incidents: list[TimelineIncident]


class HeatRow(Answer):
    """The device of a row; or the first and last of several devices that share the row."""

    host: str
    device: str
    index: str
    rank: int | None
    devices: int
    last_host: str
    last_device: str


class HeatmapInfo(Answer):
    run: str
    metric: str
    unit: str
    statistic: Literal["mean", "minimum", "maximum"]
    start_ns: int
    width_ns: int
    """Of a column."""
    columns: int
    devices: int
    rows: list[HeatRow]
    low: float | None
    high: float | None
    values: str
    """Base64 of one byte per cell, row by row: 0 means no data, b means
    low + (b - 1) / 254 × (high - low)."""


class HeatMetric(Answer):
    metric: str
    unit: str
    devices: int


class HeatMetrics(Answer):
    run: str
    metrics: list[HeatMetric]
