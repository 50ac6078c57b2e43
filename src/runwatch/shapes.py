"""What a record must look like: the door through which everything from a journal or the wire comes.

Who may write a journal, or reach a port, may write anything into it: right checksums say that the
bytes are those that were written, and nothing of what they mean.  So types, ranges, lengths and
counts are checked once, here, before anything else sees a record; behind the door `body["rank"]`
is a number.  What is wrong is named in words, and set aside by who asked (`Rejected` counts them).

A kind or a field that is not listed passes, so that a newer writer can be read, as long as it is
bounded like everything else; `null` stands for a field that is not there.  Points and spans are
typed columns already: nothing is asked of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from runwatch.record import Batch, Definition, Event, Origin, RunScope, Series, Spans

LONGEST_BODY: Final = 0xFFFF * 8
"""Bytes of JSON: no journal holds a longer record."""
DEEPEST: Final = 24
MOST_ITEMS: Final = 100_000
"""Of everything in a body, counted together."""
MOST_RANKS: Final = 1 << 20
LATEST_NS: Final = 1 << 62
"""In the year 2116; also what two times may differ by."""
MOST_LABELS: Final = 256
MOST_KINDS: Final = 64
"""Of refused records, told apart in one batch."""
GAP: Final = "journal_gap"

_NAME: Final = 4_096
_TEXT: Final = 1 << 16
_JOURNAL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,199}", re.ASCII)
_ROLES: Final = ("process", "child", "agent")
_INT64: Final = 1 << 63
_UINT32: Final = 1 << 32

_FEW: Final = 100
_PLAIN: Final = frozenset((str, float, bool, type(None)))

Check = Callable[[Any], str]
"""What a value has to be, in words, if it is not that; "" if it is."""


def whole(low: int, high: int) -> Check:
    wanted = f"a whole number from {low} to {high}"
    return lambda value: "" if type(value) is int and low <= value <= high else wanted


def number(low: float = -1e18, high: float = 1e18) -> Check:
    def check(value: Any) -> str:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        return "" if fits and low <= value <= high else f"a number from {low:g} to {high:g}"

    return check


def text(longest: int) -> Check:
    wanted = f"a text of up to {longest} characters"
    return lambda value: "" if isinstance(value, str) and len(value) <= longest else wanted


def printable(longest: int) -> Check:
    """Without lone surrogates and control characters: no message can hold the first, and no
    terminal should see the second."""
    wanted = f"a printable text of up to {longest} characters"
    is_text = text(longest)
    return lambda value: "" if not is_text(value) and value.isprintable() else wanted


def flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "true or false"


def many(each: Check, most: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, list) or len(value) > most:
            return f"a list of up to {most}"
        wrong = next(filter(None, map(each, value)), "")
        return wrong and f"a list, each of it {wrong}"

    return check


def mapped(each: Check, most: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, dict) or len(value) > most:
            return f"an object of up to {most}"
        wrong = next(filter(None, map(each, value.values())), "")
        return wrong and f"an object, each of it {wrong}"

    return check


def either(*checks: Check) -> Check:
    def check(value: Any) -> str:
        wrong = [each(value) for each in checks]
        return " or ".join(wrong) if all(wrong) else ""

    return check


def fields(**of: Check) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, dict):
            return "an object"
        for name, each in of.items():
            found = value.get(name)
            if found is not None and (wrong := each(found)):
                return f"an object whose {name} is {wrong}"
        return ""

    return check


# ── events ─────────────────────────────────────────────────────────────────────────────────────

NAME: Final = text(_NAME)
TEXT: Final = text(_TEXT)
RANK: Final = whole(-1, MOST_RANKS)
COUNT: Final = whole(0, LATEST_NS)
TIME: Final = whole(0, LATEST_NS)
OFFSET: Final = whole(-LATEST_NS, LATEST_NS)
STEP: Final = whole(-_INT64, _INT64 - 1)
SECONDS: Final = number(-1e10, 1e10)
NAMES: Final = many(NAME, 10_000)
TEXTS: Final = many(TEXT, 10_000)
ANYTHING: Final = mapped(lambda _: "", MOST_ITEMS)

_FRAMES: Final = many(fields(function=TEXT, file=TEXT, line=whole(-1, 1 << 31)), 10_000)
_TASKS: Final = many(fields(name=TEXT, awaits=TEXTS, frames=_FRAMES), 10_000)
_THREADS: Final = many(
    fields(name=TEXT, native_id=COUNT, ident=COUNT, frames=_FRAMES, tasks=_TASKS), 10_000
)
_CAPTURED: Final = fields(
    host=NAME, node=NAME, rank=RANK, pid=COUNT, way=NAME, state=NAME, why=TEXT, framework=NAME,
    files=NAMES, bytes=COUNT, start_ns=TIME, end_ns=TIME, directory=NAME, startup_ms=COUNT,
    early_ms=COUNT,
)  # fmt: skip
_DEVICE: Final = {"device": NAME, "uuid": NAME, "name": NAME, "why": TEXT, "collector": NAME}
_SESSION: Final = {"id": NAME, "name": NAME, "why": TEXT}

BODIES: Final[Mapping[str, Mapping[str, Check]]] = {
    "run_start": {
        "run": NAME, "name": NAME, "group": NAME, "rank": RANK, "local_rank": RANK,
        "world_size": whole(0, MOST_RANKS), "attempt_key": NAME, "orchestrator": NAME,
        "argv": TEXTS, "cwd": TEXT, "python": NAME, "executable": TEXT, "user": NAME,
        "queued_at_ns": TIME, "imported": flag,
    },
    "run_end": {
        "status": NAME, "explicit": flag, "done": flag, "reason": TEXT,
        "exception": either(TEXT, fields(type=TEXT, message=TEXT)),
    },
    "process_exit": {
        "journal": NAME, "pid": COUNT, "code": OFFSET, "signal": either(OFFSET, NAME),
        "core_dumped": flag, "oom": flag, "lived_ns": TIME, "fault": NAME,
    },
    "fork": {"parent_journal": NAME, "parent_pid": COUNT, "detached": flag},
    "config": {"part": NAME, "values": ANYTHING},
    "log": {"name": TEXT},
    "elapsed": {"name": NAME, "seconds": SECONDS, "ago_seconds": SECONDS, "source": NAME},
    "goodput_entry": {"logger": NAME, "entry": ANYTHING},
    "warning": {"what": TEXT, "count": COUNT},
    "clock_jump": {"seconds": number()},
    "journal_loss": {"dropped_records": COUNT, "lost_records": COUNT},
    GAP: {"reason": TEXT, "up_to_segment": COUNT, "records": COUNT, "bytes": COUNT},
    "job_queued": {
        "journal": NAME, "by": NAME, "job": NAME, "queued_at_ns": TIME, "granted_at_ns": TIME,
    },
    "queue_unknown": {"journal": NAME, "by": NAME, "job": NAME, "why": TEXT, "tries": COUNT},
    "journal_aside": {"journal": NAME, "why": TEXT, "version": NAME, "state": NAME},
    "records_skipped": {"records": COUNT, "start": STEP, "end": STEP},
    "profile": {
        "session": NAME, "state": NAME, "why": TEXT, "framework": NAME, "frameworks": NAMES,
        "files": NAMES, "directory": TEXT, "bytes": COUNT, "start_ns": TIME, "end_ns": TIME,
        "first_step": STEP, "last_step": STEP, "origin": NAME, "command": NAME,
        "problems": TEXTS, "rank": RANK, "host": NAME, "pid": COUNT, "run": NAME, "way": NAME,
    },
    "profile_deleted": {"run": NAME, "session": NAME},
    "stacks": {
        "pid": COUNT, "rank": RANK, "host": NAME, "time_ns": TIME, "how": NAME, "state": NAME,
        "fault": NAME, "incident": NAME, "command": NAME, "round": whole(0, 1 << 31),
        "problems": TEXTS, "threads": _THREADS,
    },
    "incident": {
        "id": NAME, "kind": NAME, "state": NAME, "since_ns": TIME, "detected_ns": TIME,
        "named_ns": TIME, "closed_ns": TIME, "why": TEXT, "text": TEXT, "confidence": NAME,
        "severity": NAME, "ranks": many(RANK, MOST_RANKS), "rounds": COUNT,
        "report": ANYTHING,
    },
    "session_start": {
        **_SESSION, "period_ns": whole(1, LATEST_NS), "bandwidth": flag, "nvlink": flag,
        "metrics": NAMES,
    },
    "session_stop": _SESSION,
    "session_resume": _SESSION,
    "session_clock": {"host": NAME, "ahead_ns": OFFSET},
    "capture": {
        "session": NAME, "command": NAME, "start_ns": TIME, "duration_ms": whole(0, 10**9),
        "steps": whole(0, 10**9), "hosts": NAMES, "unreachable": mapped(TEXT, 10_000),
        "ahead_ns": mapped(OFFSET, 10_000), "processes": many(_CAPTURED, 10_000),
    },
    "command_result": {
        "command": NAME, "kind": NAME, "host": NAME, "state": NAME, "why": TEXT,
        "took_ms": COUNT, "looked": COUNT,
        "processes": either(COUNT, many(_CAPTURED, 10_000)),
    },
    "agent_start": {"pid": COUNT, "version": NAME},
    "agent_end": {"pid": COUNT, "why": TEXT},
    "collector_failed": {"collector": NAME, "error": TEXT},
    "collector_stuck": _DEVICE,
    "collector_resumed": _DEVICE,
    "device_owner": {**_DEVICE, "how": NAME},
    "device_added": _DEVICE,
    "device_lost": _DEVICE,
    "device_unreadable": _DEVICE,
    "gpu_xid": {**_DEVICE, "xid": COUNT, "meaning": TEXT},
}  # fmt: skip
"""What is read of each kind of event, somewhere behind the door."""


def event_problem(event: Event) -> str:
    """What is wrong with an event; "" if nothing is."""
    if not 0 <= event.time_ns <= LATEST_NS:
        return f"its time is not {TIME(None)}"
    if len(event.kind) > _NAME:
        return f"its kind is not {NAME(None)}"
    body: Any = event.body
    if not isinstance(body, dict):
        return "its body is not an object"
    if wrong := _excess(body):
        return wrong
    wanted = BODIES.get(event.kind)
    return "" if wanted is None else _wrong(body, wanted)


def _wrong(found: Mapping[str, Any], wanted: Mapping[str, Check]) -> str:
    for name, check in wanted.items():
        value = found.get(name)
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
            elif type(each) is int and not -_INT64 <= each < 2 * _INT64:
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
    "pid_namespace": whole(0, _INT64 - 1),
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


_REFUSED: Final = "refused: "


def refused_records(event: Event) -> int:
    """How many records an event says to have been set aside at a door."""
    if event.kind != GAP or not str(event.body.get("reason")).startswith(_REFUSED):
        return 0
    records = event.body.get("records")
    return records if isinstance(records, int) else 1


class Rejected:
    """Counts what was set aside of one batch, by what was wrong: a flood of them is few words."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, what: str, problem: str) -> None:
        reason = f"{_REFUSED}{what[:80]!r}: {problem[:300]}"
        if reason not in self._counts and len(self._counts) >= MOST_KINDS:
            reason = f"{_REFUSED}other records that are not what they must be"
        self._counts[reason] = self._counts.get(reason, 0) + 1

    def tell(self, batch: Batch, time_ns: int) -> None:
        """In the batch itself, each cause once: a gap is never silent."""
        # A process defines its run first, as 1: so the gap is seen with the run that it is in.
        scope = 0 if batch.origin.role == "agent" else 1
        for reason, count in self._counts.items():
            body = {"reason": reason, "records": count}
            batch.events.append(Event(time_ns, GAP, body, scope=scope))
            batch.skipped_records += count
