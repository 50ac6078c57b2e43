"""What an agent may do on its node, and in words what it therefore cannot.

An agent that a user's program started has that user's rights.  One that serves several users needs
three capabilities, be it root otherwise or not: CAP_SETUID and CAP_SETGID, to work on each user's
files, sockets and processes as that user; and CAP_SYS_PTRACE, to look at stacks where the kernel
lets no process look at another of its own user (kernel.yama.ptrace_scope).  Nothing else: what is
somebody's is never opened with rights that this one has not.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from runwatch import identity

YAMA: Final = Path("/proc/sys/kernel/yama/ptrace_scope")


def take_up(root: Path, yama: Path = YAMA) -> list[str]:
    """Before anything is opened.  What cannot be done there, a sentence each."""
    if not identity.is_needed():
        return []  # an ordinary user: the kernel sees to it that it stays with what is its own
    said = []
    why = identity.begin()
    if why and _is_shared(root):
        said.append(
            f"journals of other users are left alone, since we cannot act as those ({why}): "
            "give the agent CAP_SETUID and CAP_SETGID, or run one for each user"
        )
    if not identity.powers() & identity.SYS_PTRACE and (why or _is_guarded(yama)):
        said.append(
            "stacks are told by the processes themselves, not seen from outside: give the agent "
            "CAP_SYS_PTRACE to see those of a process that does not answer"
        )
    return said


def _is_shared(root: Path) -> bool:
    """Whether others record there, too."""
    for folder in (root / "journals", root):
        try:
            found = folder.stat()
        except OSError:
            continue
        return found.st_uid != os.geteuid() or bool(found.st_mode & 0o022)
    return False


def _is_guarded(yama: Path) -> bool:
    """Whether the kernel keeps a user from looking into his own processes."""
    try:
        return int(yama.read_text()) > 0
    except (OSError, ValueError):
        return False
