"""`runwatch status`: which records are not sent yet, dropped, set aside, or unreadable.

Two notes say how far a head has stored a journal: one beside it (`journal/stored.py`), and the
agent's (`agent/note.py`).  All records behind that position wait.  Only headers are read: a journal
may be large, and there may be thousands.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from runwatch.cli.pictures.moments import duration
from runwatch.cli.pictures.moments import time as moment
from runwatch.cli.status.agent import Agent, lock_is_held
from runwatch.cli.status.types import Problem, Section, many, size, user_name
from runwatch.files import Folder, shelf
from runwatch.journal.agents import FOLDER, heir_name, lock_name
from runwatch.journal.heads import NamedHead, note_in
from runwatch.journal.liveness import is_alive
from runwatch.journal.reader import (
    HEAD_BYTES,
    UNREADABLE,
    count_records,
    origin_in,
    read_origin,
)
from runwatch.journal.segment import (
    HEADER_LENGTH,
    LONGEST_SEGMENT,
    RECORD,
    STEP_BEGIN,
    STEP_END,
    WORD,
    Header,
    indexes_among,
    origin_from_name,
    segment_name,
)
from runwatch.journal.stored import STORED
from runwatch.record import START, JournalId, Origin, Position

MOST_JOURNALS: Final = 1_000
"""Only this many are read, the newest: each takes a fifth of a millisecond."""
MOST_NAMED: Final = 5
MOST_COUNTED: Final = 4 << 20
"""Records are counted in this many bytes: it takes a tenth of a second."""
LATE_SECONDS: Final = 120.0
"""A connected agent sends everything within seconds."""
DAY_SECONDS: Final = 86_400.0
_PROBE: Final = 64 << 10
_BEGIN_OFFSET: Final = 16


@dataclass(slots=True)
class Backlog:
    """Records of one host's journals that a head does not have."""

    host: str
    head: str = ""
    """The address that the journals name; empty: they name none."""
    journals: int = 0
    bytes: int = 0
    records: int | None = 0
    """None: too many to be counted."""
    since_ns: int | None = None
    sender: str = "nobody"
    """agent, its agent, heir, or nobody."""


@dataclass(slots=True)
class Journals:
    count: int = 0
    bytes: int = 0
    """On the disk."""
    hosts: dict[tuple[str, str], Backlog] = field(default_factory=dict)
    """By host and head."""
    heads: dict[str, NamedHead] = field(default_factory=dict)
    """Address → a head that a journal names."""
    counted_bytes: int = 0
    """In how many bytes records were counted so far."""
    living: int = 0
    """Programs that record here now, on this host."""
    unreadable: list[dict[str, str]] = field(default_factory=list)
    others: int = 0
    """Journals of other users in a shared directory, which we may not read."""
    skipped: int = 0
    """Not read: there are too many."""

    def waiting(self, head: str) -> list[Backlog]:
        """What a head is to get; `head`: the one for journals that name none, if there is one."""
        due = [each for each in self.hosts.values() if each.head or head]
        return sorted(due, key=lambda each: (each.host, each.head))


Reached = Mapping[JournalId, Position]


def survey(
    root: Path, host: str, reached: Reached, reached_at: Mapping[str, Reached] | None = None
) -> Journals:
    """`reached`: how far a head has each journal, by the agent's note; `reached_at`: the same by
    the head's address, for journals that are for several heads."""
    journals = Journals()
    try:
        with shelf(root, "journals") as folder:
            names = sorted(folder.names(), reverse=True)
            for name in names[:MOST_JOURNALS]:
                at = {
                    address: had.get(JournalId(name)) for address, had in (reached_at or {}).items()
                }
                _look_into(folder, name, host, reached.get(JournalId(name), START), at, journals)
            journals.skipped = max(0, len(names) - MOST_JOURNALS)
            _find_senders(root, host, journals)
    except FileNotFoundError:
        pass
    except OSError as error:
        journals.unreadable.append(
            {"journal": "", "owner": "", "why": error.strerror or str(error)}
        )
    return journals


