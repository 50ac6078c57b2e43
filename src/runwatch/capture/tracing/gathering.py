"""Profiles of several programs, asked for at the same moment and gathered in one folder.

`<log directory>/plugins/profile/<name>/<host>.xplane.pb`, whole files only, so that a viewer
that looks meanwhile never reads half a trace.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runwatch.capture.tracing.profile_files import (
    PLUGIN,
    Place,
    as_host,
    local_folder,
    place,
)
from runwatch.capture.tracing.profiler_service import (
    USUAL,
    CannotProfile,
    NoProfiler,
    PortTarget,
    ProfileAnswer,
    TracerLevels,
    profile_all,
)
from runwatch.capture.tracing.trace_checks import fields
from runwatch.errors import RunwatchError
from runwatch.record.captures import checked_name

XPLANE: Final = ".xplane.pb"
KINETO: Final = ".kineto.json.gz"


@dataclass(frozen=True, slots=True)
class Gathered:
    """What one program's recording left.  Without files, `why` says why."""

    host: str
    files: tuple[str, ...] = ()
    bytes: int = 0
    why: str = ""
    is_foreign: bool = False
    """Something listens there that is no profiler service."""


def profile_directory(log_directory: str, name: str) -> str:
    parts = (*PLUGIN, checked_name(name))
    local = local_folder(log_directory)
    if local is not None:
        return str(local.joinpath(*parts))
    return "/".join((log_directory.rstrip("/"), *parts))


def gather(
    targets: Sequence[PortTarget],
    log_directory: str,
    name: str,
    duration_ms: int,
    levels: TracerLevels = USUAL,
) -> list[Gathered]:
    """Raises RunwatchError where nothing can be written at all; else one for each program.

    A program asked without a `host_name` is called what its own host is called.
    """
    try:
        folder = place(profile_directory(log_directory, name))
        taken = folder.names()
    except (OSError, ImportError, ValueError) as error:
        raise RunwatchError(f"cannot write to {log_directory}: {error}") from error
    try:
        answers = profile_all(targets, duration_ms, name, levels)
        return [_stored(target, answer, folder, taken)
                for target, answer in zip(targets, answers, strict=True)]  # fmt: skip
    finally:
        _drop_if_empty(folder)


def _stored(
    target: PortTarget, answer: ProfileAnswer | CannotProfile, folder: Place, taken: set[str]
) -> Gathered:
    if isinstance(answer, CannotProfile):
        is_foreign = isinstance(answer, NoProfiler)
        return Gathered(target.host_name or target.address, why=str(answer), is_foreign=is_foreign)
    host = target.host_name or _own_name(answer.xspace) or target.address
    files = _files(host, answer)
    if not files:
        return Gathered(host, why=f"{target.address} answered, but its trace is empty")
    clash = taken & files.keys()
    if clash:
        return Gathered(host, why=f"{folder.directory}/{min(clash)} exists already")
    try:
        for name, data in files.items():
            _put(folder, name, data)
            taken.add(name)
    except OSError as error:
        return Gathered(host, why=f"cannot write to {folder.directory}: {error}")
    return Gathered(host, tuple(files), sum(map(len, files.values())))


def _own_name(xspace: bytes) -> str:
    """What the program's host calls itself: hostnames (4) of the XSpace."""
    try:
        names = (xspace[b:e] for number, b, e in fields(xspace, 0, len(xspace)) if number == 4)
        return next(names, b"").decode(errors="replace")
    except (ValueError, IndexError):
        return ""


def _files(host: str, answer: ProfileAnswer) -> dict[str, bytes]:
    stem = as_host(host)
    files = {stem + XPLANE: answer.xspace} if answer.xspace else {}
    for name, data in answer.tools:
        ending = KINETO if name.endswith(KINETO) else f".{as_host(name)}"
        files[stem + ending] = data
    return files


def _put(folder: Place, name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="runwatch-profile-") as scratch:
        file = Path(scratch, name)
        file.write_bytes(data)
        folder.put(file, name)


def _drop_if_empty(folder: Place) -> None:
    """A profile without files is none."""
    local = local_folder(folder.directory)
    if local is not None:
        with contextlib.suppress(OSError):
            local.rmdir()
