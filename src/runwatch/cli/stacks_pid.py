"""`runwatch stacks --pid PID`: one local process in the terminal, without any set-up.

Threads at the same place are shown once.  Idle threads that run only library code (a pool waiting
for work) share one line at the end.
"""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from runwatch.agent.errands.control import ask
from runwatch.capture import process
from runwatch.capture.asking import no_tasks, runs_a_loop, with_answer
from runwatch.capture.outside import look
from runwatch.capture.stacks import LEFT_OUT
from runwatch.cli.pictures import tables
from runwatch.journal.liveness import PROC
from runwatch.record.stacks import AsyncTask, Frame, Stacks, Thread

STATES: Final = {
    "R": "running", "S": "sleeping", "D": "uninterruptible sleep", "T": "stopped",
    "t": "held by a debugger", "Z": "ended", "I": "idle",
}  # fmt: skip
LOOK_SECONDS: Final = 20.0
_NAMES: Final = 4
_LIBRARY: Final = re.compile(r"^<frozen |/lib(?:64)?/python3\.\d+/(?!site-packages|dist-packages)")
_ROOTS: Final = re.compile(r"^.*/(?:site-packages|dist-packages|lib(?:64)?/python3\.\d+)/")

Group = list[Thread]


def show_pid(pid: int, *, native: bool, as_json: bool, console: Console) -> int:
    """Print the stacks of the process; returns 1 if they cannot be read."""
    stacks = _with_tasks(look(pid, native, LOOK_SECONDS))
    command = _command(pid)
    if as_json:
        tables.print_json({**stacks.body(), "command": command})
        return 0 if stacks.threads else 1
    console.print(_heading(stacks, command))
    if stacks.threads:
        print_threads(stacks.threads, console, _folder(pid))
    print_problems(stacks, console)
    return 0 if stacks.threads else 1


def _with_tasks(stacks: Stacks) -> Stacks:
    """Add the tasks of an event loop.  Only a program that writes a journal can be asked."""
    if not runs_a_loop(stacks):
        return stacks
    journal, version = process.journal_of(stacks.pid), process.python_version(stacks.pid)
    if journal is None:
        return stacks.with_problems(no_tasks(stacks.pid, "it writes no journal", version))
    return with_answer(stacks, partial(ask, journal), version)[0]


def groups(threads: Iterable[Thread]) -> list[Group]:
    """Threads with identical stacks together: the main thread's group first, idle ones last."""
    by_frames: dict[tuple[Frame, ...], Group] = {}
    for thread in threads:
        by_frames.setdefault(thread.frames, []).append(thread)
    return sorted(by_frames.values(), key=_order)


def is_waiting_for_work(thread: Thread) -> bool:
    """Idle, and only in code of the standard library or of Runwatch."""
    if thread.is_main or thread.holds_gil or not thread.idle:
        return False
    if thread.name.startswith("runwatch"):
        return True
    python = [frame for frame in thread.frames if not frame.native]
    return bool(python) and all(_LIBRARY.search(frame.file) for frame in python)


def _order(group: Group) -> tuple[bool, bool, bool, int]:
    return (
        not any(thread.is_main for thread in group),
        not any(thread.holds_gil for thread in group),
        all(thread.idle for thread in group),
        -len(group),
    )


# ── the picture ───────────────────────────────────────────────────────────────────────────────


def _heading(stacks: Stacks, command: str) -> Text:
    text = Text.assemble(("Process ", "bold"), (str(stacks.pid), "bold cyan"))
    if stacks.state:
        text.append(f"  {STATES.get(stacks.state, stacks.state)}")
    text.append(f"  {tables.time(stacks.time_ns)}", style="dim")
    if command:
        text.append(f"\n{command}", style="dim")
    return text


def print_threads(threads: Sequence[Thread], console: Console, folder: str = "") -> None:
    """Files below `folder` are shown relative to it."""
    waiting = [thread for thread in threads if is_waiting_for_work(thread)]
    for group in groups(thread for thread in threads if thread not in waiting):
        console.print()
        console.print(_title(group))
        console.print(Padding(_frames(group[0].frames, folder), (0, 0, 0, 3)))
        for task in group[0].tasks:
            console.print(Padding(_task_title(task), (0, 0, 0, 3)))
            console.print(Padding(_frames(task.frames, folder), (0, 0, 0, 6)))
    if waiting:
        console.print()
        names = _names(waiting)
        console.print(Text(f"{_count(len(waiting))} waiting for work: {names}", style="dim"))


