"""An uncaught exception is shown as it would be without us: our wrappers are not in it."""

from __future__ import annotations

import os
import sys
from types import FrameType, TracebackType
from typing import Final

_SDK: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MOST: Final = 1_000
_WANDBS_HOOK: Final = os.path.join("wandb", "sdk", "lib", "exit_hooks.py")


def leave_out(error: BaseException | None) -> None:
    """Take the frames of the SDK out of the traceback, and of those of its causes.

    The last frame stays: if the error is ours, that must be seen.
    """
    errors, seen = [error], 0
    while errors and seen < _MOST:
        error = errors.pop()
        seen += 1
        if error is None:
            continue
        error.__traceback__ = _without(error.__traceback__)
        errors += [error.__cause__, error.__context__]
        if isinstance(error, BaseExceptionGroup):
            errors += error.exceptions


def is_shown() -> bool:
    """Whether the hook that calls ours has shown the error already.

    wandb's shows it, and then calls the hook before it unless that is Python's own.  Without us it
    would be.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_SDK):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.endswith(_WANDBS_HOOK)


def _without(first: TracebackType | None) -> TracebackType | None:
    while first is not None and first.tb_next is not None and _is_ours(first):
        first = first.tb_next
    entry = first
    while entry is not None and (following := entry.tb_next) is not None:
        if following.tb_next is not None and _is_ours(following):
            entry.tb_next = following.tb_next
        else:
            entry = following
    return first


def _is_ours(entry: TracebackType) -> bool:
    return entry.tb_frame.f_code.co_filename.startswith(_SDK)
