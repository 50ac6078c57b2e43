"""Journals that could not be written where they were configured: a full disk, or no permission.

Such a process records in a private folder below the temporary directory.  Beside the journal lies a
note of the configured directory, so that an agent or a person who looks there can find it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runwatch.files import journal_folder
from runwatch.journal.segment import journal_directories
from runwatch.record import JournalId

WANTED: Final = "wanted"
_LONGEST: Final = 4096


def fallback_place(environment: Mapping[str, str] = os.environ) -> Path:
    return Path(environment.get("TMPDIR") or "/tmp") / f"runwatch-{os.getuid()}"


def check_private(folder: Path) -> None:
    """Refuse a folder that is not our own: other users can write where it lies."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a directory of user {os.getuid()}")


def note_wanted(journal: Path, root: Path) -> None:
    """Note that this journal belongs in `root`."""
    with contextlib.suppress(OSError), journal_folder(journal) as folder:
        folder.write(WANTED, os.fsencode(os.path.abspath(root)))


def moved_from(root: Path, place: Path | None = None) -> list[JournalId]:
    """The journals in our temporary folder that belong in this directory."""
    place = fallback_place() if place is None else place
    try:
        check_private(place)
    except OSError:
        return []
    target = os.path.abspath(root)
    return [
        JournalId(directory.name)
        for directory in journal_directories(place)
        if _wanted(directory) == target
    ]


def _wanted(journal: Path) -> str:
    try:
        with journal_folder(journal) as folder:
            return os.fsdecode(folder.read(WANTED, _LONGEST))
    except OSError:
        return ""


def told_of(root: Path) -> str:
    """A sentence about journals that were moved away from `root`; empty if there are none."""
    moved = moved_from(root)
    if not moved:
        return ""
    many = "process" if len(moved) == 1 else "processes"
    return (
        f"{len(moved)} {many} could not record in {root} (is the disk full?) and recorded in "
        f"{fallback_place()} instead: `runwatch runs --dir {fallback_place()}`"
    )
