"""Shapes that several features answer with; each feature has its own in its `types.py`.

The OpenAPI document is made from them all.

Times are integers, nanoseconds since the epoch, UTC.  A number that is not finite is spelled
"NaN", "Infinity" or "-Infinity"; one that is not there is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from runwatch.views.life import State

Number = float | Literal["NaN", "Infinity", "-Infinity"]
_DEEPEST: Final = 32

JsonObject = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema={"additionalProperties": {}})]
"""What somebody recorded: names, and any JSON."""


class Answer(msgspec.Struct):
    pass


class ErrorInfo(Answer, omit_defaults=True):
    code: str
    message: str
    choices: list[str] = []
    """What could have been meant, when it was not clear."""


class ErrorAnswer(Answer):
    error: ErrorInfo


class AsideInfo(Answer):
    """A journal that is left alone since something is wrong with it, and with none beside it."""

    host: str
    journal: str
    why: str
    version: str
    """Of the Runwatch that could not read it; another one tries again."""
    since_ns: int


class Health(Answer, omit_defaults=True):
    """Without a token only `status` is told."""

    status: Literal["ok", "degraded"]
    version: str | UnsetType = UNSET
    engine: str | UnsetType = UNSET
    schema_version: int | UnsetType = UNSET
    hot_points: int | UnsetType = UNSET
    blocks: int | UnsetType = UNSET
    bytes_on_disk: int | UnsetType = UNSET
    problem: str | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET
    aside: list[AsideInfo] | UnsetType = UNSET
    records_refused: int | UnsetType = UNSET
    """Since this head began: records that had not their shape, and were left out."""
    records_dropped: int | UnsetType = UNSET
    """And those of deleted runs."""


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


class GoodputShare(Answer):
    """A run's account as somebody last asked for it."""

    share: float | None
    spent: dict[str, float]
    """Shares of the counted time, by class; what is excluded is not there."""
    time_ns: int


class RunInfo(Answer):
    run: str
    name: str
    group: str
    state: State
    stalled: bool
    """It runs, and stands still: `reason` says who everyone waits for."""
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
    devices: int = 0
    """Accelerators that were seen to be its."""
    total_steps: int | None = None
    """If its configuration says so."""
    goodput: GoodputShare | None = None
    values: dict[str, PointInfo] = {}
    """The newest of the metrics that a list was asked for."""
    user: str = ""
    """Whose it is, as its processes said."""


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


class LatestInfo(PointInfo):
    series: int
    metric: str
    unit: str
    rank: int
    host: str
    device: str
    attempt: int | None


class DisruptionInfo(Answer):
    """An attempt that was stopped, and what that cost."""

    attempt: int
    time_ns: int
    cause: str
    hung: bool
    lost_steps: int
    wasted_ns: int
    recovery_ns: int | None
    """Until the next attempt began."""
    back_ns: int | None
    """Until the next attempt's first step began."""
    hang_ns: int = 0
    """How long it had hung by then."""
    warm_up_ns: int | None = None
    """From the next attempt's start to where its steps count again."""
    cost_ns: int = 0
    """Hang, lost work, recovery and warm-up together."""


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
