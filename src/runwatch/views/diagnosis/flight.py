"""Reads the dumps of torch's flight recorder: the last collectives that a rank called.

A dump is a pickled dict (`TORCH_FR_DUMP_TEMP_FILE`, `TORCH_NCCL_DEBUG_INFO_TEMP_FILE`) or the same
as JSON.  Each rank numbers the collectives of one process group in the order of its calls.  A rank
that lacks a number which the others have is the one that they wait for.
"""

from __future__ import annotations

import io
import json
import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runwatch.errors import RunwatchError

MOST_BYTES: Final = 64 * 2**20
_FIXED: Final[Mapping[int, int]] = {
    **dict.fromkeys(b".(N0\x88\x89]ae)t\x85\x86\x87}su\x94", 0),
    **dict.fromkeys(b"\x80Khq", 1),  # protocol, small integer, recall, remember
    **dict.fromkeys(b"M", 2),
    **dict.fromkeys(b"Jjr", 4),  # integer, recall, remember
    **dict.fromkeys(b"G\x95", 8),  # float, frame
}
"""Opcodes of plain values, and how many bytes follow."""
_COUNTED: Final[Mapping[int, int]] = {ord("X"): 4, 0x8C: 1, 0x8D: 8, 0x8A: 1}
"""Text and long integers: how many bytes their length takes."""
_REMEMBER_FAR: Final = ord("r")
_DONE: Final = frozenset(("completed",))


class UnreadableDump(RunwatchError):
    """Not a flight recorder's dump, or not one that can be read safely."""


@dataclass(frozen=True, slots=True)
class Call:
    """One collective, as one rank called it."""

    sequence: int
    operation: str
    """`all_reduce`; without the name of the library."""
    sizes: str
    where: str
    """`train.py:88`, if the recorder was told to keep stacks."""
    done: bool


@dataclass(frozen=True, slots=True)
class GroupTrace:
    """One process group in one rank's dump."""

    name: str
    ranks: tuple[int, ...]
    """Empty where the dump does not say."""
    enqueued: int
    completed: int
    calls: Mapping[int, Call]


@dataclass(frozen=True, slots=True)
class Trace:
    version: str
    groups: Mapping[str, GroupTrace]


@dataclass(frozen=True, slots=True)
class Finding:
    """The first collective of a group at which its ranks differ."""

    group: str
    sequence: int
    operation: str
    missing: tuple[int, ...] = ()
    """Ranks that never called it, though others did."""
    different: tuple[int, ...] = ()
    """The minority of ranks that called something else in its place."""
    calls: Mapping[int, Call] | None = None
    decided: bool = True
    """Whether these ranks are a clear minority, and every rank has dumped."""

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.missing or self.different


# ── one dump ───────────────────────────────────────────────────────────────────────────────────


