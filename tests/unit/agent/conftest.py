from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """No thread of ours outlives a test."""
    yield
    assert [t.name for t in threading.enumerate() if t.name.startswith("runwatch")] == []
