from __future__ import annotations

import faulthandler
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.capture.stacks import (
    LEFT_OUT,
    own_stacks,
    read_dumps,
    shortened,
)
from runwatch.record.stacks import Frame, Stacks, Thread


def last_threads(text: str) -> tuple[Thread, ...]:
    dumps = read_dumps(text)
    return dumps[-1].threads if dumps else ()


# ── shortened ─────────────────────────────────────────────────────────────────────────────────


def stack(depth: int, name: str = "f") -> tuple[Frame, ...]:
    return tuple(Frame(f"{name}{i}", f"/program/{name}.py", i) for i in range(depth))


def size(stacks: Stacks) -> int:
    return len(json.dumps(stacks.body()))


def test_what_fits_is_left_alone() -> None:
    stacks = Stacks(1, 2, "asked", threads=(Thread("t", 1, frames=stack(500)),))
    assert shortened(stacks) is stacks


def test_deep_stacks_keep_both_ends() -> None:
    threads = (Thread("deep", 1, frames=stack(20_000)), Thread("t", 2, frames=stack(5)))
    stacks = Stacks(1, 2, "asked", threads=threads)
    short = shortened(stacks, 100_000)
    deep, other = short.threads
    assert size(short) <= 100_000
    assert deep.frames[0].line == 0 and deep.frames[-1].line == 19_999
    assert [frame.function for frame in deep.frames].count(LEFT_OUT) == 1
    assert other == stacks.threads[1]
    assert "deepest: 20000" in short.problems[-1]


def test_of_many_threads_the_telling_ones_stay() -> None:
    threads = [Thread(f"t{i}", i, idle=True, frames=stack(30, f"n{i}")) for i in range(1000)]
    threads[700] = Thread("main", 700, is_main=True, frames=stack(30))
    threads[800] = Thread("gil", 800, holds_gil=True, frames=stack(30))
    threads[900] = Thread("busy", 900, frames=stack(30))
    short = shortened(Stacks(1, 2, "asked", threads=tuple(threads)), 50_000)
    assert size(short) <= 50_000
    assert {"main", "gil", "busy"} <= {thread.name for thread in short.threads}
    left_out = 1000 - len(short.threads)
    assert short.problems[-1] == f"{left_out} of 1000 threads are left out"


names = st.text(max_size=2000)
frames = st.builds(Frame, names, names, st.integers(0, 10**9), st.booleans())
threads = st.builds(
    Thread,
    names,
    st.integers(0, 10**6),
    is_main=st.booleans(),
    frames=st.lists(frames, max_size=40).map(tuple),
)


@given(st.lists(threads, max_size=30), st.lists(names, max_size=30))
def test_it_always_fits(made: list[Thread], problems: list[str]) -> None:
    stacks = Stacks(1, 2, "asked", problems=tuple(problems), threads=tuple(made))
    short = shortened(stacks, 80_000)
    assert size(short) <= 80_000
    assert {thread.ident for thread in short.threads} <= {thread.ident for thread in made}


# ── this process ──────────────────────────────────────────────────────────────────────────────


@contextmanager
def waiting(count: int) -> Iterator[None]:
    go, ready = threading.Event(), threading.Barrier(count + 1)

    def inner() -> None:
        ready.wait()
        go.wait()

    made = [threading.Thread(target=inner, name=f"waiter-{i}") for i in range(count)]
    for thread in made:
        thread.start()
    ready.wait()
    try:
        yield
    finally:
        go.set()
        for thread in made:
            thread.join()


def test_own_stacks_name_every_thread_and_the_line() -> None:
    with waiting(3):
        seen = own_stacks(time_ns=7)
    main = seen.threads[0]
    assert (seen.time_ns, seen.how, main.is_main) == (7, "asked", True)
    assert main.native_id == threading.main_thread().native_id
    here = next(f for f in main.frames if f.function.startswith("test_own_stacks"))
    assert here.file == __file__
    waiters = {t.name: t for t in seen.threads if t.name.startswith("waiter-")}
    assert set(waiters) == {"waiter-0", "waiter-1", "waiter-2"}
    for thread in waiters.values():
        assert "waiting.<locals>.inner" in [frame.function for frame in thread.frames]
        assert thread.native_id and not thread.is_main