def _look_into(
    parent: Folder,
    name: str,
    host: str,
    reached: Position,
    reached_at: Mapping[str, Position | None],
    journals: Journals,
) -> None:
    owner = -1
    try:
        about = parent.stat(name)
        owner = about.st_uid
        if not stat.S_ISDIR(about.st_mode) and not stat.S_ISLNK(about.st_mode):
            return  # no journal at all
        with parent.below(name) as folder:
            indexes = indexes_among(folder.names())
            if not indexes:
                return
            journals.count += 1
            journals.bytes += sum(folder.stat(segment_name(i)).st_blocks * 512 for i in indexes)
            heads = note_in(folder).heads
            reached = max(reached, _stored(folder))
            rests = {
                head.address: _rest(
                    folder, indexes, max(reached, reached_at.get(head.address) or START)
                )
                for head in heads
            } or {"": _rest(folder, indexes, reached)}
            journals.heads |= {head.address: head for head in heads}
        rest = max(rests.values(), key=lambda each: each.unsent)
        if not rest.unsent and not rest.is_open:
            return
        origin = rest.origin or read_origin(parent.path / name) or origin_from_name(name)
    except FileNotFoundError:
        return  # sent and removed just now
    except (OSError, *UNREADABLE) as error:
        is_ours = os.geteuid() in (owner, parent.uid)
        if isinstance(error, PermissionError) and not is_ours:
            journals.others += 1
            return
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        who = user_name(owner) if owner >= 0 else ""
        journals.unreadable.append({"journal": name, "owner": who, "why": why})
        return
    if rest.is_open and origin.role != "agent":
        journals.living += is_alive(origin, host=host) is True
    for address, rest in rests.items():
        if rest.unsent:
            key = origin.host, address
            backlog = journals.hosts.setdefault(key, Backlog(*key))
            _add(backlog, rest, parent.path / name, journals)


def _add(backlog: Backlog, rest: _Rest, directory: Path, journals: Journals) -> None:
    backlog.journals += 1
    backlog.bytes += rest.unsent
    if rest.since_ns is not None:
        backlog.since_ns = min(backlog.since_ns or rest.since_ns, rest.since_ns)
    journals.counted_bytes += rest.unsent
    if backlog.records is None or journals.counted_bytes > MOST_COUNTED:
        backlog.records = None
        return
    with suppress(OSError):
        backlog.records += sum(
            count_records(directory / segment_name(index), begin) for index, begin in rest.parts
        )


def _stored(folder: Folder) -> Position:
    try:
        return Position(int(folder.text(STORED, 100, owners=folder.known())))
    except (OSError, ValueError):
        return START


@dataclass(slots=True)
class _Rest:
    """The part of a journal behind the position that a head has."""

    unsent: int = 0
    since_ns: int | None = None
    """When its first record was recorded."""
    origin: Origin | None = None
    is_open: bool = False
    """Its writer did not close it: it still writes, or was killed."""
    parts: list[tuple[int, int]] = field(default_factory=list)
    """Segments with such records, and where these begin in them."""


def _rest(folder: Folder, indexes: Sequence[int], reached: Position) -> _Rest:
    rest = _Rest()
    for index in indexes:
        if index < reached >> 32:
            continue
        fd = folder.open(segment_name(index))
        try:
            head = os.pread(fd, HEAD_BYTES, 0)
            header = Header.unpack(head, folder.path)
            begin = max(HEADER_LENGTH, reached & 0xFFFFFFFF if index == reached >> 32 else 0)
            unsent = _used(fd, header, begin) - begin
            if unsent > 0 and rest.since_ns is None:
                rest.since_ns = _time_of(fd, header, begin)
        finally:
            os.close(fd)
        rest.unsent += max(0, unsent)
        if unsent > 0:
            rest.parts.append((index, begin))
        rest.origin = rest.origin or origin_in(head, folder.path)
        rest.is_open = not header.end
    return rest


def _used(fd: int, header: Header, begin: int) -> int:
    """Where the records end.  A segment that is being written has zeros behind them: a binary
    search finds the end, with probes wide enough not to stop at zero values."""
    length = min(os.fstat(fd).st_size, LONGEST_SEGMENT)
    if 0 < header.end <= length:
        return header.end
    low, high = begin // _PROBE, -(-length // _PROBE)
    while low < high:
        middle = (low + high) // 2
        if os.pread(fd, _PROBE, max(middle * _PROBE, begin)).strip(b"\0"):
            low = middle + 1
        else:
            high = middle
    last = max((low - 1) * _PROBE, begin)
    return last + len(os.pread(fd, _PROBE, last).rstrip(b"\0"))


