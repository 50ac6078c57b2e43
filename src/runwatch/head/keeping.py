"""Files that agents send: checked, written whole, then given their name."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from runwatch.errors import UsageError
from runwatch.files import Folder, private, shelf
from runwatch.head.access.projects import words
from runwatch.wire import spine_pb2 as pb

MAX_BYTES: Final = 64 << 30
SPARE_BYTES: Final = 1 << 30
"""Left free on the head's disk: its store comes first."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@-]{0,200}")


class Keeping:
    """Where the files of one head go: `<root>/<run>/plugins/profile/<profile>/<name>`."""

    def __init__(
        self,
        root: Path,
        on_kept: Callable[[Path], None] = lambda _: None,
        drops: Callable[[str], bool] = lambda _: False,
        projects_of: Callable[[str], Collection[str]] = lambda _: (),
    ) -> None:
        """`drops`: whether the run was deleted; its files are not kept.
        `projects_of`: the projects of all runs whose profiles lie in a folder of this name."""
        self._root = root
        self._projects_of = projects_of
        self._on_kept = on_kept
        self._drops = drops

    async def take(self, pieces: AsyncIterator[pb.Piece], projects: Sequence[str] = ()) -> pb.Kept:
        """Takes one file.  A problem with it is the answer, not an exception.

        `projects`: the file must be of a run of these; empty for all.
        """
        first = await anext(aiter(pieces), None)
        if first is None or first.WhichOneof("piece") != "header":
            return pb.Kept(problem="a file begins with its header")
        header = first.header
        try:
            *folders, name = _parts(header.path)
            if projects:
                await asyncio.to_thread(self._check_project, folders[0], projects)
            if await asyncio.to_thread(self._drops, folders[0]):
                return pb.Kept(bytes=header.bytes)
            self._check_room(header)
            with (
                shelf(self._root.parent, self._root.name, make=True) as profiles,
                profiles.below(*folders, make=True) as folder,
            ):
                if _has(folder, name, header.bytes):
                    return pb.Kept(bytes=header.bytes)
                await _write(folder, name, header, pieces)
        except (UsageError, OSError) as error:
            return pb.Kept(problem=str(error))
        self._on_kept(self._root.joinpath(*folders, name))
        return pb.Kept(bytes=header.bytes)

    def _check_project(self, folder: str, projects: Sequence[str]) -> None:
        known = self._projects_of(folder)
        if not known or not set(known) <= set(projects):
            raise UsageError(
                f"no run {folder[:80]!r} is known here in {words(projects)}: this node's token is "
                "for nothing else"
            )

    def _check_room(self, header: pb.FileHeader) -> None:
        if header.bytes > MAX_BYTES:
            raise UsageError(f"{header.bytes} bytes: a profile may have at most {MAX_BYTES}")
        private(self._root)
        free = os.statvfs(self._root)
        if free.f_bavail * free.f_frsize < header.bytes + SPARE_BYTES:
            raise UsageError(f"the head's disk has no room for {header.bytes} bytes")


def _parts(path: str) -> list[str]:
    parts = path.split("/")
    plain = len(parts) == 5 and all(_NAME.fullmatch(part) for part in parts)
    if not plain or parts[1:3] != ["plugins", "profile"]:
        raise UsageError(f"not a profile's place: {path[:200]!r}")
    return parts


async def _write(
    folder: Folder, name: str, header: pb.FileHeader, pieces: AsyncIterator[pb.Piece]
) -> None:
    with folder.writing(name) as file:
        async for piece in pieces:
            if file.tell() + len(piece.data) > header.bytes:
                raise UsageError("the file is longer than its header says")
            await asyncio.to_thread(file.write, piece.data)
        await asyncio.to_thread(_finish, file, header.bytes)


def _has(folder: Folder, name: str, size: int) -> bool:
    return folder.has(name) and folder.stat(name).st_size == size


def _finish(file: BinaryIO, size: int) -> None:
    if file.tell() != size:
        raise UsageError(f"the file has {file.tell()} bytes, but its header says {size}")
    file.flush()
    os.fsync(file.fileno())
