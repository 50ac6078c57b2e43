"""What a thread waits for, told from its frames.

Frames are read from the inside out.  What a wait is *for* (a collective, data, a checkpoint)
counts more than how it is done (a lock, a socket), so the first frame that tells a purpose decides,
and only where none does, the innermost frames say how.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

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
class Frame:
    function: str
    file: str
    line: int
    native: bool = False

    @property
    def name(self) -> str:
        """Without the class or function that it lies in: not every source knows them."""
        return self.function if self.native else self.function.rpartition(".")[2]

    @property
    def place(self) -> str:
        """`train.py:88`."""
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.line else self.file

    def to_json(self) -> dict[str, Any]:
        plain = {"function": self.function, "file": self.file, "line": self.line}
        return plain | {"native": True} if self.native else plain


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
    """Native frames were read, too, also if they said nothing and are left out."""
    spins: bool = False
    """In a loop that nothing in it can end."""
    awaits: str = ""
    """The task of its event loop whose frames were put before its own."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a thread is at.  `where` is the innermost line of the user's own code."""

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
            "where": None if self.where is None else self.where.to_json(),
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
"""How a thread waits is seen in its innermost frames, or nowhere."""


HOLDS_GIL: Final = "holding the GIL"
_SERVES: Final = frozenset(("socket", "transfer", "files", "subprocess", "data"))
_SERVED: Final[Mapping[str, int]] = {"transfer": 1, "evaluation": 2, "compile": 2, "checkpoint": 2}
"""What says more of a purpose than what it is done with."""


# ── reading ────────────────────────────────────────────────────────────────────────────────────


def threads_of(stacks: Mapping[str, Any]) -> list[Thread]:
    """The threads of the user's program; ours, and frames that say nothing, are left out."""
    found = []
    for plain in _mappings(stacks.get("threads")):
        name = str(plain.get("name", ""))
        frames = tuple(_frames(plain.get("frames")))
        if name.startswith("runwatch") or _is_ours(frames):
            continue
        is_main, gil, idle = (bool(plain.get(f)) for f in ("is_main", "holds_gil", "idle"))
        number = plain.get("native_id")
        whole = any(bool(frame.get("native")) for frame in _mappings(plain.get("frames")))
        own = number if isinstance(number, int) else 0
        thread = Thread(name, frames, is_main, gil, idle, own, whole, bool(plain.get("spins")))
        found.append(_through_tasks(thread, list(_mappings(plain.get("tasks")))))
    return found


def _through_tasks(thread: Thread, tasks: Sequence[Mapping[str, Any]]) -> Thread:
    """A thread whose event loop waits is where its tasks are: their frames go before its own.

    Followed is the task that the loop runs until the end of, down to the one it waits for.
    """
    purpose = _purpose(thread.frames)
    if not tasks or not _loop_waits(thread.frames) or (purpose and purpose[0] == "idle"):
        return thread
    by_name = {str(task.get("name", "")): task for task in tasks}
    task = next((t for t in tasks if t.get("is_root")), None) or _telling(tasks)
    inner: tuple[Frame, ...] = ()
    seen: list[str] = []
    while task is not None and (name := str(task.get("name", ""))) not in seen:
        seen.append(name)
        inner = (*_frames(task.get("frames")), *inner)
        names = task.get("awaits")
        others = [by_name[n] for n in names if n in by_name] if isinstance(names, list) else []
        task = _telling(others)
    return replace(thread, frames=(*inner, *thread.frames), awaits=seen[-1] if seen else "")


