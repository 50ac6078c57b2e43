"""TensorBoard's event files: scalars, texts and hyperparameters, and the file's own form.

The file is a sequence of frames (length, checksum, event, checksum); an event is a small protocol
buffer.  Both are written here, so that a training process need not load anything: a local
directory takes the standard library alone, and an upload is one write that a fork or a full disk
cannot tear.  Directories of an object store (gs://, s3://) go through tensorboardX.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

from runwatch.clock import Clock, system_clock
from runwatch.errors import UsageError
from runwatch.wire.masked_crc import checksum
from runwatch.wire.protobuf import double, integer, message, text

_FILE_VERSION: Final = b"brain.Event:2"  # what readers look for in the first event
_FLOAT: Final = 1  # types of a tensor
_STRING: Final = 7
_TENSORS: Final = 2  # the class of data that is no scalar
_NOT_IN_TAGS: Final = re.compile(r"[^-/\w.]")


class Scalar(NamedTuple):
    tag: str
    step: int
    value: float
    display_name: str = ""


def account_scalars(
    goodput: float | None, spent_seconds: Mapping[str, float], step: int
) -> list[Scalar]:
    """Runwatch's own account: goodput in percent, if there is any, and the seconds of each class
    (`custom:eval` as custom/eval)."""
    scalars = [] if goodput is None else [scalar_of("runwatch/goodput", step, goodput)]
    for name, seconds in spent_seconds.items():
        scalars.append(
            scalar_of(f"runwatch/spent_seconds/{name.replace(':', '/', 1)}", step, seconds)
        )
    return scalars


def scalar_of(tag: str, step: int, value: float) -> Scalar:
    plain = _NOT_IN_TAGS.sub("_", tag)
    return Scalar(plain, step, value, plain.rpartition("/")[2])


class EventFile:
    """The event file of one job in a directory; created with the first scalar."""

    def __init__(self, directory: str, job_name: str, *, clock: Clock = system_clock) -> None:
        self._directory = directory
        self._clock = clock
        self._suffix = ".runwatch-" + hashlib.sha256(job_name.encode()).hexdigest()[:8]
        self._path = ""
        self._file: _Sink | None = None
        self._written: dict[str, tuple[int, float]] = {}

    def write(self, scalars: Iterable[Scalar]) -> None:
        """Write all of them at once; they are on disk when it returns.  A scalar that repeats the
        last one of its tag, and one that is not a number, are left out."""
        new = [s for s in scalars if math.isfinite(s.value) and self._is_new(s)]
        if not new:
            return
        now = self._clock.wall_ns() / 1e9
        self._open().append(b"".join(scalar_frame(now, *scalar) for scalar in new))
        self._written.update((s.tag, (s.step, s.value)) for s in new)

    def last_step(self, tag: str) -> int | None:
        """The highest step of `tag` that this job has in this directory already."""
        if tag not in self._written:
            steps = (step for path in self._earlier() for step in _steps(path, tag))
            highest = max(steps, default=None)
            if highest is None:
                return None
            self._written[tag] = (highest, math.nan)
        return self._written[tag][0]

    def close(self) -> None:
        """The next write goes on in the same file; in an object store, in a new one."""
        if self._file is not None:
            self._file.close()
            self._file = None
            if _is_remote(self._path):
                self._path = ""

    def _is_new(self, scalar: Scalar) -> bool:
        return self._written.get(scalar.tag) != (scalar.step, scalar.value)

    def _open(self) -> _Sink:
        if self._file is None:
            if not self._path:
                self._path = f"{self._directory}/{self._file_name()}"
            kind = _RemoteFile if _is_remote(self._path) else _LocalFile
            self._file = kind(self._path)
            if self._file.is_empty:
                self._file.append(opening(self._clock.wall_ns() / 1e9))
        return self._file

    def _file_name(self) -> str:
        """Readers take files by name, oldest first; no two writers may have the same."""
        seconds, nanoseconds = divmod(self._clock.wall_ns(), 10**9)
        maker = f"{socket.gethostname()}.{os.getpid()}.{nanoseconds}"
        return f"events.out.tfevents.{seconds:010}.{maker}{self._suffix}"

    def _earlier(self) -> list[Path]:
        if _is_remote(self._directory):
            return []  # would cost a download
        return sorted(Path(self._directory).glob(f"events.out.tfevents.*{self._suffix}"))


class _Sink(Protocol):
    is_empty: bool

    def append(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class _LocalFile:
    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Unbuffered: a child forked later holds no half-written frame that it could flush.
        self._file: BinaryIO = open(path, "ab", buffering=0)  # noqa: SIM115
        self._size = self._file.tell()
        self.is_empty = self._size == 0

    def append(self, data: bytes) -> None:
        try:
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(self._size)  # nothing after a torn frame would be read
            raise
        self._size += len(data)

    def close(self) -> None:
        self._file.close()


class _RemoteFile:
    """An object is replaced as a whole, by tensorboardX, at each upload."""

    is_empty = True

    def __init__(self, path: str) -> None:
        try:
            from tensorboardX.record_writer import open_file

            self._writer: Any = open_file(path)
        except ImportError as error:
            raise UsageError(
                f'cannot write to {path} ({error}): pip install "runwatch[tensorboard]"'
            ) from error

    def append(self, data: bytes) -> None:
        self._writer.write(data)
        self._writer.flush()
        self.is_empty = False

    def close(self) -> None:
        self._writer.close()


def _is_remote(path: str) -> bool:
    return "://" in path


# ── events ────────────────────────────────────────────────────────────────────────────────────


def opening(wall_seconds: float) -> bytes:
    """What every file begins with."""
    return frame(double(1, wall_seconds) + message(3, _FILE_VERSION))


def scalar_frame(
    wall_seconds: float, tag: str, step: int, value: float, display_name: str = ""
) -> bytes:
    """The format's scalars have 32 bits; a larger number is infinite there."""
    one = text(1, tag) + b"\x15" + _float(value)
    if display_name:
        one += message(9, text(2, display_name))
    return _event(wall_seconds, step, one)


