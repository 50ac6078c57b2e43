"""Whether a process ran at all between two looks: the core time of its threads and children.

A stack that stays the same proves little: one line may send a gigabyte.  But a thread that was
never on a core in two seconds is blocked, whatever its line says.  Looking itself wakes threads, so
we measure before and after a look, and the time between two looks counts.

Numbers are pairs: how often it got a core, and for how many nanoseconds.  The main thread has a
third number: how many bytes it has written to files, pipes and terminals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from runwatch.capture import process
from runwatch.journal.liveness import PROC, read_stat
from runwatch.record.stacks import Beat, Pulse

MAX_TASKS: Final = 1024
MAX_CHILDREN: Final = 32

Pair = tuple[int, int]


def feel(pid: int, mono_ns: int, *, proc: Path = PROC) -> dict[str, Any]:
    """`threads` by id, `children` by pid with name, state and pair; empty if unknown."""
    threads = dict(_threads(pid, proc))
    if not threads:
        return {}
    return {
        "ns": mono_ns,
        "threads": threads,
        "wrote": _wrote(proc / str(pid) / "task" / str(pid) / "io"),
        "main": pid,
        "children": dict(_children(pid, proc)),
    }


def both(
    before: dict[str, Any], after: dict[str, Any], with_stacks: Collection[int]
) -> Pulse | None:
    """As it goes into an event: single threads only of those that have a stack."""
    if not before or not after:
        return None
    return Pulse(_beat(before, with_stacks), _beat(after, with_stacks))


def _beat(felt: dict[str, Any], with_stacks: Collection[int]) -> Beat:
    threads: dict[int, Pair] = felt["threads"]
    everyone = list(threads.values())
    return Beat(
        ns=felt["ns"],
        all=(sum(often for often, _ in everyone), sum(ns for _, ns in everyone)),
        threads={
            str(tid): [*pair, felt["wrote"]] if tid == felt["main"] else list(pair)
            for tid, pair in threads.items()
            if tid in with_stacks
        },
        children={str(pid): each for pid, each in felt["children"].items()},
    )


def _threads(pid: int, proc: Path) -> Iterator[tuple[int, Pair]]:
    for number in process.tasks(pid, proc=proc)[:MAX_TASKS]:
        pair = _pair(proc / str(pid) / "task" / str(number) / "schedstat")
        if pair is not None:
            yield number, pair


def _children(pid: int, proc: Path) -> Iterator[tuple[int, list[Any]]]:
    """All its descendants, with the sums over their threads."""
    waiting, count = process.children(pid, proc=proc), 0
    while waiting and count < MAX_CHILDREN:
        child = waiting.pop(0)
        try:
            stat = read_stat(child, proc=proc)
        except PermissionError:
            continue
        if stat is None or (
            stat.state not in process.DEAD and process.is_bookkeeper(child, proc=proc)
        ):
            continue
        count += 1
        pairs = [pair for _, pair in _threads(child, proc)]
        name = process.read_status(child, proc=proc).get("Name", "")
        often, ns = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        yield child, [name, stat.state, often, ns]
        waiting += process.children(child, proc=proc)


def _pair(path: Path) -> Pair | None:
    """`schedstat`: nanoseconds on a core, nanoseconds of waiting for one, how often."""
    try:
        words = path.read_text().split()
        return int(words[2]), int(words[0])
    except (OSError, ValueError, IndexError):
        return None


def _wrote(path: Path) -> int:
    """`wchar`, which does not include sockets.  0 if it is hidden from us."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    counts = (line.partition(":")[2] for line in lines if line.startswith("wchar:"))
    return int(next(counts, "0"))
