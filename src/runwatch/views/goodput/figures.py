"""The figures that people expect beside goodput, by the names that people know them by.

* **ETTR**, the effective training time ratio: productive time ÷ the time during which the job was
  wanted, which is from its submission (where that is known; else from its first process's start) to
  its end or to now, what was excluded left out.  Where the queue is not known it equals goodput.
* **MTBF** and **MTTR**: `mean_time_between_failures_ns` and `mean_time_to_recovery_ns` of
  `account.py`.
* **Scheduling × runtime × program goodput**: the share of the wanted time in which the job had its
  machines; the productive share of that (which is goodput); and how much of the accelerators the
  program used while it was productive.  Overall is the product of those that are known.  Of those
  that are not, nothing is assumed; their names are told.
* **Device-hours** by class: each interval × the devices that were held in it.  **Money**: that ×
  what a device costs in an hour.  Without a price there is none.

All is pure; who asks brings the account, the processes, the series and the samples.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import isfinite
from typing import Final, Literal

from runwatch.rows import SeriesRow
from runwatch.views.devices import key_of
from runwatch.views.goodput.account import Account, Goodput, Range
from runwatch.views.pods import Pod
from runwatch.views.runs import ProcessState, queue_of, ranks_of

HOUR_NS: Final = 3600 * 10**9
WEEK_NS: Final = 7 * 24 * HOUR_NS
_MONDAY_NS: Final = 4 * 24 * HOUR_NS
"""The first Monday of the epoch, 1970-01-05."""
NEARLY_ALL: Final = 0.9
LATEST_STEPS: Final = 100
"""How far steps are from the ideal is told of so many."""
EXCLUDED: Final = "excluded"
MFU: Final = "mfu"
TENSOR_ACTIVITY: Final = ("gpu_tensor_activity_percent", "tpu_tensorcore_utilization_percent")
WITNESSES: Final = (
    "gpu_utilization_percent", "gpu_memory_used_bytes", "gpu_power_watts",
    "tpu_duty_cycle_percent", "tpu_hbm_used_bytes",
)  # fmt: skip
"""Every device has at least one of these metrics: enough to count devices."""
PARTS: Final = ("scheduling", "runtime", "program")

CountedBy = Literal["accelerators", "ranks", "both"]
"""Mixed: in some attempts devices were seen, in others ranks stood for them."""


# ── devices ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Holding:
    """How many devices were held from `start_ns` until the next holding, also while nothing ran."""

    start_ns: int
    devices: int
    seen: bool
    """True: the devices were seen to be the run's.  False: each rank counts as one device."""


def holdings(
    states: Iterable[ProcessState], series: Iterable[SeriesRow], coming: Sequence[Pod] = ()
) -> list[Holding]:
    """One holding for each attempt, in order: the accelerators of its ranks on their hosts.

    `series` are the run's series of WITNESSES.  Devices that an earlier attempt held on another
    host are not counted, nor are any while the job was back in a scheduler's queue, or while the
    pods of the next attempt, `coming`, have no nodes.  A node's agent may have another name than
    the containers of its ranks.  Then a rank's node is not known, and the node with most of the
    rank's devices stands for all.
    """
    tied: dict[tuple[str, int], set[tuple[str, str]]] = {}
    for row in series:
        if row.device and row.metric in WITNESSES:
            tied.setdefault((row.host, row.rank), set()).add(key_of(row))
    most: dict[int, int] = {}
    for (_, rank), devices in tied.items():
        most[rank] = max(most.get(rank, 0), len(devices))
    members: dict[int, list[ProcessState]] = {}
    for state in ranks_of(states):
        members.setdefault(state.attempt, []).append(state)
    held: list[Holding] = []
    gone_ns = 0
    for _, mine in sorted(members.items()):
        places = {(member.host, member.rank) for member in mine}
        ranks = {member.rank for member in mine}
        seen = len(set().union(*(tied.get(place, ()) for place in places)))
        seen = seen or sum(most.get(rank, 0) for rank in ranks)
        start_ns = min(member.started_ns for member in mine)
        if held and (away := queue_of(mine, held[-1].start_ns, start_ns)):
            # A job may be in the queue while the one before it still has its machines.
            held.append(Holding(min(max(away[0], gone_ns), away[1]), 0, held[-1].seen))
            start_ns = away[1]
        held.append(Holding(start_ns, seen or len(ranks), bool(seen)))
        gone_ns = max((one.ended_ns for one in mine if one.ended_ns is not None), default=0)
    return [*held, *_until_they_come(held[-1], coming, gone_ns)] if held and coming else held


