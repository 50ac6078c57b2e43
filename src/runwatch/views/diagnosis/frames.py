"""What a thread waits for, recognised from its frames.

Frames are read from the inside out.  What a wait is *for* (a collective, data, a checkpoint)
counts more than how the thread waits (in a lock, a socket).  So the first frame that shows a
purpose decides; only where none does, the innermost frames say how.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from runwatch.record.stacks import AsyncTask, Frame, Stacks
from runwatch.views.diagnosis.patterns import (
    BY_NAME,
    HOW_NATIVE,
    HOW_PYTHON,
    NATIVE,
    PYTHON,
    Kind,
    Pattern,
)


@dataclass(frozen=True, slots=True)
class Thread:
    name: str
    frames: tuple[Frame, ...]
    """Innermost first."""
    is_main: bool = False
    holds_gil: bool = False
    idle: bool = False
    native_id: int = 0
    whole: bool = False
    """Native frames were read, too, even if none was worth keeping."""
    spins: bool = False
    """It is in a loop that nothing inside the loop can end."""
    awaits: str = ""
    """The task of its event loop whose frames stand before its own."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a thread does.  `where` is the innermost line of the user's own code."""

    kind: Kind
    what: str
    where: Frame | None = None
    detail: str = ""
    """How it waits: `recv`, `lock`; empty if nothing is known beyond `what`."""

    @property
    def place(self) -> str:
        return f" ({self.where.place})" if self.where is not None else ""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "what": self.what,
            "where": None if self.where is None else self.where.body(),
            "detail": self.detail,
        }


_OURS: Final = re.compile(
    r"(^|/)runwatch/(sdk|journal|capture|agent|ship|goodput|monitoring|diagnostic|clock|record)[/.]"
)
_NOT_USERS: Final = re.compile(
    r"/(site|dist)-packages/|/lib(64)?/python3\.\d+/|/lib/python3/|^<(frozen|string|__array)|^\??$"
)
_INNER_FRAMEWORK: Final = re.compile(
    r"/(torch|jax|jaxlib|numpy|orbax|grain|tensorflow|triton|datasets|multiprocess|fsspec)/"
)
_NOISE: Final = re.compile(
    r"^0x[0-9a-f]+$|^_?Py(Eval|Object|Function|Vectorcall|CFunction|Method|Run|Main|_Run|Bytes)|"
    r"^_PyEval|^(cfunction|method|function|slot|vector|partial|object|type|builtin|call)_\w*$|"
    r"^(run_mod|run_eval_code_obj|pymain_\w+|Py_\w+|_start|main|__libc_start\w*|thread_run)$|"
    r"^pybind11::|^clone3?$|^start_thread$|^std::_Function_handler|^do_call_core$|^_?Py_Main"
)
_ADDRESS: Final = re.compile(r"\s*(\+?0x[0-9a-f]+|\[clone [^]]*\]|\(.*\))")
_LEFT_OUT: Final = "<left out>"
_BOOTSTRAP: Final = frozenset(("_bootstrap", "_bootstrap_inner"))
_MOST_HOW: Final = 6
"""So many of the innermost frames show how a thread waits."""


HOLDS_GIL: Final = "holding the GIL"
_SERVES: Final = frozenset(("socket", "transfer", "files", "subprocess", "data"))
"""Means: what they are used for, if a frame further out shows it, says more …"""
_SERVED: Final[Mapping[str, int]] = {"transfer": 1, "evaluation": 2, "compile": 2, "checkpoint": 2}
"""… and these are the purposes; of several the highest number decides."""


# ── reading ────────────────────────────────────────────────────────────────────────────────────


def threads_of(stacks: Stacks) -> list[Thread]:
    """The threads of the user's program.  Frames that say nothing are left out."""
    threads = []
    for seen in stacks.threads:
        frames = tuple(_telling_frames(seen.frames))
        if seen.name.startswith("runwatch") or _is_ours(frames):
            continue
        thread = Thread(
            name=seen.name,
            frames=frames,
            is_main=seen.is_main,
            holds_gil=seen.holds_gil,
            idle=seen.idle,
            native_id=seen.native_id,
            whole=any(frame.native for frame in seen.frames),
            spins=seen.spins,
        )
        threads.append(_through_tasks(thread, seen.tasks))
    return threads


