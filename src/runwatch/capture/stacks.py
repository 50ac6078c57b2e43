"""Stacks of one process at one moment, and the text that faulthandler writes of them.

`Stacks` without threads is an answer too: its `problems` say why nobody could look.
"""

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
from typing import Any, Final, Literal, get_args

from runwatch.capture.spinning import spins
from runwatch.capture.stack_signal import STACK_SIGNAL as STACK_SIGNAL

How = Literal["outside", "asked", "signalled", "watchdog", "fault"]
_HOWS: Final[Mapping[str, How]] = {how: how for how in get_args(How)}

MAX_EVENT_BYTES: Final = 400_000
MAX_DEPTH: Final = 400
LEFT_OUT: Final = "<left out>"
"""The function name of the frame that stands where frames were left out."""
LOOP_FUNCTIONS: Final = ("run_forever", "run_until_complete", "Runner.run")
"""A thread in one of these may run an event loop of asyncio."""


@dataclass(frozen=True, slots=True)
class Frame:
    function: str
    file: str
    line: int
    native: bool = False

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"function": self.function, "file": self.file, "line": self.line}
        if self.native:
            plain["native"] = True
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Frame:
        return cls(
            str(plain.get("function", "")),
            str(plain.get("file", "")),
            _int(plain.get("line")),
            bool(plain.get("native", False)),
        )


@dataclass(frozen=True, slots=True)
class AsyncTask:
    """A task of an event loop: its coroutines down to the innermost that awaits."""

    name: str
    frames: tuple[Frame, ...]
    """Innermost first."""
    awaits: tuple[str, ...] = ()
    """The tasks that it waits for, by name."""
    is_root: bool = False
    """The loop runs until this one is done."""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "awaits": list(self.awaits),
            "is_root": self.is_root,
            "frames": [frame.to_json() for frame in self.frames],
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> AsyncTask:
        awaits = plain.get("awaits")
        return cls(
            str(plain.get("name", "")),
            tuple(Frame.from_json(each) for each in _mappings(plain.get("frames"))),
            tuple(map(str, awaits)) if isinstance(awaits, (list, tuple)) else (),
            bool(plain.get("is_root", False)),
        )


@dataclass(frozen=True, slots=True)
class Thread:
    name: str
    native_id: int
    """The kernel's id; 0 where the source knows only `ident`."""
    frames: tuple[Frame, ...]
    """Innermost first."""
    is_main: bool = False
    holds_gil: bool = False
    idle: bool = False
    ident: int = 0
    """Python's id (`threading.get_ident`); 0 where unknown."""
    tasks: tuple[AsyncTask, ...] = ()
    """Those of the event loop that it runs; only the process itself can tell them."""
    spins: bool = False
    """It is in a loop that nothing in it can end; only the process itself can tell."""

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "name": self.name,
            "native_id": self.native_id,
            "ident": self.ident,
            "is_main": self.is_main,
            "holds_gil": self.holds_gil,
            "idle": self.idle,
            "frames": [frame.to_json() for frame in self.frames],
        }
        if self.tasks:
            plain["tasks"] = [task.to_json() for task in self.tasks]
        return plain | {"spins": True} if self.spins else plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Thread:
        return cls(
            name=str(plain.get("name", "")),
            native_id=_int(plain.get("native_id")),
            frames=tuple(Frame.from_json(each) for each in _mappings(plain.get("frames"))),
            is_main=bool(plain.get("is_main", False)),
            holds_gil=bool(plain.get("holds_gil", False)),
            idle=bool(plain.get("idle", False)),
            ident=_int(plain.get("ident")),
            tasks=tuple(AsyncTask.from_json(each) for each in _mappings(plain.get("tasks"))),
            spins=bool(plain.get("spins", False)),
        )


