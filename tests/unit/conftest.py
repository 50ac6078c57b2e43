"""Nothing outlives a unit test: no thread of ours, no process, no open file of its directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.leftovers import Here, nothing_is_left


@pytest.fixture(autouse=True)
def nothing_outlives_a_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a fixture of the whole module holds is there before, and may stay."""
    place: Path | None = None
    if "tmp_path" in request.fixturenames:
        place = request.getfixturevalue("tmp_path")
    before = Here.now()
    yield
    nothing_is_left(place, before)
