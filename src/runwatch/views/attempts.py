"""Which processes of a run were started together: its attempts.

A *launch* is what one key of a launcher or scheduler brought up: processes that were there at the
same time, every rank once unless one was replaced while the others went on.  Launches that began
together, or of which one replaces ranks of the other, are one attempt: a job of several nodes may
have a key for each node, and torchrun's agents count their restarts each for itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from runwatch.record import JournalId, RunId
from runwatch.rows import ProcessRow
from runwatch.views.life import Key

# A rank that began before a process, and is still heard of this long after, goes on beside it.
_GOES_ON_NS: Final = 10_000_000_000
# The ranks of one job begin within this time of each other.
_TOGETHER_NS: Final = 30_000_000_000
_REPLACES: Final = 1 << 62  # longer than any silence

_TICK_NS: Final = 10_000_000
# A program begins its run within this time of its own start: one attempt after it has read its data
# for minutes, and the next at once, from a cache.  A smaller difference is no clock change, unless
# more speaks for one.
_STARTING_NS: Final = 600_000_000_000
_MOVED_NS: Final = 30_000_000_000


def attempts(processes: Iterable[ProcessRow]) -> dict[Key, int]:
    """The attempt, counted from 1 in each run, that each (journal, run) belongs to.

    A rank that comes again begins an attempt, under whatever key; the others of its launch follow
    it.  In an elastic job, a process replaces one that is gone, or is added, while others of the
    attempt go on: it belongs to their attempt.  A rank that comes while that rank still runs is of
    another job, which is an attempt of its own.  A launcher belongs to the last attempt of its key.
    A forked child belongs to the attempt of its parent, and never begins one.
    """
    numbers: dict[Key, int] = {}
    for rows in by_run(processes).values():
        numbers |= _attempts_of_run(rows)
    return numbers


def _attempts_of_run(rows: Sequence[ProcessRow]) -> dict[Key, int]:
    numbers: dict[Key, int] = {}
    seats: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    """(Host, rank) -> place and attempt of the processes there, in order."""
    for number, attempt in enumerate(_grouped(_launches(rows)), 1):
        for launch in attempt:
            for _, row in (*launch.rows, *launch.launchers):
                numbers[row.journal, row.run] = number
            for place, row in launch.rows:
                seats[row.host, row.rank].append((place, number))
    begun = sorted(each for of_seat in seats.values() for each in of_seat)
    for place, row in enumerate(rows):
        if row.role == "child":
            before = sorted(seats.get((row.host, row.rank), ())) or begun
            at = bisect_left(before, (place, 0))
            numbers[row.journal, row.run] = before[max(at - 1, 0)][1] if before else 1
    return numbers


# ── launches ───────────────────────────────────────────────────────────────────────────────────

_Placed = tuple[int, ProcessRow]
"""A process, and its place in the order in which the run's processes began."""


