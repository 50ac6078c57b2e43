"""How far a head has a journal, as the process that writes it may know.

Its agent notes it in a file `stored` beside the segments: the position, in decimal.  A writer that
drops its oldest segments to stay within its budget then counts as lost only what nobody has, and a
process that ends may wait for its last words to be there.  Whether the head is there at all the
agent notes in `agent/<host>.head`.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from runwatch.journal.segment import HEADER_LENGTH, segment_name
from runwatch.record import START, Position

STORED: Final = "stored"
_AWAY: Final = "away"


def note_stored(directory: Path, reached: Position, *, exactly: bool = False) -> None:
    """Once for each segment is enough, unless somebody waits for the end of it; a disk that is
    full hears of it later."""
    noted = stored_in(directory)
    if noted == reached or not exactly and noted >> 32 == reached >> 32:
        return
    _write(directory / STORED, str(reached))


def _write(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.tmp")
    with contextlib.suppress(OSError):
        part.write_text(text)
        os.replace(part, path)


def stored_in(directory: Path) -> Position:
    """What was noted last; `START` if nothing was."""
    try:
        return Position(int((directory / STORED).read_text()))
    except (OSError, ValueError):
        return START


def note_head(root: Path, host: str, there: bool | None) -> None:
    """Whether the head answers the agent of this host; None: it is not known."""
    path = _head_note(root, host)
    if there is None:
        with contextlib.suppress(OSError):
            path.unlink()
    else:
        _write(path, "connected" if there else _AWAY)


def has_head(root: Path, host: str) -> bool | None:
    """Whether the head answers the agent of this host; None: that is not known."""
    try:
        return _head_note(root, host).read_text() != _AWAY
    except OSError:
        return None


def _head_note(root: Path, host: str) -> Path:
    safe = "".join(c if c.isalnum() or c in "-." else "-" for c in host)[:100]
    return root / "agent" / f"{safe.lstrip('.') or 'host'}.head"


def count_unseen(directory: Path, index: int, records: int, reached: Position) -> int:
    """How many of the records of a segment no head has, if it has all before `reached`."""
    segment, offset = reached >> 32, reached & 0xFFFFFFFF
    if index != segment or offset <= HEADER_LENGTH:
        return 0 if index < segment else records
    from runwatch.journal.reader import count_records  # seldom needed, and import is dear

    try:
        return count_records(directory / segment_name(index), offset)
    except OSError:
        return 0
