"""The user's exceptions that come while the program is in a call of ours are the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from runwatch.testing import read_stories
from tests.integration.sdk_programs import run_program
from tests.sampling import sampled

_WORK = """
import decimal, random, runwatch
from runwatch.compat.mldiagnostics import metrics
run = runwatch.init("interrupted", total_steps=7)
dice, names = random.Random(15), 0

def work():
    # Each of our ways: one number, several, new names, odd values, spans and steps.
    global names
    run.log(loss=1.0)
    run.log(loss=1.0, rate=2)
    metrics.record("memory", 3.0)
    run.log(odd=decimal.Decimal(4), text="five")
    with run.span("save"):
        run.log({"loss": 6.0}, step=6)
    with run.step(7):
        pass
    names += 1
    if names < 3000:
        run.log({f"name{names}": 7})

class Mine(Exception):
    pass

class Talks(Exception):
    def __init__(self):
        super().__init__("it says something")

for _ in range(10):
    work()
"""

_ALARMS = """
import functools, signal
fired = swallowed = passed = 0

def fire(error):
    global fired
    fired += 1
    raise error

class Handler:
    def __call__(self, number, frame):
        fire(ERROR)
    def method(self, number, frame):
        fire(ERROR)

def plain(number, frame):
    fire(ERROR)

def more(extra, number, frame):
    fire(ERROR)

def careless(*arguments):
    del arguments  # holds nothing that could give it away
    fire(ERROR)

def once(number, frame):
    signal.signal(number, signal.SIG_IGN)  # is not installed any more when it raises
    fire(ERROR)

HANDLERS = [
    plain,
    functools.partial(more, 1),
    functools.partial(functools.partial(careless, 1), 2),
    Handler(),
    Handler().method,
    once,
    careless,
]
for turn in range(20 * len(HANDLERS)):
    before = fired
    signal.signal(signal.SIGALRM, HANDLERS[turn % len(HANDLERS)])
    try:
        signal.setitimer(signal.ITIMER_REAL, dice.uniform(1e-5, 2e-3))
        while fired == before:
            work()
        swallowed += 1
    except type(ERROR):
        passed += 1
run.finish()
print(fired, passed, swallowed)
"""


@pytest.mark.parametrize("error", sampled(["TimeoutError('late')", "Mine()", "KeyError('key')"], 1))
def test_what_a_signal_handler_raises_is_the_programs(error: str, tmp_path: Path) -> None:
    done = run_program(f"{_WORK}\nERROR = {error}\n{_ALARMS}", tmp_path)
    assert (done.stdout, done.stderr) == ("140 140 0\n", "")
    (story,) = read_stories(tmp_path)
    assert story.warnings == {}


@pytest.mark.parametrize("kind", sampled(["Talks", "Mine", "TimeoutError"], 1))
def test_what_another_thread_has_set_is_the_programs(kind: str, tmp_path: Path) -> None:
    text = f"""{_WORK}
import ctypes, threading, time
main, go, sent, end = threading.get_ident(), threading.Event(), 0, False

def throw():
    global sent
    while True:
        go.wait()
        go.clear()
        if end:
            return
        time.sleep(dice.uniform(1e-5, 2e-3))
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(main), ctypes.py_object({kind}))
        sent += 1

thread = threading.Thread(target=throw)
thread.start()
passed = swallowed = 0
for turn in range(100):
    before = sent
    try:
        go.set()
        while sent == before:
            work()
        swallowed += 1
    except {kind}:
        passed += 1
    while sent == before:
        pass
end = True
go.set()
thread.join()
run.finish()
print(sent, passed, swallowed)
"""
    done = run_program(text, tmp_path)
    sent, passed, swallowed = map(int, done.stdout.split())
    # What comes while Python takes an object apart is lost to Python itself, which says so.
    assert (sent, passed + swallowed) == (100, 100) and swallowed <= 3, done.stdout
    assert done.stderr.count("Exception ignored in") == swallowed
    assert "runwatch could not" not in done.stderr


def test_what_a_value_of_the_programs_raises_stays_with_us(tmp_path: Path) -> None:
    done = run_program(
        """
        import runwatch
        class Mine(Exception):
            pass
        class Value:
            def __float__(self):
                raise Mine
        class Wordy:
            def __float__(self):
                raise Mine("no number")
        run = runwatch.init("values")
        for value in (Value(), Wordy()):
            run.log(loss=value)
            run.log(loss=value, rate=1.0)
        run.finish()
        """,
        tmp_path,
    )
    assert done.returncode == 0
    (story,) = read_stories(tmp_path)
    assert story.warnings == {"record a value: Mine": 4}
    assert story.values("rate") == [1.0, 1.0]
