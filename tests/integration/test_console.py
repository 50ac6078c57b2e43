"""`init(console=True)` and uncaught exceptions, in real programs: for these nothing changes."""

from __future__ import annotations

import signal
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from runwatch.record.console import Console, ExceptionTold
from runwatch.sdk.console.wrapping import wanted
from runwatch.testing import Story, read_stories
from tests.integration.sdk_programs import run_program, start_program


def lines_of(stories: Sequence[Story], stream: str = "") -> list[str]:
    told = [Console.of(body) for story in stories for body in story.bodies(Console.KIND)]
    return [line for each in told if stream in ("", each.stream) for line in each.lines]


def exceptions_of(stories: Sequence[Story]) -> list[ExceptionTold]:
    return [ExceptionTold.of(b) for s in stories for b in s.bodies(ExceptionTold.KIND)]


PROGRAM = """
    import contextlib, io, logging, os, sys, threading
    logging.basicConfig(stream=sys.stderr)
    logger = logging.getLogger("train")
    out, err = sys.stdout, sys.stderr
    {init}
    print("plain")
    print("a", 1, None, sep="-", end="|")
    print("rest", flush=True)
    logger.warning("a handler made before init")
    sys.stdout.writelines(["one\\n", "two\\n"])
    for percent in range(0, 101, 5):
        print(f"\\r{{percent}}%", end="", file=sys.stderr)
    print(file=sys.stderr)
    with contextlib.redirect_stdout(io.StringIO()) as kept:
        print("kept elsewhere")
    print("kept", repr(kept.getvalue()))
    sys.stdout.flush()
    sys.stdout.buffer.write(b"bytes\\n")
    sys.stdout.buffer.flush()
    os.write(1, b"a descriptor\\n")
    print("é ü \\udcff".encode("utf-8", "replace").decode())
    thread = threading.Thread(target=print, args=("from a thread",))
    thread.start(); thread.join()
    print(sys.stdout is out, sys.stderr is err, sys.stdout.fileno(), sys.stdout.isatty(),
          sys.stdout.encoding, type(sys.stdout).__name__, sys.stdout.buffer.__class__.__name__)
    try:
        sys.stdout.write(5)
    except TypeError as error:
        print(error)
    {finish}
    print("after", "write" in vars(sys.stdout), file=sys.stderr)
"""


def test_a_program_writes_what_it_wrote_before(tmp_path: Path) -> None:
    without = run_program(PROGRAM.format(init="", finish=""), tmp_path / "none")
    init = 'import runwatch; run = runwatch.init("talks", console=True)'
    heard = run_program(PROGRAM.format(init=init, finish="run.finish()"), tmp_path / "heard")
    assert (heard.returncode, heard.stdout, heard.stderr) == (0, without.stdout, without.stderr)
    stories = read_stories(tmp_path / "heard")
    out, err = lines_of(stories, "out"), lines_of(stories, "err")
    assert out[:5] == ["plain", "a-1-None|rest", "one", "two", "kept 'kept elsewhere\\n'"]
    assert "from a thread" in out
    assert "kept elsewhere" not in out
    assert err == ["WARNING:train:a handler made before init", "100%"]


def test_nobody_asked_and_nothing_is_wrapped(tmp_path: Path) -> None:
    done = run_program(
        """
        import runwatch, sys
        runwatch.init("silent")
        print("write" in vars(sys.stdout))
        """,
        tmp_path,
    )
    assert done.stdout == "False\n"
    assert lines_of(read_stories(tmp_path)) == []


@pytest.mark.parametrize(
    ("environment", "asked", "heard"),
    [
        ({}, True, True),
        ({}, None, False),
        ({"RUNWATCH_CONSOLE": "1"}, None, True),
        ({"RUNWATCH_CONSOLE": "1"}, False, False),
        ({"RUNWATCH_CONSOLE": "off"}, True, False),
        ({"RUNWATCH_EXEC": "/nowhere"}, True, False),  # the wrapper listens
    ],
)
def test_who_decides(environment: dict[str, str], asked: bool | None, heard: bool) -> None:
    assert wanted(asked, environment) is heard