def _title(group: Group) -> Text:
    first = group[0]
    if len(group) > 1:
        text = Text.assemble(
            (f"{len(group)} threads", "bold"), f" at the same place: {_names(group)}"
        )
    else:
        text = Text(first.name or "thread", style="bold")
        number = first.native_id or first.ident
        text.append(f"  {number}", style="dim")
    if any(thread.holds_gil for thread in group):
        text.append("  holds the GIL", style="bold yellow")
    if all(thread.idle for thread in group):
        text.append("  waiting" if not first.holds_gil else "", style="dim")
    else:
        text.append("  running", style="green")
    return text


def _task_title(task: AsyncTask) -> Text:
    text = Text.assemble("task ", (task.name, "bold"))
    if task.is_root:
        text.append("  the loop runs until it is done", style="dim")
    if task.awaits:
        text.append(f"  waits for {', '.join(task.awaits[:_NAMES])}", style="dim")
    return text


def _frames(frames: Sequence[Frame], folder: str) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    here = next((frame for frame in frames if _is_users(frame)), None)
    if not frames:
        table.add_row(Text("no Python frame", style="dim"), "")
    for frame in _useful(frames):
        table.add_row(*_cells(frame, folder, is_here=frame is here))
    return table


def _useful(frames: Sequence[Frame]) -> list[Frame]:
    """Without the native frames that only start Python, and without the same line twice."""
    last = max((i for i, frame in enumerate(frames) if not frame.native), default=len(frames))
    kept = frames[: last + 1]
    return [frame for before, frame in zip((None, *kept), kept, strict=False) if frame != before]


def _cells(frame: Frame, folder: str, *, is_here: bool) -> tuple[Text, Text]:
    if frame.function == LEFT_OUT:
        return Text("…", style="dim"), Text("frames left out", style="dim")
    style = "dim" if frame.native else "bold" if is_here else ""
    place = Text(_place(frame, folder), style="dim" if frame.native else "cyan")
    if is_here and (source := linecache.getline(frame.file, frame.line).strip()):
        place.append(f"   {source}", style="italic green")
    return Text(frame.function, style=style), place


def _is_users(frame: Frame) -> bool:
    """Not a library's.  The innermost of these is where a reader looks first."""
    return not frame.native and not _LIBRARY.search(frame.file)


def _place(frame: Frame, folder: str) -> str:
    file = frame.file
    if frame.native:
        file = os.path.basename(file)
    elif folder and file.startswith(folder + os.sep):
        file = os.path.relpath(file, folder)
    else:
        file = _ROOTS.sub("", file)
    return f"{file}:{frame.line}" if frame.line else file


def _names(group: Sequence[Thread]) -> str:
    names = [thread.name or str(thread.native_id or thread.ident) for thread in group]
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")


def _count(number: int) -> str:
    return "1 thread" if number == 1 else f"{number} threads"


def print_problems(stacks: Stacks, console: Console) -> None:
    style = "yellow" if stacks.threads else "bold red"
    for problem in stacks.problems:
        console.print()
        console.print(Text(problem, style=style))
    facts = None if stacks.threads else process.look_up(stacks.pid)
    if facts is not None and facts.tasks and facts.state not in process.DEAD:
        console.print()
        console.print(Text("What the kernel reports", style="bold"))
        console.print(Padding(_tasks(facts), (0, 0, 0, 3)))


def _tasks(facts: process.Facts) -> RenderableType:
    table = tables.table("thread", "name", "state", "system call", "sleeps in", right=("thread",))
    for task in facts.tasks[:30]:
        state = STATES.get(task.state, task.state)
        table.add_row(str(task.native_id), task.name, state, task.syscall or "–", task.wchan or "–")
    return table


# ── the process ───────────────────────────────────────────────────────────────────────────────


def _command(pid: int, proc: Path = PROC) -> str:
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    # A program on the command line (python -c) has line breaks: they become spaces.
    text = " ".join(b" ".join(words).decode(errors="replace").split())
    return text if len(text) <= 160 else text[:159] + "…"


def _folder(pid: int, proc: Path = PROC) -> str:
    try:
        return os.readlink(proc / str(pid) / "cwd")
    except OSError:
        return ""
