"""What an account says of a run's whole time, as columns: a long run has millions of intervals."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runwatch.views.goodput.account import Goodput


@dataclass(frozen=True, slots=True)
class Lifeline:
    start_ns: int
    ends: array[int]
    """Each interval begins where the last one ends."""
    classes: array[int]
    names: Sequence[str]
    attempts: Sequence[tuple[int, int, int]]
    """Number, start and end."""

    @classmethod
    def of(
        cls, goodput: Goodput, start_ns: int | None = None, end_ns: int | None = None
    ) -> Lifeline:
        """A copy: whoever reads it slowly keeps nobody from the account."""
        ends, classes = array("q"), array("H")
        names: dict[str, int] = {}
        for _, end, name in goodput.intervals(start_ns, end_ns):
            ends.append(end)
            classes.append(names.setdefault(name, len(names)))
        first_ns = goodput.start_ns if start_ns is None else max(start_ns, goodput.start_ns)
        last_ns = goodput.end_ns if end_ns is None else min(end_ns, goodput.end_ns)
        attempts = [
            (each.attempt, max(each.start_ns, first_ns), min(each.stop_ns, last_ns))
            for each in goodput.attempts
            if each.start_ns < last_ns and each.stop_ns > first_ns
        ]
        return cls(first_ns, ends, classes, list(names), attempts)

    def intervals(self) -> Iterator[tuple[int, int, str]]:
        begin_ns = self.start_ns
        for end_ns, number in zip(self.ends, self.classes, strict=True):
            yield begin_ns, end_ns, self.names[number]
            begin_ns = end_ns
