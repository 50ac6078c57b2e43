"""The rows that a store returns and views read.

They are not in `record/`, so that a training process need not load them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from runwatch.record import JournalId, RunId


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process's part in one run, as the store knows it."""

    journal: JournalId
    run: RunId
    run_name: str
    host: str
    pid: int
    rank: int
    world_size: int
    attempt_key: str
    group: str
    start_ns: int
    boot: str
    process_start_ticks: int
    role: str
    last_ns: int
    """Time of the journal's newest record in the store."""


@dataclass(frozen=True, slots=True)
class SeriesRow:
    series: int
    """The store's own id, unique in the store."""
    journal: JournalId
    run: RunId
    host: str
    rank: int
    device: str
    metric: str
    unit: str
    labels: Mapping[str, str]
    local: int = 0
    """Its id in the journal."""


@dataclass(frozen=True, slots=True)
class EventRow:
    journal: JournalId
    run: RunId
    host: str
    rank: int
    time_ns: int
    step: int | None
    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SpanRow:
    journal: JournalId
    run: RunId
    host: str
    rank: int
    name: str
    span: int
    edge: int
    time_ns: int
    step: int | None


class Latest(NamedTuple):
    """A series' newest point.  A tuple, because stores make tens of thousands of them."""

    series: int
    time_ns: int
    step: int | None
    value: float


@dataclass(frozen=True, slots=True)
class Curve:
    """A series reduced to at most `buckets` buckets along `axis`; one list entry per bucket.

    `first` and `last` with `minimum` and `maximum` draw the line exactly (M4); `mean` and `count`
    are over finite values; `nonfinite` counts NaN and ±Inf, which are marked, never averaged in.
    A bucket without points is not in the lists: absent is not zero.
    """

    series: int
    axis: Literal["time", "step"]
    position: Sequence[int]
    """Start of each bucket: ns or step."""
    width: int
    first: Sequence[float]
    last: Sequence[float]
    minimum: Sequence[float | None]
    maximum: Sequence[float | None]
    mean: Sequence[float | None]
    count: Sequence[int]
    nonfinite: Sequence[int]
    time_ns: Sequence[int]
    """Time of the last point in each bucket."""
