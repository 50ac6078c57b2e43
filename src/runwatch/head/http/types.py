"""Every shape that the HTTP API answers with; the OpenAPI document is made from these.

Times are integers, nanoseconds since the epoch, UTC.  A number that is not finite is spelled
"NaN", "Infinity" or "-Infinity"; one that is not there is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from runwatch.views.devices import Hurt
from runwatch.views.devices import State as DeviceState
from runwatch.views.goodput.figures import CountedBy
from runwatch.views.runs import State

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


class RunDetail(RunInfo, kw_only=True):
    history: list[AttemptInfo]
    limit: str = ""
    """Which limit it has reached: what is more stays on its nodes."""


class ConfigsInfo(Answer):
    run: str
    user: JsonObject
    software: JsonObject
    system: JsonObject


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
    body: JsonObject


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


class SpentInfo(Answer):
    """One class of time: productive, data_loading, … or custom:NAME."""

    name: str
    ns: int
    share: float
    """Of the counted time, as goodput is; what is excluded has no share in it: 0."""


class BucketInfo(Answer):
    """A part of the window; classes without time are left out."""

    start_ns: int
    end_ns: int
    goodput: float | None
    spent_ns: dict[str, int]


class IntervalsInfo(Answer):
    """What each moment went into, without gap or overlap; one entry per interval."""

    exact: bool
    """False: there are more than was asked for; each equal part then has its largest class."""
    start_ns: list[int]
    end_ns: list[int]
    name: list[str]


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


class AttemptSteps(Answer):
    attempt: int
    start_ns: int
    stop_ns: int
    steps: int
    first_step: int | None
    last_step: int | None
    ideal_step_ns: int | None


class RankInfo(Answer):
    rank: int
    steps: int
    mean_step_ns: int | None
    awaited_steps: int
    """How often it was the last to begin a step …"""
    awaited_ns: int
    """… and how long the first had waited by then."""


class FiguresInfo(Answer):
    """What people expect beside goodput.  All is about the window; null is not known."""

    ettr: float | None = None
    """Effective training time ratio: productive time ÷ the time during which the run was wanted,
    from its submission on where that is known."""
    queued_ns: int | None = None
    """From when it could have started until it had its machines, or else to its first process; only
    if the window begins with the run."""
    scheduling_goodput: float | None = None
    """Counted time ÷ the same and the time in the queue."""
    runtime_goodput: float | None = None
    """The same as `goodput`."""
    program_goodput: float | None = None
    """How much of its accelerators it used while it was productive …"""
    program_goodput_by: Literal["", "mfu", "tensor_activity"] = ""
    """… and what tells it."""
    overall_goodput: float | None = None
    """The product of those that are known."""
    unknown: list[str] = []
    """Those that are not."""
    devices: int = 0
    """Held last."""
    devices_by: CountedBy = "ranks"
    """Accelerators that were seen to be the run's; or one for each rank."""
    device_hours: dict[str, float] = {}
    """By class; those without time are left out."""
    counted_device_hours: float = 0.0
    price_per_device_hour: float | None = None
    cost: dict[str, float] | None = None
    """By class, in the currency of the price; null without a price."""
    counted_cost: float | None = None


class GoodputInfo(Answer):
    """How the time from `start_ns` to `end_ns` was spent: `spent` sums to `total_ns` exactly.

    Attempts, ranks, steps and mean times are about the whole run, disruptions about the window.
    """

    run: str
    live: bool
    """Whether the run goes on; it then ends now."""
    run_start_ns: int
    run_end_ns: int
    start_ns: int
    end_ns: int
    spent: list[SpentInfo]
    total_ns: int = 0
    counted_ns: int = 0
    """What goodput is a share of: all but what was excluded."""
    goodput: float | None = None
    inferred_ns: int = 0
    """The most by which any class of the run can be wrong because something was not recorded."""
    steps: int = 0
    """Steps whose work was kept."""
    max_productive_step: int | None = None
    ideal_step_ns: int | None = None
    mean_time_between_failures_ns: int | None = None
    mean_time_to_recovery_ns: int | None = None
    attempts: list[AttemptSteps] = []
    disruptions: list[DisruptionInfo] = []
    ranks: list[RankInfo] = []
    over_time: list[BucketInfo] | None = None
    intervals: IntervalsInfo | None = None
    figures: FiguresInfo | None = None