def _through_tasks(thread: Thread, tasks: Sequence[AsyncTask]) -> Thread:
    """If the thread's event loop waits, its tasks show where: their frames go before its own.

    It begins with the task that the loop runs until complete, and follows what each awaits.
    """
    purpose = _purpose(thread.frames)
    if not tasks or not _loop_waits(thread.frames) or (purpose and purpose[0] == "idle"):
        return thread
    by_name = {task.name: task for task in tasks}
    task = next((task for task in tasks if task.is_root), None) or _telling(tasks)
    inner: tuple[Frame, ...] = ()
    seen: list[str] = []
    while task is not None and task.name not in seen:
        seen.append(task.name)
        inner = (*_telling_frames(task.frames), *inner)
        task = _telling([by_name[name] for name in task.awaits if name in by_name])
    return replace(thread, frames=(*inner, *thread.frames), awaits=seen[-1] if seen else "")


def _telling(tasks: Sequence[AsyncTask]) -> AsyncTask | None:
    """The first task that is in the user's own code, else the first."""
    users = (t for t in tasks if any(not is_library(f) for f in _telling_frames(t.frames)))
    return next(users, tasks[0] if tasks else None)


def _loop_waits(frames: Sequence[Frame]) -> bool:
    """Whether its innermost Python frame is an event loop's wait, not a callback."""
    for frame in frames:
        if frame.native:
            continue
        if frame.name in ("_run_once", "run_forever") or "/asyncio/runners.py" in frame.file:
            return True
        if "/selectors.py" not in frame.file:
            return False
    return False


def main_thread(threads: Sequence[Thread]) -> Thread | None:
    """Not every source of stacks says which it is: then the one that no thread started."""
    for thread in threads:
        if thread.is_main:
            return thread
    unstarted = [t for t in threads if not any(f.name in _BOOTSTRAP for f in t.frames)]
    candidates = [t for t in unstarted if any(not f.native for f in t.frames)]
    return candidates[-1] if candidates else None


def _telling_frames(frames: Iterable[Frame]) -> Iterator[Frame]:
    for frame in frames:
        if not frame.native:
            if not _OURS.search(frame.file):
                yield frame
            continue
        function = frame.function
        if not function.startswith("0x"):
            function = _ADDRESS.sub("", function)
        if function and not _NOISE.search(function):
            yield replace(frame, function=function)


def _is_ours(frames: Sequence[Frame]) -> bool:
    """Runwatch's own frames are left out already: of its threads only their start remains."""
    rest = [f for f in frames if not f.native and f.name != _LEFT_OUT]
    started = any(frame.name in _BOOTSTRAP for frame in rest)
    return started and all(f.name in _BOOTSTRAP | {"run"} and is_library(f) for f in rest)


# ── recognising ────────────────────────────────────────────────────────────────────────────────


def wait_of(thread: Thread) -> Wait:
    where = users_frame(thread.frames)
    how = _how(thread)
    purpose = _purpose(thread.frames)
    # Python code that has the lock runs: who has it and sleeps is in native code.
    in_native = bool(thread.frames) and (
        thread.frames[0].native or (thread.holds_gil and thread.idle)
    )
    held = HOLDS_GIL if thread.holds_gil and in_native else ""
    if purpose is not None:
        return Wait(*purpose, where, held or (how[1] if how is not None else ""))
    if how is not None:
        return Wait(*how, where, held)
    seen_running = not thread.idle and thread.whole
    if thread.holds_gil or seen_running:
        return Wait("running", "native code" if in_native else "Python code", where, held)
    return Wait("unknown", "" if where is None else where.name, where)


def hint_of(thread: Thread) -> Kind | None:
    """What the names of the user's own functions say, from the inside out."""
    for frame in thread.frames:
        if not frame.native and not is_library(frame):
            match = _match(BY_NAME, frame)
            if match is not None:
                return match[0]
    return None


def _purpose(frames: Sequence[Frame]) -> tuple[Kind, str] | None:
    for at, frame in enumerate(frames):
        match = _match(NATIVE if frame.native else PYTHON, frame)
        if match is None:
            continue
        kind, what = match
        if kind == "running":
            return None
        if kind in _SERVES and (outer := _served(frames[at:])) is not None:
            return outer
        if kind == "backward":
            return None if _has_users(frames[:at]) else (kind, what)
        if kind in ("collective", "device") and frame.native:
            return _named(kind, what, frames[at:])
        if kind == "collective" and what == "wait":
            return kind, "a collective"
        return kind, _entrance(kind, what, frames[at:])
    return None


def _has_users(frames: Sequence[Frame]) -> bool:
    """The backward pass called a hook of the user's, and that is what waits."""
    return any(not frame.native and not is_library(frame) for frame in frames)