@dataclass(slots=True)
class _Launch:
    """Processes of one key.  Each began while another was there."""

    rows: list[_Placed] = field(default_factory=list)
    launchers: list[_Placed] = field(default_factory=list)
    seats: dict[int, ProcessRow] = field(default_factory=dict)
    """Rank -> the process that has it now."""
    keys: set[str] = field(default_factory=set)
    """Of the ranks: several, once launches are united."""
    ranks_last_ns: int = 0
    """When the last of the ranks was last heard of."""
    replacing: list[_Placed] = field(default_factory=list)
    """Those that replaced another: perhaps the first of the next launch."""
    silent_ns: int = 0
    """How long all of its attempt had been gone when it began.  _REPLACES: it replaced ranks."""

    @property
    def place(self) -> int:
        return (self.rows or self.launchers)[0][0]

    @property
    def start_ns(self) -> int:
        """When it began; of several that were united, when the last of them began."""
        return (self.rows or self.launchers)[0][1].start_ns

    @property
    def last_ns(self) -> int:
        return max(row.last_ns for _, row in (*self.rows, *self.launchers))

    def has_room(self, row: ProcessRow) -> bool:
        """Whether a process with the launch's key is one of it."""
        if row.role == "launcher" or not self.seats:
            return True
        before = self.seats.get(row.rank)
        if before is None:
            return self.ranks_last_ns >= row.start_ns
        return self._is_replaced(before, row)

    def _is_replaced(self, before: ProcessRow, row: ProcessRow) -> bool:
        if before.last_ns >= row.start_ns:
            return False  # the rank still runs: this is another job
        return self.goes_on(before.last_ns, row.start_ns, {row.rank})

    def goes_on(self, gone_ns: int, new_ns: int, ranks: Container[int]) -> bool:
        """Whether one of other ranks was there when these went, and goes on beside the new ones."""
        return any(
            other.start_ns <= gone_ns and other.last_ns > new_ns + _GOES_ON_NS
            for rank, other in self.seats.items()
            if rank not in ranks
        )

    def add(self, placed: _Placed) -> None:
        row = placed[1]
        if row.role == "launcher":
            self.launchers.append(placed)
            return
        if row.rank in self.seats:
            self.replacing.append(placed)
        self.rows.append(placed)
        self._seat(row)

    def _seat(self, row: ProcessRow) -> None:
        self.seats[row.rank] = row
        self.keys.add(row.attempt_key)
        self.ranks_last_ns = max(self.ranks_last_ns, row.last_ns)

    def next(self, first: _Placed) -> _Launch:
        """The launch after this one, which begins with a process that has no room in this one."""
        since_ns, rank = first[1].start_ns - _TOGETHER_NS, first[1].rank
        early = [p for p in self.replacing if p[1].start_ns >= since_ns and p[1].rank != rank]
        if early:
            self.rows = [placed for placed in self.rows if placed not in early]
            self.seats, self.ranks_last_ns = {}, 0
            for _, row in self.rows:
                self._seat(row)
        launch = _Launch(launchers=self.launchers)
        self.launchers = []
        for placed in (*early, first):
            launch.add(placed)
        return launch

    def unite(self, other: _Launch) -> None:
        self.rows = [*other.rows, *self.rows]
        self.launchers = [*other.launchers, *self.launchers]
        self.seats |= other.seats
        self.keys |= other.keys
        self.ranks_last_ns = max(self.ranks_last_ns, other.ranks_last_ns)


def _launches(rows: Sequence[ProcessRow]) -> list[_Launch]:
    """In the order in which they began."""
    found: list[_Launch] = []
    open_ones: dict[str, _Launch] = {}
    for placed in enumerate(rows):
        row = placed[1]
        if row.role == "child":
            continue
        launch = open_ones.get(row.attempt_key)
        if launch is not None and launch.has_room(row):
            launch.add(placed)
            continue
        if launch is None:
            launch = _Launch()
            launch.add(placed)
        else:
            launch = launch.next(placed)
        found.append(launch)
        open_ones[row.attempt_key] = launch
    return sorted(found, key=lambda launch: launch.place)


# ── launches that are one attempt ──────────────────────────────────────────────────────────────


def _grouped(launches: Sequence[_Launch]) -> list[list[_Launch]]:
    found: list[list[_Launch]] = []
    attempt = _Launch()
    for at, launch in enumerate(launches):
        if found and _joins(launch, attempt):
            replaces = _common(launch, attempt) and attempt.ranks_last_ns >= launch.start_ns
            launch.silent_ns = _REPLACES if replaces else launch.start_ns - attempt.ranks_last_ns
            found[-1].append(launch)
            attempt.unite(launch)
            continue
        early: list[_Launch] = []
        if found:
            early = _came_early(launch, launches[at + 1 :], found[-1], attempt)
            del found[-1][len(found[-1]) - len(early) :]
        found.append([*early, launch])
        attempt = _Launch()
        for each in found[-1]:
            attempt.unite(each)
    return found


def _joins(launch: _Launch, attempt: _Launch) -> bool:
    """Whether the launch is a part of the attempt before it."""
    if not launch.seats or not attempt.seats:
        # Nothing but launchers: one on the same host was started again.
        return _hosts(launch).isdisjoint(_hosts(attempt)) and _is_near(launch, attempt)
    common = _common(launch, attempt)
    if any(before.last_ns >= row.start_ns for before, row in common):
        return False  # the rank still runs: this is another job
    if not common and (_is_near(launch, attempt) or not attempt.keys.isdisjoint(launch.keys)):
        return True
    gone_ns = min((before.last_ns for before, _ in common), default=launch.start_ns)
    return attempt.goes_on(gone_ns, launch.start_ns, launch.seats)


