"""Where folds are kept that took long to make: a file a run, which may be lost at any time.

    8 bytes   magic, of which the last two are the version
    4 bytes   CRC-32 of all that follows, the least byte first
    4 bytes   how long the run's id is
    id        of the run, UTF-8
    payload   whatever was given

What is torn, damaged or of another version is taken for absent, and deleted.  All of them together
have so many bytes at most; those that were not used for longest go first.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Final

from runwatch.record import RunId

MAGIC: Final = b"RWFOLD01"
MOST_BYTES: Final = 2 << 30
SPARE_BYTES: Final = 1 << 30
"""So much of the disk is left to records."""
_HEAD: Final = struct.Struct("<8sI")
_NAME: Final = struct.Struct("<I")


class FoldFiles:
    def __init__(
        self, directory: Path, *, most_bytes: int = MOST_BYTES, spare_bytes: int = SPARE_BYTES
    ) -> None:
        self._directory = directory
        self._most_bytes = most_bytes
        self._spare_bytes = spare_bytes

    def path(self, run: RunId) -> Path:
        """Ids may be any text; a digest of one is always a name."""
        name = hashlib.sha256(run.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self._directory / f"{name}.fold"

    def read(self, run: RunId) -> bytes | None:
        path = self.path(run)
        try:
            content = path.read_bytes()
            os.utime(path)  # it is of use
        except OSError:
            return None
        payload = _opened(content, run)
        if payload is None:
            self.delete(run)
        return payload

    def write(self, run: RunId, payload: bytes) -> bool:
        """Whether there was room.  Raises OSError when the disk says otherwise."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = _sealed(run, payload)
        if len(content) > self._most_bytes or len(content) > self._free_bytes():
            self.delete(run)
            return False
        # Not fsynced: what a power cut tears is seen by its checksum, and made again.
        temporary = self.path(run).with_suffix(".tmp")
        try:
            temporary.write_bytes(content)
            temporary.rename(self.path(run))
        finally:
            temporary.unlink(missing_ok=True)
        self._shrink()
        return True

    def delete(self, run: RunId) -> None:
        self.path(run).unlink(missing_ok=True)

    def keep_only(self, runs: Collection[RunId]) -> None:
        """Deletes what is left of runs that are gone."""
        kept = {self.path(run) for run in runs}
        for path in self._directory.glob("*"):
            if path not in kept:
                path.unlink(missing_ok=True)

    def _free_bytes(self) -> int:
        found = os.statvfs(self._directory)
        return found.f_bavail * found.f_frsize - self._spare_bytes

    def _shrink(self) -> None:
        found = [(path.stat(), path) for path in self._directory.glob("*.fold")]
        found.sort(key=lambda item: item[0].st_mtime_ns)
        excess = sum(stat.st_size for stat, _ in found) - self._most_bytes
        for stat, path in found:
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess -= stat.st_size


def _sealed(run: RunId, payload: bytes) -> bytes:
    name = run.encode("utf-8", "surrogatepass")
    start = _NAME.pack(len(name)) + name
    return b"".join([_HEAD.pack(MAGIC, zlib.crc32(payload, zlib.crc32(start))), start, payload])


def _opened(content: bytes, run: RunId) -> bytes | None:
    name = run.encode("utf-8", "surrogatepass")
    start = _NAME.pack(len(name)) + name
    if len(content) < _HEAD.size + len(start):
        return None
    magic, checksum = _HEAD.unpack_from(content)
    sealed = memoryview(content)[_HEAD.size :]
    if magic != MAGIC or zlib.crc32(sealed) != checksum or sealed[: len(start)] != start:
        return None
    return content[_HEAD.size + len(start) :]
