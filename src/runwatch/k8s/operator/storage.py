"""Where connections want their profiles: a bucket, or a folder of the operator's own.

Whoever may make a connection names the place, and the operator writes there with its own rights.
So only kinds of URL that the settings name are taken, and only folders below the one they name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runwatch.capture.tracing.gathering import profile_directory
from runwatch.capture.tracing.profile_files import as_host, local_folder, place
from runwatch.errors import RunwatchError, UsageError
from runwatch.k8s.operator.settings import OperatorSettings

_ENDINGS: Final = (
    ".torch_xla.xplane.pb",
    ".tensorflow.xplane.pb",
    ".xplane.pb",
    ".kineto.json.gz",
)
"""What follows a process's name in the name of a file; the longer ones first."""


class StorageError(RunwatchError):
    """It may be otherwise in a while: the bucket does not answer, the disk is full."""


def checked_location(location: str, settings: OperatorSettings) -> str:
    """As it is used.  Raises UsageError for a place that is not ours to write to."""
    location = location.strip()
    if not location or "::" in location or any(ord(letter) < 32 for letter in location):
        raise UsageError(f"storageLocation is {location[:200]!r}: use gs://BUCKET/PATH or a folder")
    folder = local_folder(location)
    if folder is not None:
        return _in_ours(location, folder, settings.files)
    scheme, _, rest = location.partition("://")
    schemes = [each.strip().lower() for each in settings.schemes.split(",") if each.strip()]
    if scheme.lower() not in schemes:
        raise UsageError(
            f"storageLocation is {location[:200]!r}: the operator stores at "
            f"{', '.join(f'{each}://' for each in schemes) or 'no URL'} (RUNWATCH_STORAGE_SCHEMES)"
        )
    parts = rest.strip("/").split("/")
    if not parts[0] or ".." in parts:
        raise UsageError(f"storageLocation is {location[:200]!r}: it names no bucket")
    return location


def _in_ours(location: str, folder: Path, ours: Path | None) -> str:
    if ours is None:
        raise UsageError(
            f"storageLocation is the folder {location[:200]!r}: the operator stores profiles in "
            "no folder; use a bucket, or mount a volume into the operator and name it with "
            "RUNWATCH_FILES"
        )
    if not folder.resolve().is_relative_to(ours.resolve()):
        raise UsageError(
            f"storageLocation is the folder {location[:200]!r}: the operator stores profiles in "
            f"{ours} and below (RUNWATCH_FILES)"
        )
    return str(folder)


def output_of(location: str, session: str) -> str:
    """The profile's folder, as TensorBoard and XProf know it."""
    return profile_directory(location, session)


def file_name(pod: str, rank: int | None, name: str) -> str:
    """A trace is called by its pod; `rank`: of one of several processes there."""
    ending = next((each for each in _ENDINGS if name.endswith(each)), None)
    if ending is None:
        ending = "".join(Path(name).suffixes[-2:]) or f".{as_host(name)}"
    return as_host(pod if rank is None else f"{pod}.rank{rank}") + ending


def there(output: str) -> set[str]:
    """The names of what is there.  Raises StorageError.  Blocks."""
    try:
        folder = local_folder(output)
        if folder is not None:
            return set(os.listdir(folder)) if folder.is_dir() else set()
        return place(output).names()
    except (OSError, ImportError, ValueError) as error:
        raise StorageError(f"cannot read {output}: {error}") from error


def put(output: str, files: Sequence[tuple[Path, str]]) -> None:
    """Each whole or not at all; what is there already stays.  Raises StorageError.  Blocks."""
    try:
        folder = place(output)
        has = folder.names()
        for file, name in files:
            if name not in has:
                folder.put(file, name)
    except (OSError, ImportError, ValueError) as error:
        raise StorageError(f"cannot write to {output}: {error}") from error
