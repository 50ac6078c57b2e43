"""Numbers on their way into somebody else's database: what all such databases have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from runwatch.rows import SeriesRow

_OWN: Final = ("run", "run_name", "rank", "host", "device")


@dataclass(frozen=True, slots=True)
class Gauge:
    """Values of one series, in the order of time."""

    name: str
    labels: Mapping[str, str]
    """Whose they are: run, run_name, rank, host, device, and what the program added."""
    time_ns: Sequence[int]
    value: Sequence[float]
    unit: str = ""
    series: int | None = None
    """The store's number of it; None: it is not in the store."""
    ends: bool = False
    """Its one value says that no more will come."""

    def __len__(self) -> int:
        return len(self.time_ns)

    def halves(self) -> tuple[Gauge, Gauge]:
        middle = len(self) // 2
        return (
            replace(self, time_ns=self.time_ns[:middle], value=self.value[:middle]),
            replace(self, time_ns=self.time_ns[middle:], value=self.value[middle:]),
        )


def points_in(gauges: Iterable[Gauge]) -> int:
    return sum(map(len, gauges))


def series_labels(row: SeriesRow, run_name: str, *, of_host: bool) -> dict[str, str]:
    """`of_host`: the number is about a host or a device, and about no rank.  A label that a program
    chose does not take the place of ours."""
    own = {
        "run": row.run,
        "run_name": run_name,
        "rank": "" if of_host else str(row.rank),
        "host": row.host,
        "device": row.device,
    }
    others = {
        f"label_{name}" if name in _OWN else name: value
        for name, value in row.labels.items()
        if name != "journal"
    }
    return {name: value for name, value in {**others, **own}.items() if value}


def packages(gauges: Iterable[Gauge], most: int) -> Iterator[list[Gauge]]:
    """In pieces of at most `most` points."""
    package: list[Gauge] = []
    room = most
    for gauge in gauges:
        rest = gauge
        while len(rest) > room:
            if room:
                package.append(replace(rest, time_ns=rest.time_ns[:room], value=rest.value[:room]))
                rest = replace(rest, time_ns=rest.time_ns[room:], value=rest.value[room:])
            yield package
            package, room = [], most
        package.append(rest)
        room -= len(rest)
    if package:
        yield package
