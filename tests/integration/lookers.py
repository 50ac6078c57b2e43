"""Programs that look at a process with less than our rights, and print what they saw as JSON.

python lookers.py no-ptrace-call PID          ptrace(2) is filtered out, as in a strict container
python lookers.py other-user PID              as another user than the process's
python lookers.py look PID                    with the rights it was started with
python lookers.py errand ROOT JOURNAL PID …   the agent's errand; prints its events, then its answer
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runwatch.agent.collectors.base import Target
from runwatch.agent.errands.commands import Context
from runwatch.agent.errands.stacks import errand
from runwatch.capture.outside import look
from runwatch.clock import system_clock
from runwatch.journal.liveness import start_ticks
from runwatch.record import Command

NOBODY = 65534
PTRACE = {"x86_64": 101, "aarch64": 117}


class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def forbid_ptrace() -> None:
    """A seccomp filter: ptrace fails with EPERM, everything else goes through."""
    code = b"".join(
        struct.pack("HBBI", *each)
        for each in (
            (0x20, 0, 0, 0),  # load the number of the call
            (0x15, 0, 1, PTRACE[platform.machine()]),
            (0x06, 0, 0, 0x00050001),  # EPERM
            (0x06, 0, 0, 0x7FFF0000),  # allow
        )
    )
    kept = ctypes.create_string_buffer(code)
    program = Filter(4, ctypes.addressof(kept))
    kernel = ctypes.CDLL(None, use_errno=True)
    assert kernel.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert kernel.prctl(22, 2, ctypes.byref(program), 0, 0) == 0  # PR_SET_SECCOMP


def run_errand(root: Path, journal: str, pids: list[int]) -> None:
    events: list[dict[str, Any]] = []

    def event(kind: str, body: Mapping[str, Any], scope: int = 0) -> None:
        events.append({"kind": kind, "scope": scope, **body})

    targets = [
        Target(
            pid, 7, {"rank": "3", "pid": str(pid), "journal": journal}, "r", start_ticks(pid) or 0
        )
        for pid in pids
    ]
    context = Context(root, "here", system_clock, lambda: targets, event)
    answer = errand(Command("c1", "stacks", {"run": "r"}), context)
    print(json.dumps({"events": events, "answer": answer.body()}))


def main(how: str, *rest: str) -> None:
    if how == "errand":
        run_errand(Path(rest[0]), rest[1], list(map(int, rest[2:])))
        return
    if how == "no-ptrace-call":
        forbid_ptrace()
    elif how == "other-user" and os.getuid() == 0:
        os.setresuid(NOBODY, NOBODY, NOBODY)
    print(json.dumps([look(int(rest[0])).body() for _ in range(2)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
