"""Journals that could not be where they were wanted: on a full disk, or where nobody may write.

Then a process records in a private folder among the temporary ones.  Beside such a journal lies a
note of where it was wanted, so that whoever looks there, an agent or a person, learns of it.
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
    """Others can write where this lies: refuse what is not our own directory."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to someone else")


def note_wanted(journal: Path, root: Path) -> None:
    """This one should be in that directory."""
    with contextlib.suppress(OSError), journal_folder(journal) as folder:
        folder.write(WANTED, os.fsencode(os.path.abspath(root)))


def moved_from(root: Path, place: Path | None = None) -> list[JournalId]:
    """The journals in our own temporary folder that were wanted in this directory."""
    place = fallback_place() if place is None else place
    try:
        check_private(place)
    except OSError:
        return []
    wanted = os.path.abspath(root)
    return [
        JournalId(directory.name)
        for directory in journal_directories(place)
        if _wanted(directory) == wanted
    ]


def _wanted(journal: Path) -> str:
    try:
        with journal_folder(journal) as folder:
            return os.fsdecode(folder.read(WANTED, _LONGEST))
    except OSError:
        return ""


def told_of(root: Path) -> str:
    """In words; empty if all is where it should be."""
    moved = moved_from(root)
    if not moved:
        return ""
    many = "process" if len(moved) == 1 else "processes"
    return (
        f"{len(moved)} {many} could not record in {root} (a full disk, most likely) and did so in "
        f"{fallback_place()}: `runwatch runs --dir {fallback_place()}`"
    )
