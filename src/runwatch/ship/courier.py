"""Uploads the files that runs left on a node to the head: profiles.

Complete files lie below `<root>/profiles/<run>/plugins/profile/<session>/`.  A file that is still
being written has a name that begins with a dot.  A file counts as uploaded when the head has it on
its disk.  A note beside the files lists the uploaded ones, so that a new agent can continue.
"""

from __future__ import annotations

import json
import logging
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import grpc

from runwatch.clock import Clock, system_clock
from runwatch.errors import HeadUnreachable
from runwatch.files import Folder, Refused, shelf
from runwatch.ship.credentials import Token, metadata
from runwatch.wire import spine_pb2 as pb

METHOD: Final = "/runwatch.v1.Spine/Keep"
FOLDER: Final = "profiles"
NOTES: Final = ".brought.json"
MOST_NOTES: Final = 64 << 20
BETWEEN: Final = ("plugins", "profile")
"""The folders between a run's folder and its sessions."""
PIECE_BYTES: Final = 1 << 20
LOOK_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 0.5
KEEP_DAYS: Final = 7.0
BYTES_PER_SECOND: Final = 1 << 20
"""The slowest connection to a head that we allow time for."""
logger = logging.getLogger("runwatch.ship")


@dataclass(frozen=True, slots=True)
class Stamp:
    """Size and time of a file when it was uploaded: if they differ, it is another file."""

    bytes: int
    modified_ns: int


