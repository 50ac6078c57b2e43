"""The account of a history beside its truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tests.truth.families import Family
from tests.truth.judging import History
from tests.truth.passing import SECOND
from tests.truth.telling import account_of

HEADLINE = 0.02
SHARE, AT_LEAST_NS = 0.02, 1 * SECOND
SLACK, SLACK_AT_LEAST_NS = 0.002, SECOND // 20


@dataclass(frozen=True)
class Compared:
    family: Family
    history: History
    spent_ns: dict[str, int]
    total_ns: int
    wall_ns: int
    goodput: float
    inferred_ns: int
    awaited_ns: int | None

    def off_ns(self, name: str) -> int:
        return self.spent_ns.get(name, 0) - self.history.truth.spent_ns.get(name, 0)

    @property
    def classes(self) -> set[str]:
        return {*self.spent_ns, *self.history.truth.spent_ns}

    @property
    def worst(self) -> tuple[str, int]:
        name = max(sorted(self.classes), key=lambda name: abs(self.off_ns(name)))
        return name, self.off_ns(name)

    def faults(self) -> Iterator[str]:
        """What is wrong with the account, in words."""
        truth = self.history.truth
        name, off = self.worst
        bound = self.inferred_ns + max(SLACK * truth.wall_ns, SLACK_AT_LEAST_NS)
        excused = self.family.evidence_missing and abs(off) <= bound
        if not excused and abs(self.goodput - truth.goodput) > HEADLINE:
            yield f"(a) headline {self.goodput:.1%}, true {truth.goodput:.1%}"
        if not excused and abs(off) > max(SHARE * truth.wall_ns, AT_LEAST_NS):
            yield f"(b) {name} {off / SECOND:+.1f} s"
        if abs(off) > bound:
            most = self.inferred_ns / SECOND
            yield f"(c) {name} {off / SECOND:+.1f} s, said to be wrong by {most:.1f} s at most"
        if self.total_ns != self.wall_ns:
            yield f"(d) classes sum to {self.total_ns}, not {self.wall_ns}"
        if self.awaited_ns is not None and self.awaited_ns <= 0:
            yield f"(e) rank {self.history.awaited} was not seen to be waited for"


def compared(family: Family, seed: int) -> Compared:
    history = family.make(Random(f"{family.name} {seed}"))
    goodput = account_of(history, Random(f"{family.name} {seed} told"))
    account = goodput.account()
    intervals = list(goodput.intervals())
    awaited = history.awaited
    return Compared(
        family,
        history,
        {name: took for name, took in account.spent_ns.items() if took},
        sum(account.spent_ns.values()),
        intervals[-1][1] - intervals[0][0],
        account.goodput or 0.0,
        goodput.inferred_ns,
        None if awaited is None else goodput.ranks[awaited].awaited_ns,
    )
