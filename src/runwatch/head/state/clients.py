"""The clients that send samples, their state and their newest samples."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import numpy as np

from runwatch.clock import Clock, system_clock
from runwatch.exports.fleet import UNHEALTHY_SECONDS, Columns, Device, Fleet, Host, survey
from runwatch.record import Batch, JournalId
from runwatch.record.losses import JournalGap
from runwatch.record.node import AgentEnd
from runwatch.rows import Latest, ProcessRow
from runwatch.store.store import OF_EACH, Store
from runwatch.wire.gswarm_readings import IMPORTED

FORGOTTEN_SECONDS: Final = 3600.0
GUEST: Final = "gswarm:"
"""How the `boot` of a gswarm client begins; its address follows."""
_OWN_WORDS: Final = (JournalGap.KIND, AgentEnd.KIND)


@dataclass(frozen=True, slots=True)
class Client:
    """One agent, or one guest, that has sent numbers recently."""

    id: str
    host: str
    devices: Sequence[Device]
    hosts: Sequence[Host]
    heard_ns: int
    healthy: bool
    """Something came lately, and what came last was not old."""
    is_guest: bool = False
    member: int = 0
    """Changes whenever its devices or series may have changed."""
    batches: int = 0
    """How often numbers of its devices and hosts were stored, whoever sent them: while it is the
    same, so are the numbers."""
    dropped_records: int = 0
    """Records that the client dropped while it reached no head."""
    ended: bool = False
    """It said that it ends, as agents with nothing left to watch do: its silence is in order."""


class Clients:
    """Any thread may call; the writer's thread calls `stored`."""

    def __init__(self, store: Store, *, told: bool = False, clock: Clock = system_clock) -> None:
        """`told`: `stored` gets every batch, so that what was read need not be read again."""
        self.store = store
        self.clock = clock
        self.ahead_ns: Callable[[], Mapping[str, int]] = dict
        """How far hosts' clocks are ahead of ours."""
        self._told = told
        self._lock = threading.Lock()
        self._fleet: Fleet | None = None
        self._seen = -1
        self._defined = 0
        self._heard: dict[JournalId, int] = {}
        self._newest: dict[JournalId, int] = {}
        self._batches: Counter[JournalId] = Counter()
        self._members: list[_Member] = []
        self._members_seen: object = None
        self._joined = 0
        self._spoken = 0
        self._words = _Words({}, frozenset())
        self._words_seen = -1
        self._numbers = itertools.count(1)

    def stored(self, batches: Sequence[Batch]) -> None:
        now_ns = self.clock.wall_ns()
        for batch in batches:
            if batch.origin.role != "agent":
                continue
            journal = batch.origin.journal
            if newest_ns := _newest(batch):
                self._newest[journal] = max(self._newest.get(journal, 0), newest_ns)
            if len(batch.points):
                self._heard[journal] = now_ns
                self._batches[journal] += 1
            elif journal not in self._heard:
                self._joined += 1
            if batch.definitions:
                self._defined += 1
            if any(event.kind in _OWN_WORDS for event in batch.events):
                self._spoken += 1

    def fleet(self) -> Fleet:
        with self._lock:
            return self._surveyed()

    def _surveyed(self) -> Fleet:
        if self._fleet is None or not self._told or self._seen != self._defined:
            seen = self._defined
            self._fleet = survey(self.store)
            self._seen = seen
        return self._fleet

    def all(self) -> list[Client]:
        """The clients of late, by host.  A client that came back with a new number counts once."""
        with self._lock:
            members, words = self._roster(), self._heard_of_themselves()
        now_ns, ahead_ns = self.clock.wall_ns(), self.ahead_ns()
        found: list[tuple[ProcessRow, Client]] = []
        for member in members:
            client = self._client(member, now_ns, words, ahead_ns)
            if now_ns - client.heard_ns <= FORGOTTEN_SECONDS * 1e9:
                found.append((member.rows[-1], client))
        return _current(found)

    def processes(self) -> list[Process]:
        """Every process that ever sent numbers, by start: also those of long ago."""
        with self._lock:
            members, words = self._roster(), self._heard_of_themselves()
        found = [self._process(member, words) for member in members]
        return sorted(found, key=lambda process: process.start_ns)

    def _process(self, member: _Member, words: _Words) -> Process:
        last = member.rows[-1]
        return Process(
            member.id,
            last.host,
            member.labels,
            member.device_ids,
            member.rows[0].start_ns,
            self._newest.get(last.journal, last.last_ns),
            max([self._heard.get(row.journal, 0) for row in member.rows]),
            member.is_guest,
            last.journal in words.ended,
        )

    def _heard_of_themselves(self) -> _Words:
        if not self._told or self._words_seen != self._spoken:
            seen, dropped, ended = self._spoken, Counter[JournalId](), set[JournalId]()
            for event in self.store.events(None, kinds=list(_OWN_WORDS), of_each=OF_EACH):
                if event.kind == AgentEnd.KIND:
                    ended.add(event.journal)
                    continue
                gap = JournalGap.of(event.body)
                if gap.reason == JournalGap.DROPPED:
                    dropped[event.journal] += gap.records or 0
            self._words, self._words_seen = _Words(dropped, frozenset(ended)), seen
        return self._words

    def _client(
        self, member: _Member, now_ns: int, words: _Words, ahead_ns: Mapping[str, int]
    ) -> Client:
        # Read the count first: then the numbers are at least as new as the count.
        batches = sum([self._batches[journal] for journal in member.journals])
        heard_ns = max([self._heard.get(row.journal, row.last_ns) for row in member.rows])
        healthy_ns = now_ns - int(UNHEALTHY_SECONDS * 1e9)
        return Client(
            member.id,
            member.rows[-1].host,
            member.devices,
            member.hosts,
            heard_ns,
            heard_ns >= healthy_ns and self._known_ns(member, ahead_ns) >= healthy_ns,
            member.is_guest,
            member.number,
            batches,
            sum([words.dropped.get(row.journal, 0) for row in member.rows]),
            member.rows[-1].journal in words.ended,
        )

    def _known_ns(self, member: _Member, ahead_ns: Mapping[str, int]) -> int:
        """Up to when all of it is here, by our clock: what comes now may be hours old."""
        last = member.rows[-1]
        return self._newest.get(last.journal, last.last_ns) - ahead_ns.get(last.host, 0)

    def _roster(self) -> list[_Member]:
        seen = (self._defined, self._joined)
        if not self._told or self._members_seen != seen:
            fleet = self._surveyed()
            mine = _by_journal(fleet)
            self._members = [
                _member(rows, mine, next(self._numbers)) for rows in self._processes(mine)
            ]
            self._members_seen = seen
        return self._members

    def _processes(self, mine: Mapping[JournalId, object]) -> Iterable[list[ProcessRow]]:
        """The journals of each process that sends, oldest first."""
        by_process: dict[tuple[object, ...], list[ProcessRow]] = {}
        seen: set[JournalId] = set()
        for row in self.store.processes():
            is_there = not row.boot.startswith(IMPORTED)
            if is_there and row.journal in mine and row.journal not in seen:
                seen.add(row.journal)
                key = (row.host, row.boot, row.pid, row.process_start_ticks)
                by_process.setdefault(key, []).append(row)
        return by_process.values()


