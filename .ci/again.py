"""Runs pytest, and what failed once more, alone: `python .ci/again.py -m pytest OPTIONS`.

One test in thousands fails one time in hundreds, and then says nothing about a change.  So up to
two that failed get a second chance, each in a process of its own.  What passes then is called
flaky, by name, and counted.  The run fails when a test fails twice, when more than two failed, and
when pytest did not come to its end: only its exit status 1 means that all tests ran.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
CHANCES = 2
"""So many tests may be flaky in one run."""
SOME_FAILED = 1
"""Pytest's exit status when every test ran, and not every one passed."""
INTERRUPTED = 2
_TOLD_ANEW = ("failed", "error", "errors")
_COUNTS = re.compile(r"\d+ [a-z].* in \d[\d.]*s\b")
_CRASHED = re.compile(r"worker '\w+' crashed while running '(.+)'$")
_STOPPED = re.compile(r"!{3,} .+ !{3,}$")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def main(arguments: list[str]) -> int:
    LAST_FAILED.unlink(missing_ok=True)
    status, counts, crashed = passing_on([sys.executable, *arguments])
    if status == 0:
        return 0
    failed = sorted({without_group(name) for name in (*last_failed(), *crashed)})
    reason = why_not_again(status, failed, counts)
    if reason:
        return closing(reason, counts or f"0 passed, {len(failed) or 1} failed", 1)
    flaky = [test for test in failed if passes_alone(test)]
    for test in flaky:
        print(f"flaky: {test} (failed, then passed alone)")
    for test in failed:
        if test not in flaky:
            print(f"failed twice: {test}")
    both = recounted(counts, failed=len(failed) - len(flaky), flaky=len(flaky))
    return closing("", both, int(len(flaky) < len(failed)))


def passing_on(command: list[str]) -> tuple[int, str, list[str]]:
    """Its exit status, the counts of its closing line, and the tests in which a worker died: some
    schedulers start these anew, and pytest forgets them when they pass.  Its output is passed on.
    """
    said = bytearray()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), 1 << 16):  # each dot as it comes
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            said += piece
    lines = _COLOUR.sub("", said.decode(errors="replace")).splitlines()
    closings = [found[0] for line in lines if (found := _COUNTS.search(line))]
    crashed = [found[1] for line in lines if (found := _CRASHED.match(line))]
    stopped = any(map(_STOPPED.match, lines))  # by -x, say, which has the same status
    status = INTERRUPTED if stopped and process.returncode else process.returncode
    return status, closings[-1] if closings else "", crashed


def last_failed() -> list[str]:
    """As pytest remembers them: also those whose set-up broke, and files that it could not read."""
    try:
        return list(json.loads(LAST_FAILED.read_text()))
    except FileNotFoundError:
        return []


def without_group(name: str) -> str:
    """xdist hangs a test's group on its name, behind an @; parameters may have one of their own."""
    test, at, _ = name.rpartition("@")
    return test if at and "::" in test and not name.endswith("]") else name


def why_not_again(status: int, failed: list[str], counts: str) -> str:
    if status != SOME_FAILED or not counts:
        return f"pytest did not come to its end (exit status {status})"
    if not failed:
        return "pytest says that something failed, but not which test"
    not_read = [name for name in failed if "::" not in name]
    if not_read:
        return f"not every test ran: {', '.join(not_read)} could not be read"
    if len(failed) > CHANCES:
        return f"{len(failed)} tests failed; no more than {CHANCES} are repeated"
    return ""


def passes_alone(test: str) -> bool:
    print(f"again, alone: {test}", flush=True)
    # Its status is 0 only if a test ran and passed (or was skipped, as it may be on this machine).
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    return subprocess.run(command).returncode == 0


def recounted(counts: str, *, failed: int, flaky: int) -> str:
    """What the closing line says after the repetition: `7 passed, 0 failed, 1 flaky in 3.1s`."""
    parts, _, seconds = counts.rpartition(" in ")
    kept = [part for part in parts.split(", ") if part.split()[-1] not in _TOLD_ANEW]
    passed = [part for part in kept if part.endswith(" passed")] or ["0 passed"]
    others = [part for part in kept if part not in passed]
    told = [*passed, f"{failed} failed", f"{flaky} flaky", *others]
    return f"{', '.join(told)} in {seconds}"


def closing(reason: str, counts: str, status: int) -> int:
    if reason:
        print(f"not repeated: {reason}")
    print(f"==== {counts} ====", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