@dataclass(frozen=True, slots=True)
class Stacks:
    pid: int
    time_ns: int
    how: How
    threads: tuple[Thread, ...]
    state: str = ""
    """The letter of /proc/PID/stat."""
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "pid": self.pid,
            "time_ns": self.time_ns,
            "how": self.how,
            "state": self.state,
            "problems": list(self.problems),
            "threads": [thread.to_json() for thread in self.threads],
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Stacks:
        """Unknown fields are passed over; what is missing or odd reads as nothing."""
        problems = plain.get("problems")
        return cls(
            pid=_int(plain.get("pid")),
            time_ns=_int(plain.get("time_ns")),
            how=_HOWS.get(str(plain.get("how")), "outside"),
            threads=tuple(Thread.from_json(each) for each in _mappings(plain.get("threads"))),
            state=str(plain.get("state", "")),
            problems=tuple(map(str, problems)) if isinstance(problems, (list, tuple)) else (),
        )

    def with_problems(self, *problems: str) -> Stacks:
        return replace(self, problems=(*self.problems, *problems))

    def shortened(self, max_bytes: int = MAX_EVENT_BYTES) -> Stacks:
        """The same in at most `max_bytes` of JSON: first depth goes, then threads that say least.

        What was left out is said in `problems`.
        """
        if _size(self) <= max_bytes:
            return self
        short = replace(self, problems=tuple(_cut(each, 500) for each in self.problems[:20]))
        for depth in (MAX_DEPTH, 100, 30):
            short = _shallow(short, depth)
            if _size(short) <= max_bytes:
                return short
        return _fewer(short, max_bytes)


def _int(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) and value == value else 0


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, (list, tuple)):
        yield from (each for each in value if isinstance(each, Mapping))


def _size(what: Stacks | Thread) -> int:
    return len(json.dumps(what.to_json()))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _shallow(stacks: Stacks, depth: int) -> Stacks:
    """Long stacks keep both ends: where they are, and where they came from."""
    deepest = max((len(thread.frames) for thread in stacks.threads), default=0)
    threads = tuple(
        replace(
            thread,
            frames=tuple(_ends(thread.frames, depth)),
            tasks=tuple(replace(t, frames=tuple(_ends(t.frames, depth))) for t in thread.tasks),
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
        kept = (*frames[:inner], Frame(LEFT_OUT, "", 0), *frames[len(frames) - depth + inner + 1 :])
    for frame in kept:
        yield replace(frame, function=_cut(frame.function, 300), file=_cut(frame.file, 500))


def _fewer(stacks: Stacks, max_bytes: int) -> Stacks:
    """As many threads as fit: the main one, those that hold or run something, then the others."""
    left = max_bytes - _size(replace(stacks, threads=())) - 200
    telling = sorted(stacks.threads, key=lambda t: (not t.is_main, not t.holds_gil, t.idle))
    kept: set[Thread] = set()
    for thread in telling:
        left -= _size(thread) + 2
        if left < 0:
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
    turns = is_main and spins(frame.f_code, frame.f_lasti)
    return Thread(name, native_id, frames, is_main=is_main, ident=ident, tasks=tasks, spins=turns)


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
# One that comes while a dump is written is told in the middle of a line.
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
        if found := re.match(_FAULT, line):
            self._head(found["header"])
        elif found := re.match(_THREAD, line):
            self._thread(found)
        elif re.match(_ONLY, line):
            self._open(Thread("", 0, (), is_main=True))
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

    def _thread(self, found: re.Match[str]) -> None:
        ident = int(found["ident"], 16)
        if self._is_another(ident):
            self.finish()
        if found["current"].startswith("Current"):
            self._close()
            self.current = len(self.threads)
        self._open(Thread(found["name"] or "", 0, (), ident=ident))

    def _is_another(self, ident: int) -> bool:
        """Whether a thread of this id is one of the next dump.

        Within a dump an empty line lies between threads.  One that just starts has no frames, and
        the id of the thread that starts it: the same id twice in one dump.
        """
        if self.frames is None and not self.threads:
            return False
        if self.truncated or not self.blank:
            return True
        known = [*self.threads, *self._now()]
        again = any(thread.ident == ident and thread.frames for thread in known)
        return again and not fault_of(self.header)

    def _now(self) -> Iterator[Thread]:
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
        if self.frames is not None and (found := re.match(_FRAME, line)):
            self.frames.append(_read_frame(found))
        elif self.frames is not None and line.rstrip() == "  ...":
            self.frames.append(Frame(LEFT_OUT, "", 0))
        elif self.native is not None and (found := re.match(_BINARY, line)):
            self.native.append(Frame(found["where"], found["file"], 0, native=True))
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
        """A fault of faulthandler's own, in the dump before: it tells the name and no more."""
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


def _read_frame(found: re.Match[str]) -> Frame:
    line = found["line"]
    return Frame(
        found["function"] or "???", found["file"] or "???", int(line) if line.isdigit() else 0
    )


def read_dumps(text: str) -> list[Dump]:
    """Every dump in a faulthandler file, oldest first.  Lines that are none of its are skipped."""
    reading = _Reading()
    for line in text.split("\n"):
        reading.line(line.rstrip("\r"))
    reading.finish()
    return reading.done
