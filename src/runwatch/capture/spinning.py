"""Whether a frame is in a loop that cannot end by itself: `while not ready: pass`.

Decided from the code alone.  A loop that calls nothing, stores nothing and takes no next item
changes nothing: only another thread can end it.
"""

from __future__ import annotations

from types import CodeType
from typing import Final

MAX_BYTES: Final = 4_000
"""Longer code is skipped: a look must stay cheap."""
_IDLE: Final = frozenset(
    (
        "NOP", "CACHE", "RESUME", "POP_TOP", "COPY", "SWAP", "IS_OP", "CONTAINS_OP", "COMPARE_OP",
        "UNARY_NOT", "TO_BOOL", "EXTENDED_ARG", "NOT_TAKEN", "PUSH_NULL",
    )
)  # fmt: skip
_HARMLESS: Final = ("LOAD_", "JUMP_", "POP_JUMP_")


def spins(code: CodeType, at: int) -> bool:
    """`at`: the frame's `f_lasti`."""
    if at < 0 or len(code.co_code) > MAX_BYTES:
        return False
    import dis

    steps = [(step.offset, step.opname, step.argval) for step in dis.get_instructions(code)]
    around = [
        (target, offset)
        for offset, name, target in steps
        if "JUMP" in name and isinstance(target, int) and target <= at <= offset
    ]
    if not around:
        return False
    begin, end = min(around, key=lambda loop: loop[1] - loop[0])
    inside = (name for offset, name, _ in steps if begin <= offset <= end)
    return all(name in _IDLE or name.startswith(_HARMLESS) for name in inside)
