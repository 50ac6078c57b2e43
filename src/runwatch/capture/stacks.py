"""The stacks of this process, stacks made short enough for an event, and the text that faulthandler
writes of them.  Their shapes are in `record/stacks.py`."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import FrameType
from typing import Final

from runwatch.capture.spinning import spins
from runwatch.capture.stack_signal import STACK_SIGNAL as STACK_SIGNAL
from runwatch.record.stacks import AsyncTask, Frame, Stacks, Thread

MAX_EVENT_BYTES: Final = 400_000
MAX_DEPTH: Final = 400
LEFT_OUT: Final = "<left out>"
"""The function name of the frame that stands where frames were left out."""
LOOP_FUNCTIONS: Final = ("run_forever", "run_until_complete", "Runner.run")
"""A thread in one of these may run an event loop of asyncio."""


def shortened(stacks: Stacks, max_bytes: int = MAX_EVENT_BYTES) -> Stacks:
    """The same in at most `max_bytes` of JSON: first depth goes, then threads that say least.

    What was left out is said in `problems`.
    """
    if _size(stacks) <= max_bytes:
        return stacks
    short = replace(stacks, problems=tuple(_cut(each, 500) for each in stacks.problems[:20]))
    for depth in (MAX_DEPTH, 100, 30):
        short = _shallow(short, depth)
        if _size(short) <= max_bytes:
            return short
    return _fewer(short, max_bytes)


def _size(message: Stacks | Thread) -> int:
    return len(json.dumps(message.body()))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _shallow(stacks: Stacks, depth: int) -> Stacks:
    """Long stacks keep both ends: where they are, and where they came from."""
    deepest = max((len(thread.frames) for thread in stacks.threads), default=0)
    threads = tuple(
        replace(
            thread,
            frames=tuple(_ends(thread.frames, depth)),
            tasks=tuple(
                replace(task, frames=tuple(_ends(task.frames, depth))) for task in thread.tasks
            ),
        )
        for thread in stacks.threads
    )
    short = replace(stacks, threads=threads)
    if deepest <= depth:
        return short
    return short.with_problems(
        f"stacks deeper than {depth} frames are shortened (deepest: {deepest})"
    )


def _ends(frames: tuple[Frame, ...], depth: int) -> Iterator[Frame]:
    kept = frames
    if len(frames) > depth:
        inner = depth * 2 // 3
        kept = (*frames[:inner], Frame(LEFT_OUT), *frames[len(frames) - depth + inner + 1 :])
    for frame in kept:
        yield replace(frame, function=_cut(frame.function, 300), file=_cut(frame.file, 500))


def _fewer(stacks: Stacks, max_bytes: int) -> Stacks:
    """As many threads as fit: the main one, those that hold or run something, then the others."""
    bytes_left = max_bytes - _size(replace(stacks, threads=())) - 200
    by_interest = sorted(stacks.threads, key=lambda t: (not t.is_main, not t.holds_gil, t.idle))
    kept: set[Thread] = set()
    for thread in by_interest:
        bytes_left -= _size(thread) + 2
        if bytes_left < 0:
            break
        kept.add(thread)
    threads = tuple(thread for thread in stacks.threads if thread in kept)
    note = f"{len(stacks.threads) - len(threads)} of {len(stacks.threads)} threads are left out"
    return replace(stacks, threads=threads).with_problems(note)


def own_stacks(*, time_ns: int | None = None) -> Stacks:
    """All Python threads of this process, the caller's among them."""
    # Not threading.enumerate(): it takes a lock, and a stuck process may never give it back.
    known: dict[int, threading.Thread] = dict(getattr(threading, "_active", {}))
    main = threading.main_thread().ident
    threads = tuple(
        _own_thread(ident, known.get(ident), frame, ident == main)
        for ident, frame in sys._current_frames().items()
    )
    return Stacks(
        pid=os.getpid(),
        time_ns=time.time_ns() if time_ns is None else time_ns,
        how="asked",
        threads=tuple(sorted(threads, key=lambda thread: not thread.is_main)),
    )


