"""How a program ends, and what its journal says about it.  Every program is a real process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from runwatch.testing import Story, read_stories
from tests.integration.sdk_programs import run_program, start_program


def only(directory: Path) -> Story:
    (story,) = read_stories(directory)
    return story


def test_a_program_that_just_ends_has_completed(tmp_path: Path) -> None:
    done = run_program(
        """
        import runwatch
        run = runwatch.init("plain")
        for i in range(2000):
            run.log(loss=float(i), step=i)
        """,
        tmp_path,
    )
    story = only(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert story.end == {"status": "completed", "explicit": False}
    assert story.values("loss") == [float(i) for i in range(2000)]


@pytest.mark.parametrize(
    ("statement", "status", "exception", "code"),
    [
        ("raise ValueError('loss is gone')", "failed", "ValueError: loss is gone", 1),
        ("raise KeyboardInterrupt", "killed", "KeyboardInterrupt", -signal.SIGINT),
        ("sys.exit(3)", "completed", None, 3),  # the code is the agent's to tell
    ],
)
def test_an_uncaught_exception_is_the_end(
    statement: str, status: str, exception: str | None, code: int, tmp_path: Path
) -> None:
    done = run_program(
        f"""
        import sys, runwatch
        run = runwatch.init("ends")
        run.log(loss=1.0)
        {statement}
        """,
        tmp_path,
    )
    story = only(tmp_path)
    assert done.returncode == code
    assert story.end["status"] == status
    assert story.end.get("exception") == exception
    assert story.values("loss") == [1.0]
    assert story.end["explicit"] is False


def test_an_exception_is_known_even_if_the_users_hook_forgets_us(tmp_path: Path) -> None:
    done = run_program(
        """
        import sys, runwatch
        run = runwatch.init("hook")
        sys.excepthook = lambda *error: print("mine")
        raise ValueError("x")
        """,
        tmp_path,
    )
    assert done.stdout == "mine\n"
    assert only(tmp_path).end["exception"] == "ValueError: x"


def test_hooks_and_exit_handlers_of_the_user_run_in_their_order(tmp_path: Path) -> None:
    done = run_program(
        """
        import atexit, sys, runwatch
        atexit.register(lambda: print("before init", sys.excepthook is mine))
        mine = lambda kind, error, traceback: print("hook", kind.__name__)
        sys.excepthook = mine
        run = runwatch.init("order")
        atexit.register(lambda: run.log(late=1.0))
        atexit.register(lambda: print("after init", sys.excepthook is mine))
        raise RuntimeError
        """,
        tmp_path,
    )
    story = only(tmp_path)
    assert done.stdout.splitlines() == ["hook RuntimeError", "after init False", "before init True"]
    assert story.end["status"] == "failed"
    assert story.values("late") == [1.0]  # said after the hook, before our own end


def test_signal_handlers_are_left_alone(tmp_path: Path) -> None:
    done = run_program(
        """
        import signal, runwatch
        everything = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
        before = [signal.getsignal(s) for s in everything]
        run = runwatch.init("signals")
        during = [signal.getsignal(s) for s in everything]
        run.finish()
        after = [signal.getsignal(s) for s in everything]
        print(before == during == after)
        """,
        tmp_path,
    )
    assert done.stdout == "True\n"


@pytest.mark.parametrize(
    "death",
    ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(7)", "os.abort()",
     "signal.raise_signal(signal.SIGTERM)"],
)  # fmt: skip
def test_every_record_survives_a_sudden_death(death: str, tmp_path: Path) -> None:
    run_program(
        f"""
        import os, signal, runwatch
        run = runwatch.init("sudden")
        for i in range(5000):
            run.log(loss=float(i), step=i)
        {death}
        """,
        tmp_path,
    )
    story = only(tmp_path)
    assert story.values("loss") == [float(i) for i in range(5000)]
    assert story.bodies("run_end") == []  # the dying decide nothing


def test_killed_from_outside_at_full_speed(tmp_path: Path) -> None:
    process = start_program(
        """
        import itertools, sys, runwatch
        run = runwatch.init("speed")
        for i in itertools.count():
            run.log(loss=float(i), step=i)
            if i % 1000 == 0:
                print(i, flush=True)
        """,
        tmp_path,
        RUNWATCH_SEGMENT_BYTES=str(1 << 20),
    )
    assert process.stdout is not None
    said = 0
    while said < 60_000:  # over several segments
        said = int(process.stdout.readline())
    process.kill()
    said = int(([str(said), *process.communicate()[0].split()])[-1])
    values = only(tmp_path).values("loss")
    assert len(values) > said
    assert values == [float(i) for i in range(len(values))]


def test_a_signal_handler_that_logs(tmp_path: Path) -> None:
    done = run_program(
        """
        import signal, runwatch
        run = runwatch.init("handler")
        calls = []
        def handler(*_):
            calls.append(1)
            run.log(from_handler=1.0, odd=None)
            run.log({f"new{len(calls)}": 1})
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0005)
        i = 0
        while len(calls) < 200:
            run.log({"loss": float(i), f"name{i % 300}": 1.0}, step=i)
            i += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(i, len(calls))
        """,
        tmp_path,
        RUNWATCH_SEGMENT_BYTES=str(1 << 20),
    )
    logged, handled = map(int, done.stdout.split())
    story = only(tmp_path)
    assert done.returncode == 0, done.stderr
    assert story.values("loss") == [float(i) for i in range(logged)]
    assert len(story.values("from_handler")) == handled


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "TimeoutError"])
def test_an_interrupt_in_the_middle_of_a_call_arrives_and_the_journal_is_whole(
    error: str, tmp_path: Path
) -> None:
    done = run_program(
        f"""
        import signal, runwatch
        run = runwatch.init("interrupt")
        def handler(*_):
            raise {error}
        signal.signal(signal.SIGALRM, handler)
        whole = interrupts = 0
        while interrupts < 50:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002)
                while True:
                    run.log(loss=float(whole))
                    whole += 1
            except {error}:
                interrupts += 1
        run.log(last=1.0)
        print(whole)
        """,
        tmp_path,
    )
    story = only(tmp_path)
    values = story.values("loss")
    assert done.returncode == 0, done.stderr
    assert story.values("last") == [1.0]
    assert sorted(set(values)) == [float(i) for i in range(len(set(values)))]
    assert int(done.stdout) <= len(values) <= int(done.stdout) + 50
    assert story.end["status"] == "completed"


def test_a_run_in_a_place_that_is_no_place(tmp_path: Path) -> None:
    done = run_program(
        """
        import runwatch
        with runwatch.init("proc") as run:
            run.log(loss=1.0)
        """,
        Path("/proc/1/no-such-thing"),
        TMPDIR=str(tmp_path),
    )
    (fallback,) = tmp_path.iterdir()
    assert only(fallback).values("loss") == [1.0]
    assert fallback.stat().st_mode & 0o077 == 0
    assert done.stderr.count("\n") == 1
    assert "/proc/1/no-such-thing" in done.stderr
    assert str(fallback) in done.stderr


# ── forks ─────────────────────────────────────────────────────────────────────────────────────


def test_a_forked_child_has_its_own_journal_and_no_say_in_the_end(tmp_path: Path) -> None:
    done = run_program(
        """
        import os, runwatch
        run = runwatch.init("fork")
        run.log(loss=1.0)
        child = os.fork()
        if child == 0:
            run.log(loss=2.0, note="in the child")
            raise SystemExit  # runs the inherited exit handlers
        os.waitpid(child, 0)
        run.log(loss=3.0)
        print(child)
        """,
        tmp_path,
    )
    parent, child = read_stories(tmp_path)
    assert done.returncode == 0, done.stderr
    assert parent.values("loss") == [1.0, 3.0]
    assert parent.end["status"] == "completed"
    assert child.values("loss") == [2.0]
    assert child.origin.pid == int(done.stdout)
    assert child.scopes[0].run == parent.scopes[0].run
    assert [e.kind for e in child.events] == ["fork", "log"]
    assert child.bodies("fork")[0]["parent_journal"] == parent.origin.journal


def test_a_child_that_logs_nothing_leaves_nothing(tmp_path: Path) -> None:
    run_program(
        """
        import os, runwatch
        run = runwatch.init("quiet")
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        """,
        tmp_path,
    )
    assert only(tmp_path).end["status"] == "completed"


def test_a_child_that_fails_does_not_fail_the_run(tmp_path: Path) -> None:
    run_program(
        """
        import os, runwatch
        run = runwatch.init("fails")
        if os.fork() == 0:
            raise ValueError("only the child")
        os.wait()
        """,
        tmp_path,
    )
    parent, child = read_stories(tmp_path)
    assert parent.end["status"] == "completed"
    assert not child.bodies("run_end"), "it tells its exception, and that is all"


def test_forks_while_threads_log_never_lock(tmp_path: Path) -> None:
    done = run_program(
        """
        import os, threading, runwatch
        run = runwatch.init("busy")
        stop = threading.Event()
        def work(name):
            i = 0
            while not stop.is_set():
                run.log({name: float(i), f"{name}{i % 50}": None})
                i += 1
        threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(2)]
        for t in threads:
            t.start()
        codes = []
        for n in range(20):
            child = os.fork()
            if child == 0:
                run.log(child=float(n), odd=None)
                with run.span("in-child"):
                    pass
                os._exit(0)
            codes.append(os.waitpid(child, 0)[1])
        stop.set()
        for t in threads:
            t.join()
        print(set(codes))
        """,
        tmp_path,
    )
    parent, *children = read_stories(tmp_path)
    assert done.stdout == "{0}\n", done.stderr
    assert sorted(c.values("child")[0] for c in children) == [float(n) for n in range(20)]
    assert parent.end["status"] == "completed"
    values = parent.values("t0")
    assert values == [float(i) for i in range(len(values))]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_multiprocessing_worker_closes_what_it_opened(method: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        """