def _time_of(fd: int, header: Header, at: int) -> int | None:
    """Wall time of the record at `at`."""
    data = os.pread(fd, _BEGIN_OFFSET + WORD.size, at)
    if len(data) < _BEGIN_OFFSET + WORD.size:
        return None
    _, _, kind, mono_ns = RECORD.unpack_from(data)
    if kind in (STEP_BEGIN, STEP_END):
        mono_ns = WORD.unpack_from(data, _BEGIN_OFFSET)[0] + header.tick_shift
    wall_ns = mono_ns - header.mono_ns + header.wall_ns
    return wall_ns if 0 < wall_ns < time.time_ns() + int(DAY_SECONDS * 1e9) else None


def _find_senders(root: Path, host: str, journals: Journals) -> None:
    try:
        with shelf(root, FOLDER) as folder:
            for backlog in journals.hosts.values():
                if lock_is_held(folder, lock_name(backlog.host)):
                    backlog.sender = "agent" if backlog.host == host else "its agent"
                elif lock_is_held(folder, heir_name(backlog.host)):
                    backlog.sender = "heir"
    except OSError:
        return


# ── words ─────────────────────────────────────────────────────────────────────────────────────


def section(
    journals: Journals, agent: Agent, *, host: str, head: str, serves: bool, inherit_seconds: float
) -> Section:
    """`head`: where journals go that name none; `serves`: a head reads this directory itself."""
    note = agent.note
    lines: list[str] = []
    problems: list[Problem] = []
    if (head or journals.heads) and journals.count:
        lines, problems = _backlog(journals, agent, host, head, inherit_seconds)
    elif serves:
        lines = [f"nothing: the head reads the {many(journals.count, 'journal')} here itself"]
    elif journals.count:
        lines = [f"nothing: no head is set, so {many(journals.count, 'journal')} stay here"]
    else:
        lines = ["nothing: there are no journals here"]
    if journals.others:
        lines.append(f"{many(journals.others, 'journal')} of other users: we may not read them")
    if journals.skipped:
        lines.append(f"{journals.skipped:,} older journals were not read")
    if note is not None and note.dropped_records:
        problems += _dropped(note.dropped_records, note.dropped_ns, lines)
    problems += _asides(agent)
    problems += _unreadable(journals)
    return Section("waiting", _facts(journals, agent, head), lines, problems)


def _facts(journals: Journals, agent: Agent, head: str) -> dict[str, Any]:
    note, waiting = agent.note, journals.waiting(head)
    counts = [each.records for each in waiting if each.records is not None]
    return {
        "journals": sum(each.journals for each in waiting),
        "bytes": sum(each.bytes for each in waiting),
        "records": sum(counts) if len(counts) == len(waiting) else None,
        "since_ns": min((each.since_ns for each in waiting if each.since_ns), default=None),
        "hosts": [
            {
                "host": each.host,
                "head": each.head or head,
                "journals": each.journals,
                "bytes": each.bytes,
                "records": each.records,
                "since_ns": each.since_ns,
                "sender": each.sender,
            }
            for each in waiting
        ],
        "journals_here": journals.count,
        "journals_of_others": journals.others,
        "journals_not_looked_into": journals.skipped,
        "programs": journals.living,
        "dropped_records": note.dropped_records if note else None,
        "dropped_ns": (note.dropped_ns or None) if note else None,
        "aside": [
            {"journal": a.journal, "why": a.why, "since_ns": a.since_ns, "by_head": a.by_head}
            for a in (note.aside if note else ())
        ],
        "aside_count": note.aside_count if note else None,
        "unreadable": journals.unreadable,
    }


