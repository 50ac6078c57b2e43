"""What was imported before, so that each value is imported once.

`<directory>/imports/<log>/` belongs to one log: `ledger.json` says how far it was read and which
journals it became, `part-N/` holds the journals' next segments until they are where they belong.
The order makes a kill at any moment harmless:

    1. the segments of a part are written, into part-N;
    2. the ledger is replaced: it counts them as imported;
    3. they are delivered (moved to `<directory>/journals`, or sent to a head); part-N is removed.

A part that the ledger does not count was cut short: it is removed, and what it held is read again.
One that it counts is delivered, again if need be: segments have names, and a head knows how far it
has stored a journal.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from runwatch.errors import UsageError
from runwatch.files import written
from runwatch.imports.items import Lane, Mark
from runwatch.record import JournalId

VERSION: Final = 1
FOLDER: Final = "imports"
_NAME: Final = "ledger.json"
_PART: Final = re.compile(r"part-(\d+)")

Deliver = Callable[[Path, "Ledger"], None]
"""Brings the journals of a part where they belong."""


@dataclass(slots=True)
class Book:
    """One journal: its place in the run, and what a writer needs to continue it."""

    journal: JournalId
    start_ns: int
    next_segment: int = 0
    records: int = 0
    last_ns: int = 0
    series: list[tuple[str, str, list[list[str]]]] = field(default_factory=list)
    """Metric, device and labels, in the order in which they were defined."""


@dataclass(slots=True)
class Ledger:
    kind: str
    path: str
    """Where the log lay when it was last imported."""
    run: str
    name: str
    group: str = ""
    parts: int = 0
    marks: dict[str, Mark] = field(default_factory=dict)
    books: dict[str, Book] = field(default_factory=dict)
    points: int = 0
    began_ns: int | None = None
    end: dict[str, Any] | None = None
    """How the run ended, as the log says."""
    told_end: dict[str, Any] | None = None
    """… and as the journal says; None: it does not say it."""

    @property
    def journals(self) -> set[str]:
        return {book.journal for book in self.books.values()}


def lane_key(lane: Lane) -> str:
    return f"{lane.rank} {lane.attempt}"


class Shelf:
    """The folder of one log.  Only one process works in it at a time."""

    def __init__(self, root: Path, key: str) -> None:
        self.folder = root / FOLDER / key

    @contextmanager
    def locked(self) -> Iterator[None]:
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.folder / "lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UsageError("another process is importing the same log just now") from error
            yield

    def read(self) -> Ledger | None:
        try:
            data: dict[str, Any] = json.loads((self.folder / _NAME).read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise UsageError(f"{self.folder / _NAME} is damaged: {error}") from error
        if data.pop("version", None) != VERSION:
            raise UsageError(
                f"{self.folder / _NAME} was written by a later Runwatch: update this one"
            )
        books = {lane: Book(**book) for lane, book in data.pop("books").items()}
        return Ledger(**data, books=books)

    def write(self, ledger: Ledger) -> None:
        text = json.dumps({"version": VERSION, **asdict(ledger)})
        with written(self.folder / _NAME) as file:
            file.write(text.encode("ascii"))
            file.flush()
            os.fsync(file.fileno())

    def part(self, number: int) -> Path:
        return self.folder / f"part-{number}"

    def finish(self, ledger: Ledger | None, deliver: Deliver) -> None:
        """Deliver what the ledger counts, and remove what was cut short."""
        for folder in sorted(self.folder.glob("part-*")):
            number = _PART.fullmatch(folder.name)
            if ledger is not None and number is not None and int(number[1]) <= ledger.parts:
                deliver(folder, ledger)
            shutil.rmtree(folder)

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
