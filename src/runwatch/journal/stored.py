"""How far a head has a journal, as the process that writes it may know.

Its agent notes it in a file `stored` beside the segments: the position, in decimal.  A writer that
drops its oldest segments to stay within its budget then counts as lost only what nobody has, and a
process that ends may wait for its last words to be there.  Whether the head is there at all the
agent notes in `agent/<host>.head`.
"""

from __future__ import annotations

import contextlib
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
    """Once for each segment is enough, unless somebody waits for the end of it; a disk that is
    full hears of it later."""
    noted = stored_in(directory)
    if noted == reached or not exactly and noted >> 32 == reached >> 32:
        return
    with contextlib.suppress(OSError), journal_folder(directory) as folder:
        folder.write(STORED, str(reached).encode(), give=True)


def stored_in(directory: Path) -> Position:
    """What was noted last; `START` if nothing was."""
    try:
        with journal_folder(directory) as folder:
            return Position(int(folder.text(STORED, _LONGEST)))
    except (OSError, ValueError):
        return START


def note_head(root: Path, host: str, there: bool | None) -> None:
    """Whether the head answers the agent of this host; None: it is not known."""
    with contextlib.suppress(OSError), shelf(root, _AGENTS) as folder:
        if there is None:
            folder.remove(_head_note(host))
        else:
            folder.write(_head_note(host), b"connected" if there else _AWAY.encode())


def has_head(root: Path, host: str) -> bool | None:
    """Whether the head answers the agent of this host; None: that is not known."""
    try:
        with shelf(root, _AGENTS) as folder:
            return folder.text(_head_note(host), _LONGEST) != _AWAY
    except OSError:
        return None


def _head_note(host: str) -> str:
    return f"{safe_name(host)}.head"


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
