from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from runwatch.testing import until
from tests.unit.leftovers import our_threads


def _ours() -> tuple[list[str], int]:
    return our_threads(), len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """No keeper thread and no file descriptor outlives a test."""
    threads, files = _ours()
    yield
    gc.collect()  # an exception may still hold the frame that it interrupted

    def is_clean() -> bool:
        ours, open_now = _ours()
        return ours == threads and open_now <= files  # an earlier test's gRPC closes in its time

    until(is_clean, 20, f"{_ours()} to be {(threads, files)} again")