def _telling(tasks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The first that is in the user's own code, else the first."""
    users = (t for t in tasks if any(not is_library(f) for f in _frames(t.get("frames"))))
    return next(users, tasks[0] if tasks else None)


def _loop_waits(frames: Sequence[Frame]) -> bool:
    """Whether its innermost Python is an event loop's wait, and not a callback of it."""
    for frame in frames:
        if frame.native:
            continue
        if frame.name in ("_run_once", "run_forever") or "/asyncio/runners.py" in frame.file:
            return True
        if "/selectors.py" not in frame.file:
            return False
    return False


def main_thread(threads: Sequence[Thread]) -> Thread | None:
    """Not every source says which it is: then the one that no thread started."""
    for thread in threads:
        if thread.is_main:
            return thread
    unstarted = [t for t in threads if not any(f.name in _BOOTSTRAP for f in t.frames)]
    candidates = [t for t in unstarted if any(not f.native for f in t.frames)]
    return candidates[-1] if candidates else None


def _frames(plain: Any) -> Iterable[Frame]:
    for each in _mappings(plain):
        native = bool(each.get("native", False))
        function = str(each.get("function", ""))
        if native:
            function = _ADDRESS.sub("", function) if not function.startswith("0x") else function
            if not function or _NOISE.search(function):
                continue
        line = each.get("line")
        file = str(each.get("file", ""))
        if native or not _OURS.search(file):
            yield Frame(function, file, line if isinstance(line, int) else 0, native)


def _is_ours(frames: Sequence[Frame]) -> bool:
    """A thread of ours has nothing left but how threads begin; our frames are already gone."""
    rest = [f for f in frames if not f.native and f.name != _LEFT_OUT]
    started = any(frame.name in _BOOTSTRAP for frame in rest)
    return started and all(f.name in _BOOTSTRAP | {"run"} and is_library(f) for f in rest)


def _mappings(value: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(value, list | tuple):
        yield from (each for each in value if isinstance(each, Mapping))


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
    """What the user's own functions are called for, from the inside out."""
    for frame in thread.frames:
        if not frame.native and not is_library(frame):
            found = _match(BY_NAME, frame)
            if found is not None:
                return found[0]
    return None


def _purpose(frames: Sequence[Frame]) -> tuple[Kind, str] | None:
    for at, frame in enumerate(frames):
        found = _match(NATIVE if frame.native else PYTHON, frame)
        if found is None:
            continue
        kind, what = found
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
    """A hook of the user's that the backward pass calls waits by itself."""
    return any(not frame.native and not is_library(frame) for frame in frames)


def _served(outer: Sequence[Frame]) -> tuple[Kind, str] | None:
    """What a transfer, a file or a child process is for, if something further out tells."""
    best: tuple[Kind, str] | None = None
    for frame in outer:
        found = None if frame.native else _match(PYTHON, frame)
        if found is not None and found[0] == "running":
            break
        if found is not None and _SERVED.get(found[0], 0) > (_SERVED[best[0]] if best else 0):
            best = found
    return best


def _named(kind: Kind, what: str, outer: Sequence[Frame]) -> tuple[Kind, str]:
    """A native wait under the name of the Python call that began it, if there is one."""
    for frame in outer:
        if frame.native:
            found = _match(NATIVE, frame)
            if found is not None and found[0] == "collective" and found[1] == "gradient all_reduce":
                return found
        elif (found := _match(PYTHON, frame)) is not None and found[0] in ("collective", "peer"):
            return found[0], _entrance(found[0], found[1], outer)
        elif found is not None and found[0] == "device":
            return kind, found[1]
    return kind, what or "a collective"


def _entrance(kind: Kind, what: str, outer: Sequence[Frame]) -> str:
    """Of calls inside one another, what the user called: `barrier`, not the `all_reduce` in it."""
    inner = next((at for at, f in enumerate(outer) if not f.native and not is_library(f)), None)
    # A dataset is the user's and is called by the loader, which the user calls.
    for frame in outer if kind == "data" else outer[:inner]:
        if frame.native or frame.name in ("wrapper", "wrapped", "decorate_context"):
            continue
        if frame.name == "_worker_loop":
            return "DataLoader worker"  # a fork: what is further out is its parent's past
        found = _match(PYTHON, frame)
        if found is not None and found[0] == kind:
            what = found[1]
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
            found = _match(HOW_NATIVE, frame)
            # A futex is what a lock, a condition and the GIL all end in: further out is better.
            if native is None or (found is not None and native[0] == found[0] == "lock"):
                native = found
            continue
        found = _match(HOW_PYTHON, frame)
        if found is not None and (native is None or native[0] in ("lock", found[0])):
            return found
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
    """Equal for threads that are at the same: the user's lines, and what Python called there.

    Native frames are left out, which not every source has; so are the lines of a thread that runs.
    """
    wait = wait or wait_of(thread)
    python = [frame for frame in thread.frames if not frame.native]
    if wait.kind == "running":
        place = None if wait.where is None else (wait.where.name, wait.where.file)
        return wait.kind, wait.what, place
    users = [frame for frame in python if not is_library(frame)] or python[:3]
    return _purpose(python) or "", tuple((f.name, f.file, f.line) for f in users)


def path(thread: Thread) -> tuple[tuple[str, str], ...]:
    """The user's functions on the way to where it is, innermost first."""
    users = (f for f in thread.frames if not f.native and not is_library(f))
    return tuple((frame.name, frame.file) for frame in users)


def differ(one: Thread, other: Thread) -> bool:
    """Whether anything changed between two looks: a thread that runs, not one that is stuck.

    Native frames are costly to read: not every look has them.
    """
    native = one.whole and other.whole
    return _exact(one, native) != _exact(other, native)


def _exact(thread: Thread, native: bool) -> Signature:
    return tuple((f.name, f.file, f.line) for f in thread.frames if native or not f.native)
