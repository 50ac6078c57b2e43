"""The list of runs: filtered, ordered, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from runwatch.head.features.runs.types import RunList
from runwatch.head.http.parameters import Given
from runwatch.head.http.shapes import described
from runwatch.head.http.types import PointInfo, RunInfo, number
from runwatch.head.reading import Card, Reading
from runwatch.head.state.board import RunBoard
from runwatch.store.asking import heeded
from runwatch.views.runs import RunSummary

_BY_SUMMARY: Final[dict[str, Callable[[RunSummary], Any]]] = {
    "started": lambda run: run.started_ns,
    "last": lambda run: run.last_ns,
    "name": lambda run: run.name,
    "state": lambda run: run.state,
    "group": lambda run: run.group,
    "hosts": lambda run: len(run.hosts),
}
_BY_INFO: Final[dict[str, Callable[[RunInfo], Any]]] = {
    "last_step": lambda run: -1 if run.last_step is None else run.last_step,
    "devices": lambda run: run.devices,
    "goodput": lambda run: -1.0 if not run.goodput else run.goodput.share or 0.0,
}
ORDERS: Final = tuple(sign + name for name in (*_BY_SUMMARY, *_BY_INFO) for sign in ("-", ""))


def runs(board: RunBoard, reading: Reading, given: Given, summaries: list[RunSummary]) -> RunList:
    order, descending = given["order"].removeprefix("-"), given["order"].startswith("-")
    chosen = [run for run in summaries if _wanted(run, given)]
    offset, end = given["offset"], given["offset"] + given["limit"]
    if order in _BY_SUMMARY:
        by = _BY_SUMMARY[order]
        chosen.sort(key=lambda run: (by(run), run.run), reverse=descending)
        infos = _infos(board, board.cards(chosen[offset:end]))
    else:
        by_info = _BY_INFO[order]
        everyone = _infos(board, board.cards(chosen))
        everyone.sort(key=lambda run: (by_info(run), run.run), reverse=descending)
        infos = everyone[offset:end]
    if given["metrics"]:
        _add_values(reading, infos, given["metrics"])
    total = len(chosen)
    return RunList(runs=infos, total=total, next_offset=end if end < total else None)


def _wanted(run: RunSummary, given: Given) -> bool:
    return (
        (not given["state"] or not {run.state, run.shown_state}.isdisjoint(given["state"]))
        and (given["group"] is None or run.group == given["group"])
        and (given["name"] is None or run.name == given["name"])
        and (given["workload"] is None or run.workload_uid == given["workload"])
        and (not given["search"] or _holds(run, given["search"].lower()))
    )


def _holds(run: RunSummary, text: str) -> bool:
    return text in run.name.lower() or text in run.run.lower() or text in run.group.lower()


def _infos(board: RunBoard, cards: Iterable[Card]) -> list[RunInfo]:
    return [described(board, card) for card in heeded(cards)]


def _add_values(reading: Reading, infos: Sequence[RunInfo], metrics: Iterable[str]) -> None:
    """Adds the newest point of each metric, from rank 0 if it has one."""
    by_id = {info.run: info for info in infos}
    for metric in dict.fromkeys(metrics):
        rows = [row for row in reading.store.series(metric=metric) if row.run in by_id]
        latest = reading.latest(rows)
        best: dict[str, tuple[bool, int]] = {}
        for row in heeded(rows):
            point = latest.get(row.series)
            if point is None:
                continue
            place = (row.rank == 0, point.time_ns)
            if place >= best.get(row.run, place):
                best[row.run] = place
                value = PointInfo(time_ns=point.time_ns, step=point.step, value=number(point.value))
                by_id[row.run].values = by_id[row.run].values | {metric: value}
