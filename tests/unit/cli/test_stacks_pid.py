from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from runwatch.cli.stacks_pid import groups, is_waiting_for_work, show_pid
from runwatch.record.stacks import Frame, Thread
from runwatch.testing import until

PROGRAM = """
import ctypes, threading
from concurrent.futures import ThreadPoolExecutor
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
pool, met = ThreadPoolExecutor(3, thread_name_prefix="decode"), threading.Barrier(4)
for _ in range(3):
    pool.submit(met.wait)
met.wait()
never = threading.Event()
def fetch_shard():
    never.wait()
for number in range(2):
    threading.Thread(target=fetch_shard, name=f"fetch-{number}", daemon=True).start()
def train():
    never.wait()
print("ready", flush=True)
train()
"""


@pytest.fixture
def program() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stdout.readline() == b"ready\n"
        yield started.pid
        started.kill()


def shown(pid: int, *, native: bool = False) -> tuple[int, str]:
    out = io.StringIO()
    code = show_pid(pid, native=native, as_json=False, console=Console(file=out, width=100))
    return code, out.getvalue()


def settled(pid: int, *, native: bool = False) -> str:
    text: list[str] = []

    def there() -> bool:
        text.append(shown(pid, native=native)[1])
        return (
            "  sleeping  " in text[-1]
            and "train  " in text[-1]
            and "3 threads waiting for work" in text[-1]
            and "2 threads at the same place: fetch-" in text[-1]
        )

    until(there)
    return text[-1]


def test_threads_at_the_same_place_are_one(program: int) -> None:
    text = settled(program)
    assert f"Process {program}  sleeping" in text
    main, fetching, waiting = (
        text.index(word)
        for word in (
            "MainThread",
            "2 threads at the same place: fetch-",
            "waiting for work: decode_",
        )
    )
    assert main < text.index("train") < fetching < text.index("fetch_shard") < waiting
    assert "concurrent/futures" not in text  # the pool's stacks are folded


def test_native_frames_end_where_python_begins(program: int) -> None:
    text = settled(program, native=True)
    rows = text[text.index("MainThread") : text.index("fetch-")].splitlines()
    frames = [row.split()[0] for row in rows if row.startswith("   ")]
    # Before py-spy 0.4.3 the name of a method is told without its class.
    [waits, *_] = [at for at, frame in enumerate(frames) if frame in ("Event.wait", "wait")]
    assert frames[-1] == "<module>" and frames.index("train") > waits > 0


def test_json(program: int, capsys: pytest.CaptureFixture[str]) -> None:
    settled(program)
    assert show_pid(program, native=False, as_json=True, console=Console()) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["pid"] == program and answer["command"].startswith(sys.executable)
    assert len(answer["threads"]) == 6


def test_why_it_cannot_be_shown() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeping:
        until(lambda: " sleeping" in shown(sleeping.pid)[1])
        code, text = shown(sleeping.pid)
        sleeping.kill()
    assert code == 1 and "is not a Python program" in text
    assert "What the kernel reports" in text and "sleeping" in text
    code, text = shown(sleeping.pid)
    assert code == 1 and "cannot be seen from here" in text


def thread(
    name: str, *files: str, idle: bool = True, is_main: bool = False, holds_gil: bool = False
) -> Thread:
    frames = tuple(Frame("f", file, 1) for file in files)
    return Thread(name, 1, idle=idle, is_main=is_main, holds_gil=holds_gil, frames=frames)


def test_whose_threads_are_folded() -> None:
    library, theirs = "/usr/lib/python3.12/queue.py", "/x/lib/python3.12/site-packages/torch/a.py"
    assert is_waiting_for_work(thread("pool", library))
    assert is_waiting_for_work(thread("runwatch-control", "/x/runwatch/control.py"))
    assert not is_waiting_for_work(thread("pool", library, idle=False))
    assert not is_waiting_for_work(thread("pool", library, theirs))
    assert not is_waiting_for_work(thread("main", library, is_main=True))
    assert not is_waiting_for_work(thread("holder", library, holds_gil=True))
    assert not is_waiting_for_work(thread("unknown"))


def test_main_first_then_who_holds_the_lock_then_the_busy() -> None:
    made = [
        thread("idle-1", "a"), thread("idle-2", "a"), thread("busy", "b", idle=False),
        thread("gil", "c", holds_gil=True), thread("main", "d", is_main=True),
    ]  # fmt: skip
    names = [[each.name for each in group] for group in groups(made)]
    assert names == [["main"], ["gil"], ["busy"], ["idle-1", "idle-2"]]


LOOP = """
import asyncio, ctypes, sys
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
if "recorded" in sys.argv:
    import runwatch
    run = runwatch.init("loop")
async def consume():
    await asyncio.Queue().get()
async def main():
    print("ready", flush=True)
    await asyncio.gather(asyncio.create_task(consume(), name="consumer"))
asyncio.run(main())
"""


@pytest.mark.parametrize("recorded", [True, False])
def test_tasks_of_an_event_loop_are_shown_if_the_program_tells_them(
    recorded: bool, tmp_path: Path
) -> None:
    environment = {**os.environ, "RUNWATCH_DIR": str(tmp_path), "RUNWATCH_AGENT": "off"}
    words = [sys.executable, "-c", LOOP, *(["recorded"] if recorded else [])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as started:
        try:
            assert started.stdout is not None and started.stdout.readline() == b"ready\n"
            wanted = "task consumer" if recorded else "cannot be seen from outside"
            text = until(lambda: t if wanted in (t := shown(started.pid)[1]) else None, 30, wanted)
        finally:
            started.kill()
    assert ("consume  " in text) == recorded
    assert ("it writes no journal" in text) != recorded