def _until_they_come(last: Holding, coming: Sequence[Pod], gone_ns: int) -> Iterator[Holding]:
    made = [pod.created_ns for pod in coming if pod.created_ns is not None]
    granted = [pod.scheduled_ns for pod in coming]
    if not made or (None not in granted and max(filter(None, granted)) <= min(made)):
        return
    yield Holding(max(min(made), gone_ns), 0, last.seen)
    if None not in granted:
        yield Holding(max(*filter(None, granted), gone_ns), last.devices, last.seen)


def counted_by(held: Iterable[Holding]) -> CountedBy:
    seen = {holding.seen for holding in held}
    if seen == {True}:
        return "accelerators"
    return "both" if True in seen else "ranks"


def device_ns(
    goodput: Goodput,
    held: Sequence[Holding],
    since_ns: int,
    until_ns: int,
    *,
    exclude: Sequence[Range] = (),
) -> dict[str, int]:
    """Device-nanoseconds by class.  They are exact, so they sum to what the intervals do."""
    by_class: dict[str, int] = {}
    for start_ns, end_ns, devices in _stretches(held, since_ns, until_ns):
        part = goodput.account(start_ns, end_ns, exclude=exclude)
        for name, ns in part.spent_ns.items():
            by_class[name] = by_class.get(name, 0) + ns * devices
    return by_class


def _stretches(
    held: Sequence[Holding], since_ns: int, until_ns: int
) -> Iterable[tuple[int, int, int]]:
    """The window, cut where the number of devices changes.  Before the first holding, its number
    counts."""
    for at, holding in enumerate(held):
        start = since_ns if not at else max(holding.start_ns, since_ns)
        end = until_ns if at + 1 == len(held) else min(held[at + 1].start_ns, until_ns)
        if start < end:
            yield start, end, holding.devices


def counted(spent: Mapping[str, int]) -> int:
    """All but excluded time: the one denominator of every share."""
    return sum(ns for name, ns in spent.items() if name != EXCLUDED)


def shares(spent: Mapping[str, int]) -> dict[str, float]:
    """Each class's share of the counted time, without excluded time and classes without time."""
    whole = counted(spent)
    return {name: ns / whole for name, ns in spent.items() if ns and name != EXCLUDED}


def hours(spent: Mapping[str, int]) -> dict[str, float]:
    """Classes without time are left out."""
    return {name: ns / HOUR_NS for name, ns in spent.items() if ns}


# ── the product ────────────────────────────────────────────────────────────────────────────────


def queued_ns(states: Iterable[ProcessState], start_ns: int) -> int | None:
    """How long the job waited for its first attempt; None: not recorded.

    The wait ends when the job got its machines, if that was recorded: a job that holds machines and
    has not begun does not wait for a scheduler.  Otherwise it ends when the run began.  Later
    attempts wait within the run.
    """
    first = [state for state in states if state.attempt == 1]
    queued = [state.queued_at_ns for state in first if state.queued_at_ns is not None]
    if not queued:
        return None
    granted = [
        at for state in first if (at := state.granted_at_ns) is not None and at >= min(queued)
    ]
    return max(0, min([start_ns, *granted]) - min(queued))


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def ettr(account: Account, queue_ns: int | None) -> float | None:
    """Productive time ÷ the time during which the job was wanted; see the top of this module."""
    return share(account.spent_ns["productive"], account.counted_ns + (queue_ns or 0))


@dataclass(frozen=True, slots=True)
class Product:
    """Scheduling × runtime × program goodput; None: not known."""

    scheduling: float | None = None
    runtime: float | None = None
    program: float | None = None

    @property
    def overall(self) -> float | None:
        """The product of the known factors; None without any."""
        known = [part for part in (self.scheduling, self.runtime, self.program) if part is not None]
        product = 1.0
        for part in known:
            product *= part
        return product if known else None

    @property
    def unknown(self) -> list[str]:
        return [name for name in PARTS if getattr(self, name) is None]


