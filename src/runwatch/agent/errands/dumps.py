"""Stacks that a process wrote by itself, read from its files.

A process of a run leaves them beside its journal (`faults.txt`, `dumps.txt`), or elsewhere and says
where (`dumps.path`, and for standard error `console-*.path`).  Files are read from where the last
reading ended, which `dumps-read.json` remembers for an agent that comes after us.  What is damaged
or cut off gives what can be read.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from runwatch.capture import watchdog
from runwatch.capture.dump_file import CONSOLE, ELSEWHERE, PERIODIC
from runwatch.capture.stacks import SIGNALS, Dump, fault_of, read_dumps, shortened
from runwatch.clock import Clock, system_clock
from runwatch.files import Folder, journal_folder
from runwatch.record.stacks import Stacks, Thread

READ: Final = "dumps-read.json"
FILES: Final = ("faults.txt", PERIODIC)
ASKED: Final = "stacks.txt"
MAX_READ: Final = 32 << 20
MAX_ELSEWHERE: Final = 32
MAX_SMALL: Final = 1 << 20
MAX_FAULT: Final = 4 << 20
QUIET_SECONDS: Final = 1.0
_PAIR: Final = re.compile(r"(\w+)=(\S+)")
_TIMEOUT: Final = re.compile(r"Timeout \((\d+):(\d+):(\d+)(\.\d+)?\)")


@dataclass(slots=True)
class _Place:
    """How far a file has been read, and whose words come next."""

    inode: int = 0
    offset: int = 0
    heading: dict[str, str] = field(default_factory=dict)
    since_ns: int = 0
    """Seconds of time-outs since the heading, in ns: the C thread writes no time."""
    shared: bool = False
    """Others write there, too: of interest is how this process died."""


def collect(
    journal: Path,
    *,
    rank: int = 0,
    host: str = "",
    ended: bool = True,
    asked: bool = False,
    clock: Clock = system_clock,
) -> Iterator[Stacks]:
    """What was written since the last call, oldest first in each file.

    Not `ended`: a file that is being written waits for the next call.  `asked`: also what the
    process wrote when it got STACK_SIGNAL, and nobody was there to read.
    """
    places = _load(journal)
    for path, place in _places(journal, places, asked=asked, ended=ended):
        for stacks in _read(path, place, journal, None if ended else clock):
            whole = replace(
                stacks,
                rank=rank if stacks.rank is None else stacks.rank,
                host=host if stacks.host is None else stacks.host,
                journal=journal.name,
                incident="",
                round=0,
                command="",
            )
            yield shortened(whole)
        _save(journal, places)  # after they were taken: twice is better than never


def last_fault(journal: Path) -> str:
    """ "SIGILL": of what the process died, by its own account; "" if it tells of no fault.

    How it ended need not say: a second fault may come while the stacks are written.
    """
    told: list[tuple[int, str]] = []
    for path, place in _places(journal, {}, asked=False, ended=True):
        written_ns, text = _end_of(path, journal, place.offset) or (0, "")
        dumps = [dump for dump in read_dumps(text) if dump.fault and _is_of(dump, place)]
        told += ((written_ns, dump.fault) for dump in dumps[-1:])
    return SIGNALS.get(max(told, default=(0, ""))[1], "")


def _end_of(path: Path, journal: Path, start: int) -> tuple[int, str] | None:
    """When it was written, and what it ends with."""
    try:
        with open(_opened(path, journal), "rb") as file:
            found = os.fstat(file.fileno())
            file.seek(max(found.st_size - MAX_FAULT, start))
            return found.st_mtime_ns, file.read(MAX_FAULT).decode(errors="replace")
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None


def _opened(path: Path, journal: Path) -> int:
    """The journal says where to look: only at files of whoever owns the journal."""
    with journal_folder(journal) as folder:
        if path.parent == journal:
            return folder.open(path.name, owners=(folder.uid,))
        with Folder.at(path.parent, folder.user) as elsewhere:
            return elsewhere.open(path.name, owners=(folder.uid,))


def _places(
    journal: Path, known: dict[str, _Place], *, asked: bool, ended: bool
) -> Iterator[tuple[Path, _Place]]:
    for path in _files(journal, asked):
        yield path, known.setdefault(str(path), _Place())
    for path, place in _consoles(journal) if ended else ():
        yield path, known.setdefault(f"console {path}", place)


def _files(journal: Path, asked: bool) -> Iterator[Path]:
    yield from (journal / name for name in FILES)
    if asked:
        yield journal / ASKED
    told = _text(journal, ELSEWHERE).splitlines()
    yield from map(Path, dict.fromkeys(told[-MAX_ELSEWHERE:]))


def _consoles(journal: Path) -> Iterator[tuple[Path, _Place]]:
    try:
        with journal_folder(journal) as folder:
            names = fnmatch.filter(folder.names(), CONSOLE)
    except OSError:
        return
    for told in sorted(names)[:MAX_ELSEWHERE]:
        opened, _, rest = _text(journal, told).partition("\n")
        found = re.match(r"(\d+) (\d+) (.+)\n", rest)
        if found:
            heading = dict(_PAIR.findall(opened))
            place = _Place(int(found[2]), int(found[1]), heading, shared=True)
            yield Path(found[3]), place


def _is_of(dump: Dump, place: _Place) -> bool:
    """Where several processes write, the main thread's id tells whose dump it is."""
    main = _number(place.heading, "main")
    return not place.shared or any(thread.ident == main for thread in dump.threads)