def _served(outer: Sequence[Frame]) -> tuple[Kind, str] | None:
    """What a transfer, a file or a child process is for, if a frame further out shows it."""
    best: tuple[Kind, str] | None = None
    for frame in outer:
        match = None if frame.native else _match(PYTHON, frame)
        if match is not None and match[0] == "running":
            break
        if match is not None and _SERVED.get(match[0], 0) > (_SERVED[best[0]] if best else 0):
            best = match
    return best


def _named(kind: Kind, what: str, outer: Sequence[Frame]) -> tuple[Kind, str]:
    """A native wait, named after the Python call that began it, if there is one."""
    for frame in outer:
        if frame.native:
            match = _match(NATIVE, frame)
            if match is not None and match[0] == "collective" and match[1] == "gradient all_reduce":
                return match
        elif (match := _match(PYTHON, frame)) is not None and match[0] in ("collective", "peer"):
            return match[0], _entrance(match[0], match[1], outer)
        elif match is not None and match[0] == "device":
            return kind, match[1]
    return kind, what or "a collective"


def _entrance(kind: Kind, what: str, outer: Sequence[Frame]) -> str:
    """Of nested calls the one that the user made: `barrier`, not the `all_reduce` inside it."""
    inner = next((at for at, f in enumerate(outer) if not f.native and not is_library(f)), None)
    # A dataset is the user's and is called by the loader, which the user calls.
    for frame in outer if kind == "data" else outer[:inner]:
        if frame.native or frame.name in ("wrapper", "wrapped", "decorate_context"):
            continue
        if frame.name == "_worker_loop":
            return "DataLoader worker"  # a fork: what is further out is its parent's past
        match = _match(PYTHON, frame)
        if match is not None and match[0] == kind:
            what = match[1]
    return what


def _match(patterns: Sequence[Pattern], frame: Frame) -> tuple[Kind, str] | None:
    name = frame.name
    for pattern in patterns:
        matches = pattern.function.search if frame.native else pattern.function.match
        if matches(name) and pattern.file.search(frame.file):
            return pattern.kind, pattern.what or ("" if frame.native else name)
    return None


def _how(thread: Thread) -> tuple[Kind, str] | None:
    """The innermost native frames first; a Python frame of the library may know it better."""
    if not thread.idle and any(frame.native for frame in thread.frames):
        return None  # it was seen running: a mutex on its way is not what it waits for
    native: tuple[Kind, str] | None = None
    for frame in thread.frames[:_MOST_HOW]:
        if frame.native:
            match = _match(HOW_NATIVE, frame)
            # A futex is what a lock, a condition and the GIL all end in: further out is better.
            if native is None or (match is not None and native[0] == match[0] == "lock"):
                native = match
            continue
        match = _match(HOW_PYTHON, frame)
        if match is not None and (native is None or native[0] in ("lock", match[0])):
            return match
        break
    return native


# ── whose code ─────────────────────────────────────────────────────────────────────────────────


def users_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's own code, or of what comes closest to it."""
    python = [f for f in frames if not f.native and f.function != _LEFT_OUT and f.file != "?"]
    for frame in python:
        if not is_library(frame):
            return frame
    for frame in python:
        if "-packages/" in frame.file and not _INNER_FRAMEWORK.search(frame.file):
            return frame
    return python[0] if python else None


def is_library(frame: Frame) -> bool:
    return bool(_NOT_USERS.search(frame.file))


# ── telling one stack from another ─────────────────────────────────────────────────────────────

Signature = tuple[Any, ...]


def signature(thread: Thread, wait: Wait | None = None) -> Signature:
    """Equal for threads at the same place: the user's lines, and what Python called there.

    Native frames do not count: not every source has them.  Nor do lines of a thread that runs.
    """
    wait = wait or wait_of(thread)
    python = [frame for frame in thread.frames if not frame.native]
    if wait.kind == "running":
        place = None if wait.where is None else (wait.where.name, wait.where.file)
        return wait.kind, wait.what, place
    users = [frame for frame in python if not is_library(frame)] or python[:3]
    return _purpose(python) or "", tuple((f.name, f.file, f.line) for f in users)


def path(thread: Thread) -> tuple[tuple[str, str], ...]:
    """The user's functions on its stack, innermost first."""
    users = (f for f in thread.frames if not f.native and not is_library(f))
    return tuple((frame.name, frame.file) for frame in users)


def differ(one: Thread, other: Thread) -> bool:
    """Whether anything changed between two looks: then the thread runs, and is not stuck.

    Native frames are compared if both looks have them: they are costly to read.
    """
    native = one.whole and other.whole
    return _exact(one, native) != _exact(other, native)


def _exact(thread: Thread, native: bool) -> Signature:
    return tuple((f.name, f.file, f.line) for f in thread.frames if native or not f.native)
