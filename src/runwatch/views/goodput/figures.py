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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Final, Literal

from runwatch.rows import SeriesRow
from runwatch.views.devices import key_of
from runwatch.views.goodput.account import Account, Goodput, Range
from runwatch.views.runs import ProcessState

HOUR_NS: Final = 3600 * 10**9
WEEK_NS: Final = 7 * 24 * HOUR_NS
_MONDAY_NS: Final = 4 * 24 * HOUR_NS
"""The first Monday of the epoch, 1970-01-05."""
NEARLY_ALL: Final = 0.9
EXCLUDED: Final = "excluded"
MFU: Final = "mfu"
TENSOR_ACTIVITY: Final = ("gpu_tensor_activity_percent", "tpu_tensorcore_utilization_percent")
WITNESSES: Final = (
    "gpu_utilization_percent", "gpu_memory_used_bytes", "gpu_power_watts",
    "tpu_duty_cycle_percent", "tpu_hbm_used_bytes",
)  # fmt: skip
"""Of these every device has one at least: enough to count them."""
PARTS: Final = ("scheduling", "runtime", "program")

CountedBy = Literal["accelerators", "ranks", "both"]
"""Both: in some attempts devices were seen, in others ranks had to stand for them."""


# ── devices ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Holding:
    """From when on how many devices were held; until the next one, also while nothing ran."""

    start_ns: int
    devices: int
    seen: bool
    """The devices were seen to be the run's; else each of its ranks counts as one."""


def holdings(states: Iterable[ProcessState], series: Iterable[SeriesRow]) -> list[Holding]:
    """One for each attempt, in order: the accelerators that are tied to its ranks on their hosts.

    `series` are the run's of WITNESSES.  What an earlier attempt held on another host is not
    counted; nor is anything while the job was in a scheduler's queue again.  Where the agent of a
    node goes by another name than the containers of the ranks, a rank's node is not known: the one
    with most of its devices stands for all.
    """
    tied: dict[tuple[str, int], set[tuple[str, str]]] = {}
    for row in series:
        if row.device and row.metric in WITNESSES:
            tied.setdefault((row.host, row.rank), set()).add(key_of(row))
    most: dict[int, int] = {}
    for (_, rank), devices in tied.items():
        most[rank] = max(most.get(rank, 0), len(devices))
    members: dict[int, list[ProcessState]] = {}
    for state in states:
        members.setdefault(state.attempt, []).append(state)
    found: list[Holding] = []
    for _, mine in sorted(members.items()):
        places = {(member.host, member.rank) for member in mine}
        ranks = {member.rank for member in mine}
        seen = len(set().union(*(tied.get(place, ()) for place in places)))
        seen = seen or sum(most.get(rank, 0) for rank in ranks)
        start_ns = min(member.started_ns for member in mine)
        if found and (away := _away(mine, found[-1].start_ns, start_ns)):
            found.append(Holding(away[0], 0, found[-1].seen))
            start_ns = away[1]
        found.append(Holding(start_ns, seen or len(ranks), bool(seen)))
    return found


def _away(mine: Sequence[ProcessState], before_ns: int, start_ns: int) -> Range | None:
    """While the job of a later attempt was in the queue, and held nothing.

    Only if it was put there after the attempt before it, at `before_ns`, had begun: who starts
    again within one go of a job keeps its machines.
    """
    queued = [at for member in mine if (at := member.queued_at_ns) is not None and at > before_ns]
    if not queued:
        return None
    granted = [at for one in mine if (at := one.granted_at_ns) is not None and at >= min(queued)]
    away = min(queued), min([start_ns, *granted])
    return away if away[0] < away[1] else None


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
    """By class, device-nanoseconds: exact, so that they sum to what the intervals do."""
    found: dict[str, int] = {}
    for start_ns, end_ns, devices in _stretches(held, since_ns, until_ns):
        part = goodput.account(start_ns, end_ns, exclude=exclude)
        for name, ns in part.spent_ns.items():
            found[name] = found.get(name, 0) + ns * devices
    return found


