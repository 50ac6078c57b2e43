"""What threads and children of a process had of the cores, by the kernel's own count."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runwatch.capture import process, pulse
from runwatch.record.stacks import Stacks
from runwatch.testing import until
from runwatch.views.diagnosis.pulses import children_of, of_thread

SPIN = "import sys; print('ready', flush=True); [None for _ in iter(int, 1)]"
REST = "import sys; print('ready', flush=True); sys.stdin.read()"


@contextmanager
def child(code: str) -> Iterator[int]:
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None and started.stdout.readline() == b"ready\n"
            yield started.pid
        finally:
            started.kill()


def felt(pid: int) -> dict[str, object]:
    here = pulse.feel(pid, time.monotonic_ns())
    return Stacks(pulse=pulse.both(here, here, {pid})).body()


def test_who_computes_is_told_from_who_rests() -> None:
    with child(SPIN) as busy, child(REST) as quiet:
        first = {pid: felt(pid) for pid in (busy, quiet)}
        # It is on a core again before long, however busy the machine is.
        until(lambda: (r := of_thread([first[busy], felt(busy)], busy)) and r.was_busy, 60)
        at_work = of_thread([first[busy], felt(busy)], busy)
        at_rest = of_thread([first[quiet], felt(quiet)], quiet)
    assert at_work is not None and at_rest is not None
    assert at_rest.share < at_work.share


def test_children_are_told_with_their_state() -> None:
    with child(REST) as pid:

        def rests() -> bool:
            found = {each.pid: each for each in children_of([felt(os.getpid())])}
            return found[pid].state == "S" and found[pid].name.startswith("python")

        until(rests, 30, "it to wait for its input")
    assert pid not in {each.pid for each in children_of([felt(os.getpid())])}


def test_a_process_that_is_not_there_has_no_pulse(tmp_path: Path) -> None:
    assert pulse.feel(4711, 0, proc=tmp_path) == {}
    assert pulse.both({}, pulse.feel(os.getpid(), 0), ()) is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [(b"python\0-c\0from multiprocessing.resource_tracker import main", True), (b"git\0gc", False)],
)
def test_bookkeepers_are_nobody_to_wait_for(words: bytes, expected: bool, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_bytes(words)
    assert process.is_bookkeeper(7, proc=tmp_path) is expected
    assert process.is_bookkeeper(8, proc=tmp_path), "it has ended"


def test_the_journal_of_a_process_is_found_by_the_files_it_has_open(tmp_path: Path) -> None:
    folder = tmp_path / "journals" / "one"
    folder.mkdir(parents=True)
    assert process.journal_of(os.getpid()) is None
    with (folder / "stacks.txt").open("w"):
        assert process.journal_of(os.getpid()) == folder
    assert process.python_version(os.getpid()) in ("", f"3.{sys.version_info.minor}")
