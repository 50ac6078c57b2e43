from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from runwatch.agent.errands.dumps import MAX_FAULT, collect, last_fault
from runwatch.capture.dump_file import ELSEWHERE, PERIODIC
from runwatch.capture.watchdog import UNLESS
from runwatch.testing import FakeClock

HEADING = (
    "# {word} 2026-03-01 12:00:00 host=gpu-1 rank=3 pid=771 run=llama step=12"
    " time_ns={time} main=0x0000000000000001\n"
)
THREADS = """Thread 0x0000000000000002 (most recent call first):
  File "/job/data.py", line 41 in fetch

{current}hread 0x0000000000000001 (most recent call first):
  File "/job/train.py", line 88 in step
  File "/job/train.py", line 99 in <module>
"""
DUMP = THREADS.format(current="T")
FAULT = "Fatal Python error: Bus error\n\n" + THREADS.format(current="Current t")
LINE = "INFO: Not a crash. Runwatch writes the stacks of all threads every 600 seconds.\n"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    folder = tmp_path / "journals" / "gpu-1-771"
    folder.mkdir(parents=True)
    return folder


def write(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def opened(time: int = 1_000) -> str:
    return HEADING.format(word="opened", time=time)


def dumped(time: int) -> str:
    return HEADING.format(word="dump", time=time) + DUMP


def test_nothing_there(journal: Path) -> None:
    assert list(collect(journal)) == []
    write(journal / "faults.txt", opened())
    assert list(collect(journal)) == []


def test_the_line_that_it_is_no_crash_is_no_part_of_a_dump(journal: Path) -> None:
    periodic = HEADING.format(word="dump", time=5) + LINE + DUMP
    before = opened() + UNLESS + LINE
    write(journal / PERIODIC, before + periodic + dumped(7) + LINE + periodic)
    found = list(collect(journal))
    assert [(stacks.how, stacks.time_ns) for stacks in found] == [
        ("watchdog", 5), ("watchdog", 7), ("watchdog", 5),
    ]  # fmt: skip
    assert len({tuple(stacks.threads) for stacks in found}) == 1
    write(journal / "faults.txt", before + FAULT)
    assert [stacks.fault for stacks in collect(journal)] == ["Bus error"]


def test_each_dump_is_read_once_also_by_an_agent_that_comes_later(journal: Path) -> None:
    file = journal / PERIODIC
    write(file, opened() + dumped(5) + LINE)
    write(file, dumped(7))
    assert [stacks.time_ns for stacks in collect(journal)] == [5, 7]
    assert list(collect(journal)) == []
    write(file, dumped(9))
    (stacks,) = collect(journal)
    assert stacks.time_ns == 9
    assert (stacks.rank, stacks.host, stacks.pid, stacks.step) == (3, "gpu-1", 771, 12)
    assert [thread.is_main for thread in stacks.threads] == [False, True]


def test_dumps_of_the_c_thread_get_their_time_from_what_went_before(journal: Path) -> None:
    minute = 60 * 10**9
    file = journal / PERIODIC
    timeout = "Timeout (0:01:00)!\n" + DUMP
    write(file, opened() + LINE + timeout + timeout)
    assert [s.time_ns for s in collect(journal)] == [1_000 + minute, 1_000 + 2 * minute]
    write(file, timeout + LINE)
    assert [s.time_ns for s in collect(journal)] == [1_000 + 3 * minute]
    write(file, dumped(5) + "Timeout (1:00:00.500000)!\n" + DUMP)
    times = [(s.how, s.time_ns) for s in collect(journal)]
    assert times == [("watchdog", 5), ("watchdog", 5 + 60 * minute + 5 * 10**8)]


def test_a_fault_has_a_name_and_the_time_of_the_file(journal: Path) -> None:
    file = journal / "faults.txt"
    write(file, opened() + FAULT)
    os.utime(file, ns=(0, 77 * 10**9))
    (stacks,) = collect(journal, rank=9, host="elsewhere")
    assert (stacks.how, stacks.fault, stacks.time_ns) == ("fault", "Bus error", 77 * 10**9)
    assert (stacks.rank, stacks.host) == (3, "gpu-1")  # the process knows best


def test_a_dump_that_came_by_a_signal(journal: Path) -> None:
    write(journal / PERIODIC, dumped(5) + LINE + DUMP)
    assert [stacks.how for stacks in collect(journal)] == ["watchdog", "signalled"]


def test_a_file_elsewhere(journal: Path, tmp_path: Path) -> None:
    there = tmp_path / "stack_trace_1.txt"
    write(there, opened() + dumped(5))
    write(journal / ELSEWHERE, f"{there}\n{there}\n{tmp_path / 'gone'}\n/dev/zero\n\0\n")
    assert [stacks.time_ns for stacks in collect(journal)] == [5]


def test_only_files_of_the_journals_owner_and_no_links(journal: Path, tmp_path: Path) -> None:
    there, link = tmp_path / "there.txt", tmp_path / "link.txt"
    write(there, dumped(5))
    link.symlink_to(there)
    write(journal / ELSEWHERE, f"{link}\n")
    assert list(collect(journal)) == []
    if os.getuid() == 0:
        os.chown(there, 12345, -1)
        write(journal / ELSEWHERE, f"{there}\n")
        assert list(collect(journal)) == []


def test_a_file_that_was_emptied_is_read_from_its_beginning(journal: Path) -> None:
    file = journal / PERIODIC
    write(file, dumped(5) + dumped(6))
    assert len(list(collect(journal))) == 2
    os.truncate(file, 0)
    write(file, dumped(7))
    assert [stacks.time_ns for stacks in collect(journal)] == [7]


def test_a_living_process_may_be_writing(journal: Path) -> None:
    file = journal / PERIODIC
    write(file, dumped(5))
    os.utime(file, ns=(0, 10 * 10**9))
    clock = FakeClock()
    clock.now_ns = 10 * 10**9
    assert list(collect(journal, ended=False, clock=clock)) == []
    clock.now_ns = 12 * 10**9
    assert len(list(collect(journal, ended=False, clock=clock))) == 1


def test_what_is_cut_off_or_damaged_gives_what_can_be_read(journal: Path) -> None:
    whole = (opened() + dumped(5) + LINE + FAULT).encode()
    chance = random.Random(4)
    file = journal / "faults.txt"
    for cut in range(0, len(whole), 23):
        file.write_bytes(whole[:cut])
        (journal / "dumps-read.json").write_text("{damaged")
        list(collect(journal))
    for _ in range(40):
        damaged = bytearray(whole)
        for _ in range(20):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        file.write_bytes(damaged)
        (journal / "dumps-read.json").unlink()
        for stacks in collect(journal):
            assert stacks.how in ("fault", "watchdog", "signalled")
    file.write_bytes(whole[:-40])
    (journal / "dumps-read.json").unlink()
    assert [stacks.how for stacks in collect(journal)] == ["watchdog", "fault"]


# ── faults while others run ───────────────────────────────────────────────────────────────────

SECOND = "Fatal Python error: Segmentation fault\n\n"


def fault(name: str, *threads: str) -> str:
    return f"Fatal Python error: {name}\n\n" + "\n".join(threads)


def thread(ident: int, *, current: bool = False, torn: bool = False) -> str:
    head = f"{'Current t' if current else 'T'}hread {ident:#018x} (most recent call first):\n"
    return head + ("  File " if torn else '  File "/job/train.py", line 3 in work\n')


@pytest.mark.parametrize(
    ("text", "name", "signal", "problems"),
    [
        (fault("Aborted", thread(2), thread(1, current=True)), "Aborted", "SIGABRT", []),
        (
            fault("Illegal instruction", thread(3), thread(2, torn=True)) + SECOND,
            "Illegal instruction",
            "SIGILL",
            ["broken off by a second fault (Segmentation fault)", "is not among these"],
        ),
        (
            fault("Bus error", thread(3, current=True), thread(2, torn=True)) + SECOND,
            "Bus error",
            "SIGBUS",
            ["broken off by a second fault (Segmentation fault)"],
        ),
        (
            fault("Segmentation fault", thread(3), thread(2, torn=True)),
            "Segmentation fault",
            "SIGSEGV",
            ["the process died before all threads were written", "is not among these"],
        ),
        (
            fault("Floating-point exception", thread(2), thread(1)),
            "Floating-point exception",
            "SIGFPE",
            ["in a thread that runs no Python"],
        ),
        (
            fault("Floating point exception") + SECOND,
            "Floating point exception",
            "SIGFPE",
            ["broken off by a second fault", "is not among these"],
        ),
    ],
)
def test_the_first_fault_is_the_cause(
    text: str, name: str, signal: str, problems: list[str], journal: Path
) -> None:
    write(journal / "faults.txt", opened() + text)
    assert last_fault(journal) == signal
    (stacks,) = collect(journal)
    assert (stacks.how, stacks.fault) == ("fault", name)
    assert len(stacks.problems) == len(problems)
    for problem, said in zip(problems, stacks.problems, strict=True):
        assert problem in said
    mains = [t.ident for t in stacks.threads if t.is_main]
    assert mains == ([1] if "0x0000000000000001 " in text else [])


def test_of_several_faults_the_last_is_the_cause(journal: Path, tmp_path: Path) -> None:
    assert last_fault(journal) == last_fault(tmp_path / "nowhere") == ""
    there = tmp_path / "stack_trace_1.txt"
    write(journal / "faults.txt", opened() + FAULT)
    write(journal / ELSEWHERE, f"{there}\n{tmp_path / 'gone'}\n\0\n")
    assert last_fault(journal) == "SIGBUS"
    write(there, fault("Aborted", thread(1, current=True)))
    os.utime(there, ns=(0, 7))
    os.utime(journal / "faults.txt", ns=(0, 5))
    assert last_fault(journal) == "SIGABRT"
    os.utime(there, ns=(0, 3))
    assert last_fault(journal) == "SIGBUS"


def test_of_a_console_that_is_a_file_only_this_processs_fault_is_taken(
    journal: Path, tmp_path: Path
) -> None:
    log = tmp_path / "job's log.err"
    write(log, "before\n" + fault("Aborted", thread(1, current=True)))
    size, inode = log.stat().st_size, log.stat().st_ino
    write(journal / "console-1.path", f"{opened()}{size} {inode} {log}\n")
    write(log, dumped(5) + "step 3 " + fault("Illegal instruction", thread(9, current=True)))
    assert (list(collect(journal)), last_fault(journal)) == ([], "")  # another process's
    write(log, "step 4 " + fault("Bus error", thread(2), thread(1, current=True)) + "bye\n")
    assert list(collect(journal, ended=False)) == []
    assert last_fault(journal) == "SIGBUS"
    (stacks,) = collect(journal)
    assert (stacks.fault, stacks.rank, stacks.pid) == ("Bus error", 3, 771)
    assert list(collect(journal)) == []


def test_the_end_of_a_long_log_is_enough(journal: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.err"
    log.write_bytes(b"x" * (MAX_FAULT + 100))
    write(journal / "console-1.path", f"{opened()}0 {log.stat().st_ino} {log}\n")
    write(log, "\n" + fault("Aborted", thread(1, current=True)))
    assert [stacks.fault for stacks in collect(journal)] == ["Aborted"]
    assert last_fault(journal) == "SIGABRT"