def _stretches(
    held: Sequence[Holding], since_ns: int, until_ns: int
) -> Iterable[tuple[int, int, int]]:
    """The window, cut where another number of devices is held; before the first, as many as it."""
    for at, holding in enumerate(held):
        start = since_ns if not at else max(holding.start_ns, since_ns)
        end = until_ns if at + 1 == len(held) else min(held[at + 1].start_ns, until_ns)
        if start < end:
            yield start, end, holding.devices


def counted(spent: Mapping[str, int]) -> int:
    """All but what was excluded: the one denominator of every share."""
    return sum(ns for name, ns in spent.items() if name != EXCLUDED)


def shares(spent: Mapping[str, int]) -> dict[str, float]:
    """Of what is counted; classes without time are left out, and what is excluded."""
    whole = counted(spent)
    return {name: ns / whole for name, ns in spent.items() if ns and name != EXCLUDED}


def hours(spent: Mapping[str, int]) -> dict[str, float]:
    """Classes without time are left out."""
    return {name: ns / HOUR_NS for name, ns in spent.items() if ns}


# ── the product ────────────────────────────────────────────────────────────────────────────────


def queued_ns(states: Iterable[ProcessState], start_ns: int) -> int | None:
    """How long the first attempt was waited for; None: nobody told.

    Until it had its machines, if that was told, too: who holds machines and has not begun yet is
    not waiting for a scheduler.  Else until the run began.  Later attempts wait within the run.
    """
    first = [state for state in states if state.attempt == 1]
    told = [state.queued_at_ns for state in first if state.queued_at_ns is not None]
    if not told:
        return None
    granted = [at for state in first if (at := state.granted_at_ns) is not None and at >= min(told)]
    return max(0, min([start_ns, *granted]) - min(told))


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def ettr(account: Account, queue_ns: int | None) -> float | None:
    """Productive time ÷ the time during which the job was wanted; see the top of this module."""
    return share(account.spent_ns["productive"], account.counted_ns + (queue_ns or 0))


@dataclass(frozen=True, slots=True)
class Product:
    """Scheduling × runtime × program goodput; None is not known."""

    scheduling: float | None = None
    runtime: float | None = None
    program: float | None = None

    @property
    def overall(self) -> float | None:
        """Of those that are known; None without any."""
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
    """Of samples in buckets of time, each as heavy as the productive time in its bucket."""

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
    """`values`: one for each bucket from `start_ns` on; NaN where nothing was sampled.

    A bucket that was only partly productive would tell too little.  So those count that were
    nearly all productive; only where there is none, all do.
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
    """Programs log 0.42 or 42 and mean the same; no program does more than everything."""
    if mean.value is None:
        return None
    return of_percent(mean) if mean.largest > 1 else max(mean.value, 0.0)


# ── over several runs ──────────────────────────────────────────────────────────────────────────


def summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Device-nanoseconds of several runs; productive first, then the largest."""
    found: dict[str, int] = {}
    for part in parts:
        for name, ns in part.items():
            found[name] = found.get(name, 0) + ns
    order = sorted(found, key=lambda name: (name != "productive", -found[name], name))
    return {name: found[name] for name in order}


def largest_loss(spent: Mapping[str, int]) -> str:
    """The class that took most of what was not productive; "" if nothing was lost."""
    lost = {name: ns for name, ns in spent.items() if name not in ("productive", EXCLUDED) and ns}
    return min(lost, key=lambda name: (-lost[name], name), default="")


def weeks(start_ns: int, end_ns: int) -> Iterator[tuple[str, int, int]]:
    """The weeks that a stretch of time lies in, each with its name (2026-W46) and its part of it.

    They begin on Mondays at midnight UTC, as ISO 8601 counts them: a head and a command line that
    are asked in different places give the same.
    """
    while start_ns < end_ns:
        begin_ns = (start_ns - _MONDAY_NS) // WEEK_NS * WEEK_NS + _MONDAY_NS
        year, week, _ = datetime.fromtimestamp(begin_ns // 10**9, UTC).isocalendar()
        until_ns = min(begin_ns + WEEK_NS, end_ns)
        yield f"{year}-W{week:02d}", start_ns, until_ns
        start_ns = until_ns