def _own_thread(
    ident: int, thread: threading.Thread | None, frame: FrameType, is_main: bool
) -> Thread:
    name, native_id = ("", 0) if thread is None else (thread.name, thread.native_id or 0)
    frames = tuple(_own_frames(frame))
    tasks: tuple[AsyncTask, ...] = ()
    if any(f.function.endswith(LOOP_FUNCTIONS) for f in frames):
        from runwatch.capture.tasks import own_tasks

        tasks = own_tasks(frame)
    return Thread(
        name=name,
        native_id=native_id,
        ident=ident,
        is_main=is_main,
        frames=frames,
        tasks=tasks,
        spins=is_main and spins(frame.f_code, frame.f_lasti),
    )


def _own_frames(innermost: FrameType) -> Iterator[Frame]:
    frame: FrameType | None = innermost
    while frame is not None:
        code = frame.f_code
        # f_lineno is None while a frame is being torn down.
        yield Frame(code.co_qualname, code.co_filename, frame.f_lineno or 0)
        frame = frame.f_back


# --- what faulthandler writes -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dump:
    """One dump out of faulthandler's text."""

    header: str
    """"Fatal Python error: Segmentation fault", "Timeout (0:10:00)!", or ""."""
    threads: tuple[Thread, ...]
    truncated: bool = False
    """faulthandler stops after 100 threads."""
    current: int | None = None
    """The id of the thread that wrote it; None if it is not among them, 0 if it is alone."""
    second: str = ""
    """The header of another fault, which came while this dump was written and ended it."""

    @property
    def fault(self) -> str:
        """ "Segmentation fault"; "" for a dump that no fault began."""
        return fault_of(self.header)


# Compiled when first used: a training process imports this file and reads no dumps.
_THREAD: Final = (
    r"(?P<current>Current thread|Thread) (?P<ident>0x[0-9a-fA-F]+)"
    r"(?: \[(?P<name>.*)\])? \(most recent call first\):\s*$"
)
_ONLY: Final = r"Stack \(most recent call first\):\s*$"
_C_STACK: Final = r"Current thread's C stack trace \(.*\):\s*$"
_FRAME: Final = (
    r'  File (?:"(?P<file>.*)"|\?\?\?), line (?P<line>\d+|\?\?\?)(?: in (?P<function>.*))?$'
)
_BINARY: Final = r'  Binary file "(?P<file>.*)", at (?P<where>.*?)(?: ?\[0x[0-9a-f]+\])?$'
_HEADER: Final = r"(?:Fatal Python error|Timeout \(|Windows fatal exception)"
_FATAL: Final = "Fatal Python error: "
SIGNALS: Final[Mapping[str, str]] = {
    "Segmentation fault": "SIGSEGV",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",  # from Python 3.13 on
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
}
"""By faulthandler's word for the fault."""
# A fault that comes while a dump is written is named in the middle of a line.
_FAULT: Final = rf".*(?P<header>{_FATAL}(?:{'|'.join(SIGNALS)}))\s*$"


def fault_of(header: str) -> str:
    return header.removeprefix(_FATAL) if header.startswith(_FATAL) else ""


