"""What a record of a process's life says, read with care: anything may be in it."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from typing import Any

from runwatch.record import JournalId
from runwatch.rows import EventRow, ProcessRow

FORK = "fork"


def heirs(rows: Iterable[ProcessRow], forks: Iterable[EventRow]) -> dict[JournalId, ProcessRow]:
    """Who goes on for a process that left the stage: a child with a session of its own, as a
    program has that puts itself into the background.  Of several, the one heard of last."""
    parents = {event.journal: event.body.get("parent_journal") for event in forks}
    detached = {event.journal for event in forks if event.body.get("detached") is True}
    children = {row.journal: row for row in rows if row.role == "child"}
    found: dict[JournalId, ProcessRow] = {}
    for journal in detached & children.keys():
        parent: Any = parents[journal]
        for _ in range(len(parents)):  # a child's child; what was recorded may be a ring
            if parent not in children:
                break
            parent = parents.get(parent)
        known, child = found.get(parent), children[journal]
        if isinstance(parent, str) and (known is None or known.last_ns < child.last_ns):
            found[JournalId(parent)] = child
    return found


def moment(said: Mapping[str, Any], name: str) -> int | None:
    moment = said.get(name)
    return moment if type(moment) is int else None


def lived_until(process_exit: EventRow) -> int:
    lived = process_exit.body.get("lived_ns")
    return lived if isinstance(lived, int) else process_exit.time_ns


def said_done(end: EventRow | None) -> bool | None:
    """Records of before say whether `finish` was called, and nothing else."""
    if end is None or end.body.get("status") != "completed":
        return False
    done = end.body.get("done", is_explicit(end))
    return done if isinstance(done, bool) else None


def is_explicit(end: EventRow) -> bool:
    return end.body.get("explicit") is True


def is_explained(process_exit: EventRow) -> bool:
    known = signal_of(process_exit) is not None or exit_code_of(process_exit) is not None
    return known or bool(fault_of(process_exit))


def exit_code_of(event: EventRow) -> int | None:
    code = event.body.get("code")
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def signal_of(event: EventRow) -> str | None:
    number: Any = event.body.get("signal")
    if isinstance(number, str) and number:
        return number
    if not isinstance(number, int) or isinstance(number, bool) or not number:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def fault_of(process_exit: EventRow) -> str:
    """The signal of the fault that the process told of itself; "" if of none."""
    fault = process_exit.body.get("fault")
    return fault if isinstance(fault, str) else ""


def words_of(event: EventRow) -> str:
    reason = event.body.get("reason")
    return reason if isinstance(reason, str) else ""


def exception_of(event: EventRow) -> str:
    """An exception may come as text or as {type, message}; a reader wants one line."""
    exception = event.body.get("exception")
    if isinstance(exception, Mapping):
        parts = (exception.get("type"), exception.get("message"))
        exception = ": ".join(str(part) for part in parts if part)
    return exception if isinstance(exception, str) else ""
