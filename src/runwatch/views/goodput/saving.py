"""The fold of a run as bytes, and back: what a head keeps so as not to begin afresh.

    4 bytes   how long the text is, the least byte first
    text      JSON; a column of numbers is {"column": type code, "bytes": how many}
    columns   one after the other, in the order of the text, the least byte first

A ledger says itself what its state is (`state`, `of_state`); here is that of a scribe beside it.
What other rules than these made cannot be gone on from, so every state names its rules.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from array import array
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

from runwatch.record import JournalId, RunId
from runwatch.views.goodput.books import Books
from runwatch.views.goodput.facts import Diary, Scribe, _Journal, _Sitting
from runwatch.views.goodput.ledger import Attempt, Ledger
from runwatch.views.goodput.steps.track import Track

_LENGTH: Final = struct.Struct("<I")
_CODES: Final = frozenset("qB")


@cache
def rules() -> str:
    """Changes whenever the code does that makes accounts: their numbers might then be others."""
    found = hashlib.sha256()
    for name, path in sorted(_sources(Path(__file__).parent).items()):
        found.update(name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _sources(folder: Path) -> dict[str, Path]:
    """Of the rooms below, too; what Python keeps beside them says nothing new."""
    paths = [path for path in folder.rglob("*.py*") if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): path
        for path in paths
        if "__pycache__" not in path.relative_to(folder).parts
    }


# ── bytes ──────────────────────────────────────────────────────────────────────────────────────


def packed(state: Any) -> bytes:
    """Columns are taken over as they are: a million steps take a tenth of a second."""
    columns: list[bytes] = []

    def column(value: object) -> dict[str, Any]:
        if not isinstance(value, array) or value.typecode not in _CODES:
            raise TypeError(f"cannot save {type(value).__name__}")
        columns.append(_ordered(value).tobytes())
        return {"column": value.typecode, "bytes": len(columns[-1])}

    text = json.dumps(state, default=column).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *columns])


def unpacked(saved: bytes) -> Any:
    """Raises ValueError for what `packed` did not make."""
    view = memoryview(saved)
    if len(view) < _LENGTH.size:
        raise ValueError("too short")
    at = _LENGTH.size + int(_LENGTH.unpack_from(view)[0])

    def column(value: dict[str, Any]) -> Any:
        nonlocal at
        if value.keys() != {"column", "bytes"}:
            return value
        code, size = value["column"], value["bytes"]
        if code not in _CODES or not 0 <= size <= len(view) - at:
            raise ValueError("a column is not there")
        made: array[int] = array(code)
        made.frombytes(view[at : at + size])
        at += size
        return _ordered(made)

    state = json.loads(bytes(view[_LENGTH.size : at]), object_hook=column)
    if at != len(view):
        raise ValueError("there is more than was said")
    return state


def _ordered(column: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return column
    other = column[:]
    other.byteswap()
    return other


# ── scribes ────────────────────────────────────────────────────────────────────────────────────


def scribe_state(scribe: Scribe) -> dict[str, Any]:
    return {
        "journals": [
            [name, _journal_state(scribe.ledger, found)] for name, found in scribe._journals.items()
        ]
    }


def scribe_of_state(run: RunId, ledger: Ledger, state: dict[str, Any]) -> Scribe:
    """Of the ledger that it wrote when it was saved."""
    scribe = Scribe(run, ledger)
    for name, found in state["journals"]:
        scribe._journals[JournalId(name)] = _journal_of_state(ledger, found)
    return scribe


def _journal_state(ledger: Ledger, journal: _Journal) -> dict[str, Any]:
    attempt = ledger.attempts.get((journal.attempt, 0))
    mine = None if attempt is None else attempt.tracks.get(journal.track.key)
    return {
        "key": journal.track.key,
        # A process that tells its own story has a track that is nobody's.
        "loose": None if mine is journal.track else journal.track.state(),
        "attempt": journal.attempt,
        "rank": journal.rank,
        "ahead": journal.ahead_ns,
        "scopes": sorted(journal.scopes),
        "names": list(journal.names.items()),
        "waits": sorted(journal.waits),
        "lags": sorted(journal.lags),
        "entries": [[series, *entry] for series, entry in journal.entries.items()],
        "diary": None if journal.diary is None else _diary_state(journal.diary),
        "imported": journal.imported,
    }


def _journal_of_state(ledger: Ledger, state: dict[str, Any]) -> _Journal:
    at = state["attempt"], 0
    attempt = ledger.attempts.get(at)
    if state["loose"] is None:
        track = ledger.attempts[at].tracks[state["key"]]
    else:
        attempt = attempt or Attempt(at, Books(0))
        track = Track.of_state(state["loose"], *attempt.takers)
    journal = _Journal(
        track,
        state["attempt"],
        state["rank"],
        state["ahead"],
        set(state["scopes"]),
        dict(state["names"]),
        set(state["waits"]),
        set(state["lags"]),
        {series: (what, kind) for series, what, kind in state["entries"]},
        imported=state["imported"],
    )
    if state["diary"] is not None:
        journal.diary = _diary_of_state(ledger, journal, state["diary"])
    return journal


def _diary_state(diary: Diary) -> dict[str, Any]:
    return {
        "native": diary.native is not None,
        "imported": diary.imported,
        "sittings": [
            [*s.attempt, s.rank, s.start_ns, s.track.key, s.said, s.end_ns] for s in diary.sittings
        ],
    }


def _diary_of_state(ledger: Ledger, journal: _Journal, state: dict[str, Any]) -> Diary:
    native = journal.track if state["native"] else None
    diary = Diary(ledger, journal.track.key, journal.attempt, journal.rank, native)
    diary.imported = state["imported"]
    diary.sittings = list(_sittings(ledger, state["sittings"]))
    return diary


def _sittings(ledger: Ledger, saved: Iterable[list[Any]]) -> Iterable[_Sitting]:
    for number, start, rank, start_ns, key, said, end_ns in saved:
        at = number, start
        track = ledger.attempts[at].tracks[key]
        yield _Sitting(at, rank, start_ns, track, said, end_ns)
