from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from tests.integration.processes import until
from tests.unit.leftovers import our_threads


def _ours() -> tuple[list[str], int]:
    return our_threads(), len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """No keeper thread and no file descriptor outlives a test."""
    before = _ours()
    yield
    gc.collect()  # an exception may still hold the frame that it interrupted
    until(lambda: _ours() == before, 20, f"{_ours()} to be {before} again")
