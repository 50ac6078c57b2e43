"""A store with agents that sample devices, moment by moment, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runwatch.record import NO_STEP, Batch, JournalId, Origin, Position, Series
from runwatch.store.store import Store

SECOND = 10**9
START = 1_700_000_000 * SECOND


@dataclass
class Node:
    """One agent of one host: `sample` writes what its devices show at a moment."""

    store: Store
    host: str = "node-1"
    journal: str = ""
    pid: int = 42
    boot: str = "boot"
    labels: Mapping[str, str] = field(default_factory=dict)
    uuids: bool = True
    at: int = 0
    known: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.journal = self.journal or f"{self.host}-{self.pid}"

    def sample(self, seconds: float, *devices: int, **values: float) -> None:
        """Values by metric, for each of the devices; those that begin with host_ are the host's."""
        batch = Batch(
            Origin(JournalId(self.journal), self.host, self.pid, START, self.boot, 7, "agent"),
            Position(self.at),
            Position(self.at + 1000),
        )
        self.at += 1000
        time_ns = START + round(seconds * SECOND)
        for metric, value in values.items():
            names = [""] if metric.startswith("host_") else [f"gpu{number}" for number in devices]
            for device in names:
                series = self._series(batch, metric, device)
                batch.points.append(series, time_ns, NO_STEP, value)
        [verdict] = self.store.write([batch])
        assert verdict.accepted

    def _series(self, batch: Batch, metric: str, device: str) -> int:
        id = self.known.get((metric, device))
        if id is None:
            id = self.known[metric, device] = len(self.known) + 1
            labels = dict(self.labels)
            if device:
                number = device.removeprefix("gpu")
                labels |= {"index": number, "name": "NVIDIA H200"}
                if self.uuids:
                    labels["uuid"] = f"GPU-{self.host}-{self.pid}-{number}"
            batch.definitions.append(Series(id, metric, 0, "", device, labels))
        return id
