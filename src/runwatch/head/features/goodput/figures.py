"""The figures beside a run's account, and the accounts of several runs rolled up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from runwatch.buckets import grid
from runwatch.errors import UsageError
from runwatch.head.features.goodput.types import FiguresInfo, RolledPart, RolledRun, RolledUp
from runwatch.head.http.parameters import Given
from runwatch.head.http.types import plain
from runwatch.head.reading import Reading
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.record import RunId
from runwatch.store.asking import look
from runwatch.views.goodput import figures as views
from runwatch.views.goodput.account import Account, Goodput, Range
from runwatch.views.runs import ProcessState, RunSummary

BUCKETS: Final = 1000
"""The parts of the window in which the use of accelerators is compared with productive time."""
LOOKED_UP: Final = frozenset((views.MFU, *views.TENSOR_ACTIVITY))
"""The metrics whose curves an account is held against, or corrected by (`goodput_devices.py`)."""
KEPT_RUNS: Final = 25
"""A request for at most this many runs keeps their accounts up to date; a larger one does not."""

_Told = tuple[float | None, Literal["", "mfu", "tensor_activity"]]
_Priced = tuple[dict[str, float] | None, float | None]
_Rolled = tuple[RolledRun, dict[str, int]]


def figures(
    reading: Reading,
    run: RunId,
    goodput: Goodput,
    found: Account,
    exclude: Sequence[Range],
    given: Given,
) -> FiguresInfo:
    states = reading.processes(run)
    held = reading.holdings(run, states)
    queued_ns = None
    if found.start_ns == goodput.start_ns:
        queued_ns = views.queued_ns(states, goodput.start_ns)
    program, by = _program(reading, run, goodput, found) if given["program"] else _NOBODY
    parts = views.product(found, queued_ns, program)
    spent = views.device_ns(goodput, held, found.start_ns, found.end_ns, exclude=exclude)
    price = given["price_per_device_hour"]
    cost, counted_cost = _cost(spent, price)
    return FiguresInfo(
        ettr=views.ettr(found, queued_ns),
        queued_ns=queued_ns,
        scheduling_goodput=parts.scheduling,
        runtime_goodput=parts.runtime,
        program_goodput=parts.program,
        program_goodput_by=by,
        overall_goodput=parts.overall,
        unknown=parts.unknown,
        devices=next((each.devices for each in reversed(held) if each.devices), 0),
        devices_by=views.counted_by(held),
        device_hours=_hours(spent),
        counted_device_hours=views.counted(spent) / views.HOUR_NS,
        price_per_device_hour=price,
        cost=cost,
        counted_cost=counted_cost,
    )


def _hours(spent: Mapping[str, int]) -> dict[str, float]:
    return {plain(name): hours for name, hours in views.hours(spent).items()}


def _cost(spent: Mapping[str, int], price: float | None) -> _Priced:
    """The cost by class, and of all counted time; none without a price."""
    if price is None:
        return None, None
    cost = {name: hours * price for name, hours in _hours(spent).items()}
    return cost, views.counted(spent) / views.HOUR_NS * price


# ── how much of the accelerators was used ──────────────────────────────────────────────────────

_NOBODY: Final[_Told] = (None, "")


def _program(reading: Reading, run: RunId, goodput: Goodput, account: Account) -> _Told:
    """The program's own figure (MFU); else the measured activity of its accelerators."""
    share = views.of_mfu(_mean(reading, run, (views.MFU,), goodput, account))
    if share is not None:
        return share, "mfu"
    share = views.of_percent(_mean(reading, run, views.TENSOR_ACTIVITY, goodput, account))
    return _NOBODY if share is None else (share, "tensor_activity")


def _mean(
    reading: Reading, run: RunId, metrics: Sequence[str], goodput: Goodput, account: Account
) -> views.Mean:
    named = (reading.store.series(run, metric=metric) for metric in metrics)
    series = [row.series for rows in named for row in rows]
    cells = grid("time", account.start_ns, account.end_ns, BUCKETS)
    if not series or cells is None or not cells.fits_int64:
        return views.Mean()
    rows = reading.store.matrix(
        dict.fromkeys(series, 0), start=account.start_ns, end=account.end_ns, buckets=BUCKETS
    )
    return views.while_productive(goodput, rows[0].tolist(), cells.start, cells.width)


# ── several runs ───────────────────────────────────────────────────────────────────────────────