class _Plain(pickle.Unpickler):
    """A dump has plain values only: whatever names a class is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise UnreadableDump(f"the dump names {module}.{name}: only plain values are read")


def _check(dump: bytes) -> None:
    """Before anything is loaded: a few bytes could ask for a class, or for all memory."""
    at = 0
    while at < len(dump):
        opcode, at = dump[at], at + 1
        if opcode in _COUNTED:
            width = _COUNTED[opcode]
            at += width + int.from_bytes(dump[at : at + width], "little")
        elif opcode not in _FIXED:
            raise UnreadableDump(f"the dump has opcode {opcode:#x}: only plain values are read")
        elif opcode == _REMEMBER_FAR and int.from_bytes(dump[at : at + 4], "little") > len(dump):
            raise UnreadableDump("the dump counts more values than it has bytes: it is damaged")
        else:
            at += _FIXED[opcode]


def read(dump: bytes) -> Trace:
    """A dump of either form."""
    if len(dump) > MOST_BYTES:
        raise UnreadableDump(f"a dump of {len(dump)} bytes; {MOST_BYTES} are read at most")
    return trace(_loads(dump))


def _loads(dump: bytes) -> Any:
    if dump.lstrip()[:1] == b"{":
        try:
            return json.loads(dump)
        except (ValueError, RecursionError) as error:
            raise UnreadableDump(f"not JSON: {error}") from error
    try:
        _check(dump)
        return _Plain(io.BytesIO(dump)).load()
    except UnreadableDump:
        raise
    # A damaged pickle may raise any of these; Python documents no shorter list.
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ImportError,
        MemoryError,
        OverflowError,
        RecursionError,
    ) as error:
        raise UnreadableDump(f"not a flight recorder's dump: {error}") from error


def trace(plain: Any) -> Trace:
    if not isinstance(plain, Mapping) or not isinstance(plain.get("entries", []), list):
        raise UnreadableDump("not a flight recorder's dump: no list of entries")
    calls: dict[str, dict[int, Call]] = defaultdict(dict)
    for entry in plain.get("entries", []):
        if isinstance(entry, Mapping) and not entry.get("is_p2p"):
            name, call = _call(entry)
            calls[name][call.sequence] = call
    status, config = _mapping(plain.get("pg_status")), _mapping(plain.get("pg_config"))
    names = set(calls) | set(map(str, status))
    groups = {name: _group(name, calls[name], status.get(name), config) for name in names}
    return Trace(str(plain.get("version", "")), groups)


def _call(entry: Mapping[str, Any]) -> tuple[str, Call]:
    group = entry.get("process_group")
    name = str(group[0]) if isinstance(group, list | tuple) and group else "0"
    done = str(entry.get("state")) in _DONE or entry.get("retired") is True
    return name, Call(
        sequence=_int(entry.get("collective_seq_id")),
        operation=str(entry.get("profiling_name", "")).rpartition(":")[2].lstrip("_"),
        sizes=json.dumps(entry.get("input_sizes"), default=str),
        where=_where(entry.get("frames")),
        done=done,
    )


def _where(frames: Any) -> str:
    """The innermost line outside of libraries."""
    for frame in frames if isinstance(frames, list | tuple) else ():
        if isinstance(frame, Mapping):
            file = str(frame.get("filename", ""))
            if "-packages/" not in file and "/lib/python3" not in file:
                return f"{file.rpartition('/')[2]}:{_int(frame.get('line'))}"
    return ""


def _group(
    name: str, calls: Mapping[int, Call], status: Any, config: Mapping[str, Any]
) -> GroupTrace:
    status = _mapping(status)
    seen = max(calls, default=-1)
    done = max((sequence for sequence, call in calls.items() if call.done), default=-1)
    members = _mapping(config.get(name)) or _mapping(config.get(""))
    return GroupTrace(
        name=name,
        ranks=_ranks(members.get("ranks")),
        enqueued=max(_int(status.get("last_enqueued_collective", -1)), seen),
        completed=max(_int(status.get("last_completed_collective", -1)), done),
        calls=calls,
    )


def _ranks(value: Any) -> tuple[int, ...]:
    """Torch writes the list as text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return ()
    if not isinstance(value, list):
        return ()
    return tuple(rank for rank in value if isinstance(rank, int))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _int(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return -1


# ── all of them ────────────────────────────────────────────────────────────────────────────────


def compare(traces: Mapping[int, Trace]) -> list[Finding]:
    """Where the ranks differ, group by group; empty if they do not, or if too few have dumped."""
    groups: dict[tuple[str, tuple[int, ...]], dict[int, GroupTrace]] = defaultdict(dict)
    for rank, one_trace in traces.items():
        for group in one_trace.groups.values():
            groups[group.name, group.ranks][rank] = group
    findings = []
    for (name, _), members in sorted(groups.items()):
        if len(members) > 1 and (finding := _part(name, members)) is not None:
            findings.append(finding)
    return findings


def _part(name: str, members: Mapping[int, GroupTrace]) -> Finding | None:
    return _different(name, members) or _missing(name, members)


def _missing(name: str, members: Mapping[int, GroupTrace]) -> Finding | None:
    """Ranks that never called the first collective that is not done, though others did."""
    due = max(group.completed for group in members.values()) + 1
    behind = tuple(sorted(rank for rank, group in members.items() if group.enqueued < due))
    if not behind or len(behind) == len(members):
        return None
    calls = {rank: group.calls[due] for rank, group in members.items() if due in group.calls}
    operation = _commonest(call.operation for call in calls.values())
    decided = _all_dumped(members) and len(behind) * 2 <= len(members)
    return Finding(name, due, operation, missing=behind, calls=calls, decided=decided)


def _all_dumped(members: Mapping[int, GroupTrace]) -> bool:
    """Whether every rank of the group has dumped: one that has not may be the one to blame."""
    ranks = next(iter(members.values())).ranks
    return set(ranks) <= set(members)


def _different(name: str, members: Mapping[int, GroupTrace]) -> Finding | None:
    """The first number at which ranks called different things."""
    shared = set.intersection(*(set(group.calls) for group in members.values()))
    for sequence in sorted(shared):
        calls = {rank: group.calls[sequence] for rank, group in members.items()}
        kinds = Counter((call.operation, call.sizes) for call in calls.values())
        if len({operation for operation, _ in kinds}) > 1:
            kinds = Counter((call.operation, "") for call in calls.values())
        elif len(kinds) == 1 or not _must_agree(next(iter(kinds))[0]):
            continue
        by_name = len({operation for operation, _ in kinds}) > 1
        return _odd(name, sequence, calls, by_name, _all_dumped(members))
    return None


def _odd(
    name: str, sequence: int, calls: Mapping[int, Call], by_name: bool, all_dumped: bool
) -> Finding:
    def kind(call: Call) -> str:
        return call.operation if by_name else call.sizes

    most = _commonest(kind(call) for call in calls.values())
    odd = tuple(sorted(rank for rank, call in calls.items() if kind(call) != most))
    operation = _commonest(call.operation for r, call in calls.items() if r not in odd)
    return Finding(
        name,
        sequence,
        operation,
        different=odd,
        calls=calls,
        decided=len(calls) >= 3 and len(odd) * 2 <= len(calls) - len(odd) and all_dumped,
    )


def _must_agree(operation: str) -> bool:
    return operation.lower().replace("_", "").startswith("allreduce")


def _commonest(names: Iterable[str]) -> str:
    commonest = Counter(names).most_common(1)
    return commonest[0][0] if commonest else ""
