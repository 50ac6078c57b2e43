"""Stacks as collapsed text and as speedscope's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runwatch.exports.collapsed import collapsed
from runwatch.exports.speedscope import speedscope
from runwatch.record.stacks import Stacks


def thread(name: str, *frames: tuple[str, int], **flags: bool) -> dict[str, Any]:
    """Frames innermost first, all in train.py."""
    plain = [{"function": f, "file": "/home/me/train.py", "line": line} for f, line in frames]
    return {"name": name, "frames": plain, **flags}


def stacks(rank: int, *threads: dict[str, Any], **more: Any) -> Stacks:
    return Stacks.of({"rank": rank, "threads": list(threads), **more})


def main(*frames: tuple[str, int]) -> dict[str, Any]:
    return thread("MainThread", *frames, is_main=True)


SAMPLES: Sequence[Stacks] = [
    stacks(0, main(("load", 5), ("<module>", 1))),
    stacks(0, main(("load", 5), ("<module>", 1))),
    stacks(0, main(("step", 9), ("<module>", 2)), thread("pool", ("get", 3), idle=True)),
    stacks(1, main(("step; or", 9), ("<module>", 2)), thread("writer", ("write", 4))),
]


def test_collapsed_stacks_are_counted_from_the_outside_in() -> None:
    assert list(collapsed(SAMPLES)) == [
        "rank 0;MainThread;<module> (train.py:1);load (train.py:5) 2\n",
        "rank 0;MainThread;<module> (train.py:2);step (train.py:9) 1\n",
        "rank 1;MainThread;<module> (train.py:2);step, or (train.py:9) 1\n",
        "rank 1;writer;write (train.py:4) 1\n",
    ]


def test_a_child_process_is_told_apart() -> None:
    (line,) = collapsed([stacks(3, main(("read", 7)), child_of=12)])
    assert line == "rank 3;child process, MainThread;read (train.py:7) 1\n"


def test_speedscope_has_a_profile_per_rank_and_one_of_all() -> None:
    graph = speedscope(SAMPLES, name="llama")
    assert [profile["name"] for profile in graph["profiles"]] == ["all ranks", "rank 0", "rank 1"]
    everyone, zero, _ = graph["profiles"]
    assert everyone["endValue"] == sum(everyone["weights"]) == 5
    frames = graph["shared"]["frames"]
    named = [[frames[i]["name"] for i in stack] for stack in zero["samples"]]
    assert dict(zip(map(tuple, named), zero["weights"], strict=True)) == {
        ("MainThread", "<module>", "load"): 2,
        ("MainThread", "<module>", "step"): 1,
    }
    assert {"name": "load", "file": "/home/me/train.py", "line": 5} in frames


def test_nothing_seen_is_an_empty_graph() -> None:
    assert list(collapsed([stacks(0, problems=["gone"])])) == []
    assert speedscope([], name="x")["profiles"] == []
