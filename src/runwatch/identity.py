"""Acting as another user: work for a user is done with that user's rights and no more.

An agent that serves all users of a node can read and write whatever they can, and everything that
root can.  Whoever tricks it into touching a wrong file would have root's rights.  So for each call
on a user's file, one thread becomes that user for file systems (`setfsuid`), without our groups and
without the capabilities that open other people's files.  The kernel then refuses whatever the user
could not have done.  Nobody can signal or inspect that thread meanwhile: file system ids were made
for that.  Where the other side checks who we are (a socket, a signal), a thread becomes the user
completely and ends with the call.

Off until `begin`: a training program never changes its user.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    import ctypes

T = TypeVar("T")
SETGID: Final = 1 << 6
SETUID: Final = 1 << 7
SYS_PTRACE: Final = 1 << 19
_OVER_FILES: Final = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 9 | 1 << 27 | 1 << 32
"""CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, LINUX_IMMUTABLE, MKNOD, MAC_OVERRIDE: the
capabilities that the kernel takes from root when its file system user changes."""
NO_GROUP: Final = 65_534
"""Not the folder's group: its owner may not be in it, since directories pass theirs on."""
_SET_PDEATHSIG: Final = 1
_GET_PDEATHSIG: Final = 2
_QUERY: Final = 0xFFFFFFFF
_VERSION: Final = 0x20080522
# System call numbers of setgroups and setresuid: libc's functions would change every thread.
_CALLS: Final[Mapping[str, tuple[int, int]]] = {
    "x86_64": (116, 117),
    "aarch64": (159, 147),
    "riscv64": (159, 147),
    "ppc64le": (81, 164),
    "s390x": (206, 208),
}


class User(NamedTuple):
    """Whose rights we use on files: user and group."""

    uid: int
    gid: int = NO_GROUP


class CannotBe(PermissionError):
    """We may not act as that user."""

    def __init__(self, uid: int, why: str) -> None:
        message = f"belongs to user {uid}, and we cannot act as that user: {why}"
        super().__init__(errno.EPERM, message)
        self.why = why


def powers(proc: Path = Path("/proc")) -> int:
    """The capabilities that this thread has now, as a bit set."""
    try:
        with open(proc / "thread-self/status", "rb") as file:
            lines = [line for line in file if line.startswith(b"CapEff:")]
        return int(lines[0].split()[1], 16)
    except (OSError, IndexError, ValueError):
        return 0


class _Switch:
    """How a thread of ours becomes another user towards files, and itself again."""

    def __init__(self) -> None:
        import ctypes

        libc: Any = ctypes.CDLL(None, use_errno=True)
        self._set_uid = _taking(libc.setfsuid, ctypes.c_uint32, result=ctypes.c_uint32)
        self._set_gid = _taking(libc.setfsgid, ctypes.c_uint32, result=ctypes.c_uint32)
        self._call: Any = libc.syscall
        self._capset: Any = libc.capset
        self._prctl: Any = libc.prctl
        # Our parent may want us to end with it; the kernel forgets that when we change users.
        self._last_signal = ctypes.c_int(0)
        self._prctl(_GET_PDEATHSIG, ctypes.byref(self._last_signal), 0, 0, 0)
        self._thread = threading.get_ident()
        self._errno = ctypes.get_errno
        self.uid, self.gid, self._groups = os.geteuid(), os.getegid(), os.getgroups()
        self._numbers = _CALLS.get(os.uname().machine)
        effective = powers()
        self.why_not = self._why_not(effective)
        """Why we cannot act as another user; "" if we can."""
        # Root loses these capabilities by the change itself, and gets them back after it.
        self._must_drop = self.uid != 0 and bool(effective & _OVER_FILES)
        self._full, self._less = _sets(effective), _sets(effective & ~_OVER_FILES)
        self._here = threading.local()
        if not self.why_not:
            self.why_not = self._try()

    def _why_not(self, effective: int) -> str:
        missing = [
            name
            for name, bit in (("CAP_SETUID", SETUID), ("CAP_SETGID", SETGID))
            if not effective & bit
        ]
        if missing:
            return f"{' and '.join(missing)} missing"
        if self._groups and self._numbers is None:
            return f"cannot drop groups on {os.uname().machine}: run without supplementary groups"
        return ""

    def _try(self) -> str:
        try:
            with self.towards_files(User(NO_GROUP)):
                left = powers() & _OVER_FILES
        except CannotBe as error:
            return error.why
        return f"the kernel leaves us capabilities {left:#x}" if left else ""

    @contextmanager
    def towards_files(self, user: User) -> Iterator[None]:
        """Changes this thread only.  Do nothing inside but calls on that user's files: an import, a
        log line or a new process would have the user's rights."""
        now: User | None = getattr(self._here, "user", None)
        if now is not None:
            if now.uid != user.uid:
                raise CannotBe(user.uid, f"we already act as user {now.uid}")
            yield
            return
        if self.why_not:
            raise CannotBe(user.uid, self.why_not)
        try:
            self._become(user)
            self._here.user = user
            yield
        finally:
            self._here.user = None
            self._become_ourselves()

    def _become(self, user: User) -> None:
        if self._groups and self._set_groups([]):
            raise CannotBe(user.uid, f"cannot drop our groups: {os.strerror(self._errno())}")
        self._set_gid(user.gid)
        self._set_uid(user.uid)
        if self._must_drop and self._capset(*self._less):
            raise CannotBe(user.uid, os.strerror(self._errno()))
        # Neither call reports whether it succeeded.
        if self._set_uid(_QUERY) != user.uid or self._set_gid(_QUERY) != user.gid:
            raise CannotBe(user.uid, "the kernel refuses it (a user namespace?)")

    def _become_ourselves(self) -> None:
        self._set_uid(self.uid)
        self._set_gid(self.gid)
        if self._groups:
            self._set_groups(self._groups)
        if self._must_drop:
            self._capset(*self._full)
        if self._set_uid(_QUERY) != self.uid or self._set_gid(_QUERY) != self.gid:
            raise OSError(errno.EPERM, "cannot change back to our own user")
        if self._last_signal.value and threading.get_ident() == self._thread:
            self._prctl(_SET_PDEATHSIG, self._last_signal, 0, 0, 0)

    def _set_groups(self, groups: list[int]) -> int:
        import ctypes

        assert self._numbers is not None
        array = (ctypes.c_uint32 * len(groups))(*groups)
        return int(self._call(self._numbers[0], ctypes.c_size_t(len(groups)), array))

    def become_for_good(self, uid: int) -> None:
        """Become the user for others too, except for who may send us signals."""
        import ctypes

        if self._numbers is None:
            raise CannotBe(uid, f"not supported on {os.uname().machine}")
        same = ctypes.c_uint32(_QUERY)
        if self._call(self._numbers[1], same, ctypes.c_uint32(uid), same):
            raise CannotBe(uid, os.strerror(self._errno()))


