"""Shapes that several features answer with; a feature's own shapes are in its `types.py`.

The OpenAPI document is made from all of them.

Times are integers: nanoseconds since the epoch, UTC.  A number that is not finite is the string
"NaN", "Infinity" or "-Infinity"; an absent number is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from runwatch.views.life import ShownState, State
from runwatch.views.warnings import WarningCode, Weight

Number = float | Literal["NaN", "Infinity", "-Infinity"]
_DEEPEST: Final = 32

JsonObject = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema={"additionalProperties": {}})]
"""An object that a user recorded: names, and any JSON."""


class Answer(msgspec.Struct):
    pass


class ErrorInfo(Answer, omit_defaults=True):
    code: str
    message: str
    choices: list[str] = []
    """The ids that the request may mean, when a name is ambiguous or not known."""


class ErrorAnswer(Answer):
    error: ErrorInfo


class AsideInfo(Answer):
    """A damaged journal that the head has set aside; the journals beside it are not affected."""

    host: str
    journal: str
    why: str
    version: str
    """The Runwatch version that could not read it; another version tries again."""
    since_ns: int


class ForwardInfo(Answer):
    """How what this head sends on to another service fares."""

    to: str
    """A name for programs: cloud_logging."""
    name: str
    sent: int
    """What the service has taken, since it was first asked to."""
    waiting: int
    waiting_since_ns: int | None
    """The time of the oldest record that waits."""
    lost: int
    """What the service will never take; `lost_why` says why, of the last."""
    lost_why: str
    problem: str
    """Why nothing is sent at the moment; empty when all is well."""
    todo: str
    """What a person can do about it."""
    problem_since_ns: int | None
    note: str


class Health(Answer, omit_defaults=True):
    """The head's health.  A request without a token gets only `status`."""

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
    """Records since the head's start that were malformed, and are not stored."""
    records_dropped: int | UnsetType = UNSET
    """Records since the head's start that belong to deleted runs, and are not stored."""
    forwards: list[ForwardInfo] | UnsetType = UNSET
    """What is sent on to other services; only if a setting asks for it."""


class Where(Answer):
    """Where agents connect.  Everybody may ask: an agent does before it shows its token."""

    grpc_port: int | None
    """None: this head takes no records from agents."""
    grpc_tls: bool
    grpc_host: str = ""
    """Empty: the host that the page has."""
    id: str = ""
    """Of the head's store; it stays when the head gets another address."""


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
    """A run's goodput, as last asked for."""

    share: float | None
    spent: dict[str, float]
    """Shares of the counted time, by class; excluded time is left out."""
    time_ns: int


class WarningInfo(Answer):
    """What a person should know of a run, whatever its state is."""

    code: WarningCode
    text: str
    time_ns: int
    """Since when."""
    step: int | None
    weight: Weight
    """A note explains what is shown, and is no alarm."""


class RunInfo(Answer):
    run: str
    name: str
    group: str
    state: State
    stalled: bool
    """The run is running but makes no progress; `reason` says which rank the others wait for."""
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
    """Accelerators that the run was seen to use."""
    total_steps: int | None = None
    """The planned steps, if the run's configuration names them."""
    goodput: GoodputShare | None = None
    values: dict[str, PointInfo] = {}
    """The newest point of each metric that the request named."""
    user: str = ""
    """The user whose processes these are, as they reported."""
    shown_state: ShownState = "running"
    """The state for people: a run that is `stalled` is not called running."""
    warnings: list[WarningInfo] = []
    """Such as a loss that is NaN: the state says nothing of it."""
    workload: str = ""
    """In a cluster: what its pods are a part of, by kind and name: JobSet/llama."""
    workload_uid: str = ""
    waits: str = ""
    """Why nothing of it runs though pods are there for it, in the cluster's words."""


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


class EventFields(Answer):
    time_ns: int
    kind: str
    step: int | None
    rank: int
    host: str
    journal: str
    body: JsonObject


class DisruptionInfo(Answer):
    """An attempt that was interrupted, and what the interruption cost."""

    attempt: int
    time_ns: int
    cause: str
    hung: bool
    lost_steps: int
    wasted_ns: int
    recovery_ns: int | None
    """Time until the next attempt began."""
    back_ns: int | None
    """Time until the next attempt's first step began."""
    hang_ns: int = 0
    """How long the attempt had hung before it was interrupted."""
    warm_up_ns: int | None = None
    """Time from the next attempt's start until its steps count again."""
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
    """A user's value, which may hold NaN or broken text, as JSON that every parser accepts."""
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
