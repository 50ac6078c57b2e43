"""Acting as somebody else: what is done for a user is done with that user's rights and no more.

An agent that serves all users of a node can read and write whatever they can, and everything that
root can besides.  Whoever talks it into touching a wrong file has root's rights, unless it has none
at that moment.  So for each call on a user's file one thread becomes that user towards file systems
(`setfsuid`), without any group of ours and without the capabilities that open other people's files;
the kernel then refuses what the user could not have done.  Nobody can send that thread a signal or
look into it meanwhile: that is what file system ids were made for.  Where also the other side looks
at who we are (a socket, a signal), a thread that ends with the call is the user altogether.

Off until `begin`: a training program never changes what it is.
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
"""CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, LINUX_IMMUTABLE, MKNOD, MAC_OVERRIDE: what
the kernel itself takes from root when it becomes another towards file systems."""
NO_GROUP: Final = 65_534
"""A folder's group may be one that its owner is not in: a directory hands its own down."""
_SET_PDEATHSIG: Final = 1
_GET_PDEATHSIG: Final = 2
_QUERY: Final = 0xFFFFFFFF
_VERSION: Final = 0x20080522
# Numbers of setgroups and setresuid: the library's functions would change every thread.
_CALLS: Final[Mapping[str, tuple[int, int]]] = {
    "x86_64": (116, 117),
    "aarch64": (159, 147),
    "riscv64": (159, 147),
    "ppc64le": (81, 164),
    "s390x": (206, 208),
}


class User(NamedTuple):
    """Whose rights: towards files, and of which group."""

    uid: int
    gid: int = NO_GROUP


class CannotBe(PermissionError):
    """We may not act as that user."""

    def __init__(self, uid: int, why: str) -> None:
        said = f"belongs to user {uid}, and we cannot act as that user: {why}"
        super().__init__(errno.EPERM, said)
        self.why = why


def powers(proc: Path = Path("/proc")) -> int:
    """The capabilities that this thread has now, as a bit set."""
    try:
        with open(proc / "thread-self/status", "rb") as file:
            found = [line for line in file if line.startswith(b"CapEff:")]
        return int(found[0].split()[1], 16)
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
        # Who started us may want us to end with it; the kernel forgets that when we change.
        self._last_signal = ctypes.c_int(0)
        self._prctl(_GET_PDEATHSIG, ctypes.byref(self._last_signal), 0, 0, 0)
        self._thread = threading.get_ident()
        self._errno = ctypes.get_errno
        self.uid, self.gid, self._groups = os.geteuid(), os.getegid(), os.getgroups()
        self._numbers = _CALLS.get(os.uname().machine)
        effective = powers()
        self.why_not = self._why_not(effective)
        """Why we can act as nobody else; "" if we can."""
        # Root loses these by the change itself, and has them again after it.
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
            return f"groups cannot be laid aside on {os.uname().machine}: run without any"
        return ""

    def _try(self) -> str:
        try:
            with self.towards_files(User(NO_GROUP)):
                left = powers() & _OVER_FILES
        except CannotBe as error:
            return error.why
        return f"capabilities {left:#x} stay with us" if left else ""

    @contextmanager
    def towards_files(self, user: User) -> Iterator[None]:
        """This thread only.  Inside nothing else is done than calls on that user's files: what
        is imported, logged or started there would be so with the user's rights."""
        now: User | None = getattr(self._here, "user", None)
        if now is not None:
            if now.uid != user.uid:
                raise CannotBe(user.uid, f"we act as user {now.uid} already")
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
            raise CannotBe(user.uid, f"our groups stay with us: {os.strerror(self._errno())}")
        self._set_gid(user.gid)
        self._set_uid(user.uid)
        if self._must_drop and self._capset(*self._less):
            raise CannotBe(user.uid, os.strerror(self._errno()))
        # Neither call tells whether it was allowed.
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
            raise OSError(errno.EPERM, "we cannot become ourselves again")
        if self._last_signal.value and threading.get_ident() == self._thread:
            self._prctl(_SET_PDEATHSIG, self._last_signal, 0, 0, 0)

    def _set_groups(self, groups: list[int]) -> int:
        import ctypes

        assert self._numbers is not None
        array = (ctypes.c_uint32 * len(groups))(*groups)
        return int(self._call(self._numbers[0], ctypes.c_size_t(len(groups)), array))

    def become_for_good(self, uid: int) -> None:
        """The user in the eyes of others, too, but for who may send us a signal."""
        import ctypes

        if self._numbers is None:
            raise CannotBe(uid, f"not known how to on {os.uname().machine}")
        same = ctypes.c_uint32(_QUERY)
        if self._call(self._numbers[1], same, ctypes.c_uint32(uid), same):
            raise CannotBe(uid, os.strerror(self._errno()))


class _State:
    """Whether this process acts as others at all."""

    switch: _Switch | None = None


def begin() -> str:
    """From now on folders of others are worked on as their owners; why that cannot be, or ""."""
    _State.switch = _Switch()
    return _State.switch.why_not


def end() -> None:
    _State.switch = None


def is_needed() -> bool:
    """Whether we could do more than any user: as root, or with what opens others' files."""
    return os.geteuid() == 0 or bool(powers() & (_OVER_FILES | SETUID | SYS_PTRACE))


@contextmanager
def acting_as(user: User | None) -> Iterator[None]:
    """As that user towards file systems.  Raises CannotBe, a PermissionError."""
    switch = _State.switch
    if switch is None or user is None or user.uid == switch.uid:
        yield
        return
    with switch.towards_files(user):
        yield


def owner_of(uid: int) -> User | None:
    """As whom we work on what is of this user's; None: as ourselves."""
    switch = _State.switch
    return None if switch is None or switch.uid == uid else User(uid)


def is_on() -> bool:
    return _State.switch is not None


def can_be(uid: int) -> bool:
    """Whether we are that user, or can act as if."""
    switch = _State.switch
    return uid == os.geteuid() or switch is not None and not switch.why_not


def once_as(uid: int, act: Callable[[], T]) -> T:
    """What a call gives that is made as that user, in the eyes of others as well.

    A thread of its own makes it and ends: what the user may do to that one does not stay.
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
    """What `capset` takes: all that we may have, and of that what is in force."""
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