# ── what faulthandler writes ──────────────────────────────────────────────────────────────────


def test_the_real_thing() -> None:
    with waiting(2), tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        text = file.read()
        own = own_stacks()
    parsed = {thread.ident: thread for thread in last_threads(text)}
    assert set(parsed) >= {thread.ident for thread in own.threads if "waiter" in thread.name}
    main = next(thread for thread in parsed.values() if thread.is_main)
    assert main.ident == threading.main_thread().ident
    assert "test_the_real_thing" in [frame.function for frame in main.frames]


def test_a_real_segmentation_fault() -> None:
    code = "import faulthandler as f; f.enable(); exec('def crash(): f._sigsegv()'); crash()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    (dump,) = read_dumps(done.stderr)
    assert dump.header == "Fatal Python error: Segmentation fault"
    (main,) = dump.threads
    assert main.is_main and [frame.function for frame in main.frames][-2:] == ["crash", "<module>"]


OF_3_11 = """\
Thread 0x00007f1c (most recent call first):
  File "/a/data.py", line 41 in __next__
  File "/a/train.py", line 8 in <module>

Current thread 0x00007f1d (most recent call first):
  Garbage-collecting
  File "/a/train.py", line 88 in step
"""
OF_3_14 = """\
Fatal Python error: Bus error

Thread 0x00007f1c [loader (0)] (most recent call first):
  File "/a/data.py", line 41 in __next__

Current thread 0x00007f1d [python] (most recent call first):
  File "/a/train.py", line 88 in step

Current thread's C stack trace (most recent call first):
  Binary file "/lib/libc.so.6", at gsignal+0x12 [0x7f1c2aa7eb2c]
  Binary file "/lib/libx.so", at +0x99 [0x7f1c2aa7eb2d]
  <truncated rest of calls>

Extension modules: numpy._core (total: 1)
"""


def test_of_python_3_11() -> None:
    loader, main = last_threads(OF_3_11)
    frames = (Frame("__next__", "/a/data.py", 41), Frame("<module>", "/a/train.py", 8))
    assert loader == Thread(ident=0x7F1C, frames=frames)
    assert main == Thread(ident=0x7F1D, is_main=True, frames=(Frame("step", "/a/train.py", 88),))


def test_of_python_3_14_with_names_and_a_c_stack() -> None:
    (dump,) = read_dumps(OF_3_14)
    loader, main = dump.threads
    assert dump.header == "Fatal Python error: Bus error"
    assert (loader.name, main.name) == ("loader (0)", "python")
    assert main.frames == (
        Frame("gsignal+0x12", "/lib/libc.so.6", 0, native=True),
        Frame("+0x99", "/lib/libx.so", 0, native=True),
        Frame("step", "/a/train.py", 88),
    )


def test_only_one_thread() -> None:
    text = 'Stack (most recent call first):\n  File "a.py", line 3 in f\n'
    assert last_threads(text) == (Thread(is_main=True, frames=(Frame("f", "a.py", 3),)),)


def test_frames_that_cannot_be_told() -> None:
    text = (
        "Thread 0x1 (most recent call first):\n  <no Python frame>\n\n"
        "Thread 0x2 (most recent call first):\n  File ???, line ??? in ???\n  ...\n\n"
        'Thread 0x3 (most recent call first):\n  File "a "b".py", line 7 in <lambda>\n'
    )
    none, unknown, quoted = last_threads(text)
    assert none.frames == ()
    assert unknown.frames == (Frame("???", "???", 0), Frame(LEFT_OUT, "", 0))
    assert quoted.frames == (Frame("<lambda>", 'a "b".py', 7),)


def test_after_a_hundred_threads_it_stops_and_the_main_one_is_unknown() -> None:
    text = 'Thread 0x1 (most recent call first):\n  File "a.py", line 3 in f\n...\n'
    (dump,) = read_dumps(text)
    assert dump.truncated and not dump.threads[0].is_main


