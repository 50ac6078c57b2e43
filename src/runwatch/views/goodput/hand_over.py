"""How long a GPU idles at the begin of a step, because the program waited for the last one.

A program that waits for its GPU in each step, to read the loss for example, hands over the next
step only then.  The GPU idles until the first kernel arrives.  No record shows that: the step has
begun.  PyTorch and JAX took 0.3 to 1.0 ms for it on an H200 (`benchmarks/`), so it counts as half a
millisecond, give or take as much.  In a short step it counts as a share of the step: a program with
steps of a millisecond hands them over more quickly, or does not wait at all.
"""

from __future__ import annotations

from operator import add
from typing import Final

from runwatch.views.goodput.steps.judging import FEW, Took

HAND_OVER_NS: Final = 500_000
_LARGEST_SHARE: Final = 0.05


def hand_over_ns(took: Took, asynchronous: bool) -> int:
    """The idle time in each step before which the program waited for the GPU."""
    if len(took) <= FEW:
        return 0
    total = sorted(map(add, took.own, took.rest))
    # Where most steps only hand work over, the GPU is busy for the whole time of the steps.
    usual = sum(total) / len(total) if asynchronous else total[len(total) // 2]
    return min(HAND_OVER_NS, int(_LARGEST_SHARE * usual))