def rolled_up(
    reading: Reading, accounts: Accounts, summaries: Iterable[RunSummary], given: Given
) -> RolledUp:
    since, until = given["since"], given["until"]
    if since is not None and until is not None and since > until:
        raise UsageError(f"since={since} is after until={until}; the window is from since to until")
    wanted = [run for run in summaries if _is_wanted(run, given)]
    price = given["price_per_device_hour"]
    states: dict[RunId, list[ProcessState]] = {}
    for state in reading.processes():  # all at once: one run alone would cost as much
        states.setdefault(state.run, []).append(state)
    chosen = wanted[: given["limit"]]
    ask = accounts.of if len(chosen) <= KEPT_RUNS else accounts.in_passing
    listed: list[_Rolled] = []
    slices: list[_Slice] = []
    unknown = 0
    for summary in chosen:
        look()
        mine = states.get(summary.run, [])
        with ask(summary.run, mine) as goodput:
            if goodput is not None and is_untold(summary, goodput):
                unknown += 1
            elif goodput is not None:  # None: the run has not begun
                held = reading.holdings(summary.run, mine)
                found = goodput.account(since, until)
                listed.append(_rolled(summary, goodput, found, mine, held, price))
                slices += _slices(given["by"], listed[-1], goodput, held)
    listed.sort(key=lambda one: (-one[0].counted_device_hours, one[0].run))
    spent = views.summed(part for _, part in listed)
    cost, counted_cost = _cost(spent, price)
    return RolledUp(
        runs=[run for run, _ in listed],
        total=len(wanted) - unknown,
        goodput=views.share(spent.get("productive", 0), views.counted(spent)),
        disruptions=sum(run.disruptions for run, _ in listed),
        device_hours=_hours(spent),
        counted_device_hours=views.counted(spent) / views.HOUR_NS,
        price_per_device_hour=price,
        cost=cost,
        counted_cost=counted_cost,
        parts=_parts(given["by"], slices, price) if given["by"] else None,
    )


def is_untold(summary: RunSummary, goodput: Goodput) -> bool:
    """Whether nothing is known of where the time went: the run is a curve that was imported.  It
    would count as if all of its time had been lost."""
    return summary.imported and not goodput.steps


class _Slice(NamedTuple):
    """What a run has in one part."""

    part: str
    spent: Mapping[str, int]
    disruptions: int


def _slices(
    by: str | None, rolled: _Rolled, goodput: Goodput, held: Sequence[views.Holding]
) -> Iterator[_Slice]:
    run, spent = rolled
    if by == "week":
        for week, start_ns, end_ns in views.weeks(run.start_ns, run.end_ns):
            part = views.device_ns(goodput, held, start_ns, end_ns)
            # An end on a border belongs to the week before, so that the weeks add up to the run.
            stops = sum(
                start_ns <= d.time_ns < end_ns or d.time_ns == end_ns == run.end_ns
                for d in goodput.disruptions
            )
            yield _Slice(week, part, stops)
    elif by is not None:
        yield _Slice(run.group if by == "group" else run.user, spent, run.disruptions)


def _parts(by: str, slices: Iterable[_Slice], price: float | None) -> list[RolledPart]:
    found: dict[str, list[_Slice]] = {}
    for one in slices:
        found.setdefault(one.part, []).append(one)
    parts = [_part(name, members, price) for name, members in found.items()]
    if by == "week":
        return sorted(parts, key=lambda part: part.name, reverse=True)
    return sorted(parts, key=lambda part: (-part.counted_device_hours, part.name))


def _part(name: str, members: Sequence[_Slice], price: float | None) -> RolledPart:
    spent = views.summed(member.spent for member in members)
    return RolledPart(
        name=name,
        runs=len(members),
        goodput=views.share(spent.get("productive", 0), views.counted(spent)),
        disruptions=sum(member.disruptions for member in members),
        device_hours=_hours(spent),
        counted_device_hours=views.counted(spent) / views.HOUR_NS,
        counted_cost=_cost(spent, price)[1],
        largest_loss=plain(views.largest_loss(spent)),
    )


def _is_wanted(run: RunSummary, given: Given) -> bool:
    since, until = given["since"], given["until"]
    end_ns = None if run.state == "running" else run.ended_ns or run.last_ns
    return (
        (given["group"] is None or run.group == given["group"])
        and (given["user"] is None or run.user == given["user"])
        and (since is None or end_ns is None or end_ns > since)
        and (until is None or run.started_ns < until)
    )


def _rolled(
    summary: RunSummary,
    goodput: Goodput,
    found: Account,
    states: Sequence[ProcessState],
    held: Sequence[views.Holding],
    price: float | None,
) -> _Rolled:
    """The run, and its device-nanoseconds."""
    start_ns, end_ns = found.start_ns, found.end_ns
    spent = views.device_ns(goodput, held, start_ns, end_ns)
    queued_ns = views.queued_ns(states, start_ns) if start_ns == goodput.start_ns else None
    run = RolledRun(
        run=summary.run,
        name=plain(summary.name),
        group=plain(summary.group),
        user=plain(summary.user),
        state=summary.state,
        start_ns=start_ns,
        end_ns=end_ns,
        goodput=found.goodput,
        ettr=views.ettr(found, queued_ns),
        disruptions=sum(start_ns <= d.time_ns <= end_ns for d in goodput.disruptions),
        devices=next((each.devices for each in reversed(held) if each.devices), 0),
        devices_by=views.counted_by(held),
        device_hours=_hours(spent),
        counted_device_hours=views.counted(spent) / views.HOUR_NS,
        counted_cost=_cost(spent, price)[1],
    )
    return run, spent