def product(account: Account, queue_ns: int | None, program: float | None = None) -> Product:
    wanted_ns = account.counted_ns + (queue_ns or 0)
    scheduling = None if queue_ns is None else share(account.counted_ns, wanted_ns)
    return Product(scheduling, account.goodput, program)


@dataclass(slots=True)
class Mean:
    """The mean of samples in buckets of time, weighted by the productive time in each bucket."""

    weighed: float = 0.0
    weight: int = 0
    largest: float = 0.0

    def add(self, value: float, productive_ns: int) -> None:
        if isfinite(value) and productive_ns > 0:
            self.weighed += value * productive_ns
            self.weight += productive_ns
            self.largest = max(self.largest, value)

    @property
    def value(self) -> float | None:
        return self.weighed / self.weight if self.weight else None


def while_productive(
    goodput: Goodput, values: Sequence[float], start_ns: int, width_ns: int
) -> Mean:
    """`values` has one value for each bucket from `start_ns` on; NaN where nothing was sampled.

    A bucket that was only partly productive shows too little.  So only buckets that were nearly all
    productive count; if there is none, all count.
    """
    pure, any_of_them = Mean(), Mean()
    for at, value in enumerate(values):
        if isfinite(value):
            begin_ns = start_ns + at * width_ns
            part = goodput.account(begin_ns, begin_ns + width_ns)
            productive_ns = part.spent_ns["productive"]
            any_of_them.add(value, productive_ns)
            if productive_ns >= NEARLY_ALL * part.total_ns:
                pure.add(value, productive_ns)
    return pure if pure.weight else any_of_them


def of_percent(mean: Mean) -> float | None:
    return None if mean.value is None else min(max(mean.value / 100, 0.0), 1.0)


def of_mfu(mean: Mean) -> float | None:
    """Programs log 0.42 or 42 and mean the same; no program uses more than 100 %."""
    if mean.value is None:
        return None
    return of_percent(mean) if mean.largest > 1 else max(mean.value, 0.0)


# ── over several runs ──────────────────────────────────────────────────────────────────────────


def summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Device-nanoseconds of several runs; productive first, then the largest."""
    by_class: dict[str, int] = {}
    for part in parts:
        for name, ns in part.items():
            by_class[name] = by_class.get(name, 0) + ns
    order = sorted(by_class, key=lambda name: (name != "productive", -by_class[name], name))
    return {name: by_class[name] for name in order}


def largest_loss(spent: Mapping[str, int]) -> str:
    """The unproductive class that took most time; "" if no time was lost."""
    lost = {name: ns for name, ns in spent.items() if name not in ("productive", EXCLUDED) and ns}
    return min(lost, key=lambda name: (-lost[name], name), default="")


def weeks(start_ns: int, end_ns: int) -> Iterator[tuple[str, int, int]]:
    """The weeks of a stretch of time, each with its name (2026-W46) and its part of the stretch.

    Weeks begin on Mondays at midnight UTC, as ISO 8601 counts them: a head and a command line in
    different places then give the same answer.
    """
    while start_ns < end_ns:
        begin_ns = (start_ns - _MONDAY_NS) // WEEK_NS * WEEK_NS + _MONDAY_NS
        year, week, _ = datetime.fromtimestamp(begin_ns // 10**9, UTC).isocalendar()
        until_ns = min(begin_ns + WEEK_NS, end_ns)
        yield f"{year}-W{week:02d}", start_ns, until_ns
        start_ns = until_ns


def step_deviation_ns(goodput: Goodput, until_ns: int) -> int | None:
    """How far the latest steps before a moment are from the ideal, in the mean; None: not known."""
    ideal_ns = goodput.ideal_step_ns
    laps = [lap for lap in goodput.laps if len(lap) and lap.begins[0] <= until_ns]
    if ideal_ns is None or not laps:
        return None
    begins = laps[-1].begins
    end = bisect_right(begins, until_ns)
    latest = begins[max(0, end - LATEST_STEPS - 1) : end]
    apart = [abs(b - a - ideal_ns) for a, b in pairwise(latest)]
    return sum(apart) // len(apart) if apart else None