class Courier:
    """`run` returns after `stop` was called.  Each round with files opens a new `channel`."""

    def __init__(
        self,
        root: Path,
        channel: Callable[[], grpc.Channel],
        *,
        host: str,
        token: Token = "",
        takes: Callable[[str], bool] = lambda _: True,
        notes: str = NOTES,
        keep_days: float = KEEP_DAYS,
        look_seconds: float = LOOK_SECONDS,
        clock: Clock = system_clock,
    ) -> None:
        """`takes`: whether the files in a run's folder are for this head; `notes`: the file that
        lists those it has."""
        self.brought = 0
        self.problem = ""
        """Why the last file could not be uploaded; empty when all is well."""
        self.settled = False
        """Whether the last look found nothing to upload."""
        self._root = root
        self._channel = channel
        self._refused: dict[str, Stamp] = {}
        """Files that were refused (a link, another owner …).  A changed stamp is another file."""
        self._host = host
        self._takes = takes
        self._notes_name = notes
        self._token = token
        self._keep_ns = int(keep_days * 86_400e9)
        self._look_seconds = look_seconds
        self._looked_seconds = 0.0
        self._has_young = False
        self._idle_ns = 0
        """When a look last began that found nothing to upload, nor anything too young for it."""
        self._clock = clock
        self._stop = threading.Event()
        self._notes = self._read_notes()

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        pause = self._look_seconds
        while not self._stop.wait(pause):
            well = self.round()
            # With many folders, looking must not become a load of its own.
            usual = max(self._look_seconds, 200 * self._looked_seconds)
            pause = usual if well else min(pause * 2, 60.0)

    def has_brought_all(self, since_ns: int) -> bool:
        """Whether the head has every file that was here at that time (monotonic)."""
        return self._idle_ns >= since_ns or not self._files()

    def round(self) -> bool:
        """Upload what is new; False if the head refused a file or was not there."""
        begun_ns = self._clock.mono_ns()
        waiting = list(self._waiting())
        self._looked_seconds = (self._clock.mono_ns() - begun_ns) / 1e9
        self.settled = not waiting
        if not waiting:
            if not self._has_young:
                self._idle_ns = begun_ns
            return True
        try:
            with self._channel() as channel:
                for path, stamp in waiting:
                    self._bring(channel, path, stamp)
        except (grpc.RpcError, HeadUnreachable, OSError) as error:
            self.problem = str(error.details() if isinstance(error, grpc.Call) else error)
            logger.info("profiles are waiting for the head: %s", self.problem)
            return False
        return not self.problem

    def _waiting(self) -> Iterator[tuple[str, Stamp]]:
        old_ns = self._clock.wall_ns() - self._keep_ns
        quiet_ns = self._clock.wall_ns() - int(QUIET_SECONDS * 1e9)
        self._has_young = False
        for path, stamp in self._files():
            if self._refused.get(path) == stamp:
                continue
            if self._notes.get(path) != stamp:
                if stamp.modified_ns < quiet_ns:
                    yield path, stamp
                else:
                    self._has_young = True
            elif stamp.modified_ns < old_ns:
                self._forget(path)

    def _bring(self, channel: grpc.Channel, path: str, stamp: Stamp) -> None:
        call = channel.stream_unary(
            METHOD,
            request_serializer=pb.Piece.SerializeToString,
            response_deserializer=pb.Kept.FromString,
        )
        header = pb.FileHeader(path=path, bytes=stamp.bytes, host=self._host)
        seconds = 30 + stamp.bytes / BYTES_PER_SECOND
        try:
            opened = self._open(path)
        except Refused as error:
            self._refused[path] = stamp
            logger.warning("profile %s is not uploaded: %s", path, error)
            return
        with open(opened, "rb") as file:
            pieces = _cut(file, stamp.bytes)
            answer = call(_pieces(header, pieces), metadata=metadata(self._token), timeout=seconds)
        self.problem = answer.problem
        if answer.problem:
            logger.warning("the head refused profile %s: %s", path, answer.problem)
            return
        self.brought += 1
        self._notes[path] = stamp
        self._write_notes()

    def _open(self, path: str) -> int:
        run, *folders, name = path.split("/")
        with (
            self._shelf() as profiles,
            profiles.owners(run) as own,
            own.below(*folders) as folder,
        ):
            return folder.open(name)

    def _shelf(self, *, make: bool = False) -> Folder:
        return shelf(self._root, FOLDER, make=make)

    def _files(self) -> list[tuple[str, Stamp]]:
        try:
            with self._shelf() as profiles:
                return list(_files(profiles, self._takes))
        except FileNotFoundError:
            return []
        except OSError as error:
            if self.problem != str(error):
                self.problem = str(error)
                logger.warning("no profiles are uploaded: %s", error)
            return []

    def _forget(self, path: str) -> None:
        """Delete our copy: the head has had the file for `keep_days`."""
        run, *folders, name = path.split("/")
        with (
            suppress(FileNotFoundError),
            self._shelf() as profiles,
            profiles.owners(run) as own,
            own.below(*folders) as folder,
        ):
            folder.remove(name)
        self._notes.pop(path, None)
        self._write_notes()

    def _read_notes(self) -> dict[str, Stamp]:
        """Read only our own notes: another user's could make us delete files that nobody has."""
        try:
            with self._shelf() as profiles:
                text = profiles.text(self._notes_name, MOST_NOTES, owners=profiles.ours())
                read = json.loads(text)
            return {path: Stamp(int(size), int(when)) for path, (size, when) in read.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _write_notes(self) -> None:
        notes = {path: (stamp.bytes, stamp.modified_ns) for path, stamp in self._notes.items()}
        with self._shelf() as profiles:
            profiles.write(self._notes_name, json.dumps(notes).encode())


def _cut(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Pieces of the first `size` bytes: the file may grow meanwhile."""
    while size > 0 and (piece := file.read(min(PIECE_BYTES, size))):
        size -= len(piece)
        yield piece


def _pieces(header: pb.FileHeader, data: Iterator[bytes]) -> Iterator[pb.Piece]:
    yield pb.Piece(header=header)
    for piece in data:
        yield pb.Piece(data=piece)


def _files(profiles: Folder, takes: Callable[[str], bool]) -> Iterator[tuple[str, Stamp]]:
    """Complete files of sessions, as paths below the folder.  Links are not followed."""
    for run in filter(takes, _plain(profiles)):
        with suppress(OSError), profiles.owners(run) as own, own.below(*BETWEEN) as sessions:
            for session in _plain(sessions):
                yield from _of_session(sessions, run, session)


def _of_session(sessions: Folder, run: str, session: str) -> Iterator[tuple[str, Stamp]]:
    with suppress(OSError), sessions.below(session) as folder:
        for name in _plain(folder):
            try:
                status = folder.stat(name)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                path = "/".join((run, *BETWEEN, session, name))
                yield path, Stamp(status.st_size, status.st_mtime_ns)


def _plain(folder: Folder) -> list[str]:
    """Names without a leading dot: a file that is still being written has one."""
    return [name for name in folder.names() if not name.startswith(".")]
