"""On a terminal, a command with `runwatch exec` is what it is without: keys, size, jobs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.integration.exec_trials import (
    EXEC,
    QUIET,
    SECONDS,
    Act,
    environment,
    hang_up,
    launcher,
    lines,
    on_terminal,
    resize,
    under,
)

PYTHON = sys.executable
TRIALS: Final = 200
Script = Sequence[tuple[str, Act]]

FACTS = """
import os, sys
print([os.isatty(i) for i in (0, 1, 2)], [tuple(os.get_terminal_size(i)) for i in (0, 1, 2)])
print("\\x1b[31mred\\x1b[0m\\r\\n\\ttab", file=sys.stderr)
print(os.getsid(0) == os.getppid() or os.getpgrp() == os.tcgetpgrp(0))
"""
WAITS = """
import sys, time
try:
    sys.stdout.write("ready"); sys.stdout.flush()
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted")
    raise SystemExit(5)
"""
RESIZED = """
import os, signal, sys, time
resized = []
signal.signal(signal.SIGWINCH, lambda *_: resized.append(1))
sys.stdout.write("ready"); sys.stdout.flush()
while not resized or os.get_terminal_size(1).columns != 132:
    time.sleep(0.01)  # the kernel sends the signal before it sets the size
print("now", os.get_terminal_size(1))
"""
OUTLIVES = """
import os, sys, time
sys.stdout.write("ready"); sys.stdout.flush()
deadline = time.monotonic() + 30
while os.isatty(1) and time.monotonic() < deadline:
    time.sleep(0.01)
try:
    number = os.write(1, b"x") and 0
except OSError as error:
    number = error.errno
with open(sys.argv[1], "w") as file:
    file.write(str([number, os.isatty(1), os.isatty(2)]))
sys.stdout = None
raise SystemExit(7)
"""
CURSES = """
import curses
def main(screen):
    screen.addstr("ready"); screen.refresh()
    screen.addstr(1, 0, f"key {screen.getch()}"); screen.refresh()
curses.wrapper(main)
print("end")
"""


SHOWN: Final[list[tuple[list[str], Script]]] = [
    (["stty", "-a"], []),
    (["sh", "-c", "printf 'a\\n'; printf 'b\\n' >&2; printf c; exit 7"], []),
    ([PYTHON, "-c", FACTS], []),
    ([PYTHON, "-c", "print(input('name? '))"], [("name? ", "bob\n")]),
    ([PYTHON, "-c", WAITS], [("ready", "\x03")]),
    ([PYTHON, "-c", WAITS], [("ready", "\x1c")]),
    ([PYTHON, "-c", RESIZED], [("ready", lambda terminal: resize(terminal, 50, 132))]),
    ([PYTHON, "-q"], [(">>> ", "1+1\n"), (">>> ", "exit(4)\n")]),
    ([PYTHON, "-c", CURSES], [("ready", "x"), ("key", "")]),
]
RANK = """
import os, signal, sys
rank = os.environ["RANK"]
recorder = [pid for pid in os.environ["RECORDER"].split() if pid != os.environ["COMMAND"]]
if recorder:
    os.kill(int(recorder[0]), signal.SIGSTOP)
if sys.argv[1] == "line":
    print("rank", rank)
elif sys.argv[1] == "part":
    sys.stdout.write("rank " + rank)
elif sys.argv[1] == "streams":
    for i in range(3):
        print("rank", rank, i, flush=True)
        print("err of", rank, i, file=sys.stderr)
elif sys.argv[1] == "child":
    print("x" * 5000, flush=True)
    os.system("echo child; echo err of child >&2")
    print("rank", rank)
elif sys.argv[1] == "killed":
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
elif sys.argv[1] == "many":
    for i in range(100):
        print(rank, i, "x" * (i * 29), flush=True)
"""
RANKS_IN_TURN = """
export COMMAND=$$ RECORDER=
[ -z "$STOPPED" ] || RECORDER=$(cat /proc/$PPID/task/$PPID/children)
rank=0
for kind in line part streams child killed; do
    echo "before $kind"
    RANK=$rank "$0" -c "$1" $kind; printf '%s' "code $?, "
    echo "after $kind" >&2
    for pid in $RECORDER; do kill -CONT $pid; done
    rank=$((rank + 1))
