"""Every device and its state, as API shapes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from typing import Final

from runwatch.head.features.devices.types import (
    DeviceInfo,
    DeviceList,
    DeviceTotals,
    TroubleInfo,
    XidInfo,
)
from runwatch.head.features.devices.uncollected import uncollected
from runwatch.head.http.guests import Sees
from runwatch.head.http.parameters import Given
from runwatch.head.http.types import plain
from runwatch.head.reading import Reading
from runwatch.record import RunId
from runwatch.rows import Latest, SeriesRow
from runwatch.store.store import OF_EACH
from runwatch.views import devices as view

WITHIN_SECONDS: Final = 3600
A_SCREENFUL: Final = 200


@uncollected()
def devices(reading: Reading, given: Given, sees: Sees | None = None) -> DeviceList:
    """`sees`: whether the caller may see a run; None: the caller sees all, and idle devices."""
    now_ns = reading.clock.wall_ns()
    board, name_of = view.Board(), _name_of(reading)
    ahead_ns = reading.clock_offsets()
    judge = partial(board.devices, now_ns=now_ns, name_of=name_of, clock_offset_ns=ahead_ns)
    since_ns = now_ns - given["within"] * 10**9
    # A screenful of a large cluster must come quickly.  So all devices are judged, but the metrics
    # that are only shown are read for the shown devices alone.
    at_once = given["limit"] <= A_SCREENFUL and given["sort"] not in view.TELLING_ORDERS
    for metric in view.JUDGING if at_once else view.METRICS:
        board.add_metric(metric, _samples(reading, metric, since_ns))
    kinds = list(view.NOTICES)
    board.add_notices(reading.store.events(None, kinds=kinds, start_ns=since_ns, of_each=OF_EACH))
    wanted = _wanted(reading, judge(), given, sees or (lambda run: True))
    end = given["offset"] + given["limit"]
    shown = view.ordered(wanted, given["sort"])[given["offset"] : end]
    complete = wanted
    if at_once:
        for metric in view.TELLING:
            board.add_metric(metric, _samples(reading, metric, since_ns, only=shown))
        complete = judge(shown)
    return DeviceList(
        devices=[_info(complete[key]) for key in shown],
        totals=_totals(view.totals(wanted.values())),
        time_ns=now_ns,
        next_offset=end if end < len(wanted) else None,
    )


@uncollected()
def every(reading: Reading) -> list[view.Device]:
    """All devices of late by host, whoever holds them."""
    now_ns = reading.clock.wall_ns()
    since_ns = now_ns - WITHIN_SECONDS * 10**9
    board = view.Board()
    for metric in view.METRICS:
        board.add_metric(metric, _samples(reading, metric, since_ns))
    kinds = list(view.NOTICES)
    board.add_notices(reading.store.events(None, kinds=kinds, start_ns=since_ns, of_each=OF_EACH))
    ahead_ns = reading.clock_offsets()
    found = board.devices(now_ns=now_ns, name_of=str, clock_offset_ns=ahead_ns)
    return [found[key] for key in view.ordered(found, "host")]


def _wanted(
    reading: Reading, known: dict[view.Key, view.Device], given: Given, sees: Sees
) -> dict[view.Key, view.Device]:
    run = None if given["run"] is None else reading.run(given["run"])
    return {
        key: device
        for key, device in known.items()
        if (run is None or device.run == run)
        and sees(device.run)
        and (not given["host"] or device.host in given["host"])
    }


def _samples(
    reading: Reading, metric: str, since_ns: int, only: Collection[view.Key] | None = None
) -> Iterator[tuple[SeriesRow, Latest]]:
    rows = reading.store.series(metric=metric)
    if only is not None:
        hosts, keys = {host for host, _ in only}, frozenset(only)
        rows = [row for row in rows if row.host in hosts and view.key_of(row) in keys]
    points = reading.store.latest([row.series for row in rows])
    if len(points) < len(rows):  # some series have no point yet
        by_series = {row.series: row for row in rows}
        rows = [by_series[point.series] for point in points]
    pairs = zip(rows, points, strict=True)
    return (pair for pair in pairs if pair[1].time_ns >= since_ns)


def _name_of(reading: Reading) -> Callable[[RunId], str]:
    @cache
    def name_of(run: RunId) -> str:
        rows = reading.store.processes(run)
        return next((row.run_name for row in rows if row.run_name), run)

    return name_of


def _info(device: view.Device) -> DeviceInfo:
    alike = {name: getattr(device, name) for name in _ALIKE}
    return DeviceInfo(
        **alike,
        name=plain(device.name),
        throttle_reasons=list(device.throttle_reasons),
        xid=device.xid
        and XidInfo(
            xid=device.xid.number, time_ns=device.xid.time_ns, meaning=plain(device.xid.meaning)
        ),
        troubles=[
            TroubleInfo(hurt=trouble.hurt, words=plain(trouble.words), since_ns=trouble.since_ns)
            for trouble in device.troubles
        ],
    )


_ALIKE: Final = tuple(
    name
    for name in DeviceInfo.__struct_fields__
    if name not in ("name", "throttle_reasons", "xid", "troubles")
)


def _totals(totals: view.Totals) -> DeviceTotals:
    return DeviceTotals(**{name: getattr(totals, name) for name in DeviceTotals.__struct_fields__})