def test_several_dumps_in_one_file() -> None:
    text = f"# header\nTimeout (0:00:01)!\n{OF_3_11}Timeout (0:00:01)!\n{OF_3_11}\n{OF_3_11}"
    first, second, third = read_dumps(text)
    assert [first.header, second.header, third.header] == ["Timeout (0:00:01)!"] * 2 + [""]
    assert first.threads == second.threads == third.threads == last_threads(text)


@pytest.mark.parametrize("cut", range(0, len(OF_3_14), 7))
def test_cut_anywhere_gives_what_is_there(cut: int) -> None:
    whole = {thread.ident: thread.frames for thread in last_threads(OF_3_14)}
    for thread in last_threads(OF_3_14[:cut]):
        known = [(frame.file, frame.line) for frame in whole[thread.ident]]
        read = [(frame.file, frame.line) for frame in thread.frames[:-1]]
        assert set(read) <= set(known)


@given(
    st.text(
        alphabet=st.sampled_from(list('Thread 0x1[]()\n"File, lin3. in…\0 Current\r')), max_size=300
    )
)
def test_garbage_is_skipped(garbage: str) -> None:
    last = read_dumps(f"{garbage}\nTimeout (0:00:01)!\n{OF_3_11}")[-1]
    assert last.threads == last_threads(OF_3_11)


# ── faults while others run (recorded from Python 3.11 and 3.13) ──────────────────────────────

BROKEN_OFF = """\
Fatal Python error: Aborted

Thread 0x00007fbb577616c0 (most recent call first):
  <no Python frame>

Thread 0x00007fbb3d7fa6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py"Fatal Python error: Segmentation fault

"""
BROKEN_OFF_AT_ONCE = """\
Fatal Python error: Illegal instruction

Fatal Python error: Segmentation fault

"""
JUST_STARTING = """\
Fatal Python error: Aborted

Thread 0x00007f25eba15b80 (most recent call first):
  <no Python frame>

Current thread 0x00007f25eba15b80 (most recent call first):
  File "/job/train.py", line 7 in faulty
  File "/job/train.py", line 8 in <module>
"""


def test_a_second_fault_that_breaks_a_dump_off() -> None:
    (dump,) = read_dumps(BROKEN_OFF)
    assert (dump.fault, dump.second) == ("Aborted", "Fatal Python error: Segmentation fault")
    assert [(thread.ident, thread.frames) for thread in dump.threads] == [
        (0x7FBB577616C0, ()), (0x7FBB3D7FA6C0, ()),
    ]  # fmt: skip
    assert dump.current is None
    assert not any(thread.is_main for thread in dump.threads)  # it was not reached


def test_one_that_comes_before_any_thread_is_written() -> None:
    (dump,) = read_dumps(BROKEN_OFF_AT_ONCE)
    assert (dump.fault, dump.threads) == ("Illegal instruction", ())
    assert dump.second == "Fatal Python error: Segmentation fault"


def test_a_thread_that_starts_has_the_id_of_who_starts_it() -> None:
    (dump,) = read_dumps(JUST_STARTING)
    assert (dump.fault, dump.second, dump.current) == ("Aborted", "", 0x7F25EBA15B80)
    starting, main = dump.threads
    assert (starting.frames, starting.is_main, main.is_main) == ((), False, True)
    assert [frame.function for frame in main.frames] == ["faulty", "<module>"]


def test_a_fault_after_a_whole_dump_is_one_of_its_own() -> None:
    whole = f"{JUST_STARTING}\nExtension modules: numpy._core (total: 1)\n"
    first, second = read_dumps(f"{whole}Fatal Python error: Floating-point exception\n\n")
    assert (first.fault, first.second) == ("Aborted", "")
    assert (second.fault, second.threads) == ("Floating-point exception", ())
    first, second = read_dumps(JUST_STARTING + OF_3_14)
    assert (first.fault, second.fault) == ("Aborted", "Bus error")


def test_dumps_by_signal_follow_each_other_without_an_empty_line() -> None:
    starting = JUST_STARTING.partition("\n\n")[2]
    first, second = read_dumps(starting + starting)
    assert len(first.threads) == len(second.threads) == 2
    assert (first.fault, second.fault) == ("", "")
