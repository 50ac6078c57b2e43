"""What a record must look like: the door through which everything from a journal or the wire comes.

Anybody who can write a journal, or reach a port, can write anything into it.  A right checksum only
says that the bytes are the ones that were written.  So types, ranges, lengths and counts are
checked once, here, before other code sees a record.  A wrong record is set aside alone, with words
that say what is wrong (`Rejected` counts them).

A kind or a field that is not listed passes, so that a newer writer can be read.  It is bounded like
everything else.  A null stands for a field that is not there.  Points and spans are typed columns:
nothing is asked of each one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from runwatch.record.base import Batch, Definition, Event, Origin, RunScope, Series, Spans
from runwatch.record.checks import (
    COUNT,
    INT64,
    LATEST_NS,
    LONGEST_NAME,
    MOST_ITEMS,
    MOST_RANKS,
    NAME,
    RANK,
    TEXT,
    TIME,
    Check,
    mapped,
    printable,
    whole,
)
from runwatch.record.kinds import EVENTS
from runwatch.record.losses import JournalGap
from runwatch.record.message import checks_of

LONGEST_BODY: Final = 0xFFFF * 8
"""Bytes of JSON.  No journal holds a longer record."""
DEEPEST: Final = 24
MOST_LABELS: Final = 256
MOST_KINDS: Final = 64
"""Different reasons that are counted apart in one batch."""

_JOURNAL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,199}", re.ASCII)
_ROLES: Final = ("process", "child", "agent", "launcher")
_UINT32: Final = 1 << 32
_FEW: Final = 100
_PLAIN: Final = frozenset((str, float, bool, type(None)))

# ── events ─────────────────────────────────────────────────────────────────────────────────────

BODIES: Final[Mapping[str, Mapping[str, Check]]] = {
    message.KIND: checks_of(message) for message in EVENTS
}


def event_problem(event: Event) -> str:
    """What is wrong with an event; "" if nothing is."""
    if not 0 <= event.time_ns <= LATEST_NS:
        return f"its time is not {TIME(None)}"
    if len(event.kind) > LONGEST_NAME:
        return f"its kind is not {NAME(None)}"
    body: Any = event.body
    if not isinstance(body, dict):
        return "its body is not an object"
    if wrong := _excess(body):
        return wrong
    checks = BODIES.get(event.kind)
    return "" if checks is None else _wrong(body, checks)


def _wrong(body: Mapping[str, Any], checks: Mapping[str, Check]) -> str:
    for name, check in checks.items():
        value = body.get(name)
        if value is not None and (wrong := check(value)):
            return f"its {name} is not {wrong}"
    return ""


def _excess(body: Any) -> str:
    """Whether there is more in it than anybody needs; layer by layer, never deeper than allowed."""
    if len(body) < _FEW and _PLAIN.issuperset(map(type, body.values())):
        return ""  # most are
    layer, items = [body], 1
    for _ in range(DEEPEST):
        below: list[Any] = []
        for each in layer:
            if isinstance(each, dict):
                below += each.values()
            elif isinstance(each, list):
                below += each
            elif type(each) is int and not -INT64 <= each < 2 * INT64:
                return "a number in it has more than 64 bits"
        items += len(below)
        if items > MOST_ITEMS:
            return f"there are more than {MOST_ITEMS} things in it"
        if not below:
            return ""
        layer = below
    return f"it is deeper than {DEEPEST}"


# ── origins and definitions ────────────────────────────────────────────────────────────────────


def origin_problem(origin: Origin) -> str:
    """What is wrong with who says to have written a journal; "" if nothing is."""
    journal: Any = origin.journal
    if not isinstance(journal, str) or not _JOURNAL.fullmatch(journal):
        return "its id is no journal's"
    if not is_host_name(origin.host):
        return "its host is no name of one"
    for name, check in _ORIGIN.items():
        if wrong := check(getattr(origin, name)):
            return f"its {name} is not {wrong}"
    return ""


def is_host_name(given: Any) -> bool:
    """It may become part of a path, or of a line on a terminal; "" stands for one not known."""
    if not isinstance(given, str) or len(given) > 255:
        return False
    return not given.startswith(".") and "/" not in given and given.isprintable()


_ORIGIN: Final[Mapping[str, Check]] = {
    "pid": whole(0, (1 << 31) - 1),
    "start_ns": TIME,
    "boot": printable(256),
    "process_start_ticks": COUNT,
    "role": lambda value: "" if value in _ROLES else "one of " + ", ".join(_ROLES),
    "version": printable(256),
    "pid_namespace": whole(0, INT64 - 1),
}
_RUN: Final[Mapping[str, Check]] = {
    "run": NAME,
    "name": NAME,
    "rank": RANK,
    "world_size": whole(0, MOST_RANKS),
    "attempt_key": NAME,
    "group": NAME,
}
_SERIES: Final[Mapping[str, Check]] = {
    "metric": TEXT,
    "unit": NAME,
    "device": NAME,
    "labels": mapped(TEXT, MOST_LABELS),
}
_LOCAL: Final = whole(0, _UINT32 - 1)


def definition_problem(definition: Definition) -> str:
    """What is wrong with a definition; "" if nothing is."""
    if isinstance(definition, RunScope):
        checks = _RUN
    else:
        if wrong := _LOCAL(definition.scope):
            return f"its scope is not {wrong}"
        checks = _SERIES if isinstance(definition, Series) else {"name": TEXT}
    if wrong := _LOCAL(definition.id):
        return f"its id is not {wrong}"
    for name, check in checks.items():
        if wrong := check(getattr(definition, name)):
            return f"its {name} is not {wrong}"
    return ""


def in_unicode(definition: Definition) -> Definition:
    """Without lone surrogates, which an environment may hold and no message can."""
    changed: dict[str, Any] = {}
    for name in definition.__slots__:
        value = getattr(definition, name)
        if isinstance(value, str):
            if not value.isascii() and (plain := _plain(value)) != value:
                changed[name] = plain
        elif isinstance(value, dict):
            plain_items = {_plain(key): _plain(item) for key, item in value.items()}
            if plain_items != value:
                changed[name] = plain_items
    return replace(definition, **changed) if changed else definition


def _plain(value: str) -> str:
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def edges_problem(spans: Spans) -> str:
    """Edges are the one column with few values that mean anything."""
    known = spans.edge.count(0) + spans.edge.count(1)
    return "" if known == len(spans.edge) else "an edge is neither a begin nor an end"


# ── what was refused ───────────────────────────────────────────────────────────────────────────


def refused_records(event: Event) -> int:
    """How many records an event says were set aside at a door."""
    if event.kind != JournalGap.KIND:
        return 0
    gap = JournalGap.of(event.body)
    if not gap.reason.startswith(JournalGap.REFUSED):
        return 0
    return 1 if gap.records is None else gap.records


class Rejected:
    """Counts what was set aside of one batch, by what was wrong: a flood of them is few words."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, what: str, problem: str) -> None:
        reason = f"{JournalGap.REFUSED}{what[:80]!r}: {problem[:300]}"
        if reason not in self._counts and len(self._counts) >= MOST_KINDS:
            reason = f"{JournalGap.REFUSED}other records that are not what they must be"
        self._counts[reason] = self._counts.get(reason, 0) + 1

    def tell(self, batch: Batch, time_ns: int) -> None:
        """In the batch itself, each cause once: a gap is never silent."""
        # A process defines its run first, as 1: so the gap is seen with the run that it is in.
        scope = 0 if batch.origin.role == "agent" else 1
        for reason, count in self._counts.items():
            gap = JournalGap(reason, records=count)
            batch.events.append(Event(time_ns, gap.KIND, gap.body(), scope=scope))
            batch.skipped_records += count
