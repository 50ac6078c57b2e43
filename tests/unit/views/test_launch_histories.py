"""Attempts beside a simulator of launches, which knows which processes it started together.

It shares nothing with `views/attempts.py`: it starts jobs on a time axis, kills them, starts them
again, and only then says what their processes would have recorded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pytest

from runwatch.rows import ProcessRow
from runwatch.views.attempts import attempts
from tests.unit.views.rows import process

HISTORIES: Final = 150


class Agent(NamedTuple):
    """A launcher on one host, and how many restarts it has counted."""

    host: int
    restarts: int


KEYS: Final[dict[str, Callable[[Agent], str]]] = {
    "none": lambda agent: "",
    "one for all": lambda agent: "slurm-77.0",
    "one for each host": lambda agent: f"master-host-{agent.host}:29500",
    "what each agent counts": lambda agent: f"torchrun-job.{agent.restarts}",
}


@pytest.mark.parametrize("kind", ["plain", "some die early", "soon quiet"])
@pytest.mark.parametrize("key", KEYS)
def test_every_process_is_in_the_attempt_it_was_started_in(key: str, kind: str) -> None:
    for seed in range(HISTORIES):
        rows, truth = zip(*history(random.Random(seed), KEYS[key], kind), strict=True)
        told = attempts(rows)
        assert tuple(told[row.journal, row.run] for row in rows) == truth, f"history {seed}"


def history(
    chance: random.Random, key: Callable[[Agent], str], kind: str
) -> Iterator[tuple[ProcessRow, int]]:
    """The processes of a job that is killed and started again, each with its attempt.

    `some die early`: in the first attempt, before they record anything.  `soon quiet`: they wait
    for each other in vain, and were last heard of before the next one began.
    """
    hosts, each = chance.choice([(1, 2), (2, 2), (2, 3), (4, 2)])
    agents = [Agent(host, 0) for host in range(hosts)]
    now = 0.0
    for attempt in range(1, chance.randint(3, 5)):
        spread, alone = chance.choice([0.1, 1, 5]), chance.choice([0.2, 5, 60])
        end = now + spread + alone
        begins = sorted(now + chance.uniform(0, spread) for _ in range(hosts * each))
        seen = 0
        for rank, start in zip(order(chance, hosts, each), begins, strict=True):
            agent = agents[rank // each]
            if kind == "some die early" and attempt == 1 and seen and chance.random() < 0.3:
                continue
            seen += 1
            host, journal = f"host-{agent.host}", f"{attempt}-{rank}"
            last = start + 0.01 if kind == "soon quiet" else end
            row = process(journal, rank=rank, host=host, start=start, last=last, key=key(agent))
            yield row, attempt
        now = end + chance.choice([0.1, 3, 20])
        agents = restarted(chance, agents)


def order(chance: random.Random, hosts: int, each: int) -> list[int]:
    """In which ranks come: host by host, from either end, or in any."""
    ranks = list(range(hosts * each))
    how = chance.choice(["up", "down", "any"])
    if how == "any":
        chance.shuffle(ranks)
    return ranks[::-1] if how == "down" else ranks


def restarted(chance: random.Random, agents: list[Agent]) -> list[Agent]:
    """All anew; or one agent's worker died, and the others do not count that; or all count."""
    how = chance.choice(["anew", "one", "all"])
    if how == "anew":
        return [agent._replace(restarts=0) for agent in agents]
    whose = chance.choice(agents)
    counts = [agent for agent in agents if how == "all" or agent == whose]
    return [a._replace(restarts=a.restarts + 1) if a in counts else a for a in agents]


@pytest.mark.parametrize("first", [[0, 1], [1, 0], [2, 3], [3, 2]])
def test_agents_that_count_restarts_differently(first: list[int]) -> None:
    """Two agents of two ranks.  One restarts its workers and does not count it; then both are
    started anew, and the ranks that were in that key come last, or first."""

    def job(name: str, ranks: list[int], at: int, restarts: dict[int, int]) -> list[ProcessRow]:
        return [
            process(f"{name}{rank}", rank=rank, host=f"host-{rank // 2}", last=at + 5,
                    start=at + place / 10, key=f"torchrun-elastic.{restarts[rank // 2]}")
            for place, rank in enumerate(ranks)
        ]  # fmt: skip

    rest = [rank for rank in range(4) if rank not in first]
    rows = [
        *job("a", [0, 1, 2, 3], 0, {0: 0, 1: 0}),
        *job("b", [0, 1, 2, 3], 10, {0: 0, 1: 1}),
        *job("c", [*first, *rest], 20, {0: 0, 1: 0}),
    ]
    told = attempts(rows)
    assert [told[row.journal, row.run] for row in rows] == [1] * 4 + [2] * 4 + [3] * 4
