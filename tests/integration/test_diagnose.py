"""Blocks that collect stacks, in processes of their own: what they leave behind, how they end.

Most tests enter the block through the configuration of cloud-tpu-diagnostics; `runwatch.diagnose`
is the same block.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.capture.stacks import read_dumps
from runwatch.testing import until
from tests.integration.sdk_programs import run_program, start_program

PRELUDE = """
import ctypes, faulthandler, glob, os, signal, sys, threading, time
from pathlib import Path
from runwatch.compat.tpu_diagnostics.diagnostic import diagnose
from runwatch.compat.tpu_diagnostics.configuration.debug_configuration import DebugConfig
from runwatch.compat.tpu_diagnostics.configuration.diagnostic_configuration import DiagnosticConfig
from runwatch.compat.tpu_diagnostics.configuration.stack_trace_configuration import StackTraceConfig

def config(seconds=600, to_file=True, collect=True):
    return DiagnosticConfig(DebugConfig(StackTraceConfig(collect, to_file, seconds)))

def worker():
    released.wait()

def start_workers():
    threads = [
        threading.Thread(target=worker, name=f"worker-{i}", daemon=True) for i in range(3)
    ]
    for thread in threads:
        thread.start()

    def waits(thread):  # in Condition.wait, which Event.wait called
        frame = sys._current_frames().get(thread.ident)
        inner = frame is not None and frame.f_code.co_name == "wait"
        return inner and frame.f_back.f_code.co_name == "wait"

    # A dump of threads that are just starting reads frames while they change, and may crash.
    for _ in range(2):
        until(lambda: all(map(waits, threads)))
        time.sleep(0.02)

def files():
    return sorted(glob.glob(os.environ["RUNWATCH_STACKS_DIR"] + "/*"))

def text():
    return "".join(Path(file).read_text() for file in files())

def until(condition):
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline, text()
        time.sleep(0.005)

released = threading.Event()
"""
LINE = "INFO: Not a crash."
THEIRS = "INFO: Not a crash. cloud-tpu-diagnostics emits a stack trace snapshot every {} seconds.\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where dumps go instead of /tmp/debugging."""
    return tmp_path / "debugging"