def _read(path: Path, place: _Place, journal: Path, clock: Clock | None) -> Iterator[Stacks]:
    try:
        fd = _opened(path, journal)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return
    try:
        found = os.fstat(fd)
        if clock is not None and clock.wall_ns() - found.st_mtime_ns < QUIET_SECONDS * 1e9:
            return
        if found.st_ino != place.inode or found.st_size < place.offset:
            place.inode, place.offset = found.st_ino, 0
        if place.shared:  # a long log, at the end of which it died
            place.offset = max(place.offset, found.st_size - MAX_FAULT)
        text = os.pread(fd, MAX_READ, place.offset)
    except OSError:
        return
    finally:
        os.close(fd)
    place.offset += len(text)
    yield from _parse(text.decode(errors="replace"), place, found.st_mtime_ns)


def _parse(text: str, place: _Place, written_ns: int) -> Iterator[Stacks]:
    pieces = list(_pieces(text))
    for i, (heading, lines) in enumerate(pieces):
        if heading and not place.shared:
            place.heading, place.since_ns = heading, 0
        dumps = read_dumps("\n".join(lines))
        for j, dump in enumerate(dumps):
            if place.shared and not (dump.fault and _is_of(dump, place)):
                continue
            last = i == len(pieces) - 1 and j == len(dumps) - 1
            yield _stacks(dump, place, written_ns if last else 0, ours=_is_ours(heading, j))


def _is_ours(heading: Mapping[str, str], number: int) -> bool:
    """The first dump after a `dump` line is the periodic one; others came by a signal."""
    return number == 0 and heading.get("") == "dump"


def _pieces(text: str) -> Iterator[tuple[dict[str, str], list[str]]]:
    heading: dict[str, str] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith(("# opened ", "# dump ")):
            yield heading, lines
            heading, lines = {"": line.split(" ", 2)[1], **dict(_PAIR.findall(line))}, []
        else:
            lines.append(line)
    yield heading, lines


def _stacks(dump: Dump, place: _Place, written_ns: int, *, ours: bool) -> Stacks:
    heading = place.heading
    time_ns = _number(heading, "time_ns")
    how, fault = "signalled", None
    if timeout := _TIMEOUT.match(dump.header):
        place.since_ns += _nanoseconds(timeout)
        how, time_ns = "watchdog", time_ns + place.since_ns
    elif dump.header:
        how, time_ns = "fault", written_ns or time_ns
        fault = dump.fault or dump.header
    elif ours:
        how = "watchdog"
    else:
        time_ns = written_ns or time_ns
    threads = tuple(_known(dump.threads, _number(heading, "main")))
    return Stacks(
        pid=_number(heading, "pid"),
        time_ns=time_ns or written_ns,
        how=how,
        problems=tuple(_problems(dump, any(thread.is_main for thread in threads))),
        threads=threads,
        rank=_number(heading, "rank") if "rank" in heading else None,
        host=heading.get("host"),
        fault=fault,
        step=_number(heading, "step") if "step" in heading else None,
    )


def _problems(dump: Dump, whole: bool) -> Iterator[str]:
    """What a reader of the dump must know.  `whole`: the main thread, the last, is there."""
    if dump.truncated:
        yield "faulthandler wrote only the first 100 threads"
    if not dump.fault:
        return
    if dump.second:
        second = fault_of(dump.second)
        yield f"broken off by a second fault ({second}) while running threads were read"
    elif not (whole or dump.truncated):
        yield "broken off: the process died before all threads were written"
    if dump.current is None and (dump.second or not (whole or dump.truncated)):
        yield "the thread that faulted is not among these"
    elif dump.current is None and not dump.truncated:
        yield "the fault was in a thread that runs no Python"


def _known(threads: Iterable[Thread], main: int) -> Iterator[Thread]:
    """Without the thread that writes dumps, and with the main one marked if its id is known."""
    kept = [thread for thread in threads if not _is_watchdog(thread)]
    if not main or not any(thread.ident for thread in kept):
        yield from kept
        return
    # One that just starts has the id of who starts it, and comes first.
    place = max((i for i, thread in enumerate(kept) if thread.ident == main), default=-1)
    yield from (replace(thread, is_main=i == place) for i, thread in enumerate(kept))


def _is_watchdog(thread: Thread) -> bool:
    return any(
        frame.function == "_run" and frame.file == watchdog.__file__ for frame in thread.frames
    )


def _nanoseconds(timeout: re.Match[str]) -> int:
    hours, minutes, seconds, part = timeout.groups()
    whole = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return whole * 10**9 + int(float(part or 0) * 1e9)


def _number(heading: Mapping[str, str], key: str) -> int:
    try:
        return int(heading.get(key, "0"), 0)
    except ValueError:
        return 0


# ── how far we are ────────────────────────────────────────────────────────────────────────────


def _load(journal: Path) -> dict[str, _Place]:
    try:
        known = json.loads(_text(journal, READ))
        return {path: _Place(**place) for path, place in known.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _save(journal: Path, places: Mapping[str, _Place]) -> None:
    plain = {
        path: {
            "inode": place.inode,
            "offset": place.offset,
            "heading": place.heading,
            "since_ns": place.since_ns,
            "shared": place.shared,
        }
        for path, place in places.items()
        if place.inode
    }
    if not plain:
        return
    try:
        with journal_folder(journal) as folder:
            folder.write(READ, json.dumps(plain).encode(), give=True)
    except OSError:
        return  # read again next time


def _text(journal: Path, name: str) -> str:
    """A small file's; "" where there is none."""
    try:
        with open(_opened(journal / name, journal), "rb") as file:
            return file.read(MAX_SMALL).decode(errors="replace")
    except OSError:
        return ""
