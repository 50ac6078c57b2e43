"""Faults of a run's processes: stacks beside the journal, and what an agent makes of them."""

from __future__ import annotations

import signal
import subprocess
import textwrap
from pathlib import Path

import pytest

from runwatch.agent.errands.dumps import collect, last_fault
from runwatch.agent.lock import end_agents
from runwatch.capture.stacks import SIGNALS, STACK_SIGNAL
from runwatch.record.stacks import Frame, Stacks
from runwatch.testing import until
from tests.integration.processes import agent_sees
from tests.integration.sdk_programs import run_program, start_program
from tests.integration.test_diagnose import FAULTS, PRELUDE
from tests.integration.test_endings import end_noted, go_on, outcome, start

RUN = """
import runwatch
from runwatch.capture.stacks import STACK_SIGNAL
from runwatch.sdk.faults import unwatch_faults, watch_faults
run = runwatch.init("faulty")
journal = run._writer.directory
watch_faults(journal)
"""


def run(program: str, tmp_path: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"RUNWATCH_STACKS_DIR": str(tmp_path / "debugging"), **more}
    return run_program(PRELUDE + program, tmp_path / "runs", **environment)


def journal(tmp_path: Path) -> Path:
    (only,) = (tmp_path / "runs/journals").iterdir()
    return only


def functions(stacks: Stacks) -> list[list[str]]:
    return [[frame.function for frame in t.frames] for t in stacks.threads]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_stored_with_all_threads(name: str, tmp_path: Path) -> None:
    cause, words = FAULTS[name]
    done = run(RUN + f"start_workers()\ndef faulty(): {cause}\nfaulty()\n", tmp_path)
    assert (done.returncode, done.stderr) == (-getattr(signal, name), "")
    assert last_fault(journal(tmp_path)) == name
    (stacks,) = collect(journal(tmp_path), rank=3, host="gpu-1")
    assert (stacks.how, stacks.fault, stacks.rank) == ("fault", words, 3)
    assert stacks.problems == ()
    assert stacks.journal == journal(tmp_path).name
    (main,) = (thread for thread in stacks.threads if thread.is_main)
    assert "faulty" in [frame.function for frame in main.frames]
    assert sum("worker" in names for names in functions(stacks)) == 3
    assert str(stacks.pid) in journal(tmp_path).name
    assert list(collect(journal(tmp_path))) == []  # once


# As in a library that crashes while Python goes on: eight threads whose frames come and go.
BUSY = """
def deep(n):
    return deep(n - 1) if n else sum(range(40))
def busy():
    started.wait()
    while True:
        deep(6)
        sorted(range(50), key=lambda x: -x)
        sum(x for x in range(20))
started = threading.Barrier(9)
for _ in range(8):
    threading.Thread(target=busy, daemon=True).start()
started.wait()
until(lambda: "wait" not in {frame.f_code.co_name for frame in sys._current_frames().values()})
libc = ctypes.CDLL(None)
"""
WITHOUT_THE_LOCK = {
    "SIGSEGV": "libc.memset(None, 1, 8)",
    "SIGFPE": 'libc["raise"](signal.SIGFPE)',
    "SIGABRT": "libc.abort()",
    "SIGBUS": 'libc["raise"](signal.SIGBUS)',
    "SIGILL": 'libc["raise"](signal.SIGILL)',
}


def fault_beside_busy_threads(name: str, tmp_path: Path) -> bool:
    """Whether all threads were written.  If not: why not, and the cause is right all the same.

    faulthandler reads the frames of threads that run on, and at times that is a second fault.
    """
    done = run(f"{RUN}{BUSY}def faulty(): {WITHOUT_THE_LOCK[name]}\nfaulty()\n", tmp_path)
    assert last_fault(journal(tmp_path)) == name
    (stacks,) = collect(journal(tmp_path))
    assert (stacks.how, SIGNALS[stacks.fault or ""]) == ("fault", name)
    if stacks.problems:
        assert "broken off" in stacks.problems[0]
        assert done.returncode in (-getattr(signal, name), -signal.SIGSEGV)
        return False
    assert done.returncode == -getattr(signal, name)
    (main,) = (t for t in stacks.threads if t.is_main)
    assert [frame.function for frame in main.frames] == ["faulty", "<module>"]
    assert len(functions(stacks)) > 8  # what the running one of them shows is a matter of luck
    return True


@pytest.mark.parametrize("name", WITHOUT_THE_LOCK)
def test_a_fault_without_the_interpreters_lock_has_the_right_cause(
    name: str, tmp_path: Path
) -> None:
    assert any(fault_beside_busy_threads(name, tmp_path / str(trial)) for trial in range(8))


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", WITHOUT_THE_LOCK)
def test_a_hundred_of_them(name: str, tmp_path: Path) -> None:
    whole = [fault_beside_busy_threads(name, tmp_path / str(trial)) for trial in range(100)]
    assert sum(whole) >= 90


