"""Saved folds that took long to compute: one file per run, which may be lost at any time.

    8 bytes   magic, of which the last two are the version
    4 bytes   CRC-32 of all that follows, little-endian
    4 bytes   length of the run's id
    id        of the run, UTF-8
    payload   any bytes

A file that is torn, damaged or of another version counts as absent and is deleted.  All files
together have a size limit; those not used for longest are deleted first.
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
"""This much of the disk is left free for records."""
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
        """A run's id may be any text; its digest is always a valid file name."""
        name = hashlib.sha256(run.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self._directory / f"{name}.fold"

    def read(self, run: RunId) -> bytes | None:
        path = self.path(run)
        try:
            content = path.read_bytes()
            os.utime(path)  # marks it as used
        except OSError:
            return None
        payload = _opened(content, run)
        if payload is None:
            self.delete(run)
        return payload

    def write(self, run: RunId, payload: bytes) -> bool:
        """Returns whether there was room.  Raises OSError if the disk refuses."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = _sealed(run, payload)
        if len(content) > self._most_bytes or len(content) > self._free_bytes():
            self.delete(run)
            return False
        # Not fsynced: the checksum shows a file torn by a power cut; it is then made again.
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
        """Deletes the files of runs that are gone."""
        expected = {self.path(run) for run in runs}
        for path in self._directory.glob("*"):
            if path not in expected:
                path.unlink(missing_ok=True)

    def _free_bytes(self) -> int:
        status = os.statvfs(self._directory)
        return status.f_bavail * status.f_frsize - self._spare_bytes

    def _shrink(self) -> None:
        folds = [(path.stat(), path) for path in self._directory.glob("*.fold")]
        folds.sort(key=lambda item: item[0].st_mtime_ns)
        excess = sum(stat.st_size for stat, _ in folds) - self._most_bytes
        for stat, path in folds:
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
