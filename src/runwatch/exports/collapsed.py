"""Stacks as collapsed text: `rank 0;MainThread;main (train.py:10);step (train.py:88) 12`.

One line per distinct stack, outermost frame first, with how often it was seen.  What flame graph
tools read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from runwatch.record.stacks import Stacks
from runwatch.views.diagnosis.frames import Frame, threads_of

Path = tuple[str, tuple[Frame, ...]]
"""A thread's name and its frames, outermost first."""


def samples(stacks: Iterable[Stacks]) -> Iterator[tuple[int, Path]]:
    """By rank: where the user's threads were.  Idle ones beside the main thread are left out."""
    for process in stacks:
        for thread in threads_of(process.body()):
            if thread.frames and (thread.is_main or not thread.idle):
                name = thread.name or "thread"
                if process.child_of:
                    name = f"child process, {name}"
                yield process.rank or 0, (name, tuple(reversed(thread.frames)))


def collapsed(stacks: Iterable[Stacks]) -> Iterator[str]:
    """Lines, the most frequent stack of each rank first."""
    counts = Counter(samples(stacks))
    for (rank, (name, frames)), count in sorted(
        counts.items(), key=lambda item: (item[0][0], -item[1], item[0][1][0])
    ):
        words = [f"rank {rank}", name, *map(label, frames)]
        yield ";".join(_safe(word) for word in words) + f" {count}\n"


def label(frame: Frame) -> str:
    return f"{frame.function} ({frame.place})" if frame.place else frame.function


def _safe(word: str) -> str:
    return word.replace(";", ",").replace("\n", " ")
