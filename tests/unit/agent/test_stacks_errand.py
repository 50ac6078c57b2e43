from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runwatch.agent.collectors.base import Target
from runwatch.agent.errands.commands import Context
from runwatch.agent.errands.stacks import MAX_CHILDREN, bounded, errand, is_wanted, subjects
from runwatch.clock import system_clock
from runwatch.record import Command
from runwatch.record.commands import StacksResult, StacksWanted


def target(pid: int, rank: int = 0, run: str = "r") -> Target:
    return Target(pid, 1, {"rank": str(rank), "pid": str(pid), "journal": f"j{pid}"}, run, 5)


def test_what_a_body_asks_for() -> None:
    asked = StacksWanted.of(
        {"run": "r", "ranks": [1, 2], "pids": None, "rounds": 2, "gap_seconds": 0, "native": False}
    )
    assert asked == StacksWanted("r", (1, 2), None, rounds=2, gap_seconds=0.0, native=False)
    assert is_wanted(target(9, rank=2), asked)
    assert not is_wanted(target(9, rank=3), asked)
    assert not is_wanted(target(9, 2, "other"), asked)
    assert is_wanted(target(9), StacksWanted.of({"pids": [9]}))
    assert not is_wanted(target(9), StacksWanted.of({"pids": []}))


def test_an_odd_body_is_as_none() -> None:
    odd = {"rounds": "many", "gap_seconds": float("nan"), "ranks": "all", "run": None}
    assert StacksWanted.of(odd) == StacksWanted.of({}) == StacksWanted()
    much = StacksWanted.of({"rounds": 10**9, "gap_seconds": 1e9})
    assert bounded(much) == StacksWanted(rounds=20, gap_seconds=60.0)
    assert bounded(StacksWanted(rounds=0, gap_seconds=-1.0)) == StacksWanted(gap_seconds=0.0)


def process(proc: Path, pid: int, parent: int, name: str = "python3", words: str = "x") -> None:
    folder = proc / str(pid)
    (folder / "task" / str(pid)).mkdir(parents=True)
    stat = f"{pid} (x) S " + " ".join(["0"] * 18) + f" {pid}7 0 0 " + " ".join(["0"] * 30)
    (folder / "stat").write_text(stat)
    (folder / "status").write_text(f"Name:\tx\nPPid:\t{parent}\n")
    (folder / "cmdline").write_bytes(words.encode())
    (folder / "maps").write_text("")
    (folder / "exe").symlink_to(f"/bin/{name}")
    (folder / "task" / str(pid) / "children").write_text("")
    above = proc / str(parent) / "task" / str(parent) / "children"
    if above.exists():
        above.write_text(above.read_text() + f"{pid} ")


def test_workers_belong_to_their_rank(tmp_path: Path) -> None:
    process(tmp_path, 10, 1)
    process(tmp_path, 11, 10)  # a worker
    process(tmp_path, 12, 10, name="ffmpeg")  # not Python, but its child is
    process(tmp_path, 13, 12)
    process(tmp_path, 14, 10, words="python -c from multiprocessing.resource_tracker import main")
    process(tmp_path, 15, 10, words="python -m runwatch.agent")
    process(tmp_path, 16, 10)  # a worker with a journal of its own
    process(tmp_path, 17, 10)  # another run's process, started by this one
    targets = [target(10), target(16), target(17, run="other")]
    found = subjects(targets[:2], targets, proc=tmp_path)
    assert [(each.pid, each.child_of) for each in found] == [(10, 0), (11, 10), (13, 10), (16, 10)]
    assert [each.start_ticks for each in found] == [5, 117, 137, 5]
    assert found[3].target is targets[1]


def test_workers_are_bounded(tmp_path: Path) -> None:
    process(tmp_path, 10, 1)
    for pid in range(100, 150):
        process(tmp_path, pid, 10)
    assert len(subjects([target(10)], [target(10)], proc=tmp_path)) == 1 + MAX_CHILDREN


def test_rounds_and_reasons(tmp_path: Path) -> None:
    events: list[Mapping[str, Any]] = []
    gone = target(4_000_000, rank=2)  # above the kernel's highest number

    def event(kind: str, body: Mapping[str, Any], scope: int = 0) -> None:
        events.append({"kind": kind, "scope": scope, **body})

    context = Context(tmp_path, "here", system_clock, lambda: [gone], event)
    body = {"rounds": 2, "gap_seconds": 0.01, "incident": "i1"}
    answer = errand(Command("c1", "stacks", body), context)
    assert (answer.processes, answer.looked) == (1, 0)
    assert "process 4000000 cannot be seen" in answer.problems["4000000"]
    assert [(e["round"], e["incident"], e["rank"], e["threads"]) for e in events] == [
        (0, "i1", 2, []), (1, "i1", 2, []),
    ]  # fmt: skip


def test_nobody_of_that_run(tmp_path: Path) -> None:
    context = Context(tmp_path, "here", system_clock, lambda: [target(1)], lambda *_, **__: None)
    answer = errand(Command("c1", "stacks", {"run": "other"}), context)
    assert answer == StacksResult(processes=0, looked=0, problems={})