def test_the_environment_asks_for_it(tmp_path: Path) -> None:
    program = "import runwatch; runwatch.init('x'); print('hello')"
    assert run_program(program, tmp_path, RUNWATCH_CONSOLE="1").stdout == "hello\n"
    assert lines_of(read_stories(tmp_path)) == ["hello"]


def test_the_last_words_of_a_program_that_is_killed_are_there(tmp_path: Path) -> None:
    done = run_program(
        """
        import os, signal, runwatch
        run = runwatch.init("dies", console=True)
        for step in range(50):
            print("step", step)
        print("about to die")
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
    )
    assert done.returncode == -signal.SIGKILL
    assert lines_of(read_stories(tmp_path)) == [*(f"step {n}" for n in range(50)), "about to die"]


def test_forked_children_tell_their_own_lines(tmp_path: Path) -> None:
    done = run_program(
        """
        import multiprocessing, runwatch, sys
        def work(number):
            print(f"worker {number}", flush=True)
        if __name__ == "__main__":
            run = runwatch.init("forks", console=True)
            print("half a line", end="", flush=True)
            context = multiprocessing.get_context("fork")
            workers = [context.Process(target=work, args=(n,)) for n in range(3)]
            for worker in workers: worker.start()
            for worker in workers: worker.join()
            print(" and its end")
        """,
        tmp_path,
    )
    assert done.returncode == 0
    parent, *children = read_stories(tmp_path)
    assert lines_of([parent]) == ["half a line and its end"]
    assert sorted(lines_of(children)) == ["worker 0", "worker 1", "worker 2"]


def test_a_real_progress_bar_is_few_lines(tmp_path: Path) -> None:
    done = run_program(
        """
        import runwatch
        from tqdm import tqdm
        run = runwatch.init("bars", console=True)
        for epoch in tqdm(range(3), desc="epochs", position=0):
            for step in tqdm(range(200), desc="steps", position=1, leave=False, mininterval=0):
                pass
        for step in tqdm(range(100), desc="last", mininterval=0):
            pass
        print("done")
        """,
        tmp_path,
    )
    assert done.returncode == 0 and done.stderr.count("steps:") > 300
    err = lines_of(read_stories(tmp_path), "err")
    assert len(err) < 20
    assert any(line.startswith("epochs: 100%") for line in err)
    assert any(line.startswith("last: 100%") for line in err)
    assert lines_of(read_stories(tmp_path), "out") == ["done"]


def test_pytest_still_captures(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            import runwatch

            def test_prints(capsys):
                run = runwatch.init("in pytest", console=True)
                print("captured")
                run.finish()
                assert capsys.readouterr().out == "captured\\n"
            """
        )
    )
    done = run_program(
        f"""
        import sys, pytest
        sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", {str(tmp_path)!r}]))
        """,
        tmp_path / "runs",
    )
    assert done.returncode == 0, done.stdout
    assert lines_of(read_stories(tmp_path / "runs")) == ["captured"]


# ── exceptions ─────────────────────────────────────────────────────────────────────────────────


def test_an_uncaught_exception_is_told_once_with_its_whole_traceback(tmp_path: Path) -> None:
    done = run_program(
        """
        import runwatch
        def train():
            raise ValueError("loss is gone")
        run = runwatch.init("fails")
        with run.step(7):
            pass
        try:
            train()
        except ValueError as error:
            raise RuntimeError("giving up") from error
        """,
        tmp_path,
    )
    (story,) = read_stories(tmp_path)
    (told,) = exceptions_of([story])
    assert told.text == done.stderr.rstrip("\n")
    assert (told.line, told.thread) == ("RuntimeError: giving up", "MainThread")
    assert story.end["exception"] == "RuntimeError: giving up"
    assert next(event for event in story.events if event.kind == ExceptionTold.KIND).step == 7