def _backlog(
    journals: Journals, agent: Agent, host: str, head: str, inherit_seconds: float
) -> tuple[list[str], list[Problem]]:
    waiting = journals.waiting(head)
    stays = sum(each.journals for each in journals.hosts.values() if not (each.head or head))
    here = [f"{many(stays, 'journal')} of programs that name no head: kept here"] if stays else []
    if not waiting:
        return ["nothing: the head has all records that are meant for it", *here], []
    lines, problems = [], []
    is_one = len({each.head or head for each in waiting}) == 1
    for each in waiting:
        since = ""
        if each.since_ns:
            age = duration(max(0, time.time_ns() - each.since_ns))
            since = f", since {moment(each.since_ns)} ({age})"
        where = "" if each.host == host else f" of host {each.host}"
        to = "" if is_one else f" for {each.head or head}"
        count = "" if each.records is None else f", {many(each.records, 'record')}"
        lines.append(
            f"{many(each.journals, 'journal')}{where}{to}{count}, {size(each.bytes)}{since}"
        )
        if each.host != host:
            more, wrong = _other_host_words(each, agent, inherit_seconds)
            lines[-1] += f"; {more}"
            problems += wrong
        elif agent.sends_to(each.head or head) and not _is_late(each):
            lines[-1] += ": on its way"
        elif agent.sends_to(each.head or head):
            problems.append(
                Problem(
                    "the agent is connected, but does not send these records",
                    "see its log in the folder `agent` beside the journals; or end it with `kill`: "
                    "the next agent continues where the head says",
                )
            )
    return lines + here, problems


def _other_host_words(
    each: Backlog, agent: Agent, inherit_seconds: float
) -> tuple[str, list[Problem]]:
    if each.sender == "its agent":
        return "its own agent sends it", []
    if each.sender == "heir" or agent.runs and agent.note and agent.note.all_hosts:
        return "an agent here sends it", []
    if agent.runs and inherit_seconds > 0:
        return f"sent from here once that host is silent for {inherit_seconds:g} s", []
    what = f"host {each.host} has no agent, and nobody sends its records"
    return "nobody sends it", [Problem(what, "start an agent here: `runwatch agent`")]


def _is_late(each: Backlog) -> bool:
    return each.since_ns is not None and time.time_ns() - each.since_ns > LATE_SECONDS * 1e9


def _dropped(count: int, when_ns: int, lines: list[str]) -> list[Problem]:
    """A problem; after a day only a line."""
    what = (
        f"{many(count, 'record')} were dropped before a head had them, last at {moment(when_ns)}: "
        "the journals were full"
    )
    if time.time_ns() - when_ns > DAY_SECONDS * 1e9:
        lines.append(what)
        return []
    todo = "raise RUNWATCH_NODE_BYTES and RUNWATCH_JOURNAL_BYTES, or make sure a head answers"
    return [Problem(what, todo)]


def _asides(agent: Agent) -> list[Problem]:
    note = agent.note
    if note is None:
        return []
    problems = []
    for each in note.aside[:MOST_NAMED]:
        todo = "it is kept, and the next version of Runwatch retries it; the others are sent"
        if each.by_head:
            todo = "it is sent when the head accepts it: raise that limit, or delete runs there"
        what = f"journal {each.journal} is set aside since {moment(each.since_ns)}: {each.why}"
        problems.append(Problem(what, todo))
    if (more := note.aside_count - len(problems)) > 0:
        what = f"{many(more, 'more journal is', 'more journals are')} set aside"
        problems.append(Problem(what, "`runwatch status --json` names them"))
    return problems


def _unreadable(journals: Journals) -> list[Problem]:
    problems = []
    for each in journals.unreadable[:MOST_NAMED]:
        name, owner, why = each["journal"], each["owner"], each["why"]
        if not name:
            todo = "check who owns the directory"
            problems.append(Problem(f"journals cannot be listed: {why}", todo))
            continue
        what = f"journal {name} of {owner or 'somebody'} cannot be read here: {why}"
        todo = f"only {owner or 'its owner'} or root can send it or hand it over (chown -R)"
        problems.append(Problem(what, todo))
    if (more := len(journals.unreadable) - len(problems)) > 0:
        what = f"{many(more, 'more journal')} cannot be read"
        problems.append(Problem(what, "`runwatch status --json` names them"))
    return problems
