"""The fold of a run as bytes, and back: a head saves it and later goes on from it.

    4 bytes   how long the text is, the least byte first
    text      JSON; a column of numbers is {"column": type code, "bytes": how many}
    columns   one after the other, in the order of the text, the least byte first

A ledger makes its own state (`state`, `of_state`); this module adds the state of a scribe.
A fold made by other code cannot be continued, so every state names its rules.
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
_PACKAGE: Final = Path(__file__).parents[2]
_SOURCES: Final = (
    "entries.py", "errors.py", "record", "rows.py", "vectors.py", "views/attempts.py",
    "views/devices.py", "views/goodput", "views/life.py", "views/pace.py", "views/pods.py",
    "views/runs.py", "views/times.py",
)  # fmt: skip
"""Files and folders of the package that decide an account's numbers: this folder and all that its
modules import."""


@cache
def rules() -> str:
    """A digest of the code that makes accounts.  Other code may make other numbers."""
    return rules_of(_PACKAGE)


def rules_of(package: Path) -> str:
    """The digest for the `runwatch` package that lies in this folder."""
    digest = hashlib.sha256()
    for path in sources(package):
        name = path.relative_to(package).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def sources(package: Path) -> list[Path]:
    """In an order that is the same on every machine."""
    paths = [package / source for source in _SOURCES]
    folders = [path.rglob("*.py*") for path in paths if path.is_dir()]
    files = [path for path in paths if path.is_file()]
    inner = [path for folder in folders for path in folder if path.is_file()]
    return sorted(path for path in (*files, *inner) if path.parent.name != "__pycache__")


# ── bytes ──────────────────────────────────────────────────────────────────────────────────────


def packed(state: Any) -> bytes:
    """Columns are copied as bytes: a million steps take a tenth of a second."""
    columns: list[bytes] = []

    def column(value: object) -> dict[str, Any]:
        if not isinstance(value, array) or value.typecode not in _CODES:
            raise TypeError(f"cannot save {type(value).__name__}")
        columns.append(_ordered(value).tobytes())
        return {"column": value.typecode, "bytes": len(columns[-1])}

    text = json.dumps(state, default=column).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *columns])


def unpacked(saved: bytes) -> Any:
    """Raises ValueError for bytes that `packed` did not make."""
    view = memoryview(saved)
    if len(view) < _LENGTH.size:
        raise ValueError("too short for a saved fold")
    at = _LENGTH.size + int(_LENGTH.unpack_from(view)[0])

    def column(value: dict[str, Any]) -> Any:
        nonlocal at
        if value.keys() != {"column", "bytes"}:
            return value
        code, size = value["column"], value["bytes"]
        if code not in _CODES or not 0 <= size <= len(view) - at:
            raise ValueError("a column is missing or cut short")
        numbers: array[int] = array(code)
        numbers.frombytes(view[at : at + size])
        at += size
        return _ordered(numbers)

    state = json.loads(bytes(view[_LENGTH.size : at]), object_hook=column)
    if at != len(view):
        raise ValueError("bytes are left over after the last column")
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
            [name, _journal_state(scribe.ledger, journal)]
            for name, journal in scribe._journals.items()
        ]
    }


def scribe_of_state(run: RunId, ledger: Ledger, state: dict[str, Any]) -> Scribe:
    """The scribe that wrote this ledger."""
    scribe = Scribe(run, ledger)
    for name, saved in state["journals"]:
        scribe._journals[JournalId(name)] = _journal_of_state(ledger, saved)
    return scribe


def _journal_state(ledger: Ledger, journal: _Journal) -> dict[str, Any]:
    attempt = ledger.attempts.get((journal.attempt, 0))
    mine = None if attempt is None else attempt.tracks.get(journal.track.key)
    return {
        "key": journal.track.key,
        # The track of a process that records its own starts belongs to no attempt.
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
