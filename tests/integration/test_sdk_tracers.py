"""Threads that record while the program is traced: a tracer in Python runs between our lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from runwatch.testing import read_stories
from tests.integration.sdk_programs import run_program

_PROGRAM = """
import sys, threading
import runwatch
sys.setswitchinterval(1e-5)  # threads change in the middle of whatever can be cut in two
run = runwatch.init("traced")
run.log(loss=0.0, rate=0.0)
for _ in run.steps(range(3)):
    pass

def trace(frame, event, argument):
    return trace

def work(number):
    for n in range(COUNT):
        run.log({f"loss{number}": n})
        run.log({"loss": 0.0, "rate": float(n)})
        if not number:
            with run.step(n):
                run.log(inside=n)

COUNT = 1500
threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 4)]
TRACE
for thread in threads:
    thread.start()
work(0)
for thread in threads:
    thread.join()
sys.settrace(None)
sys.setprofile(None)
threading.settrace(None)
threading.setprofile(None)
run.finish()
print("traced")
"""


@pytest.mark.parametrize(
    "trace",
    [
        "sys.settrace(trace); threading.settrace(trace)",
        "sys.setprofile(trace); threading.setprofile(trace)",
        "threading.settrace(trace)",
    ],
)
def test_a_tracer_costs_no_record(trace: str, tmp_path: Path) -> None:
    done = run_program(_PROGRAM.replace("TRACE", trace), tmp_path)
    assert (done.stdout, done.stderr) == ("traced\n", "")
    (story,) = read_stories(tmp_path)
    numbers = [float(n) for n in range(1500)]
    for thread in range(4):
        assert story.values(f"loss{thread}") == numbers
    assert sorted(story.values("rate")) == sorted([0.0, *numbers * 4])
    assert story.values("inside") == numbers
    assert len(story.values("step_seconds")) == 1503
    assert story.bodies("journal_gap") == []