def _came_early(
    launch: _Launch, later: Sequence[_Launch], members: Sequence[_Launch], attempt: _Launch
) -> list[_Launch]:
    """The last members of the attempt, if they belong with the launch that begins the next one.

    Their ranks were not there yet, or seemed to replace others.  Between attempts nothing runs, so
    of several places where the next one may have begun it is the one after the longest silence.
    """
    beside = takewhile(lambda other: other.start_ns <= launch.last_ns, later)
    taken = launch.seats.keys() | {rank for other in beside for rank in other.seats}
    cut, longest_ns = len(members), max(launch.start_ns - attempt.ranks_last_ns, 0)
    ranks: set[int] = set()
    for at in range(len(members) - 1, 0, -1):
        member = members[at]
        if launch.start_ns - member.start_ns > _TOGETHER_NS or not taken.isdisjoint(member.seats):
            break
        ranks |= member.seats.keys()
        if member.silent_ns > longest_ns and not _come_again(ranks, launch, later):
            cut, longest_ns = at, member.silent_ns
    return list(members[cut:])


def _come_again(ranks: Collection[int], launch: _Launch, later: Sequence[_Launch]) -> bool:
    """Whether there would be more attempts if these ranks were in that of the launch: it has them
    itself, only later."""
    without, more = set(launch.seats), 0
    together = without.union(ranks)
    for other in later:
        if other.start_ns - launch.start_ns > _TOGETHER_NS:
            break
        ends_without = not without.isdisjoint(other.seats)
        ends_together = not together.isdisjoint(other.seats)
        if ends_without and ends_together:
            break
        more += ends_together - ends_without
        without = other.seats.keys() | (set() if ends_without else without)
        together = other.seats.keys() | (set() if ends_together else together)
    return more > 0


def _common(launch: _Launch, attempt: _Launch) -> list[tuple[ProcessRow, ProcessRow]]:
    """The ranks of both: the process that had it last, and the launch's first."""
    firsts = {row.rank: row for _, row in reversed(launch.rows)}
    return [(attempt.seats[rank], row) for rank, row in firsts.items() if rank in attempt.seats]


def _is_near(launch: _Launch, attempt: _Launch) -> bool:
    """Whether it began when the other did, or while the other, of no key either, was there."""
    if launch.start_ns - attempt.start_ns <= _TOGETHER_NS:
        return True
    return launch.keys == {""} and launch.start_ns - attempt.last_ns <= _TOGETHER_NS


def _hosts(launch: _Launch) -> set[str]:
    return {row.host for _, row in launch.launchers}


# ── order ──────────────────────────────────────────────────────────────────────────────────────


def by_run(processes: Iterable[ProcessRow]) -> dict[RunId, list[ProcessRow]]:
    """Processes by run, in order of start.  Agents are left out, and processes without a run.

    A process that opened the same run twice is one process.
    """
    unique = {(row.journal, row.run): row for row in processes if row.run and row.role != "agent"}
    rows = list(unique.values())
    moved = clock_moves(rows)
    found: dict[RunId, list[ProcessRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: (r.start_ns - moved.get(r.journal, 0), r.journal)):
        found[row.run].append(row)
    return found


def clock_moves(rows: Iterable[ProcessRow]) -> dict[JournalId, int]:
    """By how much each host's clock was set forward since its first process began.  The uptime of
    the host shows how much time really passed."""
    first: dict[tuple[str, str], tuple[int, ProcessRow]] = {}
    booted: dict[tuple[str, str, int, int], int] = {}
    moved: dict[JournalId, int] = {}
    for row in sorted(rows, key=lambda row: (row.process_start_ticks, row.start_ns)):
        if not row.boot or not row.process_start_ticks:
            continue
        # The later runs of a process begin long after it: only its first tells something.
        process = row.host, row.boot, row.pid, row.process_start_ticks
        start_ns = row.start_ns - row.process_start_ticks * _TICK_NS
        booted_ns = booted.setdefault(process, start_ns)
        first_ns, begun = first.setdefault((row.host, row.boot), (booted_ns, row))
        moved_ns = booted_ns - first_ns
        if abs(moved_ns) > (_MOVED_NS if _is_before(row, begun, -moved_ns) else _STARTING_NS):
            moved[row.journal] = moved_ns
    return moved


def _is_before(row: ProcessRow, begun: ProcessRow, back_ns: int) -> bool:
    """Whether a process that began later began, by its clock, while the other was there: then the
    clock was put back, and the other did not just begin its run late."""
    later_ns = (row.process_start_ticks - begun.process_start_ticks) * _TICK_NS
    return 0 < back_ns < later_ns and row.start_ns < begun.last_ns
