"""Uncaught exceptions as records: the whole traceback, with causes, contexts and groups.

The text is what the interpreter prints, as long as that is not too long.  Of a deep recursion there
are the first and the last frames.  Secrets are masked.  Local variables are told only if
RUNWATCH_LOCALS is 1: short, and of objects that are not plain no more than type and shape, since
the `repr` of a tensor may wait for a device that hangs.
"""

from __future__ import annotations

import os
import reprlib
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple

from runwatch.record.console import ExceptionTold
from runwatch.sdk.guard import guarded, text_of
from runwatch.sdk.values import masking
from runwatch.sdk.values.plain import text

if TYPE_CHECKING:
    from runwatch.sdk.run import Run

END_FRAMES: Final = 40
"""So many of the first and of the last frames of a deep traceback are kept."""
MOST_CHAINED: Final = 20
LONGEST_TEXT: Final = 40_000
LONGEST_MESSAGE: Final = 2_000
LONGEST_VALUE: Final = 200
MOST_VARIABLES: Final = 30
LOCALS: Final = "RUNWATCH_LOCALS"

_CAUSE: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"


def tell_once(run: Run, error: BaseException | None) -> None:
    """An exception that ends the program may come by several ways."""
    if error is not None and id(error) != run._told_error:
        run._told_error = id(error)  # and not the error, which holds all that its frames hold
        tell(run, error)


@guarded("record an exception")
def tell(run: Run, error: BaseException, thread: str = "") -> None:
    """At once.  How a program ends that is told to end says `run_end` alone."""
    if run._finished or isinstance(error, SystemExit | KeyboardInterrupt):
        return
    run._console.flush()  # what was said before it
    writer = run._open()
    if writer is not None:
        told = described(error, thread or threading.current_thread().name)
        writer.tell(told, run._step, run._scope)


def described(
    error: BaseException, thread: str = "", environment: Mapping[str, str] = os.environ
) -> ExceptionTold:
    frames = _frames(error.__traceback__)
    mask = masking.LineMask(environment)
    wants_locals = environment.get(LOCALS, "").strip().lower() in ("1", "on", "yes", "true")
    kept = [*frames.first, *frames.last]
    return ExceptionTold(
        type=_type_name(error)[:500],
        message=text(masking.text(text_of(error)[: 2 * LONGEST_MESSAGE])[:LONGEST_MESSAGE]),
        text=text(_shortened("\n".join(map(mask, _whole(error, frames).splitlines())))),
        thread=text(thread[:200]),
        frames=tuple(
            text(f"{frame.f_code.co_filename}:{line}:{frame.f_code.co_name}"[:1000])
            for frame, line in kept
        ),
        left_out_frames=frames.left_out,
        local_variables=tuple(_variables(frame, mask) for frame, _ in kept) if wants_locals else (),
    )


class _Frames(NamedTuple):
    first: list[tuple[FrameType, int]]
    last: list[tuple[FrameType, int]]
    left_out: int


def _frames(trace: TracebackType | None) -> _Frames:
    walk = traceback.walk_tb(trace)
    first = list(islice(walk, END_FRAMES))
    last = deque[tuple[FrameType, int]](maxlen=END_FRAMES)
    left = 0
    for pair in walk:
        left += len(last) == END_FRAMES
        last.append(pair)
    return _Frames(first, list(last), left)


def _whole(error: BaseException, frames: _Frames) -> str:
    chained = list(islice(_chained(error), MOST_CHAINED + 1))
    is_deep = frames.left_out or any(_frames(each.__traceback__).left_out for each in chained)
    if not is_deep and len(chained) <= MOST_CHAINED:
        return "".join(traceback.format_exception(error))
    return "".join(_briefly(error, MOST_CHAINED))


def _chained(error: BaseException) -> Iterator[BaseException]:
    """The exception, its causes, contexts and members, each once."""
    seen, waiting = set[int](), [error]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        linked = (each.__cause__, None if each.__suppress_context__ else each.__context__)
        waiting += [one for one in linked if one is not None]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def _briefly(error: BaseException, most: int) -> Iterator[str]:
    """As the interpreter prints it, with the middle of deep stacks left out."""
    behind: list[tuple[BaseException, str]] = []
    each: BaseException | None = error
    link = ""
    while each is not None and len(behind) < most:
        behind.append((each, link))
        if each.__cause__ is not None:
            each, link = each.__cause__, _CAUSE
        elif each.__context__ is not None and not each.__suppress_context__:
            each, link = each.__context__, _CONTEXT
        else:
            each = None
    if each is not None:
        yield "[earlier exceptions are left out]\n\n"
    for one, link in reversed(behind):
        frames = _frames(one.__traceback__)
        yield "Traceback (most recent call last):\n"
        yield from traceback.StackSummary.extract(iter(frames.first)).format()
        if frames.left_out:
            yield f"  [{frames.left_out:,} frames are left out]\n"
        yield from traceback.StackSummary.extract(iter(frames.last)).format()
        yield from traceback.format_exception_only(one)
        yield link


def _shortened(whole: str) -> str:
    """The first and the last part of what is too long: the end says what happened."""
    if len(whole) <= LONGEST_TEXT:
        return whole
    half = LONGEST_TEXT // 2
    left_out = len(whole) - 2 * half
    return f"{whole[:half]}\n[{left_out:,} characters are left out]\n{whole[-half:]}"


def _type_name(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__ in ("__main__", "builtins"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


# ── local variables ────────────────────────────────────────────────────────────────────────────


class _Plain(reprlib.Repr):
    """Plain values in short; nothing of the user's is called."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = LONGEST_VALUE
        self.maxlevel = 3

    def repr_instance(self, x: object, level: int) -> str:
        if isinstance(x, bool | int | float | complex | bytes | type(None)):
            return super().repr_instance(x, level)
        shape = getattr(type(x), "shape", None) and getattr(x, "shape", None)
        words = f" {tuple(shape)}" if isinstance(shape, tuple) else ""
        return f"<{type(x).__name__}{words}>"


_plain: Final = _Plain()


def _variables(frame: FrameType, mask: masking.LineMask) -> dict[str, str]:
    found = {}
    for name, value in islice(frame.f_locals.items(), MOST_VARIABLES):
        if name.startswith("__"):
            continue
        if masking.is_secret(name, masking.more_names()):
            found[name] = masking.MASK
        else:
            found[name] = text(mask(_plain.repr(value)[:LONGEST_VALUE]))
    return found
