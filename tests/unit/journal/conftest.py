from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest


def _ours() -> tuple[list[str], int]:
    threads = [t.name for t in threading.enumerate() if t.name.startswith("runwatch")]
    return threads, len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """No keeper thread and no file descriptor outlives a test."""
    before = _ours()
    yield
    gc.collect()  # an exception may still hold the frame that it interrupted
    assert _ours() == before
