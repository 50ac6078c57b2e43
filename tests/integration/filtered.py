"""Starts Python behind a system call filter, as a container's runtime would.

`filtered.py PROFILE PYTHON -m MODULE …`, or `-c PROGRAM …`.
"""

from __future__ import annotations

import ctypes
import json
import runpy
import sys
from pathlib import Path
from typing import Any

ALLOW = 0x7FFF0000
REFUSE = 0x00050000
IS_EQUAL = 4


class Condition(ctypes.Structure):
    """libseccomp's scmp_arg_cmp."""

    _fields_ = (
        ("index", ctypes.c_uint),
        ("how", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("other", ctypes.c_uint64),
    )


def load(profile: dict[str, Any]) -> None:
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(REFUSE | profile["defaultErrnoRet"]))
    for rule in profile["syscalls"]:
        assert rule["action"] == "SCMP_ACT_ALLOW"
        conditions = [Condition(a["index"], IS_EQUAL, a["value"], 0) for a in rule.get("args", ())]
        array = (Condition * len(conditions))(*conditions)
        for name in rule["names"]:
            number = library.seccomp_syscall_resolve_name(name.encode())
            assert number != -1, f"there is no system call {name!r}"
            failed = library.seccomp_rule_add_array(rules, ALLOW, number, len(array), array)
            assert not failed, (name, failed)
    assert library.seccomp_load(rules) == 0


def main(profile: str, python: str, how: str, what: str, *arguments: str) -> None:
    """In this very process: the interpreter may lie where its user could not start it again."""
    assert python == sys.executable
    load(json.loads(Path(profile).read_text()))
    sys.argv = [what if how == "-m" else "-c", *arguments]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<program>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main(*sys.argv[1:])
