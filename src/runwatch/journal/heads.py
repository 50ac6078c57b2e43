"""Which head a journal is for: a file `heads` beside its segments, which only its user can read.

A program notes the head that it was told of (RUNWATCH_HEAD, or `head` in config.toml), with the
token or the name of the token's file.  The note is there before the journal's first segment:
whoever can see the journal knows where it goes.  A journal without a note goes to the agent's own
head, if the agent has one.

An agent's journal may be for several heads: those of the runs on its node.  Its note also says
which run belongs to which head, so that no head gets what was recorded about the runs of another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from runwatch.files import Folder, journal_folder, write_new

HEADS: Final = "heads"
VERSION: Final = 1
MOST_HEADS: Final = 100
_MOST_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class NamedHead:
    """A head, and how it is reached."""

    address: str
    place: str = ""
    """The address in one spelling (`address.place_of`)."""
    token: str = field(default="", repr=False)
    token_file: str = ""
    ca: str = ""
    """File with the certificate to check the head with."""


@dataclass(frozen=True, slots=True)
class Destination:
    heads: Sequence[NamedHead] = ()
    runs: Mapping[str, str] = field(default_factory=dict)
    """Id or name of a run → the place of its head.  Runs of the agent's own head may be missing."""
    uid: int = -1
    """The owner of the journal."""


def note(destination: Destination) -> bytes:
    written = {
        "version": VERSION,
        "heads": [asdict(head) for head in destination.heads],
        "runs": dict(destination.runs),
    }
    return json.dumps(written).encode()


def lay_note(directory: Path, content: bytes) -> None:
    """Into the folder of a journal that has no segment yet.  Raises OSError."""
    if content:
        write_new(directory / HEADS, content)


def clear_away(directory: Path) -> None:
    """The folder of a journal that could not be opened."""
    with suppress(OSError):
        (directory / HEADS).unlink(missing_ok=True)
        directory.rmdir()


def write_note(journal: Path, destination: Destination) -> None:
    """For a journal that is there already.  Raises OSError."""
    with journal_folder(journal) as folder:
        folder.write(HEADS, note(destination))


def read_note(journal: Path) -> Destination:
    """Raises OSError if the folder or the note cannot be read; a missing note names no head."""
    with journal_folder(journal) as folder:
        return note_in(folder)


def place_in(journal: Path) -> str:
    """The place of the head that a program's journal is for; empty if it names none."""
    try:
        heads = read_note(journal).heads
    except OSError:
        return ""
    return heads[0].place if heads else ""


def note_in(folder: Folder) -> Destination:
    """The same for a journal's open folder."""
    uid = folder.uid
    try:
        written = json.loads(folder.text(HEADS, _MOST_BYTES, owners=(uid,)))
    except FileNotFoundError:
        return Destination(uid=uid)
    except (ValueError, RecursionError):
        return Destination(uid=uid)
    if not isinstance(written, dict):
        return Destination(uid=uid)
    heads, runs = written.get("heads"), written.get("runs")
    listed: list[Any] = heads if isinstance(heads, list) else []
    named = [_head(each) for each in listed if isinstance(each, dict)]
    return Destination(
        tuple(head for head in named if head.address)[:MOST_HEADS],
        {str(k): str(v) for k, v in runs.items()} if isinstance(runs, dict) else {},
        uid,
    )


def _head(written: Mapping[str, Any]) -> NamedHead:
    """Ignores fields that a later version added."""
    names = ("address", "place", "token", "token_file", "ca")
    return NamedHead(**{name: str(written.get(name) or "") for name in names})