class _Reading:
    """The state of the parser between two lines."""

    def __init__(self) -> None:
        self.done: list[Dump] = []
        self.ended = self.whole = self.blank = False
        self._begin()

    def _begin(self) -> None:
        self.header = ""
        self.threads: list[Thread] = []
        self.frames: list[Frame] | None = None
        self.native: list[Frame] | None = None
        self.current = -1
        self.truncated = False

    def line(self, line: str) -> None:
        if match := re.match(_FAULT, line):
            self._head(match["header"])
        elif match := re.match(_THREAD, line):
            self._thread(match)
        elif re.match(_ONLY, line):
            self._open(Thread(is_main=True))
            self.current = len(self.threads)
        elif re.match(_C_STACK, line):
            self._close()
            self.native = []
        elif re.match(_HEADER, line):
            self._head(line.strip())
        else:
            self._inside(line)
        self.blank = not line.strip()

    def _head(self, header: str) -> None:
        self.finish()
        self.header, self.ended = header, False

    def _thread(self, match: re.Match[str]) -> None:
        ident = int(match["ident"], 16)
        if self._is_of_next_dump(ident):
            self.finish()
        if match["current"].startswith("Current"):
            self._close()
            self.current = len(self.threads)
        self._open(Thread(match["name"] or "", ident=ident))

    def _is_of_next_dump(self, ident: int) -> bool:
        """Whether a thread of this id is one of the next dump.

        Within a dump an empty line lies between threads.  One that just starts has no frames, and
        the id of the thread that starts it: the same id twice in one dump.
        """
        if self.frames is None and not self.threads:
            return False
        if self.truncated or not self.blank:
            return True
        threads = [*self.threads, *self._unfinished()]
        is_repeated = any(thread.ident == ident and thread.frames for thread in threads)
        return is_repeated and not fault_of(self.header)

    def _unfinished(self) -> Iterator[Thread]:
        if self.frames is not None:
            yield replace(self.opened, frames=tuple(self.frames))

    def _open(self, thread: Thread) -> None:
        self._close()
        self.opened, self.frames = thread, []

    def _close(self) -> None:
        if self.frames is not None:
            self.threads.append(replace(self.opened, frames=tuple(self.frames)))
            self.frames = None
        if self.native and 0 <= self.current < len(self.threads):
            thread = self.threads[self.current]
            self.threads[self.current] = replace(thread, frames=(*self.native, *thread.frames))
        self.native = None

    def _inside(self, line: str) -> None:
        if self.frames is not None and (match := re.match(_FRAME, line)):
            self.frames.append(_read_frame(match))
        elif self.frames is not None and line.rstrip() == "  ...":
            self.frames.append(Frame(LEFT_OUT))
        elif self.native is not None and (match := re.match(_BINARY, line)):
            self.native.append(Frame(match["where"], match["file"], native=True))
        elif line.rstrip() == "...":
            self._close()
            self.truncated = True
        elif line.startswith("Extension modules: "):
            self.ended = True  # faulthandler's last word on a fault

    def finish(self) -> None:
        self._close()
        if self._is_second():
            self.done[-1] = _broken_off(self.done[-1], self.header)
        elif self.threads or fault_of(self.header):
            current = self.threads[self.current].ident if self.current >= 0 else None
            threads = tuple(self._with_main())
            self.done.append(Dump(self.header, threads, self.truncated, current))
        self.whole = self.ended
        self._begin()

    def _is_second(self) -> bool:
        """Whether it is a fault of faulthandler's own, in the dump before: it has a name only."""
        before = self.done[-1] if self.done else None
        return (
            before is not None
            and bool(before.fault and fault_of(self.header))
            and not (self.threads or self.whole)
        )

    def _with_main(self) -> Iterable[Thread]:
        """Threads are written newest first, so the last is the first: the main thread."""
        yield from self.threads[:-1]
        for last in self.threads[-1:]:
            yield replace(last, is_main=last.is_main or not self.truncated)


def _broken_off(dump: Dump, second: str) -> Dump:
    """Which thread was the main one is not known: it may not have been reached."""
    threads = (replace(t, is_main=t.is_main and not t.ident) for t in dump.threads)
    return replace(dump, threads=tuple(threads), second=second)


def _read_frame(match: re.Match[str]) -> Frame:
    line = match["line"]
    return Frame(
        match["function"] or "???", match["file"] or "???", int(line) if line.isdigit() else 0
    )


def read_dumps(text: str) -> list[Dump]:
    """Every dump in a faulthandler file, oldest first.  Lines that others wrote are skipped."""
    reading = _Reading()
    for line in text.split("\n"):
        reading.line(line.rstrip("\r"))
    reading.finish()
    return reading.done
