"""Who sends samples, how it is, and the newest of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runwatch.clock import Clock, system_clock
from runwatch.exports.fleet import UNHEALTHY_SECONDS, Columns, Device, Fleet, Host, survey
from runwatch.record import Batch, JournalId
from runwatch.rows import Latest, ProcessRow
from runwatch.store.store import Store

FORGOTTEN_SECONDS: Final = 3600.0
GUEST: Final = "gswarm:"
"""How the `boot` of a client begins that speaks the other protocol; its address follows."""


@dataclass(frozen=True, slots=True)
class Client:
    """One agent, or one guest, that has sent numbers lately."""

    id: str
    host: str
    devices: Sequence[Device]
    hosts: Sequence[Host]
    heard_ns: int
    healthy: bool
    is_guest: bool = False


class Clients:
    """Any thread may call; `stored` is called by the writer's."""

    def __init__(self, store: Store, *, told: bool = False, clock: Clock = system_clock) -> None:
        """`told`: every batch is told by `stored`, so what was seen need not be looked at anew."""
        self.store = store
        self.clock = clock
        self._told = told
        self._lock = threading.Lock()
        self._fleet: Fleet | None = None
        self._seen = -1
        self._defined = 0
        self._heard: dict[JournalId, int] = {}

    def stored(self, batches: Sequence[Batch]) -> None:
        now_ns = self.clock.wall_ns()
        for batch in batches:
            if batch.origin.role != "agent":
                continue
            if len(batch.points):
                self._heard[batch.origin.journal] = now_ns
            if batch.definitions:
                self._defined += 1

    def fleet(self) -> Fleet:
        with self._lock:
            if self._fleet is None or not self._told or self._seen != self._defined:
                seen = self._defined
                self._fleet = survey(self.store)
                self._seen = seen
            return self._fleet

    def all(self) -> list[Client]:
        """Those heard of lately, by host; one that came back under a new number only once."""
        fleet, now_ns = self.fleet(), self.clock.wall_ns()
        mine: dict[JournalId, tuple[list[Device], list[Host]]] = {}
        for device in fleet.devices:
            for journal in device.journals:
                mine.setdefault(journal, ([], []))[0].append(device)
        for host in fleet.hosts:
            for journal in host.journals:
                mine.setdefault(journal, ([], []))[1].append(host)
        found: list[tuple[ProcessRow, Client]] = []
        for rows in self._processes(mine):
            heard_ns = max(self._heard.get(row.journal, row.last_ns) for row in rows)
            silent = (now_ns - heard_ns) / 1e9
            if silent <= FORGOTTEN_SECONDS:
                found.append((rows[-1], _client(rows, mine, heard_ns, silent)))
        return _current(found)

    def _processes(self, mine: Mapping[JournalId, object]) -> Iterable[list[ProcessRow]]:
        """The journals of each process that sends, oldest first."""
        by_process: dict[tuple[object, ...], list[ProcessRow]] = {}
        seen: set[JournalId] = set()
        for row in self.store.processes():
            if row.journal in mine and row.journal not in seen:
                seen.add(row.journal)
                key = (row.host, row.boot, row.pid, row.process_start_ticks)
                by_process.setdefault(key, []).append(row)
        return by_process.values()


class Values:
    """Newest values of columns, whichever of their series has it."""

    def __init__(self, latest: Iterable[Latest]) -> None:
        self._by_series = {point.series: point for point in latest}

    def of(self, columns: Columns, column: str) -> float | None:
        ids = columns.get(column)
        if ids is None:
            return None
        if len(ids) == 1:
            point = self._by_series.get(ids[0])
            return None if point is None else point.value
        found = [point for id in ids if (point := self._by_series.get(id)) is not None]
        return max(found, key=lambda point: point.time_ns).value if found else None


def _client(
    rows: Sequence[ProcessRow],
    mine: Mapping[JournalId, tuple[list[Device], list[Host]]],
    heard_ns: int,
    silent_seconds: float,
) -> Client:
    last = rows[-1]
    is_guest = last.boot.startswith(GUEST)
    where = last.boot.removeprefix(GUEST) if is_guest else last.journal
    devices = {d.id: d for row in rows for d in mine[row.journal][0]}
    hosts = {h.label: h for row in rows for h in mine[row.journal][1]}
    return Client(
        f"{last.host}_{where}",
        last.host,
        sorted(devices.values(), key=lambda device: (device.label, device.index)),
        list(hosts.values()),
        heard_ns,
        silent_seconds <= UNHEALTHY_SECONDS,
        is_guest,
    )


def _current(found: Sequence[tuple[ProcessRow, Client]]) -> list[Client]:
    """Without those that fell silent before another of their host took over their devices."""
    of_host: dict[str, list[tuple[ProcessRow, Client]]] = {}
    for row, client in found:
        of_host.setdefault(client.host, []).append((row, client))
    kept = [
        client
        for client in (client for _, client in found)
        if not any(_took_over(row, other, client) for row, other in of_host[client.host])
    ]
    return sorted(kept, key=lambda client: client.id)


def _took_over(row: ProcessRow, other: Client, client: Client) -> bool:
    if other is client or row.start_ns <= client.heard_ns:
        return False
    ids = {device.id for device in client.devices}
    return not ids or bool(ids & {device.id for device in other.devices})
