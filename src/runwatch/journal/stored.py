"""Files that tell a recording process how far the head has stored its journal.

The agent writes the position, in decimal, to a file `stored` beside the segments.  A writer that
drops its oldest segments to stay within its budget then counts only records that no head has.  A
process that ends can wait until its last records are stored.  The agent also notes in
`agent/<host>.head` whether its own head answers, and in a file for each head that journals name.
"""

from __future__ import annotations

import contextlib
import zlib
from pathlib import Path
from typing import Final

from runwatch.files import journal_folder, safe_name, shelf
from runwatch.journal.segment import HEADER_LENGTH, segment_name
from runwatch.record import START, Position

STORED: Final = "stored"
_AWAY: Final = "away"
_AGENTS: Final = "agent"
_LONGEST: Final = 100


def note_stored(directory: Path, reached: Position, *, exactly: bool = False) -> None:
    """Write the position, normally once per segment; `exactly`, for a process that waits for its
    end, always.  On a full disk nothing is written; a later call tries again."""
    noted = stored_in(directory)
    if noted == reached or not exactly and noted >> 32 == reached >> 32:
        return
    with contextlib.suppress(OSError), journal_folder(directory) as folder:
        folder.write(STORED, str(reached).encode(), give=True)


def stored_in(directory: Path) -> Position:
    """The position noted last; `START` if there is none."""
    try:
        with journal_folder(directory) as folder:
            return Position(int(folder.text(STORED, _LONGEST)))
    except (OSError, ValueError):
        return START


def note_head(root: Path, host: str, answers: bool | None, place: str = "") -> None:
    """Note whether a head answers the agent of this host; None removes the note.  `place`: the head
    that journals name; empty: the agent's own."""
    with contextlib.suppress(OSError), shelf(root, _AGENTS) as folder:
        if answers is None:
            folder.remove(_head_note(host, place))
        else:
            folder.write(_head_note(host, place), b"connected" if answers else _AWAY.encode())


def forget_heads(root: Path, host: str) -> None:
    """Remove all these notes."""
    with contextlib.suppress(OSError), shelf(root, _AGENTS) as folder:
        own, others = _head_note(host), f"{safe_name(host)}@"
        for name in folder.names():
            if name == own or name.startswith(others) and name.endswith(".head"):
                with contextlib.suppress(OSError):
                    folder.remove(name)


def has_head(root: Path, host: str, place: str = "") -> bool | None:
    """Whether the head answers the agent of this host; None if that is not known."""
    try:
        with shelf(root, _AGENTS) as folder:
            return folder.text(_head_note(host, place), _LONGEST) != _AWAY
    except OSError:
        return None


def _head_note(host: str, place: str = "") -> str:
    which = f"@{zlib.crc32(place.encode(errors='replace')):08x}" if place else ""
    return f"{safe_name(host)}{which}.head"


def count_unseen(directory: Path, index: int, records: int, reached: Position) -> int:
    """How many of a segment's `records` no head has, if a head has everything before `reached`."""
    segment, offset = reached >> 32, reached & 0xFFFFFFFF
    if index != segment or offset <= HEADER_LENGTH:
        return 0 if index < segment else records
    from runwatch.journal.reader import count_records  # seldom needed, and slow to import

    try:
        return count_records(directory / segment_name(index), offset)
    except OSError:
        return 0