class Process(NamedTuple):
    """A process that sends numbers, and how far the head has what it recorded."""

    id: str
    """The client's."""
    host: str
    labels: frozenset[str]
    """The names of its devices' and its own host among all."""
    devices: frozenset[str]
    start_ns: int
    newest_ns: int
    """The time of its newest record here, by its own clock.  Records come in the order in which
    they were recorded: the head has all before."""
    heard_ns: int
    """When something came from it last, by our clock; 0: not since this head began."""
    is_guest: bool
    ended: bool
    """It said that it ends: there is nothing more."""

    def took_over(self, other: Process) -> bool:
        """Whether this one samples what the other sampled before."""
        is_later = self.host == other.host and self.start_ns > other.start_ns
        return is_later and (not other.devices or bool(self.devices & other.devices))


class Pieces:
    """The text about each client; made again only for clients whose stamp changed."""

    def __init__(
        self,
        make: Callable[[Sequence[Client]], Iterable[msgspec.Raw]],
        stamp: Callable[[Client], Hashable],
    ) -> None:
        self._make = make
        self._stamp = stamp
        self._lock = threading.Lock()
        self._made: dict[str, tuple[Hashable, msgspec.Raw]] = {}

    def of(self, clients: Sequence[Client]) -> dict[str, msgspec.Raw]:
        """Client's id -> its text."""
        wanted = {client.id: (client, self._stamp(client)) for client in clients}
        with self._lock:
            had = self._made
            stale = {
                id: client
                for id, (client, stamp) in wanted.items()
                if id not in had or had[id][0] != stamp
            }
            texts = self._make(list(stale.values())) if stale else ()
            fresh = dict(zip(stale, texts, strict=True))
            self._made = made = {
                id: (stamp, fresh[id]) if id in fresh else had[id]
                for id, (_, stamp) in wanted.items()
            }
        return {id: text for id, (_, text) in made.items()}


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


class _Words(NamedTuple):
    """What the journals say of their own agents."""

    dropped: Mapping[JournalId, int]
    ended: frozenset[JournalId]


class _Member(NamedTuple):
    """The parts of a client that change rarely."""

    number: int
    id: str
    rows: Sequence[ProcessRow]
    devices: Sequence[Device]
    hosts: Sequence[Host]
    journals: Sequence[JournalId]
    """That hold anything of these: a device that others told of, too, has theirs."""
    is_guest: bool
    labels: frozenset[str]
    device_ids: frozenset[str]


Mine = Mapping[JournalId, tuple[list[Device], list[Host]]]


def _by_journal(fleet: Fleet) -> Mine:
    mine: dict[JournalId, tuple[list[Device], list[Host]]] = {}
    for device in fleet.devices:
        for journal in device.journals:
            mine.setdefault(journal, ([], []))[0].append(device)
    for host in fleet.hosts:
        for journal in host.journals:
            mine.setdefault(journal, ([], []))[1].append(host)
    return mine


def _member(rows: Sequence[ProcessRow], mine: Mine, number: int) -> _Member:
    last = rows[-1]
    is_guest = last.boot.startswith(GUEST)
    where = last.boot.removeprefix(GUEST) if is_guest else last.journal
    devices = {d.id: d for row in rows for d in mine[row.journal][0]}
    hosts = {h.label: h for row in rows for h in mine[row.journal][1]}
    told: list[Device | Host] = [*devices.values(), *hosts.values()]
    return _Member(
        number,
        f"{last.host}_{where}",
        rows,
        sorted(devices.values(), key=lambda device: (device.label, device.index)),
        list(hosts.values()),
        sorted(set[JournalId]().union(*(thing.journals for thing in told))),
        is_guest,
        frozenset(thing.label for thing in told),
        frozenset(devices),
    )


def _newest(batch: Batch) -> int:
    """The time of the newest record; 0: there is none with a time."""
    newest = max([event.time_ns for event in batch.events], default=0)
    if len(batch.points):
        newest = max(newest, int(np.frombuffer(batch.points.time_ns, np.int64).max()))
    return newest


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
