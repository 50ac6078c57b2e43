"""Files of profiles: which of them are served, and which a viewer is given.

A file is served only if it is one of those found in a profile's folder, and opened below it: what
somebody put in its place meanwhile is not.  A viewer is given a file only if it is what its name
says.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from runwatch.files import Folder

CACHES: Final = frozenset({"cached_tools.json", "cache_version.txt"})
"""What XProf leaves beside profiles when it is pointed at them itself."""
_XPLANE_STARTS: Final = (0x0A, 0x12, 0x1A, 0x22)
_GZIP: Final = b"\x1f\x8b"
_HIGHEST_RATIO: Final = 200
"""Traces compress to a tenth or a fiftieth; what grows beyond this is no trace."""
_LOOKED_AT: Final = 256 << 10

Kind = Literal["xplane", "trace", "other"]


@dataclass(frozen=True, slots=True)
class Place:
    """A profile's folder: what leads to `base` is taken as it is, below no link is followed."""

    base: Path
    path: Path

    def open(self) -> Folder:
        with Folder.at(self.base) as base:
            return base.below(*self.path.relative_to(self.base).parts)

    def remove(self) -> None:
        above = Place(self.base, self.path.parent)
        with above.open() as parent:
            parent.remove_tree(self.path.name)


@dataclass(frozen=True, slots=True)
class File:
    name: str
    kind: Kind
    bytes: int
    modified_ns: int
    place: Place

    @property
    def path(self) -> Path:
        return self.place.path / self.name

    def open(self) -> int:
        """A descriptor to read it by.  Raises OSError for what is not a file to be served."""
        with self.place.open() as folder:
            return folder.open(self.name)


def files_in(places: Sequence[Place]) -> tuple[File, ...]:
    """Regular files that really lie in the folders, each name once."""
    files: dict[str, File] = {}
    for place in places:
        try:
            with place.open() as folder:
                for name in sorted(folder.names()):
                    if name not in files and (file := _file(folder, place, name)) is not None:
                        files[name] = file
        except OSError:
            continue
    return tuple(files.values())


def _file(folder: Folder, place: Place, name: str) -> File | None:
    if name.startswith(".") or name in CACHES or name.endswith(".SSTABLE"):
        return None
    try:
        about = folder.stat(name)
    except OSError:
        return None
    if not stat.S_ISREG(about.st_mode):
        return None
    if about.st_uid != folder.uid and not about.st_mode & stat.S_IROTH:
        return None  # a second name for somebody else's file
    return File(name, kind_of(name), about.st_size, about.st_mtime_ns, place)


def kind_of(name: str) -> Kind:
    if name.endswith(".xplane.pb"):
        return "xplane"
    is_trace = name.removesuffix(".gz").endswith((".json", ".pftrace", ".perfetto-trace"))
    return "trace" if is_trace and name not in CACHES and not name.startswith(".") else "other"


# ── is it what it says ────────────────────────────────────────────────────────────────────────


def refusal(file: File) -> str:
    """Why no viewer is given this file; empty when it may have it."""
    try:
        fd = file.open()
    except OSError as error:
        return f"{file.name} cannot be read: {error.strerror}"
    try:
        return _refusal(file, fd)
    finally:
        os.close(fd)


def for_viewer(file: File) -> int | None:
    """A descriptor to read it by; None if no viewer is given this file."""
    try:
        fd = file.open()
    except OSError:
        return None
    if _refusal(file, fd):
        os.close(fd)
        return None
    return fd


def _refusal(file: File, fd: int) -> str:
    try:
        start = os.pread(fd, 16 if file.kind == "xplane" else _LOOKED_AT, 0)
    except OSError as error:
        return f"{file.name} cannot be read: {error.strerror}"
    if not start:
        return f"{file.name} is empty"
    if file.kind == "xplane":
        return "" if start[0] in _XPLANE_STARTS else f"{file.name} is no XPlane profile{_is(start)}"
    if start.startswith(_GZIP):
        return _unpacked(file.name, start)
    return _opens(file.name, start)


def _unpacked(name: str, start: bytes) -> str:
    most = len(start) * _HIGHEST_RATIO + (1 << 20)
    try:
        text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(start, most)
    except zlib.error as error:
        return f"{name} is damaged: {error}"
    if len(text) >= most:
        return f"{name} grows more than {_HIGHEST_RATIO} times when it is unpacked: no trace does"
    return _opens(name, text)


def _opens(name: str, start: bytes) -> str:
    if not name.removesuffix(".gz").endswith(".json"):
        return ""
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    return "" if text[:1] in (b"{", b"[") else f"{name} is no JSON trace{_is(start)}"


def _is(start: bytes) -> str:
    known = {b"PK": "a zip archive", _GZIP: "packed with gzip", b"\x80": "a pickle"}
    return next((f" but {what}" for magic, what in known.items() if start.startswith(magic)), "")
