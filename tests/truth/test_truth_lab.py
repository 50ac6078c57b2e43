"""The account of simulated jobs beside what truly happened in them."""

from __future__ import annotations

import pytest

from tests.truth.checks import compared
from tests.truth.families import Family, gather

SEEDS, SOAK_SEEDS = 1, 50


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("family", gather().values(), ids=lambda family: family.name)
def test_the_account_is_the_truth(family: Family, seed: int) -> None:
    assert not list(compared(family, seed).faults())


@pytest.mark.soak
@pytest.mark.parametrize("family", gather().values(), ids=lambda family: family.name)
def test_the_account_is_the_truth_often(family: Family) -> None:
    faults = {seed: list(compared(family, seed).faults()) for seed in range(SOAK_SEEDS)}
    assert not {seed: found for seed, found in faults.items() if found}