BROKEN_OFF = """\
Fatal Python error: Illegal instruction

Thread 0x00007fbb577616c0 (most recent call first):
  <no Python frame>

Thread 0x00007fbb3d7fa6c0 (most recent call first):
  File Fatal Python error: Segmentation fault

"""


@pytest.mark.parametrize(
    ("told", "signal_name", "reason"),
    [
        ("", "SIGSEGV", "killed by SIGSEGV"),
        (BROKEN_OFF, "SIGILL", "killed by SIGILL (then SIGSEGV while its stacks were written)"),
    ],
)
def test_what_a_person_is_told_is_the_first_fault(
    told: str, signal_name: str, reason: str, tmp_path: Path
) -> None:
    ending = f"""
        import ctypes, faulthandler
        with (run._writer.directory / "faults.txt").open("a") as file:
            file.write({told!r})
        faulthandler.disable()
        ctypes.CDLL(None).memset(None, 1, 8)
    """
    process = start(tmp_path, ending)
    try:
        until(lambda: agent_sees(tmp_path, process.pid), 30, "the agent")
        go_on(process)
        until(lambda: end_noted(tmp_path), 30, "the end")
        process.communicate()
        assert process.returncode == -signal.SIGSEGV
        found = outcome(tmp_path)
    finally:
        process.kill()
        process.communicate()
        end_agents(tmp_path)
    assert (found.state, found.signal) == ("killed", signal_name)
    assert found.reason.removesuffix(", core dumped") == reason


def test_a_run_that_ends_well_leaves_no_trace(tmp_path: Path) -> None:
    done = run(
        RUN
        + """
print(faulthandler.is_enabled(), sorted(p.name for p in journal.glob("*.txt")))
unwatch_faults()
print(faulthandler.is_enabled(), sorted(p.name for p in journal.glob("*.txt")))
os.kill(os.getpid(), STACK_SIGNAL)  # an agent's, that comes too late
watch_faults(journal)
os.kill(os.getpid(), STACK_SIGNAL)
unwatch_faults()
print(sorted(p.name for p in journal.glob("*.txt")))
""",
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "True ['faults.txt', 'stacks.txt']",
        "False []",
        "['stacks.txt']",
    ]
    (stacks,) = collect(journal(tmp_path), asked=True)
    assert stacks.how == "signalled"
    assert ["<module>"] in functions(stacks)


def test_switched_off(tmp_path: Path) -> None:
    done = run(
        RUN + "print(faulthandler.is_enabled(), list(journal.glob('*.txt')))",
        tmp_path,
        RUNWATCH_STACKS="off",
    )
    assert (done.returncode, done.stdout) == (0, "False []\n")


@pytest.mark.parametrize("how", ["faulthandler.enable()", "pass"])
def test_a_program_that_uses_faulthandler_keeps_it(how: str, tmp_path: Path) -> None:
    more = {"PYTHONFAULTHANDLER": "1"} if how == "pass" else {}
    done = run(
        f"{how}\n{RUN}print(list(journal.glob('faults*')), flush=True)\nctypes.string_at(0)",
        tmp_path,
        **more,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "[]\n")
    assert "Segmentation fault" in done.stderr