class _State:
    """Whether this process acts as other users at all."""

    switch: _Switch | None = None


def begin() -> str:
    """From now on work on others' folders as their owners; returns why that fails, or ""."""
    _State.switch = _Switch()
    return _State.switch.why_not


def end() -> None:
    _State.switch = None


def is_needed() -> bool:
    """Whether we have more rights than a user: root, or capabilities over others' files."""
    return os.geteuid() == 0 or bool(powers() & (_OVER_FILES | SETUID | SYS_PTRACE))


@contextmanager
def acting_as(user: User | None) -> Iterator[None]:
    """Act as that user towards file systems.  Raises CannotBe, a PermissionError."""
    switch = _State.switch
    if switch is None or user is None or user.uid == switch.uid:
        yield
        return
    with switch.towards_files(user):
        yield


def owner_of(uid: int) -> User | None:
    """The user to act as for files of `uid`; None: ourselves."""
    switch = _State.switch
    return None if switch is None or switch.uid == uid else User(uid)


def is_on() -> bool:
    return _State.switch is not None


def can_be(uid: int) -> bool:
    """Whether we are that user, or can act as that user."""
    switch = _State.switch
    return uid == os.geteuid() or switch is not None and not switch.why_not


def once_as(uid: int, act: Callable[[], T]) -> T:
    """The result of a call that is made completely as that user, visible to others too.

    A separate thread makes the call and ends: whatever the user may do to it does not last.
    """
    switch = _State.switch
    if switch is None or switch.uid == uid:
        return act()
    if switch.why_not:
        raise CannotBe(uid, switch.why_not)
    from concurrent.futures import ThreadPoolExecutor

    def made() -> T:
        switch.become_for_good(uid)
        return act()

    with ThreadPoolExecutor(1, thread_name_prefix="runwatch-once") as thread:
        return thread.submit(made).result()


def _taking(function: Any, *takes: Any, result: Any) -> Any:
    function.argtypes, function.restype = takes, result
    return function


def _sets(effective: int) -> tuple[ctypes.Array[Any], ctypes.Array[Any]]:
    """The arguments of `capset`: our capabilities with these ones effective."""
    import ctypes

    permitted, inheritable = _own("CapPrm"), _own("CapInh")
    words = [
        part >> shift & 0xFFFFFFFF
        for shift in (0, 32)
        for part in (effective, permitted, inheritable)
    ]
    return (ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)(*words)


def _own(field: str) -> int:
    lines = Path("/proc/thread-self/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith(f"{field}:"))