@pytest.mark.parametrize(
    "program",
    [
        "with runwatch.init('x') as run: 1 / 0",
        "run = runwatch.init('x'); sys.excepthook = lambda *e: print('mine'); 1 / 0",
        "run = runwatch.init('x')\ntry:\n    1 / 0\nfinally:\n    run.log(loss=1.0)",
    ],
)
def test_whichever_way_it_comes(program: str, tmp_path: Path) -> None:
    done = run_program(f"import runwatch, sys\n{program}", tmp_path)
    assert done.returncode == 1
    (told,) = exceptions_of(read_stories(tmp_path))
    assert told.line == "ZeroDivisionError: division by zero"


def test_exceptions_of_threads_are_told_and_the_run_goes_on(tmp_path: Path) -> None:
    done = run_program(
        """
        import runwatch, threading
        mine = []
        threading.excepthook = lambda args: mine.append(args.thread.name)
        run = runwatch.init("threads")
        def fail(): raise OSError("disk is gone")
        thread = threading.Thread(target=fail, name="writer")
        thread.start(); thread.join()
        run.finish()
        assert mine == ["writer"], "the program's hook stays the program's"
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (story,) = read_stories(tmp_path)
    (told,) = exceptions_of([story])
    assert (told.line, told.thread) == ("OSError: disk is gone", "writer")
    assert story.end["status"] == "completed"


@pytest.mark.parametrize(
    "program",
    [
        "sys.exit(3)",
        "raise KeyboardInterrupt",
        "pass",
        "exec('try:\\n    1 / 0\\nexcept ZeroDivisionError:\\n    pass')",
        "t = threading.Thread(target=sys.exit); t.start(); t.join()",
    ],
)
def test_what_is_no_failure_is_not_told(program: str, tmp_path: Path) -> None:
    run_program(f"import runwatch, sys, threading; run = runwatch.init('x'); {program}", tmp_path)
    assert exceptions_of(read_stories(tmp_path)) == []


def test_workers_that_are_ranks_tell_theirs(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing, os, runwatch

            def work(rank):
                os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), "2"
                runwatch.init("ranks")
                raise ValueError(f"from rank {rank}")

            if __name__ == "__main__":
                context = multiprocessing.get_context("spawn")
                ranks = [context.Process(target=work, args=(n,)) for n in range(2)]
                for rank in ranks: rank.start()
                for rank in ranks: rank.join()
            """
        )
    )
    runs = tmp_path / "runs"
    run_program(
        f"import subprocess; subprocess.run([{sys.executable!r}, {str(script)!r}])",
        runs,
    )
    assert sorted(each.line for each in exceptions_of(read_stories(runs))) == [
        "ValueError: from rank 0",
        "ValueError: from rank 1",
    ]


def test_forked_helpers_tell_theirs_and_the_run_goes_on(tmp_path: Path) -> None:
    run_program(
        """
        import multiprocessing, os, runwatch
        def work():
            runwatch.log(worked=1.0)
            raise ValueError("in a worker")
        if __name__ == "__main__":
            run = runwatch.init("forks")
            worker = multiprocessing.get_context("fork").Process(target=work)
            worker.start(); worker.join()
            if not os.fork():
                raise OSError("in a fork")
            os.wait()
        """,
        tmp_path,
    )
    parent, *children = read_stories(tmp_path)
    assert parent.end["status"] == "completed" and not exceptions_of([parent])
    lines = sorted(told.line for told in exceptions_of(children))
    assert lines == ["OSError: in a fork", "ValueError: in a worker"]


def test_it_is_in_the_journal_before_the_programs_hook_runs(tmp_path: Path) -> None:
    process = start_program(
        """
        import os, signal, sys, runwatch
        sys.excepthook = lambda *error: os.kill(os.getpid(), signal.SIGKILL)
        runwatch.init("killed in its hook")
        raise ValueError("recorded at once")
        """,
        tmp_path,
    )
    with process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    (told,) = exceptions_of(read_stories(tmp_path))
    assert told.line == "ValueError: recorded at once"
