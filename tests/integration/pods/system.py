"""System calls that Python has no functions for, each raising OSError with what it was about."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

NEWNS: Final = 0x00020000
NEWUTS: Final = 0x04000000
NEWIPC: Final = 0x08000000
NEWPID: Final = 0x20000000
NEWNET: Final = 0x40000000

RDONLY: Final = 1
NOSUID: Final = 2
NODEV: Final = 4
NOEXEC: Final = 8
REMOUNT: Final = 32
BIND: Final = 4096
REC: Final = 16384
PRIVATE: Final = 1 << 18
_DETACH: Final = 2

_PR_SET_PDEATHSIG: Final = 1
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}
CAPABILITIES: Final = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
    "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
    "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
)  # fmt: skip
"""By their numbers."""

_libc: Any = ctypes.CDLL(None, use_errno=True)


def _called(result: int, about: str) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{about}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _called(_libc.unshare(flags), f"unshare {flags:#x}")


def enter(namespace: str, flags: int = 0) -> None:
    """This thread goes there."""
    with open(namespace, "rb") as file:
        _called(_libc.setns(file.fileno(), flags), f"setns {namespace}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = [each.encode() or None for each in (source, target, kind)]
    data = options.encode() or None
    _called(_libc.mount(*words, ctypes.c_ulong(flags), data), f"mount {kind or source} at {target}")


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    mount(source, target, flags=BIND | REC)
    if read_only:
        mount("", target, flags=BIND | REMOUNT | RDONLY)


def pivot_root(root: str) -> None:
    """The old root is gone."""
    os.chdir(root)
    _called(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), f"pivot_root {root}")
    _called(_libc.umount2(b".", _DETACH), "umount the old root")
    os.chdir("/")


def set_host_name(name: str) -> None:
    told = name.encode()
    _called(_libc.sethostname(told, len(told)), f"sethostname {name}")


def end_with_parent(signal: int) -> None:
    _called(_libc.prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0), "prctl PDEATHSIG")


def keep_capabilities(names: frozenset[str]) -> None:
    """What this process runs from now on has no others."""
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    for number in range(last + 1):
        if number >= len(CAPABILITIES) or CAPABILITIES[number] not in names:
            _called(_libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0), f"drop capability {number}")


def no_new_privileges() -> None:
    _called(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl NO_NEW_PRIVS")


@contextmanager
def inside(network: str) -> Iterator[None]:
    """This thread's sockets are of that network namespace, and those of what it starts."""
    with open("/proc/thread-self/ns/net", "rb") as own:
        enter(network, NEWNET)
        try:
            yield
        finally:
            _called(_libc.setns(own.fileno(), NEWNET), "setns back")
