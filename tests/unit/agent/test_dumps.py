from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from runwatch.agent.dumps import collect
from runwatch.capture.dump_file import ELSEWHERE, PERIODIC
from tests.unit.agent.hand_clock import HandClock

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


def test_each_dump_is_read_once_also_by_an_agent_that_comes_later(journal: Path) -> None:
    file = journal / PERIODIC
    write(file, opened() + dumped(5) + LINE)
    write(file, dumped(7))
    assert [body["time_ns"] for body in collect(journal)] == [5, 7]
    assert list(collect(journal)) == []
    write(file, dumped(9))
    (body,) = collect(journal)
    assert body["time_ns"] == 9
    assert (body["rank"], body["host"], body["pid"], body["step"]) == (3, "gpu-1", 771, 12)
    assert [thread["is_main"] for thread in body["threads"]] == [False, True]


def test_dumps_of_the_c_thread_get_their_time_from_what_went_before(journal: Path) -> None:
    minute = 60 * 10**9
    file = journal / PERIODIC
    timeout = "Timeout (0:01:00)!\n" + DUMP
    write(file, opened() + LINE + timeout + timeout)
    assert [b["time_ns"] for b in collect(journal)] == [1_000 + minute, 1_000 + 2 * minute]
    write(file, timeout + LINE)
    assert [b["time_ns"] for b in collect(journal)] == [1_000 + 3 * minute]
    write(file, dumped(5) + "Timeout (1:00:00.500000)!\n" + DUMP)
    times = [(b["how"], b["time_ns"]) for b in collect(journal)]
    assert times == [("watchdog", 5), ("watchdog", 5 + 60 * minute + 5 * 10**8)]


def test_a_fault_has_a_name_and_the_time_of_the_file(journal: Path) -> None:
    file = journal / "faults.txt"
    write(file, opened() + FAULT)
    os.utime(file, ns=(0, 77 * 10**9))
    (body,) = collect(journal, rank=9, host="elsewhere")
    assert (body["how"], body["fault"], body["time_ns"]) == ("fault", "Bus error", 77 * 10**9)
    assert (body["rank"], body["host"]) == (3, "gpu-1")  # the process knows best


def test_a_dump_that_came_by_a_signal(journal: Path) -> None:
    write(journal / PERIODIC, dumped(5) + LINE + DUMP)
    assert [body["how"] for body in collect(journal)] == ["watchdog", "signalled"]


def test_a_file_elsewhere(journal: Path, tmp_path: Path) -> None:
    there = tmp_path / "stack_trace_1.txt"
    write(there, opened() + dumped(5))
    write(journal / ELSEWHERE, f"{there}\n{there}\n{tmp_path / 'gone'}\n/dev/zero\n\0\n")
    assert [body["time_ns"] for body in collect(journal)] == [5]


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
    assert [body["time_ns"] for body in collect(journal)] == [7]


def test_a_living_process_may_be_writing(journal: Path) -> None:
    file = journal / PERIODIC
    write(file, dumped(5))
    os.utime(file, ns=(0, 10 * 10**9))
    clock = HandClock()
    clock.now = 10 * 10**9
    assert list(collect(journal, ended=False, clock=clock)) == []
    clock.now = 12 * 10**9
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
        for body in collect(journal):
            assert body["how"] in ("fault", "watchdog", "signalled")
    file.write_bytes(whole[:-40])
    (journal / "dumps-read.json").unlink()
    assert [body["how"] for body in collect(journal)] == ["watchdog", "fault"]
