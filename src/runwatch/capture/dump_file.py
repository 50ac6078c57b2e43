"""Where dumps go: a file per process with a limited size, or standard error.

    # opened 2026-03-01 12:00:00 host=gpu-1 rank=3 pid=771 run=llama time_ns=… main=0x…
    # what follows is a snapshot, unless …        for a first dump that comes by a signal
    INFO: Not a crash. …
    # dump 2026-03-01 12:10:00 host=gpu-1 rank=3 pid=771 run=llama step=1200 time_ns=… main=0x…
    INFO: Not a crash. …                          what follows is one of the periodic dumps
    Thread 0x… (most recent call first):          as faulthandler writes it

Lines that begin with `#` are ours, and two of them hold `key=value` pairs.  Those with `INFO` are
whose block it is, ours or an original's.  All other lines are faulthandler's.
It writes to the descriptor from a signal handler or from a C thread, so the descriptor must stay
the same: a file that has become large is copied and then emptied.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from runwatch.files import Folder, Refused, private, shelf

MAX_BYTES: Final = 16 << 20
MAX_FILES: Final = 4
PERIODIC: Final = "dumps.txt"
"""In a journal's directory: copies of the periodic dumps that go to standard error."""
ELSEWHERE: Final = "dumps.path"
"""In a journal's directory: paths of the process's dump files, one per line."""
CONSOLE: Final = "console-*.path"
"""In a journal's directory, while a fault would be written to standard error and that is a file:
one of our lines, then one with the file's size at that time, its inode and its path."""
_APPEND: Final = (
    os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
)


class About(NamedTuple):
    """Whose dump it is, and which step the run is at."""

    host: str
    rank: int
    pid: int
    run: str = ""
    step: int | None = None
    journal: Path | None = None
    """The directory of the run's journal in this process."""

    def pairs(self) -> dict[str, object]:
        pairs: dict[str, object] = {"host": self.host, "rank": self.rank, "pid": self.pid}
        if self.run:
            pairs["run"] = self.run
        if self.step is not None:
            pairs["step"] = self.step
        return pairs


def heading(word: str, pairs: Mapping[str, object], time_ns: int) -> str:
    """One of our lines."""
    main = threading.main_thread().ident or 0
    fields = {**pairs, "time_ns": time_ns, "main": f"{main:#018x}"}
    words = (f"{key}={re.sub(r'[^!-~]', '_', str(value))}" for key, value in fields.items())
    shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ns / 1e9))
    return f"# {word} {shown} {' '.join(words)}\n"


class Target:
    """What dumps are written to.  We write nothing until there is a dump, and do not close it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.users = 0
        """Blocks that use it, plus our thread while it writes; counted by the watchdog."""

    def foretell(self, line: str) -> None:
        """Write the line for a dump that may follow and that we could not announce then."""

    def write(self, text: str) -> None:
        write_all(self.fd, text)

    def tell(self, journal: Path) -> None:
        """Tell the agent, through the journal's folder, where the dumps are."""

    def close(self) -> None:
        pass


class Console(Target):
    """Standard error, which the agent can read if it is a file."""

    def __init__(self, fd: int, opened: str) -> None:
        super().__init__(fd)
        self.users = 1
        self._opened = opened
        self._told: set[Path] = set()
        self._pid = os.getpid()

    def tell(self, journal: Path) -> None:
        status = os.fstat(self.fd)
        path = journal / CONSOLE.replace("*", f"{id(self):x}")
        if path in self._told or not stat.S_ISREG(status.st_mode):
            return
        self._told.add(path)
        behind = os.readlink(f"/proc/self/fd/{self.fd}")
        append(path, f"{self._opened}{status.st_size} {status.st_ino} {behind}\n")

    def close(self) -> None:
        if os.getpid() == self._pid:
            for path in self._told:
                path.unlink(missing_ok=True)


