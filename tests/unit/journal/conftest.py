from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from runwatch.testing import until


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    """Not one, wherever its file is: segments are renamed and deleted while they are open."""
    before = _descriptors()
    yield
    if _descriptors() > before:
        gc.collect()  # an exception may still hold the frame that it interrupted
    # Fewer are fine: an earlier test's gRPC closes in its time.
    until(
        lambda: _descriptors() <= before, what=f"{_descriptors()} descriptors to be {before} again"
    )