import multiprocessing, sys, runwatch

def work(method):
    if method == "spawn":
        runwatch.init("worker-" + method)
    runwatch.log(loss=2.0)
    if method == "spawn":
        raise ValueError("worker")

if __name__ == "__main__":
    method = sys.argv[1]
    with runwatch.init("parent"):
        worker = multiprocessing.get_context(method).Process(target=work, args=(method,))
        worker.start()
        worker.join()
        print(worker.exitcode)
"""
    )
    done = run_program(
        f"""
        import runpy, sys
        sys.argv = [{str(script)!r}, {method!r}]
        runpy.run_path({str(script)!r}, run_name="__main__")
        """,
        tmp_path / "rw",
    )
    parent, worker = read_stories(tmp_path / "rw")
    assert parent.end["status"] == "completed", done.stderr
    assert worker.values("loss") == [2.0]
    if method == "spawn":
        assert worker.end["exception"] == "ValueError: worker"
    else:
        assert worker.bodies("run_end") == []
    segments = sorted((tmp_path / "rw" / "journals" / worker.origin.journal).iterdir())
    assert [p.name for p in segments] == ["00000000.seg"]
    assert os.path.getsize(segments[0]) < 100_000  # closed: what was not used is given back


def test_init_in_a_forked_child_is_its_own_part_in_the_run(tmp_path: Path) -> None:
    run_program(
        """
        import os, runwatch
        runwatch.init("launcher")
        for rank in range(2):
            if os.fork() == 0:
                os.environ["RANK"] = str(rank)
                os.environ["WORLD_SIZE"] = "2"
                with runwatch.init("job") as run:
                    for step, _ in run.steps(range(2)):
                        pass
                os._exit(0)
        os.wait(), os.wait()
        """,
        tmp_path,
    )
    launcher, *ranks = read_stories(tmp_path)
    assert launcher.scopes[0].name == "launcher"
    assert sorted(r.scopes[0].rank for r in ranks) == [0, 1]
    assert [r.end["status"] for r in ranks] == ["completed", "completed"]
    assert [r.steps("step_seconds") for r in ranks] == [[0, 1], [0, 1]]