def test_a_stack_signal_that_somebody_uses_is_left_alone(tmp_path: Path) -> None:
    done = run(
        """
from runwatch.capture.stacks import STACK_SIGNAL
signal.signal(STACK_SIGNAL, lambda *_: print("mine"))
"""
        + RUN
        + """
os.kill(os.getpid(), STACK_SIGNAL)
unwatch_faults()
os.kill(os.getpid(), STACK_SIGNAL)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "mine\nmine\n")


def test_a_stack_signal_finds_a_main_thread_that_holds_the_interpreters_lock(
    tmp_path: Path,
) -> None:
    program = """
def stuck():
    print("stuck", flush=True)
    ctypes.PyDLL(None).pthread_mutex_lock(mutex)
mutex = ctypes.create_string_buffer(64)
ctypes.PyDLL(None).pthread_mutex_lock(mutex)
stuck()
"""
    process = start_program(PRELUDE + RUN + program, tmp_path / "runs")
    try:
        assert process.stdout is not None and process.stdout.readline() == "stuck\n"
        wait = Path(f"/proc/{process.pid}/wchan")
        until(lambda: "futex" in wait.read_text(), what="the main thread to be stuck")
        process.send_signal(STACK_SIGNAL)
        file = journal(tmp_path) / "stacks.txt"
        until(lambda: "in <module>\n" in file.read_text(), what="its stacks")
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    (stacks,) = collect(journal(tmp_path), asked=True)
    assert ["stuck", "<module>"] in functions(stacks)


def test_a_block_inside_a_run_and_a_run_inside_a_block(tmp_path: Path) -> None:
    done = run(
        """
with diagnose(config(0.1)):
    """
        + RUN.strip().replace("\n", "\n    ")
        + """
    until(lambda: text().count("# dump") > 1)
    with diagnose(config(3600, to_file=False)):
        pass
    signal.raise_signal(signal.SIGSEGV)
""",
        tmp_path,
    )
    assert done.returncode == -signal.SIGSEGV
    dumps = list(collect(journal(tmp_path)))
    assert [stacks.how for stacks in dumps[-2:]] == ["watchdog", "fault"]
    for stacks in dumps:
        # A thread that is just starting has no frames yet.
        assert "<module>" in [names[-1] for names in functions(stacks) if names]
    assert {stacks.journal for stacks in dumps} == {journal(tmp_path).name}
    assert dumps[0].time_ns < dumps[1].time_ns


def test_after_a_block_faults_go_beside_the_journal_again(tmp_path: Path) -> None:
    done = run(RUN + "with diagnose(config()): pass\nctypes.string_at(0)", tmp_path)
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in (journal(tmp_path) / "faults.txt").read_text()


@pytest.mark.parametrize("order", ["a run in a block", "a block in a run"])
def test_a_fault_on_a_console_that_is_a_file_is_stored(order: str, tmp_path: Path) -> None:
    inner = RUN.strip() if order == "a run in a block" else "pass"
    program = f"""
os.dup2(os.open(os.environ["LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
os.write(2, b"words before\\n")
{RUN if inner == "pass" else ""}
start_workers()
with diagnose(config(to_file=False)):
    with diagnose(config(to_file=False)): pass
{textwrap.indent(inner, "    ")}
    os.write(2, b"step 7 ")
    ctypes.string_at(0)
"""
    log = tmp_path / "rank 3.err"
    done = run(program, tmp_path, LOG=str(log), RANK="3", WORLD_SIZE="8")
    assert done.returncode == -signal.SIGSEGV
    assert "step 7 Fatal Python error: Segmentation fault\n" in log.read_text()
    assert last_fault(journal(tmp_path)) == "SIGSEGV"
    (stacks,) = collect(journal(tmp_path))
    assert (stacks.how, stacks.fault, stacks.rank) == ("fault", "Segmentation fault", 3)
    assert sum("worker" in names for names in functions(stacks)) == 3
    assert list(collect(journal(tmp_path))) == []


def test_after_a_block_the_console_is_not_looked_at(tmp_path: Path) -> None:
    program = """
os.dup2(os.open(os.environ["LOG"], os.O_WRONLY | os.O_CREAT), 2)
with diagnose(config(to_file=False)):
    print(len(list(journal.glob("console-*"))))
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    print(len(list(journal.glob("console-*"))))
print(len(list(journal.glob("console-*"))))
unwatch_faults()
"""
    done = run(RUN + program, tmp_path, LOG=str(tmp_path / "log"))
    assert (done.returncode, done.stdout) == (0, "1\n1\n0\n")


def test_periodic_dumps_on_the_console_are_kept_for_the_store(tmp_path: Path) -> None:
    done = run(
        RUN
        + """
with diagnose(config(0.1, to_file=False)), run.step(5):
    written = journal / "dumps.txt"
    until(lambda: written.exists() and "<module>" in written.read_text())
unwatch_faults()
""",
        tmp_path,
    )
    assert done.returncode == 0
    stacks = next(iter(collect(journal(tmp_path))))
    assert (stacks.how, stacks.step, stacks.rank) == ("watchdog", 5, 0)
    assert any("<module>" in names for names in functions(stacks))


def test_a_forked_rank_with_a_run_of_its_own(tmp_path: Path) -> None:
    done = run(
        RUN
        + """
child = os.fork()
if child == 0:
    mine = runwatch.init("the child's")
    watch_faults(mine._writer.directory)
    os.write(1, mine._writer.directory.name.encode())
    ctypes.string_at(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
unwatch_faults()
""",
        tmp_path,
    )
    assert done.returncode == 0
    assert done.stdout.endswith("-11\n")
    (file,) = (tmp_path / "runs/journals").glob("*/faults.txt")
    assert done.stdout.startswith(file.parent.name)
    assert "Segmentation fault" in file.read_text()


def test_frames_are_innermost_first(tmp_path: Path) -> None:
    run(RUN + "def inner(): os.abort()\ndef outer(): inner()\nouter()", tmp_path)
    (stacks,) = collect(journal(tmp_path))
    (main,) = (t for t in stacks.threads if t.is_main)
    names = [frame.function for frame in main.frames]
    assert names == ["inner", "outer", "<module>"]
    assert isinstance(main.frames[0], Frame)