@pytest.fixture
def run(tmp_path: Path, place: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        environment = {"RUNWATCH_STACKS_DIR": str(place), "PYTHONWARNINGS": "error", **environment}
        return run_program(PRELUDE + textwrap.dedent(program), tmp_path / "runs", **environment)

    return run


@pytest.fixture
def start(tmp_path: Path, place: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(program: str, **environment: str) -> subprocess.Popen[str]:
        environment = {"RUNWATCH_STACKS_DIR": str(place), **environment}
        process = start_program(
            PRELUDE + textwrap.dedent(program), tmp_path / "runs", **environment
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def dumps(place: Path) -> str:
    return "".join(path.read_text() for path in sorted(place.glob("stack_trace_*.txt")))


def sections(text: str) -> list[str]:
    return [part for part in re.split(r"(?m)^(?=(?:Current t|T)hread 0x)", text) if "hread" in part]


# ── our own front door ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("to_file", [True, False])
def test_diagnose_at_the_front_door(
    to_file: bool, run: Callable[..., Any], place: Path, tmp_path: Path
) -> None:
    errors = tmp_path / "errors"
    done = run(
        f"""
        import runwatch
        start_workers()
        errors = Path({str(errors)!r})
        os.dup2(os.open(errors, os.O_CREAT | os.O_WRONLY | os.O_APPEND), 2)
        with runwatch.diagnose(interval_seconds=0.1, to_file={to_file}):
            print(faulthandler.is_enabled(), len(files()))
            until(lambda: (text() + errors.read_text()).count("in worker\\n") >= 3)
        print(faulthandler.is_enabled(), threading.active_count())
        """
    )
    assert done.returncode == 0, errors.read_text()
    assert done.stdout == f"True {int(to_file)}\nFalse 4\n"
    written = dumps(place) if to_file else errors.read_text()
    assert LINE in written and written.count("in worker\n") >= 3
    assert to_file == (errors.read_text() == "")


def test_diagnose_by_default_waits_ten_minutes_and_writes_nothing(run: Callable[..., Any]) -> None:
    done = run("import runwatch\nwith runwatch.diagnose(): print(threading.active_count())")
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


# ── the original's behaviour (its interface, C6, C8) ──────────────────────────────────────────


def test_a_file_of_this_process_with_every_thread_host_rank_pid_run_and_step(
    run: Callable[..., Any], place: Path
) -> None:
    done = run(
        """
        import runwatch
        start_workers()
        run = runwatch.init("llama")
        with diagnose(config(0.2)):
            with run.step(7):
                until(lambda: "step=7" in text())
        print(os.getpid())
        run.finish()
        """,
        RANK="3",
        WORLD_SIZE="8",
        RUNWATCH_HOST="gpu-1",
    )
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = place.iterdir()
    pid = done.stdout.strip()
    assert re.fullmatch(rf"stack_trace_(\d+_){{6}}gpu-1_3_{pid}\.txt", file.name)
    text = file.read_text()
    line = THEIRS.format("0.2")
    assert text.index(line) < text.index("# dump")  # for a signal that comes before it
    assert re.search(rf"^# dump .*\n{re.escape(line)}Thread 0x", text, re.MULTILINE)
    assert text.count(LINE) == text.count(line)
    assert re.search(rf"# dump .* host=gpu-1 rank=3 pid={pid} run=llama step=7 ", text)
    dump = text.split("# dump")[1]
    assert len(sections(dump)) >= 4
    assert dump.count("in worker\n") == 3
    assert "watchdog.py" not in dump  # our own thread is of no interest


def test_stderr_shows_dumps_and_nothing_else(run: Callable[..., Any], place: Path) -> None:
    done = run(
        """
        with diagnose(config(to_file=False)):
            pass
        sys.stderr.write("silent so far\\n")
        seen = threading.Event()
        copy, other = os.dup(2), os.memfd_create("stderr")
        os.dup2(other, 2)
        with diagnose(config(0.2, to_file=False)):
            until(lambda: os.fstat(other).st_size)
        until(lambda: threading.active_count() == 1)
        os.dup2(copy, 2)
        os.write(2, os.pread(other, 1 << 20, 0))
        """
    )
    assert done.returncode == 0
    assert done.stderr.startswith("silent so far\n# dump ")
    line = re.escape(THEIRS.format("0.2"))
    assert re.search(rf"\n# dump .*\n{line}Thread 0x.*\n  File ", done.stderr)
    assert not place.exists()


@pytest.mark.parametrize(
    "expression",
    [
        "None",
        "DiagnosticConfig()",
        "DiagnosticConfig(DebugConfig())",
        "config(collect=False)",
        "config(collect=False, to_file=False)",
    ],
)
def test_nothing_is_asked_for_and_nothing_is_done(
    expression: str, run: Callable[..., Any], place: Path
) -> None:
    done = run(
        f"""
        with diagnose({expression}):
            print(faulthandler.is_enabled(), threading.active_count(), signal.getsignal(10))
        """
    )
    assert done.stdout == "False 1 0\n" or done.stdout.startswith("False 1 Handlers.SIG_DFL")
    assert (done.returncode, done.stderr) == (0, "")
    assert not place.exists()


def test_a_block_without_a_dump_leaves_no_file(run: Callable[..., Any], place: Path) -> None:
    done = run("with diagnose(config()): print(len(files()))")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    assert list(place.iterdir()) == []


# As in an extension that holds the interpreter's lock: nothing moves while the stacks are read.
# Without it, see test_faults.py.
FAULTS = {
    "SIGSEGV": ("ctypes.string_at(0)", "Segmentation fault"),
    "SIGFPE": ('ctypes.PyDLL(None)["raise"](signal.SIGFPE)', "Floating point exception"),
    "SIGABRT": ("os.abort()", "Aborted"),
    "SIGBUS": ('ctypes.PyDLL(None)["raise"](signal.SIGBUS)', "Bus error"),
    "SIGILL": ('ctypes.PyDLL(None)["raise"](signal.SIGILL)', "Illegal instruction"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_leaves_all_threads_and_the_process_dies_of_it(
    name: str, run: Callable[..., Any], place: Path
) -> None:
    cause, words = FAULTS[name]
    done = run(
        f"""
        start_workers()
        def faulty():
            {cause}
        with diagnose(config()):
            faulty()
        """
    )
    assert done.returncode == -getattr(signal, name)
    text = dumps(place)
    assert f"Fatal Python error: {words}\n" in text
    assert text.count("in worker\n") == 3
    assert "in faulty\n" in text
    assert done.stderr == ""


def test_a_thread_that_starts_as_another_faults_is_no_dump_of_its_own(
    run: Callable[..., Any], place: Path
) -> None:
    done = run(
        """
        import _thread
        raise_ = ctypes.PyDLL(None)["raise"]
        def faulty():
            _thread.start_new_thread(worker, ())
            raise_(signal.SIGABRT)
        with diagnose(config()):
            faulty()
        """
    )
    assert done.returncode == -signal.SIGABRT
    (dump,) = read_dumps(dumps(place))
    assert dump.fault == "Aborted"
    (main,) = (thread for thread in dump.threads if thread.is_main)
    assert main.ident == dump.current
    assert [frame.function for frame in main.frames] == ["faulty", "<module>"]


def test_a_fault_on_the_console(run: Callable[..., Any], place: Path) -> None:
    done = run("start_workers()\nwith diagnose(config(to_file=False)): ctypes.string_at(0)")
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert done.stderr.count("in worker\n") == 3
    assert not place.exists()


README = """
from {package} import diagnostic
from {package}.configuration import debug_configuration
from {package}.configuration import diagnostic_configuration
from {package}.configuration import stack_trace_configuration

stack_trace_config = stack_trace_configuration.StackTraceConfig(
                      collect_stack_trace=True,
                      stack_trace_to_cloud=True,
                      stack_trace_interval_seconds=300)

debug_config = debug_configuration.DebugConfig(
                stack_trace_config=stack_trace_config)

diagnostic_config = diagnostic_configuration.DiagnosticConfig(
                      debug_config=debug_config)

def run_job():
    import glob, os, signal
    signal.raise_signal(signal.SIGUSR1)
    (file,) = glob.glob(f"/tmp/debugging/stack_trace_*_{{os.getpid()}}.txt")
    print(open(file).read())
    os.truncate(file, 0)  # and so it goes when the block is left

with diagnostic.diagnose(diagnostic_config):
    run_job()
"""


@pytest.mark.xdist_group("debugging")  # both make and remove that directory
@pytest.mark.parametrize("package", ["runwatch.compat.tpu_diagnostics", "cloud_tpu_diagnostics"])
def test_the_readme_of_the_original_as_written(package: str, tmp_path: Path) -> None:
    done = run_program(README.format(package=package), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    snapshot = f'{THEIRS.format(300)}Stack (most recent call first):\n  File "<string>", line 20 in'
    assert f"{snapshot} run_job\n" in done.stdout
    pid = re.search(r"pid=(\d+)", done.stdout)
    assert pid is not None
    assert list(Path("/tmp/debugging").glob(f"stack_trace_*_{pid[1]}.txt")) == []
    with contextlib.suppress(OSError):
        os.rmdir("/tmp/debugging")


# ── stuck (C1) ────────────────────────────────────────────────────────────────────────────────


def test_stuck_in_c_with_the_interpreter_lock_held(start: Callable[..., Any], place: Path) -> None:
    start(
        """
        start_workers()
        def stuck():
            ctypes.PyDLL(None).sleep(600)
        with diagnose(config(0.5)):
            stuck()
        """
    )
    # When the third begins, the second is whole.
    text = until(
        lambda: t if (t := dumps(place)).count("Timeout (") >= 3 else None, 30, "two dumps"
    )
    assert LINE in text[: text.index("Timeout (")]
    first, second = text.split("Timeout (")[1:3]
    for dump in (first, second):
        assert dump.count("in worker\n") == 3
        assert re.search(r'line \d+ in stuck\n  File "<string>", line \d+ in <module>', dump)


def test_stuck_in_a_mutex_of_native_code(start: Callable[..., Any], place: Path) -> None:
    process = start(
        """
        libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
        def deadlocked():
            libc.pthread_mutex_lock(mutex)
            libc.pthread_mutex_lock(mutex)
        with diagnose(config(0.2)):
            deadlocked()
        """
    )
    text = until(lambda: t if (t := dumps(place)).count("in deadlocked\n") >= 3 else None)
    assert "Timeout (" not in text
    assert process.poll() is None


def test_only_the_c_thread_looks_without_the_lock_and_only_when_python_is_stuck(
    run: Callable[..., Any], place: Path
) -> None:
    """Busy threads whose frames come and go: looking at them without the lock can kill."""
    done = run(
        """
        def deep(n):
            return deep(n - 1) if n else sum(range(40))
        def busy():
            while not released.is_set():
                sum(deep(i) for i in range(12))
                threading.Thread(target=deep, args=(4,)).start()
        for _ in range(3):
            threading.Thread(target=busy, daemon=True).start()
        with diagnose(config(0.1)):
            until(lambda: text().count("# dump") >= 8)
        released.set()
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Timeout (" not in dumps(place)


# ── leaving (C2, C5) ──────────────────────────────────────────────────────────────────────────

STATE = """
def state():
    threads = [t.name for t in threading.enumerate() if t.name.startswith("runwatch")]
    fds = sum("debugging" in os.readlink(f"/proc/self/fd/{fd}")
              for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}"))
    with open("/proc/self/status") as file:
        caught = int(next(l for l in file if l.startswith("SigCgt")).split()[1], 16)
    usr1 = bool(caught >> (signal.SIGUSR1 - 1) & 1)
    segv = bool(caught >> (signal.SIGSEGV - 1) & 1)
    native = len(os.listdir("/proc/self/task"))
    return threads, fds, usr1, segv, faulthandler.is_enabled(), native
"""


@pytest.mark.parametrize("ending", ["pass", "raise ValueError('theirs')", "sys.exit(0)"])
def test_leaving_puts_everything_back_however_it_happens(
    ending: str, run: Callable[..., Any], place: Path
) -> None:
    # With an interval of an hour: a block that waited for it would never end here.
    done = run(
        STATE
        + f"""
before = state()
try:
    with diagnose(config(3600)):
        inside = state()
        {ending}
except (ValueError, SystemExit) as error:
    print(repr(error))
until(lambda: state() == before)  # the kernel's list of threads lags behind
print(inside[:5], before)
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "(['runwatch-dumps'], 1, True, True, True) ([], 0, False, False, False, 1)" in (
        done.stdout
    )
    if "ValueError" in ending:
        assert "ValueError('theirs')" in done.stdout


def test_a_console_that_nobody_reads_blocks_neither_the_program_nor_its_leaving(
    run: Callable[..., Any],
) -> None:
    done = run(
        """
        keep, (reader, writer) = os.dup(2), os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, bytes(4096))
        except BlockingIOError:
            os.set_blocking(writer, True)
        os.dup2(writer, 2)
        def writing():
            dumper = [t for t in threading.enumerate() if t.name == "runwatch-dumps"]
            frame = sys._current_frames().get(dumper[0].ident) if dumper else None
            return frame is not None and frame.f_code.co_name == "write_all"
        with diagnose(config(0.1, to_file=False)):
            until(writing)
        os.dup2(keep, 2)
        print("left")
        sys.stdout.flush()
        os._exit(0)
        """
    )
    assert (done.returncode, done.stdout) == (0, "left\n")


# ── SIGUSR1 (C3, C4) ──────────────────────────────────────────────────────────────────────────


def test_the_users_python_handler_is_called_inside_and_after(
    run: Callable[..., Any], place: Path
) -> None:
    done = run(
        """
        calls = []
        def mine(number, frame):
            calls.append(number)
        signal.signal(signal.SIGUSR1, mine)
        with diagnose(config()):
            signal.raise_signal(signal.SIGUSR1)
            print(calls, text().count("in <module>"))
        signal.raise_signal(signal.SIGUSR1)
        print(calls, signal.getsignal(signal.SIGUSR1) is mine)
        """
    )
    assert done.stdout == "[10] 1\n[10, 10] True\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_a_handler_of_native_code_is_called_inside(run: Callable[..., Any], place: Path) -> None:
    done = run(
        """
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
        libc.signal(signal.SIGUSR1, ctypes.cast(libc._exit, ctypes.c_void_p))
        with diagnose(config()):
            signal.raise_signal(signal.SIGUSR1)
        """
    )
    assert done.returncode == signal.SIGUSR1  # _exit(10), called as a handler
    assert "in <module>" in dumps(place)


def test_a_signal_does_not_read_the_frames_of_threads_that_run_on(
    run: Callable[..., Any], place: Path
) -> None:
    done = run(
        """
        def deep(n):
            return deep(n - 1) if n else sum(x for x in range(40))
        def busy():
            while True:
                sorted(range(50), key=lambda x: deep(6))
        sys.setswitchinterval(1e-4)  # they take turns quickly
        for _ in range(4):
            threading.Thread(target=busy, daemon=True).start()
        with diagnose(config()):
            for _ in range(300):
                signal.raise_signal(signal.SIGUSR1)  # lets go of the interpreter's lock
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert dumps(place).count("in <module>") == 300


@pytest.mark.parametrize("before", ["SIG_DFL", "SIG_IGN"])
def test_without_a_handler_it_dumps_inside_and_does_as_before_after(
    before: str, run: Callable[..., Any], place: Path
) -> None:
    done = run(
        f"""
        signal.signal(signal.SIGUSR1, signal.{before})
        with diagnose(config()):
            signal.raise_signal(signal.SIGUSR1)
            print("lives", flush=True)
        signal.raise_signal(signal.SIGUSR1)
        print("ignored")
        """
    )
    assert "in <module>" in dumps(place)
    if before == "SIG_DFL":
        assert (done.returncode, done.stdout) == (-signal.SIGUSR1, "lives\n")
    else:
        assert (done.returncode, done.stdout) == (0, "lives\nignored\n")


def test_what_the_program_does_with_handlers_inside_the_block_stays(
    run: Callable[..., Any], place: Path, tmp_path: Path
) -> None:
    done = run(
        f"""
        mine = open({str(tmp_path / "mine")!r}, "w+")
        with diagnose(config()):
            signal.signal(signal.SIGUSR1, lambda *_: print("python handler"))
            with diagnose(config()):
                signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        with diagnose(config()):
            faulthandler.enable(mine)
            faulthandler.register(signal.SIGUSR2, mine)
        print(faulthandler.is_enabled(), faulthandler.unregister(signal.SIGUSR2), flush=True)
        signal.raise_signal(signal.SIGSEGV)
        """
    )
    assert done.returncode == -signal.SIGSEGV
    assert done.stdout == "python handler\npython handler\nTrue True\n"
    assert "Segmentation fault" in (tmp_path / "mine").read_text()


def test_a_programs_own_use_of_faulthandler_before_the_block(
    run: Callable[..., Any], place: Path, tmp_path: Path
) -> None:
    done = run(
        f"""
        mine = open({str(tmp_path / "mine")!r}, "w+")
        faulthandler.enable(mine)
        faulthandler.register(signal.SIGUSR1, mine, chain=False)
        with diagnose(config()):
            signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        print(len(Path(mine.name).read_text().split("in <module>")) - 1, flush=True)
        signal.raise_signal(signal.SIGSEGV)
        """
    )
    assert done.stdout == "2\n"  # its registration for SIGUSR1 is untouched
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr  # enabled again, on standard error


def test_a_fault_handler_that_native_code_installs_inside_survives_the_block(
    run: Callable[..., Any],
) -> None:
    done = run(
        """
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
        with diagnose(config()):
            libc.signal(signal.SIGSEGV, ctypes.cast(libc._exit, ctypes.c_void_p))
        os.kill(os.getpid(), signal.SIGSEGV)
        """
    )
    assert done.returncode == signal.SIGSEGV  # _exit(11)


# ── places that cannot be written (C3, C10) ───────────────────────────────────────────────────


def test_an_unwritable_directory_is_said_once_and_kills_nobody(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    done = run(
        """
        for _ in range(2):
            with diagnose(config(0.1)):
                print(threading.active_count(), faulthandler.is_enabled())
        """,
        RUNWATCH_STACKS_DIR=str(tmp_path / "file" / "debugging"),
    )
    assert (done.returncode, done.stdout) == (0, "1 False\n" * 2)
    assert done.stderr.count("no stacks will be collected") == 1


def test_with_a_run_dumps_move_beside_its_journal(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(
        """
        import runwatch
        run = runwatch.init("moved")
        with diagnose(config()):
            signal.raise_signal(signal.SIGUSR1)
        run.finish()
        """,
        RUNWATCH_STACKS_DIR=str(tmp_path / "file" / "debugging"),
    )
    assert done.returncode == 0
    (file,) = (tmp_path / "runs/journals").glob("*/stack_trace_*.txt")
    assert "in <module>" in file.read_text()
    assert str(file) in done.stderr


@pytest.mark.parametrize("stream", ["io.StringIO()", "None", "closed()"])
def test_a_stderr_without_a_descriptor_gives_a_file(
    stream: str, run: Callable[..., Any], place: Path
) -> None:
    done = run(
        f"""
        import io
        def closed():
            file = open(os.devnull, "w")
            file.close()
            return file
        keep, sys.stderr = sys.stderr, {stream}
        with diagnose(config(0.1, to_file=False)):
            until(lambda: "# dump" in text())
            signal.raise_signal(signal.SIGUSR1)
        sys.stderr = keep
        print("lives")
        """
    )
    assert (done.returncode, done.stdout) == (0, "lives\n")
    assert LINE in dumps(place)


@pytest.mark.parametrize("seconds", ["0", "-1", "None", "float('nan')", "'soon'", "1e300"])
def test_odd_intervals(seconds: str, run: Callable[..., Any]) -> None:
    done = run(f"with diagnose(config({seconds})): print(threading.active_count())")
    assert (done.returncode, done.stdout) == (0, "2\n")
    assert ("using 600" in done.stderr) == (seconds != "1e300")


# ── several at once (C7, C9, C11) ─────────────────────────────────────────────────────────────


def test_ranks_that_start_together_write_a_file_each(
    start: Callable[..., Any], place: Path
) -> None:
    program = """
mine = lambda: [Path(file).read_text() for file in files() if f"_{os.getpid()}." in file]
with diagnose(config(0.2)): until(lambda: "".join(mine()).count("# dump") >= 2)
"""
    ranks = [start(program, RANK=str(rank)) for rank in range(4)]
    assert [process.wait(60) for process in ranks] == [0] * 4
    files = sorted(place.iterdir(), key=lambda file: file.name.split("_")[-2])
    assert [file.name.split("_")[-2:] for file in files] == [
        [str(rank), f"{process.pid}.txt"] for rank, process in enumerate(ranks)
    ]
    assert all("# dump" in file.read_text() for file in files)


def test_blocks_within_blocks(run: Callable[..., Any], place: Path) -> None:
    done = run(
        """
        with diagnose(config(0.2)):
            with diagnose(config(3600)):
                print(len(files()))
                with diagnose(config(collect=False)):
                    pass
                before = text().count("# dump")
                with diagnose(config(0.1)):
                    until(lambda: text().count("# dump") > before + 1)
            within = text().count("# dump")
            until(lambda: text().count("# dump") > within + 1)
            print([t.name for t in threading.enumerate()])
            signal.raise_signal(signal.SIGSEGV)
        """
    )
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr == ""
    (file,) = place.iterdir()
    text = file.read_text()
    assert "Segmentation fault" in text
    assert {"every 0.2 s", "every 3600 s", "every 0.1 s"} <= set(re.findall(r"every \S+ s", text))


def test_blocks_to_different_places(run: Callable[..., Any], place: Path) -> None:
    done = run(
        """
        with diagnose(config()):
            with diagnose(config(to_file=False)):
                signal.raise_signal(signal.SIGUSR1)
            assert "in <module>" not in text()
            signal.raise_signal(signal.SIGUSR1)
        """
    )
    assert done.returncode == 0
    assert done.stderr.count("in <module>") == 1
    assert dumps(place).count("in <module>") == 1


def test_blocks_of_several_threads_in_any_order(run: Callable[..., Any], place: Path) -> None:
    done = run(
        STATE
        + """
before = state()
entered, leave = threading.Barrier(3), [threading.Event(), threading.Event()]
def block(i):
    with diagnose(config(0.1 + i)):
        entered.wait()
        leave[i].wait()
threads = [threading.Thread(target=block, args=(i,)) for i in range(2)]
for thread in threads:
    thread.start()
entered.wait()
for i in range(2):
    count = text().count("# dump")
    if i == 0:
        until(lambda: text().count("# dump") > count)
    leave[i].set()
    threads[i].join()
    if i == 0:
        signal.raise_signal(signal.SIGUSR1)
until(lambda: state() == before)
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "in <module>" in dumps(place)


# ── fork ──────────────────────────────────────────────────────────────────────────────────────


def test_a_forked_child_ends_and_the_parent_goes_on(run: Callable[..., Any], place: Path) -> None:
    done = run(
        """
        start_workers()
        def child(end):
            pid = os.fork()
            if pid:
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            end()
        before = None
        try:
            with diagnose(config(0.2)):
                before = os.getpid()
                print(child(lambda: sys.exit(threading.active_count())), flush=True)
                print(child(lambda: ctypes.string_at(0)), flush=True)
                count = text().count("# dump")
                until(lambda: text().count("# dump") > count)
        except SystemExit:
            assert os.getpid() != before
            raise
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n-11\n"
    assert "Segmentation fault" in dumps(place)


def test_a_forked_child_collects_its_own(run: Callable[..., Any], place: Path) -> None:
    done = run(
        """
        import multiprocessing
        def rank():
            with diagnose(config(0.1)):
                until(lambda: f"_{os.getpid()}.txt" in str(files()))
                mine = next(f for f in files() if f.endswith(f"_{os.getpid()}.txt"))
                until(lambda: Path(mine).read_text().count("# dump") > 1)
                signal.raise_signal(signal.SIGSEGV)
        with diagnose(config(3600)):
            child = multiprocessing.get_context("fork").Process(target=rank)
            child.start()
            child.join()
            print(child.exitcode, len(files()))
        """,
        PYTHONWARNINGS="default",
    )
    assert done.stdout == "-11 2\n", done.stderr
    (left,) = place.iterdir()
    assert "in rank\n" in left.read_text()
    assert "Segmentation fault" in left.read_text()