def text_frame(wall_seconds: float, tag: str, step: int, words: str) -> bytes:
    """For the page "Text"."""
    tensor = integer(1, _STRING) + message(2, b"") + text(8, words)
    about = message(1, text(1, "text")) + integer(4, _TENSORS)
    return _event(wall_seconds, step, text(1, tag) + message(8, tensor) + message(9, about))


def hyperparameters_frame(wall_seconds: float, values: Mapping[str, bool | float | str]) -> bytes:
    """For the page "HParams"."""
    started = b"".join(message(1, text(1, name) + message(2, _value(value)))
                       for name, value in values.items()) + double(5, wall_seconds)  # fmt: skip
    about = message(1, text(1, "hparams") + message(2, message(3, started)))
    absent = integer(1, _FLOAT) + message(2, b"") + message(5, struct.pack("<f", 0.0))
    one = text(1, "_hparams_/session_start_info") + message(8, absent) + message(9, about)
    return _event(wall_seconds, 0, one)


def _event(wall_seconds: float, step: int, value: bytes) -> bytes:
    known = integer(2, step) if step else b""
    return frame(double(1, wall_seconds) + known + message(5, message(1, value)))


def _float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def _value(value: bool | float | str) -> bytes:
    if isinstance(value, bool):
        return integer(4, value)
    return text(3, value) if isinstance(value, str) else double(2, value)


# ── frames ────────────────────────────────────────────────────────────────────────────────────


def frame(data: bytes) -> bytes:
    return _head(len(data)) + data + struct.pack("<I", checksum(data))


@cache
def _head(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", checksum(packed))


def _steps(path: Path, tag: str) -> Iterator[int]:
    """Steps of `tag` in a file of ours, which may still be growing or may end in a torn frame."""
    mark = text(1, tag) + b"\x15"
    for data in _events(path):
        if mark in data:
            yield _number(data, 10) if data[9] == 0x10 else 0


def _events(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = 0
            while at + 12 <= len(data):
                (length,) = struct.unpack_from("<Q", data, at)
                if at + length + 16 > len(data):
                    return
                yield data[at + 12 : at + 12 + length]
                at += length + 16
    except (OSError, ValueError):  # gone, or empty
        return


def _number(data: bytes, at: int) -> int:
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return number - (1 << 64) if number >> 63 else number
        at, shift = at + 1, shift + 7