done
echo end
"""
PARALLEL_RANKS = """
export RECORDER=
for rank in 0 1; do RANK=$rank "$0" -c "$1" many & done; wait; echo end
"""
SINKS: Final = ("terminal", "pipe", "file")


def written(sink: str, command: Sequence[str], directory: Path, **more: str) -> bytes:
    """What the command writes, both streams together."""
    variables = {**QUIET, **more}
    if sink == "terminal":
        return on_terminal(command, directory, more=variables)[0]
    with (directory / "written").open("w+b") as file:
        out = file if sink == "file" else subprocess.PIPE
        done = subprocess.run(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(directory, variables),
            timeout=SECONDS,
        )
        file.seek(0)
        return file.read() if sink == "file" else done.stdout


@contextmanager
def busy_machine() -> Iterator[None]:
    """More programs that do nothing but compute than there are processors."""
    hogs = [
        subprocess.Popen([PYTHON, "-c", "while True: pass"])
        for _ in range(len(os.sched_getaffinity(0)) + 1)
    ]
    try:
        yield
    finally:
        for each in hogs:
            each.kill()
            each.wait()


@pytest.mark.parametrize(("command", "script"), SHOWN)
def test_a_terminal_shows_the_same(command: list[str], script: Script, tmp_path: Path) -> None:
    without = on_terminal(command, tmp_path, script)
    assert on_terminal(under(command), tmp_path, script) == without


@pytest.mark.skipif(shutil.which("less") is None, reason="there is no pager")
def test_a_pager_that_a_script_starts_has_the_keys(tmp_path: Path) -> None:
    """It reads them from the terminal that it writes to; the next program has its own again."""
    command = ["sh", "-c", "seq 100 | less; echo end; cat"]
    script: Script = [(":", "G"), ("END", "q"), ("end", "x\n\x04")]
    without, with_us = (on_terminal(each, tmp_path, script) for each in (command, under(command)))
    # Until we have seen that it sets the terminal's mode, both terminals do what it asks for.
    assert with_us[0].replace(b"\r\r\n", b"\r\n") == without[0]
    assert with_us[1] == without[1]


def test_a_job_is_stopped_and_goes_on(tmp_path: Path) -> None:
    """Ctrl-Z, `jobs`, `fg`, Ctrl-D; and Ctrl-C, in a shell of a person."""
    echoes = tmp_path / "echoes.py"
    echoes.write_text(
        "import sys\n"
        "sys.stdout.write('rea' + 'dy'); sys.stdout.flush()\n"
        "for line in sys.stdin: sys.stdout.write('got ' + line); sys.stdout.flush()\n"
    )
    job = f"{' '.join(EXEC)} -- {PYTHON} {echoes}\n"
    script: Script = [
        ("$ ", job),
        ("ready", "one\n"),
        ("got one", "\x1a"),
        ("Stopped", "fg\n"),
        ("echoes.py\r\n", "two\n"),
        ("got two", "\x04"),
        ("$ ", "echo code=$?\n"),
        ("code=0", job),
        ("ready", "\x03"),
        ("$ ", "echo code=$?\n"),
        ("code=130", "exit\n"),
    ]
    shell = ["env", "PS1=$ ", "bash", "--norc", "--noprofile", "-i"]
    shown, status = on_terminal(shell, tmp_path, script)
    assert (os.waitstatus_to_exitcode(status), shown.count(b"Stopped")) == (0, 1)


def test_who_works_in_the_command_has_the_terminal_itself(tmp_path: Path) -> None:
    shell = ["env", "PS1=in% ", *under(["bash", "--norc", "--noprofile", "-i"])]
    asks = "tty <&0; tty <&1; tty <&2\n"
    shown, status = on_terminal(shell, tmp_path, [("in% ", asks), ("in% ", "exit 5\n")])
    assert os.waitstatus_to_exitcode(status) == 5
    names = [line for line in shown.splitlines() if line.startswith(b"/dev/pts/")]
    assert len(names) == 3 and len(set(names)) == 1
    assert b"job control" not in shown


def test_what_a_terminal_showed_is_recorded(tmp_path: Path) -> None:
    bar = "for i in 1 2 3; do printf '\\r%s of 3' $i; done; echo; echo done >&2"
    on_terminal(under(["sh", "-c", bar]), tmp_path)
    assert lines(launcher(tmp_path)) == [("both", "3 of 3"), ("both", "done")]


def test_ranks_have_terminals_of_their_own(tmp_path: Path) -> None:
    """Also those: else their progress bars would be gone."""
    look = "import os; print('rank', os.environ['RANK'], [os.isatty(i) for i in (1, 2)])"
    script = f'for rank in 0 1; do RANK=$rank "$0" -c "{look}"; done; echo end'
    command = ["sh", "-c", script, PYTHON]
    without = on_terminal(command, tmp_path)
    assert on_terminal(under(command), tmp_path) == without
    assert lines(launcher(tmp_path), rank=1) == [("both", "rank 1 [True, True]")]


@pytest.mark.parametrize("sink", SINKS)
def test_ranks_keep_the_order(sink: str, tmp_path: Path) -> None:
    """The recorder is stopped while a rank runs: when it goes on, it finds the output of the rank
    and what was written afterwards at the same time."""
    command = ["sh", "-c", RANKS_IN_TURN, PYTHON, RANK]
    without = written(sink, command, tmp_path)
    assert written(sink, under(command), tmp_path, STOPPED="1") == without
    story = launcher(tmp_path)
    assert [len(lines(story, rank=rank)) for rank in range(1, 5)] == [1, 6, 4, 1]


@pytest.mark.parametrize("sink", SINKS)
def test_parallel_ranks_keep_their_lines_whole(sink: str, tmp_path: Path) -> None:
    _compare_parallel_ranks(sink, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sink", SINKS)
def test_ranks_keep_the_order_under_load(sink: str, tmp_path: Path) -> None:
    command = ["sh", "-c", RANKS_IN_TURN, PYTHON, RANK]
    without = written(sink, command, tmp_path)
    with busy_machine():
        for _ in range(TRIALS):
            assert written(sink, under(command), tmp_path) == without
            _compare_parallel_ranks(sink, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("command", "script"), SHOWN)
def test_a_terminal_shows_the_same_under_load(
    command: list[str], script: Script, tmp_path: Path
) -> None:
    without = on_terminal(command, tmp_path, script)
    with busy_machine():
        for _ in range(TRIALS):
            assert on_terminal(under(command), tmp_path, script) == without


def _compare_parallel_ranks(sink: str, directory: Path) -> None:
    """Parallel ranks have no common order, but each has its own, and lines are whole."""
    command = ["sh", "-c", PARALLEL_RANKS, PYTHON, RANK]
    *shown, last = written(sink, under(command), directory).splitlines()
    assert (len(shown), last) == (200, b"end")
    for rank in (b"0", b"1"):
        own = [line for line in shown if line.startswith(rank)]
        assert own == [b"%s %d " % (rank, i) + b"x" * (i * 29) for i in range(100)]


def test_a_person_is_told_where_to_look(tmp_path: Path) -> None:
    command = under(["sh", "-c", "echo $RUNWATCH_QUIET"], "--name", "mine")
    shown, _ = on_terminal(command, tmp_path, more={})
    assert shown == b"runwatch: recording run 'mine'; `runwatch ui` shows it\r\n1\r\n"
    head = ["--head", "http://head:8090"]
    shown, _ = on_terminal(under(["true"], *head), tmp_path, more={"RUNWATCH_AGENT": "off"})
    assert shown == b"runwatch: run 'true' is shown at http://head:8090/#/run/true\r\n"


def test_a_terminal_that_goes_away_takes_the_command_with_it(tmp_path: Path) -> None:
    """As without us: the kernel tells the group in front."""
    command = [PYTHON, "-c", WAITS]
    for each in (command, under(command)):
        _, status = on_terminal(each, tmp_path, [("ready", hang_up)])
        assert os.waitstatus_to_exitcode(status) == -signal.SIGHUP


def test_a_command_that_outlives_its_terminal_cannot_write_there(tmp_path: Path) -> None:
    """As those do that are started with `nohup`."""
    found = []
    for name in ("without", "with"):
        command = [PYTHON, "-c", OUTLIVES, str(tmp_path / name)]
        ignoring = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"]
        each = [*ignoring, *(under(command) if name == "with" else command)]
        _, status = on_terminal(each, tmp_path, [("ready", hang_up)])
        found.append((os.waitstatus_to_exitcode(status), (tmp_path / name).read_text()))
    assert found[1] == found[0] == (7, "[5, False, False]")
