"""What an agent may do on its node, and sentences about what it cannot do.

An agent that a user's program started has that user's rights.  An agent that serves several users
needs three capabilities, whether it is root or not.  With CAP_SETUID and CAP_SETGID it works on
each user's files, sockets and processes as that user.  With CAP_SYS_PTRACE it reads stacks where
the kernel keeps a user's processes from reading one another (kernel.yama.ptrace_scope).  It needs
nothing else: it never opens a user's files with rights that this user does not have.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from runwatch import identity

YAMA: Final = Path("/proc/sys/kernel/yama/ptrace_scope")


def take_up(root: Path, yama: Path = YAMA) -> list[str]:
    """Call this before anything is opened.  Returns a sentence for each thing it cannot do."""
    if not identity.is_needed():
        return []  # an ordinary user: the kernel limits it to its own files and processes
    limits = []
    why = identity.begin()
    if why and _is_shared(root):
        limits.append(
            f"journals of other users are left alone, since the agent cannot act as them ({why}): "
            "give it CAP_SETUID and CAP_SETGID, or run one agent for each user"
        )
    if not identity.powers() & identity.SYS_PTRACE and (why or _is_guarded(yama)):
        limits.append(
            "the agent cannot read stacks from outside, only ask processes for them: give it "
            "CAP_SYS_PTRACE to see the stacks of a process that does not answer"
        )
    return limits


def _is_shared(root: Path) -> bool:
    """Whether other users may record there."""
    for folder in (root / "journals", root):
        try:
            status = folder.stat()
        except OSError:
            continue
        return status.st_uid != os.geteuid() or bool(status.st_mode & 0o022)
    return False


def _is_guarded(yama: Path) -> bool:
    """Whether the kernel keeps users from looking into their own processes."""
    try:
        return int(yama.read_text()) > 0
    except (OSError, ValueError):
        return False
