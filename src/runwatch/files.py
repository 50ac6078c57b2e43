"""Files in directories that others may write to: the only way to open, create and remove them.

A Runwatch directory may be shared by all users, and the reader may be root.  So a name is opened
below an open folder, and we follow nothing on the way that somebody else could have put there: a
link, a pipe that never ends, another user's file.  A file is written under a temporary name and
then renamed over whatever has its final name.  And a file's content is never used as a path: a name
has no slash.

A process that serves all users of a node (`identity.begin`) works on each user's folder as that
user: wherever a name finally leads, the kernel opens it with the folder owner's rights or not at
all.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, Final

from runwatch.identity import User, acting_as, is_on, owner_of

SMALL_BYTES: Final = 1 << 20
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a disk that has no room."""
LONGEST_NAME: Final = 100
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BARE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_NEW: Final = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_PLAIN: Final = (errno.ELOOP, errno.ENXIO, errno.ENOTDIR, errno.EISDIR, errno.ENODEV)
_TRIES: Final = 3
_AS_WE_ARE: Final[AbstractContextManager[None]] = nullcontext()


class Refused(OSError):
    """The file exists but is not acceptable: a link, a pipe, or another user's."""

    def __init__(self, why: str, path: Path) -> None:
        super().__init__(errno.EPERM, why, str(path))


