from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.leftovers import nothing_is_left


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """No thread of ours outlives a test."""
    yield
    nothing_is_left()
