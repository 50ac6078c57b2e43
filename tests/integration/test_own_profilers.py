"""Programs with profilers of their own, while we record too: they run as without us, and their
traces are what they are without us."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.integration.sdk_programs import run_program

TORCH = """
import collections, json, os, runwatch, torch
from torch.profiler import profile, schedule

os.chdir(os.environ["RUNWATCH_DIR"])
CPU = [torch.profiler.ProfilerActivity.CPU]
layer = torch.nn.Linear(64, 64)
run = runwatch.init("own")
ours = None

def work():
    layer(torch.ones(8, 64)).sum().backward()

def begin(session):
    global ours
    ours = run.profile(seconds=60, session=session).start()

def begin_and_end(session):
    begin(session)
    if ours.state == "recording":  # else this would be in the program's own trace
        work()
    ours.stop()
    assert ours.wait(60)

def scheduled(at, act):
    traces = []
    waits = schedule(wait=2, warmup=2, active=3, repeat=2)
    with profile(activities=CPU, schedule=waits, on_trace_ready=traces.append) as mine:
        for step, _ in zip(range(20), run.steps(range(20))):
            if step == at:
                act()
            work()
            mine.step()
    return mine, len(traces)

def block(at, act):
    if at == 0:
        act()
    with profile(activities=CPU) as mine:
        work()
        if at == 1:
            act()
        work()
    return mine, 1

def inner(at, act):
    if at == 0:
        act()
    with torch.autograd.profiler.profile() as mine:
        work()
        if at == 1:
            act()
        work()
    return mine, 1

def names(mine):
    events = mine.function_events if hasattr(mine, "function_events") else mine.events()
    mine.export_chrome_trace("own.json")
    with open("own.json") as file:
        json.load(file)
    return collections.Counter(event.name for event in events)

def summary(way, at=-1, act=None):
    mine, traces = way(at, act)
    return traces, names(mine)

for way, moments in ((scheduled, (0, 1, 2, 3, 4, 5, 8)), (block, (0, 1)), (inner, (0, 1))):
    summary(way)  # the first time there is more
    alone = summary(way)
    for act in (begin, begin_and_end):
        for at in moments:
            session = f"{way.__name__}-{at}-{act.__name__}"
            same = summary(way, at, lambda: act(session)) == alone
            ours.stop()
            assert ours.wait(60)
            print(json.dumps([session, same, ours.state, ours.why, [*ours.files]]))
"""
JAX = """
import glob, json, jax, jax.numpy as jnp, os, runwatch

os.chdir(os.environ["RUNWATCH_DIR"])
multiply = jax.jit(lambda x: x @ x)
ones = jnp.ones((64, 64))
run = runwatch.init("own")
multiply(ones).block_until_ready()
ours = None

def begin(session):
    global ours
    ours = run.profile(seconds=60, session=session).start()

def attempt(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "well"

def own(folder, before=False, inside=False):
    if before:
        begin(folder)
    said = [attempt(jax.profiler.start_trace, folder)]
    if inside:
        begin(folder)
    for _ in run.steps(range(3)):
        multiply(ones).block_until_ready()
    said += [attempt(jax.profiler.stop_trace), attempt(jax.profiler.stop_trace)]
    return said, len(glob.glob(f"{folder}/**/*.xplane.pb", recursive=True))

alone = own("alone")
for moments in ({"before": True}, {"inside": True}):
    session = "-".join(moments)
    same = own(session, **moments) == alone
    ours.stop()
    assert ours.wait(60)
    print(json.dumps([session, same, ours.state, ours.why, [*ours.files]]))
begin("stray")
said = attempt(jax.profiler.stop_trace)
ours.stop()
assert ours.wait(60)
print(json.dumps(["stray", said == alone[0][2], ours.state, ours.why, [*ours.files]]))
"""
TRACES_ITSELF = "the program itself is tracing"
GAVE_WAY = "it ended when the program's own"


def told(program: str, directory: Path) -> dict[str, tuple[bool, str, str, list[str]]]:
    """By session: whether the program was as alone, and our state, reason and files."""
    done = run_program(program, directory, JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    lines: list[list[Any]] = list(map(json.loads, done.stdout.splitlines()))
    return {session: (same, state, why, files) for session, same, state, why, files in lines}


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_torch_programs_keep_their_own_profiles(tmp_path: Path) -> None:
    found = told(TORCH, tmp_path)
    assert len(found) == 22
    assert [session for session, (same, *_) in found.items() if not same] == []
    for session, (_, state, why, files) in found.items():
        if TRACES_ITSELF in why:  # theirs came first
            assert (state, files) == ("failed", []), session
        else:
            assert (state, len(files)) == ("done", 1), (session, why)
            assert GAVE_WAY in why or session.endswith("end"), session
    for at in range(6):  # of two steps each, it waits, warms up and is active
        waits = at < 2
        assert (GAVE_WAY if waits else TRACES_ITSELF) in found[f"scheduled-{at}-begin"][2]
        assert (TRACES_ITSELF in found[f"scheduled-{at}-begin_and_end"][2]) != waits
    for way in ("block", "inner"):
        assert GAVE_WAY in found[f"{way}-0-begin"][2]
        assert TRACES_ITSELF in found[f"{way}-1-begin"][2]


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_jax_programs_keep_their_own_traces(tmp_path: Path) -> None:
    found = told(JAX, tmp_path)
    assert [(session, same, state) for session, (same, state, *_) in found.items()] == [
        ("before", True, "done"),
        ("inside", True, "failed"),
        ("stray", True, "done"),
    ]
    assert GAVE_WAY in found["before"][2] and TRACES_ITSELF in found["inside"][2]
    assert [len(files) for *_, files in found.values()] == [1, 0, 1]


CROSSING = """
import gc, runwatch, time, torch
run = runwatch.init("crossing")
for number, _ in run.steps(range(150)):
    if number % 3 == 0:  # ends in the middle of a step
        taken = run.profile(session=f"s{number}").start()
        gc.collect()  # what is left of the profile before
    torch.ones(4) + 1
    if number % 3 == 1:
        taken.stop()
        assert taken.wait(60) and taken.state == "done", taken.why
print("well")
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_no_mark_of_a_step_outlives_its_trace(tmp_path: Path) -> None:
    """With this threshold, memory that torch has freed is gone, and a write there ends the program
    each time, not now and then."""
    done = run_program(CROSSING, tmp_path, MALLOC_MMAP_THRESHOLD_="4096")
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr[-2000:]