class ExplainedInfo(Answer):
    """Why an instant of a run is in its class."""

    run: str
    time_ns: int
    name: str
    """The class."""
    start_ns: int
    end_ns: int
    """The whole stretch of that class around it."""
    attempt: int
    step: int | None
    """The step that had begun last."""
    why: list[str]


class RolledRun(Answer):
    """A run's part in a roll-up, as far as it lies in the window."""

    run: str
    name: str
    group: str
    user: str
    state: State
    start_ns: int
    end_ns: int
    goodput: float | None
    ettr: float | None
    disruptions: int
    devices: int
    devices_by: CountedBy
    device_hours: dict[str, float]
    counted_device_hours: float
    counted_cost: float | None = None


class RolledPart(Answer):
    """The runs of one group, user or week: a run that lies in two weeks is in both."""

    name: str
    """Of the group or user, which may be empty; of a week like 2026-W46, from Monday on, UTC."""
    runs: int
    goodput: float | None
    """Productive ÷ counted device-hours."""
    disruptions: int
    device_hours: dict[str, float]
    counted_device_hours: float
    counted_cost: float | None = None
    largest_loss: str = ""
    """The class that took most of what was not productive."""


class RolledUp(Answer):
    """Several runs together: sums of device-hours, and shares of their sum."""

    runs: list[RolledRun]
    """The one that held most first."""
    total: int
    """How many there are; of more than were asked for, the oldest are left out of everything."""
    goodput: float | None
    """Productive ÷ counted device-hours."""
    disruptions: int
    device_hours: dict[str, float]
    counted_device_hours: float
    price_per_device_hour: float | None = None
    cost: dict[str, float] | None = None
    counted_cost: float | None = None
    parts: list[RolledPart] | None = None
    """If asked for by group or user, the one that held most first; by week, the newest first."""


class EntryList(Answer):
    """What a GoodputRecorder wrote, in the order in which it was recorded."""

    run: str
    entries: list[JsonObject]
    next: str
    """To be given as `after` next time, whether or not there is more now."""


class TroubleInfo(Answer):
    hurt: Hurt
    words: str
    since_ns: int | None


class XidInfo(Answer):
    xid: int
    time_ns: int
    meaning: str


class DeviceInfo(Answer):
    """One accelerator now; a number that was not read of late is null."""

    host: str
    device: str
    index: str
    name: str
    uuid: str
    run: str
    """Whose it is; empty: nobody's, or several runs'."""
    run_name: str
    rank: int | None
    state: DeviceState
    time_ns: int | None
    """Of its newest sample."""
    age_seconds: float | None
    utilization_percent: float | None
    tensor_percent: float | None
    sm_activity_percent: float | None
    memory_percent: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    dram_bytes_per_second: float | None
    power_watts: float | None
    power_limit_watts: float | None
    temperature_celsius: float | None
    memory_temperature_celsius: float | None
    sm_clock_hz: float | None
    memory_clock_hz: float | None
    throttle_reasons: list[str]
    ecc_corrected: int | None
    ecc_uncorrected: int | None
    """Since the board was made."""
    xid: XidInfo | None
    """The last one within the time asked for."""
    troubles: list[TroubleInfo]
    """The worst first."""


class DeviceTotals(Answer):
    """Over all that were asked for, not only those listed; sums and means over who reports."""

    devices: int
    reporting: int
    hosts: int
    hurting: dict[str, int]
    """How many are hurt most by what."""
    utilization_percent: float | None
    tensor_percent: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    power_watts: float | None


class DeviceList(Answer):
    devices: list[DeviceInfo]
    totals: DeviceTotals
    time_ns: int
    next_offset: int | None


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
