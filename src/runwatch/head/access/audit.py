"""Who changed what, and when: `audit.jsonl`, one JSON object per line.

Each line is a change, or a change that was refused to a known caller.  Unknown callers get no line:
else anybody could fill the disk.  A full file replaces `audit.1.jsonl`.  Callers' texts are cut
short, and JSON escapes the control characters that a terminal would obey.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.files import Folder

FILE: Final = "audit.jsonl"
OLDER: Final = "audit.1.jsonl"
CHANGED: Final = "runwatch.changed"
"""Key in the scope: details of the change that the address does not show."""
MOST_BYTES: Final = 8 << 20
LONGEST: Final = 300
logger = logging.getLogger("runwatch.head")


@dataclass(frozen=True, slots=True)
class Done:
    time_ns: int
    who: str
    """The token's name; "main token" for the head's own."""
    role: str
    address: str
    uid: int | None
    """The user id of a caller on this machine, from the kernel."""
    what: str
    """The route or the gRPC method, as `roles.py` calls it."""
    path: str
    outcome: str
    """The HTTP or gRPC status."""
    about: Mapping[str, str] = field(default_factory=dict)


class Audit:
    """The audit log.  Any thread may write to it.  Without a path nothing is kept."""

    def __init__(
        self, path: Path | None = None, *, most: int = MOST_BYTES, clock: Clock = system_clock
    ) -> None:
        self._root = path
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = False

    def note(
        self,
        who: str,
        what: str,
        outcome: str,
        *,
        role: str = "",
        address: str = "",
        uid: int | None = None,
        path: str = "",
        about: Mapping[str, object] | None = None,
    ) -> None:
        details = {_cut(name): _cut(str(value)) for name, value in (about or {}).items()}
        time_ns, who, path = self._clock.wall_ns(), _cut(who), _cut(path)
        done = Done(time_ns, who, role, address, uid, what, path, outcome, details)
        line = json.dumps(asdict(done)).encode() + b"\n"
        with self._lock:
            self._append(line)

    def newest(self, count: int, before_ns: int | None = None) -> list[Done]:
        """The newest lines before this time, newest first."""
        with self._lock:
            lines = [line for name in (OLDER, FILE) for line in self._lines(name)]
        newest: list[Done] = []
        for done in _read(reversed(lines)):
            if len(newest) == count:
                break
            if before_ns is None or done.time_ns < before_ns:
                newest.append(done)
        return newest

    def _append(self, line: bytes) -> None:
        if self._root is None:
            return
        try:
            with Folder.at(self._root) as root:
                fd = root.keep(FILE)
                try:
                    size = os.fstat(fd).st_size
                    if size and size + len(line) > self._most:
                        os.close(fd)
                        fd = -1
                        os.rename(FILE, OLDER, src_dir_fd=root.fd, dst_dir_fd=root.fd)
                        fd = root.keep(FILE)
                        size = 0
                    os.pwrite(fd, line, size)
                finally:
                    if fd >= 0:
                        os.close(fd)
            self._failed = False
        except OSError as error:  # the change itself must not fail because the disk is full
            if not self._failed:
                logger.error("the audit log cannot be written: %s", error)
            self._failed = True

    def _lines(self, name: str) -> list[bytes]:
        if self._root is None:
            return []
        try:
            with Folder.at(self._root) as root:
                return root.read(name, 2 * self._most, owners=root.ours()).splitlines()
        except OSError:
            return []


def _read(lines: Iterator[bytes]) -> Iterator[Done]:
    """Skips broken lines, and lines that Runwatch did not write."""
    for line in lines:
        try:
            body: Any = json.loads(line)
            done = Done(**body)
            if isinstance(done.time_ns, int):
                yield done
        except (ValueError, TypeError):
            continue


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
