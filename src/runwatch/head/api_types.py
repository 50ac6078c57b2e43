"""Every shape that the HTTP API answers with; the OpenAPI document is made from these.

Times are integers, nanoseconds since the epoch, UTC.  A number that is not finite is spelled
"NaN", "Infinity" or "-Infinity"; one that is not there is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from runwatch.views.runs import State

Number = float | Literal["NaN", "Infinity", "-Infinity"]
_DEEPEST: Final = 32


class Answer(msgspec.Struct):
    pass


class ErrorInfo(Answer, omit_defaults=True):
    code: str
    message: str
    choices: list[str] = []
    """What could have been meant, when it was not clear."""


class ErrorAnswer(Answer):
    error: ErrorInfo


class Health(Answer, omit_defaults=True):
    """Without a token only `status` is told."""

    status: Literal["ok", "degraded"]
    version: str | None = None
    engine: str | None = None
    schema_version: int | None = None
    hot_points: int | None = None
    blocks: int | None = None
    bytes_on_disk: int | None = None
    problem: str | None = None
    notes: list[str] | None = None


class PointInfo(Answer):
    time_ns: int
    step: int | None
    value: Number


class HeadlineInfo(PointInfo):
    metric: str


class ProcessCounts(Answer):
    running: int = 0
    completed: int = 0
    failed: int = 0
    killed: int = 0
    lost: int = 0


class RunInfo(Answer):
    run: str
    name: str
    group: str
    state: State
    reason: str
    attempts: int
    ranks: int
    hosts: list[str]
    started_ns: int
    ended_ns: int | None
    last_ns: int
    last_step: int | None
    processes: ProcessCounts
    headline: HeadlineInfo | None


class RunList(Answer):
    runs: list[RunInfo]
    total: int
    next_offset: int | None


class AttemptInfo(Answer):
    attempt: int
    state: State
    reason: str
    ranks: int
    hosts: list[str]
    started_ns: int
    ended_ns: int | None
    last_ns: int
    processes: ProcessCounts


class RunDetail(RunInfo):
    history: list[AttemptInfo]


class ConfigsInfo(Answer):
    run: str
    user: dict[str, Any]
    software: dict[str, Any]
    system: dict[str, Any]


class SeriesInfo(Answer):
    series: int
    metric: str
    unit: str
    rank: int
    host: str
    device: str
    attempt: int | None
    labels: dict[str, str]
    latest: PointInfo | None


class SeriesList(Answer):
    run: str
    series: list[SeriesInfo]
    total: int
    next_offset: int | None


class CurveInfo(Answer):
    """One entry per bucket that has points; `first`, `minimum`, `maximum`, `last` draw the line."""

    series: int
    label: str
    metric: str
    unit: str
    rank: int
    host: str
    device: str
    attempt: int | None
    width: int
    position: list[int]
    time_ns: list[int]
    first: list[Number]
    last: list[Number]
    minimum: list[Number | None]
    maximum: list[Number | None]
    mean: list[Number | None]
    count: list[int]
    nonfinite: list[int]


class CurveList(Answer):
    run: str
    axis: Literal["time", "step"]
    curves: list[CurveInfo]


class LatestInfo(PointInfo):
    series: int
    metric: str
    unit: str
    rank: int
    host: str
    device: str
    attempt: int | None


class LatestList(Answer):
    run: str
    points: list[LatestInfo]


class EventInfo(Answer):
    time_ns: int
    kind: str
    step: int | None
    rank: int
    host: str
    journal: str
    body: dict[str, Any]


class EventList(Answer):
    run: str
    events: list[EventInfo]


class ProcessInfo(Answer):
    journal: str
    host: str
    pid: int
    rank: int
    world_size: int
    attempt: int
    state: State
    reason: str
    started_ns: int
    ended_ns: int | None
    last_ns: int
    exit_code: int | None
    signal: str | None
    out_of_memory: bool


class ProcessList(Answer):
    run: str
    processes: list[ProcessInfo]


class ExportedPoint(Answer):
    run: str
    attempt: int | None
    host: str
    process: int
    device: str | None
    metric: str
    step: int | None
    time: str
    value: Number


class LiveHello(Answer):
    version: str
    run: str | None
    time_ns: int


class LivePoints(Answer):
    run: str
    points: list[LatestInfo]


def number(value: float) -> Number:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def numbers(values: Sequence[float]) -> list[Number]:
    return [number(value) for value in values]


def optional_numbers(values: Sequence[float | None]) -> list[Number | None]:
    return [None if value is None else number(value) for value in values]


def plain(value: Any, depth: int = 0) -> Any:
    """What users recorded, as JSON that any reader takes: it may hold NaN or broken text."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return number(value)
    if depth >= _DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    return value
