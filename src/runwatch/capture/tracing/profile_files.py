"""Where the files of a profile lie: `<path>/<run>/plugins/profile/<name>/<host>…`.

That is the layout TensorBoard and XProf read: the part of a file's name before `.xplane.pb` is a
host to them.  One process of a host has the host's plain name, others `<host>.rank<N>`; a name that
is taken is never taken again, so that nothing is overwritten.  `<path>` is a folder or any URL that
fsspec knows; only the latter needs fsspec.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from runwatch.files import Folder, private
from runwatch.identity import User, acting_as
from runwatch.record.captures import checked_name

PLUGIN: Final = ("plugins", "profile")
MOST_TAKEN: Final = 10_000


def as_host(name: str) -> str:
    """A host's name as the beginning of a file's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip(".-")[:200] or "host"


def local_folder(path: str) -> Path | None:
    """The folder that a path or a file:// URL names; None for other URLs."""
    scheme, separator, _ = path.partition("://")
    if not separator:
        return Path(os.path.abspath(os.path.expanduser(path)))
    return Path(unquote(urlsplit(path).path)) if scheme == "file" else None


def profile_folder(path: str, run: str, name: str) -> str:
    parts = (checked_name(run, "run"), *PLUGIN, checked_name(name))
    local = local_folder(path)
    if local is not None:
        return str(local.joinpath(*parts))
    return "/".join((path.rstrip("/"), *parts))


@dataclass(frozen=True, slots=True)
class Published:
    directory: str
    files: tuple[str, ...]
    bytes: int


class Place(Protocol):
    """A profile's folder that takes files."""

    directory: str

    def claims(self, otherwise: Path) -> Folder:
        """Where marks go: to the place itself if it is a folder."""

    def names(self) -> set[str]: ...
    def put(self, source: Path, name: str) -> None: ...


def publish(
    files: Sequence[Path], label: str, place: Place, stems: Iterator[str], claims: Path
) -> Published:
    """Move the files `<label>.…` of one process to the place, by the first stem that is free.

    `claims` is a folder of this host, for the marks by which two of its processes that come at the
    same moment do not take the same stem; where the place itself is a folder, they are there.
    """
    with place.claims(claims) as marks, _claimed(place, stems, marks) as stem:
        names = [stem + file.name.removeprefix(label) for file in files]
        size = sum(file.stat().st_size for file in files)
        for file, name in zip(files, names, strict=True):
            place.put(file, name)
    return Published(place.directory, tuple(names), size)


def stems(host: str, rank: int, *, first: bool) -> Iterator[str]:
    """Names to try.  `first`: the process may have the host's plain name."""
    plain = as_host(host)
    ranked = f"{plain}.rank{rank}"
    if first:
        yield plain
    yield ranked
    for number in itertools.count(2):
        yield f"{ranked}.{number}"


@contextmanager
def _claimed(place: Place, stems: Iterator[str], claims: Folder) -> Iterator[str]:
    mark = re.sub(r"[^A-Za-z0-9._-]+", "-", place.directory)[-100:]
    for stem in itertools.islice(stems, MOST_TAKEN):
        claim = f".{mark}.{stem}"[-250:]
        try:
            with claims.as_user():
                os.mkdir(claim, 0o700, dir_fd=claims.fd)
        except FileExistsError:
            continue
        try:
            # Asked after the claim: whoever had the claim before has its files in place by now.
            if not any(_belongs(name, stem) for name in place.names()):
                yield stem
                return
        finally:
            with claims.as_user():
                os.rmdir(claim, dir_fd=claims.fd)
    raise OSError(f"{place.directory} holds {MOST_TAKEN} traces of this process already")


def _belongs(name: str, stem: str) -> bool:
    """host.xplane.pb is of `host`, host.rank1.xplane.pb is not."""
    kinds = (".xplane.pb", ".kineto.json.gz", ".torch_xla.xplane.pb", ".tensorflow.xplane.pb")
    return name.startswith(stem) and name.removeprefix(stem) in kinds


class LocalPlace:
    def __init__(self, directory: str, user: User | None = None, *, ours: bool = False) -> None:
        self.directory = directory
        self._user = user
        self._ours = ours
        path = local_folder(directory) or Path(directory)
        self._base, self._below = path.parents[3], path.parts[-4:]

    def _open(self) -> Folder:
        """What leads to `<path>` is as we were told; below it others may have laid links."""
        with self._based() as base:
            base.user = self._user
            return base.below(*self._below, make=True)

    def _based(self) -> Folder:
        if self._user is None or self._ours:
            return Folder.at(private(self._base))
        with acting_as(self._user):
            private(self._base)
        return Folder.at(self._base, self._user)

    def claims(self, otherwise: Path) -> Folder:
        return self._open()

    def names(self) -> set[str]:
        with self._open() as folder:
            return set(folder.names())

    def put(self, source: Path, name: str) -> None:
        """Whoever lists the folder sees whole files only."""
        with self._open() as folder:
            try:
                os.chmod(source, 0o600)
                if os.stat(source).st_uid != folder.uid:  # a copy is the folder's owner's
                    raise OSError
                os.rename(source, name, dst_dir_fd=folder.fd)
            except OSError:  # another file system
                with source.open("rb") as from_, folder.writing(name, give=True) as to:
                    shutil.copyfileobj(from_, to)


class RemotePlace:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        try:
            core: Any = import_module("fsspec.core")
        except ImportError:
            scheme = directory.partition("://")[0]
            raise OSError(
                f"{scheme}:// needs fsspec and its driver (pip install 'fsspec[{scheme}]')"
            ) from None
        self._system: Any
        self._system, self._root = core.url_to_fs(directory)

    def claims(self, otherwise: Path) -> Folder:
        return Folder.at(private(otherwise))

    def names(self) -> set[str]:
        try:
            paths = self._system.ls(self._root, detail=False)
        except FileNotFoundError:
            self._system.makedirs(self._root, exist_ok=True)
            return set()
        return {str(path).rstrip("/").rsplit("/", 1)[-1] for path in paths}

    def put(self, source: Path, name: str) -> None:
        self._system.put_file(str(source), f"{self._root}/{name}")
        source.unlink()


def place(directory: str, user: User | None = None, *, ours: bool = False) -> Place:
    """`user`: as whom files are put there, if not as ourselves; `ours`: what leads there is ours.

    Raises OSError, ImportError or ValueError for a URL that cannot be reached.
    """
    if local_folder(directory) is not None:
        return LocalPlace(directory, user, ours=ours)
    return RemotePlace(directory)
