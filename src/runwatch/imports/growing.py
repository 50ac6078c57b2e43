"""Files that only ever grow: read from where the last reading ended.

A mark says how many bytes were read and what their hash is.  So the same file is known wherever it
lies, and a file that was written anew is not taken for the old one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from runwatch.imports.items import Mark, NotALog, SourceChanged

CHUNK: Final = 1 << 20
OFTEN_BYTES: Final = 2 << 20
"""A mark is made at least this often, so that an import that is cut short goes on from there."""


class Growing:
    """An open file, at the place where the last reading ended."""

    def __init__(self, path: Path, file: BinaryIO, mark: Mark) -> None:
        self.path = path
        self._file = file
        self._hash = hashlib.sha256()
        self._pending = bytearray()
        self.offset = 0
        """How much of the file has been taken."""
        self._told = 0
        end = int(mark.get("offset", 0))
        while self.offset < end:
            chunk = file.read(min(CHUNK, end - self.offset))
            if not chunk:
                break
            self._hash.update(chunk)
            self.offset += len(chunk)
        if end and self._hash.hexdigest() != mark.get("sha256"):
            raise SourceChanged(
                f"{path} is not the file that was imported before: its first {end:,} bytes differ. "
                "Import it as another run: --run NAME"
            )
        self._told = self.offset

    def more(self) -> bytes:
        """The next piece; b"" at the end.  It counts as taken only after `take`."""
        return self._file.read(CHUNK)

    def take(self, data: bytes | memoryview) -> None:
        self._hash.update(data)
        self.offset += len(data)

    def lines(self) -> Iterator[bytes]:
        """Each whole line, with its end; what is behind the last one may still be written."""
        for line in self._file:
            if not line.endswith(b"\n"):
                self._pending += line
                return
            yield line

    @property
    def rest(self) -> bytes:
        """What stands behind the last whole line, once `lines` has ended."""
        return bytes(self._pending)

    @property
    def is_due(self) -> bool:
        return self.offset - self._told >= OFTEN_BYTES

    def mark(self, **more: Any) -> tuple[Mark, int]:
        """A mark at this place, and how many bytes were taken since the last one."""
        taken, self._told = self.offset - self._told, self.offset
        return {"offset": self.offset, "sha256": self._hash.hexdigest(), **more}, taken


@contextmanager
def opened(path: Path, mark: Mark | None) -> Iterator[Growing]:
    try:
        with open(path, "rb") as file:
            yield Growing(path, file, mark or {})
    except OSError as error:
        raise NotALog(f"cannot read {path}: {error.strerror or error}") from error


def size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def identity(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]
