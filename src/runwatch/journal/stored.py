"""How far a head has a journal, as the process that writes it may know.

Its agent notes it in a file `stored` beside the segments: the position, in decimal.  A writer that
drops its oldest segments to stay within its budget then counts as lost only what nobody has.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from runwatch.journal.segment import HEADER_LENGTH, segment_name
from runwatch.record import START, Position

STORED: Final = "stored"
_BEING_WRITTEN: Final = "stored.tmp"


def note_stored(directory: Path, reached: Position) -> None:
    """Once for each segment is enough; a disk that is full hears of it later."""
    if stored_in(directory) >> 32 == reached >> 32:
        return
    with contextlib.suppress(OSError):
        (directory / _BEING_WRITTEN).write_text(str(reached))
        os.replace(directory / _BEING_WRITTEN, directory / STORED)


def stored_in(directory: Path) -> Position:
    """What was noted last; `START` if nothing was."""
    try:
        return Position(int((directory / STORED).read_text()))
    except (OSError, ValueError):
        return START


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
