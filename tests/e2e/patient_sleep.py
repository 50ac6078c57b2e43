"""The README's `sleep`: until the program beside it has trained a while, and an agent watches it.

How long that takes is the machine's affair.  Then the program stands still: it is to be killed in
the middle, and not when it has ended by itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(os.environ["RUNWATCH_DIR"])
SECONDS = 60.0
TRAINED_BYTES = 8_000
"""Of about 28,000 that it records in all."""


def alive() -> Iterator[tuple[int, Path]]:
    """Training programs that record here."""
    for journal in (ROOT / "journals").iterdir():
        pid = int(journal.name.split("-")[-2])
        try:
            if b"train.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                yield pid, journal
        except FileNotFoundError:
            continue


def has_trained(journal: Path) -> bool:
    written = (segment.read_bytes().rstrip(b"\0") for segment in journal.glob("*.seg"))
    return sum(map(len, written)) > TRAINED_BYTES


def is_watched(pid: int) -> bool:
    """An agent has a descriptor of the process."""
    for lock in (ROOT / "agent").glob("*.lock"):
        agent = json.loads(lock.read_text() or "{}").get("pid")
        for descriptor in Path(f"/proc/{agent}/fdinfo").glob("*"):
            try:
                if f"Pid:\t{pid}\n" in descriptor.read_text():
                    return True
            except FileNotFoundError:
                continue
    return False


def main() -> int:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for pid, journal in alive():
            if has_trained(journal):
                os.kill(pid, signal.SIGSTOP)
            if has_trained(journal) and is_watched(pid):
                return 0
        time.sleep(0.02)
    return 1


if __name__ == "__main__":
    sys.exit(main())
