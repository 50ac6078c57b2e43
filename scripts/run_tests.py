"""Runs pytest over several workers: `python scripts/run_tests.py OPTIONS`.

The options go to pytest.  WORKERS sets the number of workers (0: no xdist).  With `--load N` before
them, N busy processes and a writing one load the machine, and no test is repeated.

Up to two failed tests are repeated, each in a process of its own.  A test that passes then is
reported as flaky, by name.  The run fails when a test fails twice, when more than two failed, when
a process was left behind, and when pytest did not come to its end: only its exit status 1 means
that all tests ran.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CACHE = Path(".pytest_cache")
LAST_FAILED = CACHE / "v/cache/lastfailed"
MAX_FLAKY = 2
SOME_FAILED = 1
"""Pytest's exit status when every test ran, and not every one passed."""
INTERRUPTED = 2
GIB_PER_WORKER = 1.2
"""A worker with the processes of its test."""
MAX_WORKERS = 16
_RECOUNTED = ("failed", "error", "errors")
_COUNTS = re.compile(r"\d+ [a-z].* in \d[\d.]*s\b")
_CRASHED = re.compile(r"worker '\w+' crashed while running '(.+)'$")
_STOPPED = re.compile(r"!{3,} .+ !{3,}$")
_LEFT_BEHIND = re.compile(r"left behind: ")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_SPIN = "while True: pass"
_WRITE = """
import os, tempfile
with tempfile.TemporaryFile() as file:
    while True:
        file.seek(0)
        file.write(bytes(1 << 26))
        os.fsync(file.fileno())
"""
_WHILE_INPUT_IS_OPEN = """
import os, threading
threading.Thread(target=lambda: os.read(0, 1) or os._exit(0), daemon=True).start()
"""


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--load"]:
        with load(int(arguments[1])):
            return run_pytest(pytest_command(*arguments[2:]))[0]
    if not CACHE.exists():
        compile_tests()
    LAST_FAILED.unlink(missing_ok=True)
    status, lines = run_pytest(pytest_command(*arguments))
    if status == 0:
        return 0
    counts = next((found[0] for line in reversed(lines) if (found := _COUNTS.search(line))), "")
    # A scheduler may restart a test whose worker died, and pytest forgets it when it passes.
    crashed = [found[1] for line in lines if (found := _CRASHED.match(line))]
    failed = sorted({without_group(name) for name in (*last_failed(), *crashed)})
    if reason := why_not_repeated(status, failed, counts, lines):
        print(f"not repeated: {reason}")
        return close(counts or f"0 passed, {len(failed) or 1} failed", 1)
    flaky = [test for test in failed if passes_alone(test)]
    for test in failed:
        outcome = "flaky" if test in flaky else "failed twice"
        print(f"{outcome}: {test}" + " (failed, then passed alone)" * (test in flaky))
    failed_twice = len(failed) - len(flaky)
    return close(recount(counts, failed=failed_twice, flaky=len(flaky)), int(failed_twice > 0))


def pytest_command(*options: str) -> list[str]:
    workers = int(os.environ.get("WORKERS") or worker_count())
    spread = ["-n", str(workers), "--dist", "loadgroup"] if workers else []
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    return [sys.executable, "-m", "pytest", *spread, *colour, *options]


def worker_count() -> int:
    """Tests wait as well as compute: six workers keep two processors busy."""
    cores = float(len(os.sched_getaffinity(0)))
    meminfo = Path("/proc/meminfo").read_text()
    memory = float(re.findall(r"MemAvailable: +(\d+) kB", meminfo)[0]) * 1024
    with suppress(OSError, ValueError):  # of a container
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, int(quota) / int(period))
    with suppress(OSError, ValueError):
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(1, min(int(3 * cores), int(memory / GIB_PER_WORKER / (1 << 30)), MAX_WORKERS))


def compile_tests() -> None:
    """Collects the tests once: otherwise each worker of a first run would compile all of them."""
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "--collect-only", "-qq"]
    subprocess.run(command, stdout=subprocess.DEVNULL)


def run_pytest(command: list[str]) -> tuple[int, list[str]]:
    """Returns the exit status and the lines of the output, which is passed on as it comes."""
    output = bytearray()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        signal.signal(signal.SIGINT, lambda *_: None)  # a terminal sends it to pytest, too
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: process.send_signal(number))
        while piece := os.read(process.stdout.fileno(), 1 << 16):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            output += piece
    lines = _COLOUR.sub("", output.decode(errors="replace")).splitlines()
    stopped = any(map(_STOPPED.match, lines))  # by -x, say, which has the same status
    return INTERRUPTED if stopped and process.returncode else process.returncode, lines


def last_failed() -> list[str]:
    """Reads pytest's cache, which also has tests whose set-up failed, and files not collected."""
    try:
        return list(json.loads(LAST_FAILED.read_text()))
    except FileNotFoundError:
        return []


def without_group(name: str) -> str:
    """Removes the group that xdist appends to a test's name after an @; parameters may have one."""
    test, at, _ = name.rpartition("@")
    return test if at and "::" in test and not name.endswith("]") else name


def why_not_repeated(status: int, failed: list[str], counts: str, lines: list[str]) -> str:
    if status != SOME_FAILED or not counts:
        return f"pytest did not come to its end (exit status {status})"
    if any(map(_LEFT_BEHIND.match, lines)):
        return "processes were left behind"
    if not failed:
        return "pytest reports a failure, but no failed test"
    not_read = [name for name in failed if "::" not in name]
    if not_read:
        return f"not every test ran: {', '.join(not_read)} could not be read"
    if len(failed) > MAX_FLAKY:
        return f"{len(failed)} tests failed; no more than {MAX_FLAKY} are repeated"
    return ""


def passes_alone(test: str) -> bool:
    print(f"again, alone: {test}", flush=True)
    # The status is 0 only if a test ran and passed (or was skipped, as it may be on this machine).
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    return run_pytest(command)[0] == 0


def recount(counts: str, *, failed: int, flaky: int) -> str:
    """Returns the counts after the repetition: `7 passed, 0 failed, 1 flaky in 3.1s`."""
    parts, _, seconds = counts.rpartition(" in ")
    kept = [part for part in parts.split(", ") if part.split()[-1] not in _RECOUNTED]
    passed = [part for part in kept if part.endswith(" passed")] or ["0 passed"]
    others = [part for part in kept if part not in passed]
    recounted = [*passed, f"{failed} failed", f"{flaky} flaky", *others]
    return f"{', '.join(recounted)} in {seconds}"


def close(counts: str, status: int) -> int:
    print(f"==== {counts} ====", flush=True)
    return status


@contextmanager
def load(busy: int) -> Iterator[None]:
    """Ends with this process, however that ends: its hogs read the end of their input."""
    programs = [_SPIN] * busy + [_WRITE]
    commands = [[sys.executable, "-c", _WHILE_INPUT_IS_OPEN + program] for program in programs]
    hogs = [subprocess.Popen(command, stdin=subprocess.PIPE) for command in commands]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
