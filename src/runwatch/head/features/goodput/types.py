"""Accounts as the HTTP API answers with them."""

from __future__ import annotations

from typing import Literal

from runwatch.head.http.types import Answer, DisruptionInfo, JsonObject
from runwatch.views.goodput.figures import CountedBy
from runwatch.views.life import State


class SpentInfo(Answer):
    """One class of time: productive, data_loading, … or custom:NAME."""

    name: str
    ns: int
    share: float
    """The share of the counted time; 0 for excluded time."""


class BucketInfo(Answer):
    """A part of the window; classes without time are left out."""

    start_ns: int
    end_ns: int
    goodput: float | None
    spent_ns: dict[str, int]


class IntervalsInfo(Answer):
    """The class of each moment, without gap or overlap; each list has one entry per interval."""

    exact: bool
    """False: there are more than the limit, so each is an equal part with its largest class."""
    start_ns: list[int]
    end_ns: list[int]
    name: list[str]


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
    """How often this rank was the last to begin a step."""
    awaited_ns: int
    """How long the first rank had waited by then."""


class FiguresInfo(Answer):
    """Figures beside goodput.  All are about the window; null means unknown."""

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
    """How much of its accelerators the run used while it was productive."""
    program_goodput_by: Literal["", "mfu", "tensor_activity"] = ""
    """Where `program_goodput` comes from."""
    overall_goodput: float | None = None
    """The product of the known factors."""
    unknown: list[str] = []
    """The unknown factors."""
    devices: int = 0
    """Accelerators that the run held last."""
    devices_by: CountedBy = "ranks"
    """Accelerators that were seen to be the run's; or one for each rank."""
    device_hours: dict[str, float] = {}
    """By class; classes without time are left out."""
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
    """Whether the run is still running; `end_ns` is then now."""
    run_start_ns: int
    run_end_ns: int
    start_ns: int
    end_ns: int
    spent: list[SpentInfo]
    total_ns: int = 0
    counted_ns: int = 0
    """The time that goodput is a share of: all but excluded time."""
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
    remark: str = ""
    """Why nothing can be called productive, where no step was seen."""


class ExplainedInfo(Answer):
    """Why an instant of a run is in its class."""

    run: str
    time_ns: int
    name: str
    """The class."""
    start_ns: int
    end_ns: int
    """The whole interval of that class around the instant."""
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
    """The run that held most device time first."""
    total: int
    """How many runs match; beyond the limit the oldest are left out of all figures."""
    goodput: float | None
    """Productive ÷ counted device-hours."""
    disruptions: int
    device_hours: dict[str, float]
    counted_device_hours: float
    price_per_device_hour: float | None = None
    cost: dict[str, float] | None = None
    counted_cost: float | None = None
    parts: list[RolledPart] | None = None
    """Groups or users: the one that held most device time first.  Weeks: the newest first."""


class EntryList(Answer):
    """The entries of a GoodputRecorder, in the order in which they were recorded."""

    run: str
    entries: list[JsonObject]
    next: str
    """Send this as `after` in the next request, whether or not there is more now."""


class ClassInfo(Answer):
    """One class of an account: what it is called, what it means, and its colours."""

    name: str
    words: str
    meaning: str
    light: str
    dark: str


class ClassList(Answer):
    """In the order in which they are shown.  Spans of other names are `custom:NAME`."""

    classes: list[ClassInfo]