class Folder:
    """An open directory; `with` closes it.  Names are opened below it, and links never followed."""

    __slots__ = ("_uid", "fd", "path", "user")

    def __init__(self, fd: int, path: Path, user: User | None = None) -> None:
        self.fd = fd
        self.path = path
        """For messages only: by now something else may lie there."""
        self.user = user
        """The user as whom we work in it; None: as ourselves."""
        self._uid: int | None = None

    @classmethod
    def at(cls, path: Path, user: User | None = None) -> Folder:
        """Open a path that the caller itself chose, links included; as `user`, if given."""
        with acting_as(user):
            return cls(os.open(path, _FOLDER), path, user)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def as_user(self) -> AbstractContextManager[None]:
        """Use it around each call on a file in the folder."""
        return _AS_WE_ARE if self.user is None else acting_as(self.user)

    @property
    def uid(self) -> int:
        """The owner."""
        if self._uid is None:
            self._uid = os.fstat(self.fd).st_uid
        return self._uid

    def ours(self) -> frozenset[int]:
        """The owners that our files here can have: us or, where the file system maps or ignores
        users, the owner that it assigns."""
        here = () if self.uid == os.geteuid() else self._given_uid()
        return frozenset((os.geteuid(), *here))

    def trusted(self) -> frozenset[int]:
        """Whose files we trust in it: ours, its owner's, and root's."""
        return self.ours() | {self.uid, 0}

    def known(self) -> frozenset[int]:
        """The same, as far as we know without creating a file."""
        return frozenset((os.geteuid(), self.uid, 0))

    def is_of(self, uid: int) -> bool:
        """Whether a process of this user may have created the folder."""
        return uid == self.uid or uid == os.geteuid() and self.uid in self.ours()

    def _given_uid(self) -> tuple[int, ...]:
        name = _part("owner")  # created as ourselves, to learn the owner that we get
        try:
            fd = os.open(name, os.O_WRONLY | _NEW, 0o600, dir_fd=self.fd)
        except OSError:
            return ()
        try:
            return (os.fstat(fd).st_uid,)
        finally:
            os.close(fd)
            with suppress(OSError):
                os.unlink(name, dir_fd=self.fd)

    # ── folders in it ─────────────────────────────────────────────────────────────────────────

    def below(self, *names: str, make: bool = False) -> Folder:
        """The folder below, name by name; `make`: create missing ones, with mode 0700."""
        for name in names:
            checked(name, self.path)
        fd, path = os.dup(self.fd), self.path
        for name in names:
            path = path / name
            try:
                with self.as_user():
                    inner = _folder_in(fd, name, path, make)
            finally:
                os.close(fd)
            fd = inner
        return Folder(fd, path, self.user)

    def owners(self, name: str) -> Folder:
        """A user's folder in ours: everything in it, and opening it, is done as its owner."""
        user = owner_of(self.stat(name).st_uid) if is_on() else None
        if user is None:
            return self.below(name)
        path = self.path / name
        with acting_as(user):
            folder = Folder(_folder_in(self.fd, name, path, False), path, user)
        if folder.uid != user.uid:
            os.close(folder.fd)
            raise Refused("was replaced by another user's just now", path)
        return folder

    def own(self, name: str, *, make: bool = False) -> Folder:
        """Like `below`, but follows a link that we or root made."""
        path = self.path / checked(name, self.path)
        try:
            return Folder(_folder_in(self.fd, name, path, make), path)
        except Refused:
            return Folder(_by_own_link(self.fd, name, path), path)

    # ── reading ───────────────────────────────────────────────────────────────────────────────

    def names(self) -> list[str]:
        with self.as_user():
            return os.listdir(self.fd)

    def stat(self, name: str) -> os.stat_result:
        """Of the name itself: a link is not followed."""
        with self.as_user():
            return os.stat(checked(name, self.path), dir_fd=self.fd, follow_symlinks=False)

    def has(self, name: str) -> bool:
        """Whether there is a regular file with this name."""
        try:
            return stat.S_ISREG(self.stat(name).st_mode)
        except OSError:
            return False

    def open(
        self, name: str, *, owners: Collection[int] | None = None, how: int = os.O_RDONLY
    ) -> int:
        """A descriptor for a regular file of one of the `owners`.  By default: of the folder's
        owner, or a file that everybody may read."""
        fd = self._opened(name, how)
        about = os.fstat(fd)
        is_everybodys = owners is None and about.st_mode & stat.S_IROTH
        if about.st_uid not in (owners or (self.uid,)) and not is_everybodys:
            os.close(fd)
            raise Refused(f"belongs to user {about.st_uid}", self.path / name)
        return fd

    def read(
        self, name: str, most: int = SMALL_BYTES, *, owners: Collection[int] | None = None
    ) -> bytes:
        """The whole file, which may have at most `most` bytes."""
        with open(self.open(name, owners=owners), "rb", buffering=0) as file:
            data = bytearray()
            while len(data) <= most and (piece := file.read(most + 1 - len(data))):
                data += piece
        if len(data) > most:
            raise Refused(f"has more than {most} bytes", self.path / name)
        return bytes(data)

    def text(
        self, name: str, most: int = SMALL_BYTES, *, owners: Collection[int] | None = None
    ) -> str:
        return self.read(name, most, owners=owners).decode(errors="replace")

    def _opened(self, name: str, how: int) -> int:
        path = self.path / checked(name, self.path)
        try:
            with self.as_user():
                fd = os.open(name, how | _BARE, dir_fd=self.fd)
        except OSError as error:
            if error.errno in _NOT_PLAIN:
                raise Refused("is not a regular file", path) from None
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise Refused("is not a regular file", path)
        return fd

    # ── writing ───────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def writing(self, name: str, *, give: bool = False, mode: int = 0o600) -> Iterator[BinaryIO]:
        """A file that gets its name when it is complete; `give`: its owner is then the folder's."""
        part = _part(checked(name, self.path))
        with self.as_user():
            fd = os.open(part, os.O_RDWR | _NEW, mode, dir_fd=self.fd)
        try:
            with open(fd, "w+b") as file:
                if give:
                    self._give(fd)
                yield file
            with self.as_user():
                os.rename(part, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except BaseException:
            with suppress(OSError), self.as_user():
                os.unlink(part, dir_fd=self.fd)
            raise

    def write(self, name: str, data: bytes, *, give: bool = False, sync: bool = False) -> None:
        """`sync`: it is on the disk before it gets its name."""
        with self.writing(name, give=give) as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def _give(self, fd: int) -> None:
        if os.fstat(fd).st_uid == self.uid:
            return
        try:
            os.fchown(fd, self.uid, -1)
        except PermissionError:  # we are not root: at least let them read it
            os.fchmod(fd, 0o644)

    def keep(self, name: str) -> int:
        """A descriptor to read and write a file of our own, created if missing.

        Another user's file in its place is removed.
        """
        for _ in range(_TRIES):
            with suppress(FileExistsError):
                return os.open(checked(name, self.path), os.O_RDWR | _NEW, 0o600, dir_fd=self.fd)
            try:
                fd = self._opened(name, os.O_RDWR)
                about = os.fstat(fd)
                if about.st_nlink == 1 and about.st_uid in self.ours():
                    return fd
                os.close(fd)
            except FileNotFoundError:
                continue
            except Refused:
                pass
            os.unlink(name, dir_fd=self.fd)
        raise Refused("is created again and again by another user", self.path / name)

    def remove(self, name: str) -> None:
        with self.as_user():
            os.unlink(checked(name, self.path), dir_fd=self.fd)

    def remove_folder(self, name: str) -> None:
        """An empty folder; as its owner, if only the owner may."""
        user = owner_of(self.stat(name).st_uid)
        try:
            os.rmdir(name, dir_fd=self.fd)
        except PermissionError:
            with acting_as(user):
                os.rmdir(name, dir_fd=self.fd)

    def remove_tree(self, name: str) -> None:
        """A folder with everything in it; links are removed, their targets stay."""
        import shutil  # seldom needed, and slow to import

        with self.as_user():
            shutil.rmtree(checked(name, self.path), dir_fd=self.fd)


def shelf(root: Path, name: str, *, make: bool = False) -> Folder:
    """`<root>/<name>`: we trust the path to the root, but not what lies in it."""
    with Folder.at(root) as folder:
        return folder.own(name, make=make)


def journal_folder(directory: Path) -> Folder:
    """A journal's own folder, `<root>/journals/<id>`."""
    with shelf(directory.parent.parent, directory.parent.name) as journals:
        return journals.owners(directory.name)


@contextmanager
def written(path: Path, *, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A file at a path that the caller chose: it appears when it is complete, or not at all."""
    with Folder.at(path.parent) as folder, folder.writing(path.name, mode=mode) as file:
        yield file


def write_new(path: Path, data: bytes) -> None:
    """A new file for our eyes only, in a folder that nobody else can write to."""
    with open(os.open(path, os.O_WRONLY | _NEW, 0o600), "wb") as file:
        file.write(data)


def read_followed(path: Path, most: int = SMALL_BYTES) -> bytes:
    """The start of a regular file, links followed: never a pipe that does not end."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Refused("is not a regular file", path)
        return file.read(most)


def checked(name: str, where: Path) -> str:
    """The name, if it is a plain file name: not `..`, and without a slash."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Refused(f"cannot hold {name[:80]!r}", where)
    return name


def safe_name(text: str, otherwise: str = "host") -> str:
    """Text from a record as a file name; different texts get different names."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-._") else "-" for c in text)
    plain = plain.lstrip(".-")[:LONGEST_NAME]
    if plain == text:
        return plain or otherwise
    return f"{plain or otherwise}-{zlib.crc32(text.encode(errors='replace')):08x}"


def private(path: Path) -> Path:
    """Our own directory, created with missing parents, for nobody else."""
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir(mode=0o700, exist_ok=True)
    return path


def _part(name: str) -> str:
    return f".{name[:200]}.{os.urandom(6).hex()}"


def _folder_in(fd: int, name: str, path: Path, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=fd)
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
    except OSError as error:
        if error.errno in _NOT_PLAIN:
            raise Refused("is not a directory", path) from None
        raise


def _by_own_link(fd: int, name: str, path: Path) -> int:
    link = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        about = os.fstat(link)
        if not stat.S_ISLNK(about.st_mode) or about.st_uid not in (0, os.geteuid()):
            raise Refused("is not a directory, or is a link that another user made", path)
        return os.open(os.readlink("", dir_fd=link), _FOLDER, dir_fd=fd)
    finally:
        os.close(link)
