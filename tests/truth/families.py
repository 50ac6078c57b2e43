"""Named families of histories; each is made from a seeded `Random`.

`evidence_missing` marks those in which nothing that was recorded could tell what happened: there
the account may be wrong, but must say by how much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.truth.judging import History

Make = Callable[[Random], History]


@dataclass(frozen=True)
class Family:
    name: str
    group: str
    make: Make
    evidence_missing: bool = False


GROUPS = (
    "plain",
    "async",
    "gpu",
    "uneven",
    "hangs",
    "clocks",
    "elastic",
    "completeness",
    "crashes",
    "spans",
    "ranks",
    "entries",
    "pods",
)
FAMILIES: dict[str, Family] = {}


def family(group: str, *, evidence_missing: bool = False) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        name = make.__name__
        assert name not in FAMILIES
        FAMILIES[name] = Family(name, group, make, evidence_missing)
        return make

    return add


def gather() -> dict[str, Family]:
    """All of them, group by group."""
    from tests.truth import behind, gpus, one_rank, pods, several, uneven  # noqa: F401 - they enter themselves

    ordered = sorted(FAMILIES.values(), key=lambda family: GROUPS.index(family.group))
    return {family.name: family for family in ordered}