class DumpFile(Target):
    def __init__(self, fd: int, path: Path, opened: str, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(fd)
        self.path = path
        self._opened = opened
        self._max_bytes = max_bytes
        self._empty_bytes = 0
        self._told: set[Path] = set()
        self._pid = os.getpid()

    @classmethod
    def create(
        cls, directory: Path, about: About, time_ns: int, max_bytes: int = MAX_BYTES
    ) -> DumpFile:
        """`stack_trace_<local time>_<host>_<rank>_<pid>.txt`, the name that other tools expect."""
        with _dumps_in(directory) as folder:
            return cls._created(folder, directory, about, time_ns, max_bytes)

    @classmethod
    def _created(
        cls, folder: Folder, directory: Path, about: About, time_ns: int, max_bytes: int
    ) -> DumpFile:
        shown = time.strftime("%Y_%m_%d_%H_%M_%S", time.localtime(time_ns / 1e9))
        host = re.sub(r"[^A-Za-z0-9.-]", "-", about.host)[:64]
        stem = f"stack_trace_{shown}_{host}_{about.rank}_{about.pid}"
        for more in ("", *(f"_{n}" for n in range(2, 100))):
            path = directory / f"{stem}{more}.txt"
            try:
                # Anyone may write in this directory: never open somebody else's file.
                fd = os.open(path.name, _APPEND | os.O_EXCL, 0o600, dir_fd=folder.fd)
            except FileExistsError:
                continue
            return cls._begun(fd, path, heading("opened", about.pairs(), time_ns), max_bytes)
        raise FileExistsError(f"{directory}/{stem}*.txt: there are already a hundred: delete some")

    @classmethod
    def _begun(cls, fd: int, path: Path, opened: str, max_bytes: int) -> DumpFile:
        file = cls(fd, path, opened, max_bytes)
        try:
            file.foretell(opened)
        except OSError:  # no space
            file.close()
            raise
        return file

    def foretell(self, line: str) -> None:
        write_all(self.fd, line)
        self._empty_bytes += len(line.encode())

    def write(self, text: str) -> None:
        write_all(self.fd, text)
        if shorten(self.fd, self.path, self._max_bytes):
            write_all(self.fd, self._opened)

    def tell(self, journal: Path) -> None:
        if journal not in self._told:
            self._told.add(journal)
            append(journal / ELSEWHERE, f"{self.path}\n")

    def close(self) -> None:
        """Deletes a file without a dump, except in a forked child: there it is the parent's."""
        size = os.fstat(self.fd).st_size
        os.close(self.fd)
        if size <= self._empty_bytes and os.getpid() == self._pid:
            self.path.unlink(missing_ok=True)


def shorten(fd: int, path: Path, max_bytes: int = MAX_BYTES) -> bool:
    """Copy and empty a file that has become large."""
    if os.fstat(fd).st_size < max_bytes:
        return False
    aside = [path.with_suffix(f".{n}.txt").name for n in range(1, MAX_FILES)]
    with Folder.at(path.parent) as folder:
        for older, newer in zip(aside[:0:-1], aside[-2::-1], strict=True):
            if folder.has(newer):
                os.rename(newer, older, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
        _copy(fd, folder, path.name, aside[0])
    os.ftruncate(fd, 0)
    return True


def _copy(fd: int, folder: Folder, name: str, to: str) -> None:
    """Copy our own file, not one that somebody put in its place."""
    import shutil  # seldom needed, and slow to import

    try:
        opened = folder.open(name, owners=folder.ours())
    except (FileNotFoundError, Refused):
        return
    with open(opened, "rb") as ours:
        if os.path.samestat(os.fstat(fd), os.fstat(opened)):
            with folder.writing(to) as copy:
                shutil.copyfileobj(ours, copy)


def _dumps_in(directory: Path) -> Folder:
    """The directory, created if missing.  The caller may pass a link to it, but a link that
    somebody else put there is refused."""
    path = Path(os.path.abspath(directory))
    private(path.parent)
    return shelf(path.parent, path.name, make=True) if path.name else Folder.at(path)


def append(path: Path, text: str) -> None:
    fd = append_to(path)
    try:
        write_all(fd, text)
        shorten(fd, path)
    finally:
        os.close(fd)


def append_to(path: Path) -> int:
    fd = os.open(path, _APPEND, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):  # a pipe would block the writer
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return fd


def write_all(fd: int, text: str) -> None:
    left = memoryview(text.encode(errors="replace"))
    while left:
        left = left[os.write(fd, left) :]


def console_fd(stream: object) -> int | None:
    """The descriptor behind sys.stderr; None in notebooks and wherever there is none."""
    fileno = getattr(stream, "fileno", None)
    try:
        fd = fileno() if fileno is not None else None
        if isinstance(fd, int):
            os.fstat(fd)
            return fd
    except (OSError, ValueError):  # io.UnsupportedOperation is both; a closed file is a ValueError
        pass
    return None
