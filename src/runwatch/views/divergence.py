"""A loss that is NaN or infinite and stays so: which one, since when, on which ranks.

Nobody records this: a program whose loss is NaN goes on as before.  It is read from the end of each
series (`Tail`).  What is healthy stays silent: a bad batch that is skipped, a metric that has no
value before its first evaluation, an infinite gradient norm while a loss scale is sought.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from runwatch.rows import SeriesRow
from runwatch.views.times import to_the_second

PASSING: Final = 2
"""So many values in a row may be bad while the run goes on: the next may be good again."""
NEVER_GOOD: Final = 9
"""The same for a loss that had no good value yet."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LOSSES: Final = frozenset(("loss", "losses", "nll"))
_NO_LOSSES: Final = frozenset(
    ("scale", "scaler", "scaling", "packet", "packets", "frame", "frames", "rate", "ratio", "count")
)
"""`loss_scale`, `packet_loss` …"""
_LATER: Final = frozenset(
    ("val", "valid", "validation", "eval", "evaluation", "test", "dev", "heldout", "best", "min")
)
"""Such a metric has no value until the first evaluation, and some programs log it all the same."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The values at the end of a series that are NaN or infinite, without a finite one between."""

    row: SeriesRow
    value: float
    """The last."""
    since_ns: int
    step: int | None
    points: int
    """How many there are."""
    after_good: bool
    """The series had a finite value before."""
    last_ns: int = 0


@dataclass(frozen=True, slots=True)
class Divergence:
    metric: str
    value: float
    since_ns: int
    step: int | None
    ranks: tuple[int, ...]
    of_ranks: int
    """How many ranks record this metric."""

    @property
    def text(self) -> str:
        """`loss is NaN since step 150 on rank 3`."""
        what = "NaN" if math.isnan(self.value) else "infinite"
        since = to_the_second(self.since_ns) if self.step is None else f"step {self.step:,}"
        where = f" on {_ranks(self.ranks)}" if len(self.ranks) < self.of_ranks else ""
        return f"{self.metric} is {what} since {since}{where}"


@lru_cache(maxsize=10_000)
def is_loss(metric: str) -> bool:
    words = _words(metric)
    return any(w in _LOSSES or w.endswith("loss") for w in words) and not words & _NO_LOSSES


def _words(metric: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(metric))


def divergences(
    tails: Iterable[Tail], ranks_of: dict[str, set[int]], *, going: bool
) -> list[Divergence]:
    """By metric, the one that began first comes first.  `going`: the next value may be good."""
    by_metric: dict[str, list[Tail]] = defaultdict(list)
    for tail in tails:
        if _counts(tail, going):
            by_metric[tail.row.metric].append(tail)
    found = [_divergence(metric, of, ranks_of[metric]) for metric, of in by_metric.items()]
    return sorted(found, key=lambda one: (one.since_ns, len(one.metric), one.metric))


def _counts(tail: Tail, going: bool) -> bool:
    if tail.after_good:
        return tail.points > (PASSING if going else 0)
    return not _words(tail.row.metric) & _LATER and tail.points > (NEVER_GOOD if going else PASSING)


def _divergence(metric: str, tails: Sequence[Tail], ranks: set[int]) -> Divergence:
    first = min(tails, key=lambda tail: tail.since_ns)
    who = tuple(sorted({tail.row.rank for tail in tails}))
    return Divergence(metric, first.value, first.since_ns, first.step, who, len(ranks))


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    few = ", ".join(map(str, ranks[:6]))
    return f"ranks {few}" if len(ranks) <= 6 else f"{len(ranks)} ranks"
