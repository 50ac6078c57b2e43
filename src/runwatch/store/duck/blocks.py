"""Closed files on disk.

    blocks/points-19700-000012.parquet    sorted by (series, time); the number is the part
    blocks/rollup-19700-000012.parquet    the same part, a row per series and minute
    blocks/spans-…, blocks/events-…       sorted by (run, time)

A file is written under a temporary name, fsynced and renamed before any list names it.  It is
deleted only when no list names it any more.  So a crash leaves at worst a file that no list names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Kind = Literal["points", "rollup", "spans", "events"]

CLOSED: Final = 99
"""Level of a block that holds its whole day."""
MIXED_DAY: Final = -(2**40)
"""Day of a block of stragglers from many days."""

_MAGIC: Final = b"PAR1"


@dataclass(frozen=True, slots=True)
class Block:
    file: str
    kind: Kind
    part: int
    """A block of points and its roll-up share it."""
    family: int
    """All files that one merge wrote share it: they have no key in common."""
    day: int
    level: int
    rows: int
    bytes: int
    key_min: int
    key_max: int
    time_min: int
    time_max: int

    def overlaps(self, start_ns: int | None, end_ns: int | None) -> bool:
        return (start_ns is None or self.time_max >= start_ns) and (
            end_ns is None or self.time_min < end_ns
        )


class BlockFiles:
    """The directory of blocks.  Knows names and sizes, not contents."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, exist_ok=True)

    def path(self, file: str) -> Path:
        return self.directory / file

    def temporary(self, file: str) -> Path:
        return self.directory / (file + ".tmp")

    def publish(self, file: str, taken_ns: int) -> int:
        """Make a temporary file durable under its own name; returns its size.

        Its modification time becomes the time at which the store took its newest row.
        """
        temporary = self.temporary(file)
        os.utime(temporary, ns=(taken_ns, taken_ns))
        fsync(temporary)
        temporary.rename(self.path(file))
        fsync(self.directory)
        return self.path(file).stat().st_size

    def taken_ns(self, file: str) -> int:
        """When the store took the file's newest row; 0 for a file that is gone."""
        try:
            return self.path(file).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def intact(self, block: Block) -> bool:
        """A cheap check of size and magic bytes.  Other damage shows when the block is read."""
        try:
            with self.path(block.file).open("rb") as file:
                head = file.read(4)
                end = file.seek(-4, os.SEEK_END) + 4
                return head == _MAGIC and file.read(4) == _MAGIC and end == block.bytes
        except OSError:
            return False

    def delete(self, files: Iterable[str]) -> None:
        for file in files:
            self.path(file).unlink(missing_ok=True)

    def discard(self, file: str) -> None:
        self.temporary(file).unlink(missing_ok=True)
        self.path(file).unlink(missing_ok=True)

    def delete_others(self, listed: Iterable[str]) -> None:
        keep = set(listed)
        self.delete(path.name for path in self.directory.iterdir() if path.name not in keep)


def fsync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def set_aside(directory: Path, paths: Iterable[Path], stamp: str) -> Path:
    """Move damaged files out of the way; they are never deleted."""
    aside = directory / f"damaged-{stamp}"
    aside.mkdir(mode=0o700, exist_ok=True)
    for path in paths:
        if path.exists():
            path.rename(aside / path.name)
    fsync(directory)
    return aside
