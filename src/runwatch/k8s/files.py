"""Our files for a pod's program that does not have them: what `runwatch k8s files` puts somewhere.

An init container of ours does it, and `starting.py` says where programs look: `runwatch/sdk/boot`
and `runwatch/dropin` below the place.  Nothing else is needed, for what runs in a program is the
standard library's and ours.

They are put there whole or not at all: written beside, and then renamed.  Nothing is flushed to
the disk, which others use, too: what a power loss tore is not what we have, and is put there again.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Final

from runwatch.errors import RunwatchError
from runwatch.launcher.dropins import MARK, dropin_folders

PACKAGE: Final = "runwatch"
DROPIN: Final = "dropin"
_OURS: Final = Path(__file__).resolve().parents[1]
_BESIDE: Final = ".runwatch-"
_PAGE: Final = ("head", "static")
"""A head's: no program serves it."""
_CACHE: Final = "__pycache__"


def put(place: Path) -> bool:
    """False: they are there already."""
    wanted = dict(_files())
    final = place / PACKAGE
    try:
        place.mkdir(parents=True, exist_ok=True)
        _clear(place)
        if _is_there(final, wanted):
            return False
        beside = Path(tempfile.mkdtemp(prefix=_BESIDE, dir=place))
        try:
            _write(beside / PACKAGE, wanted)
            if final.exists():
                final.rename(beside / "before")
            (beside / PACKAGE).rename(final)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise RunwatchError(
            f"cannot put our files into {place}: {why}; it must be a folder that user "
            f"{os.geteuid()} may write to, with room for {_mebibytes(wanted)} MiB"
        ) from error
    return True


def _files() -> Iterator[tuple[PurePath, Path]]:
    """Where each of them goes below the package's folder, and where it is now."""
    for path in _below(_OURS):
        inside = path.relative_to(_OURS)
        if inside.parts[: len(_PAGE)] != _PAGE:
            yield inside, path
    for folder in dropin_folders():
        if folder.parent == _OURS:
            return  # in a wheel they are in the package
        starts = [folder / MARK, *(start.parent for start in folder.glob("*/__init__.py"))]
        for start in starts:
            for path in _below(start):
                yield PurePath(DROPIN, path.relative_to(folder)), path


def _below(start: Path) -> Iterator[Path]:
    """Compiled ones of this Python only: where the program has the same, it begins sooner."""
    if start.is_file():
        yield start
        return
    compiled = f".{sys.implementation.cache_tag}.pyc"
    for folder, _, names in os.walk(start):
        for name in names:
            if Path(folder).name != _CACHE or name.endswith(compiled):
                yield Path(folder, name)


def _is_there(final: Path, wanted: dict[PurePath, Path]) -> bool:
    if {path.relative_to(final) for path in _all_below(final)} != wanted.keys():
        return False
    return all(filecmp.cmp(final / inside, path, shallow=False) for inside, path in wanted.items())


def _all_below(folder: Path) -> Iterator[Path]:
    for inner, _, names in os.walk(folder):
        for name in names:
            yield Path(inner, name)


def _write(folder: Path, wanted: dict[PurePath, Path]) -> None:
    """For everybody to read: the program may be another user's.  With their times, by which Python
    knows that a compiled file is its source's."""
    _make(folder)
    for inside, path in wanted.items():
        there = folder / inside
        if not there.parent.is_dir():
            for each in reversed([p for p in inside.parents if p.parts]):
                _make(folder / each)
        shutil.copyfile(path, there)
        times = path.stat()
        os.utime(there, ns=(times.st_atime_ns, times.st_mtime_ns))
        there.chmod(0o644)


def _make(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)  # whatever our umask is


def _clear(place: Path) -> None:
    """What was begun and not ended: we were killed."""
    for left in place.glob(f"{_BESIDE}*"):
        shutil.rmtree(left, ignore_errors=True)


def _mebibytes(wanted: dict[PurePath, Path]) -> int:
    return sum(path.stat().st_size for path in wanted.values()) // (1 << 20) + 1
