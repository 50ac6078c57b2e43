"""How long a GPU has nothing to do at the begin of a step, because the last one was waited for.

A program that waits for its GPU in each step reads the loss there, say, and only then hands the
next step over.  Until the first kernel arrives the GPU idles, and nothing that is recorded shows
that: the step has begun.  It took PyTorch and JAX 0.3 to 1.0 ms on an H200 (`benchmarks/`), so half
a millisecond is taken for it, give or take as much.  Of a short step it is a share: who trains in
steps of a millisecond hands them over more quickly than that, or not at all.
"""

from __future__ import annotations

from operator import add
from typing import Final

from runwatch.views.goodput.steps.judging import FEW, Took

HAND_OVER_NS: Final = 500_000
_LARGEST_SHARE: Final = 0.05


def hand_over_ns(took: Took, asynchronous: bool) -> int:
    """Of each step before which the GPU was waited for."""
    if len(took) <= FEW:
        return 0
    total = sorted(map(add, took.own, took.rest))
    # Where most steps only hand work over, what they take together is what the GPU does.
    usual = sum(total) / len(total) if asynchronous else total[len(total) // 2]
    return min(HAND_OVER_NS, int(_LARGEST_SHARE * usual))
