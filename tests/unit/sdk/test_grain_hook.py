"""Grain, by a stand-in with the shape of its iterator: the package is too large for our tests."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import runwatch
from runwatch.testing import Story


def test_waits_for_batches_are_told(
    monkeypatch: pytest.MonkeyPatch, story: Callable[[], Story]
) -> None:
    class DataLoaderIterator(Iterator[int]):
        left = 3

        def __next__(self) -> int:
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            if self.left == 1:
                time.sleep(0.03)  # one batch is late
            return self.left

    module: Any = ModuleType("grain._src.python.data_loader")
    module.DataLoaderIterator = DataLoaderIterator
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = vars(DataLoaderIterator)["__next__"]
    run = runwatch.init("ours", auto=True)
    batches = DataLoaderIterator()
    for step in range(3):
        with run.step(step):
            assert next(batches) == 2 - step
    assert list(batches) == []
    told = story()
    assert vars(DataLoaderIterator)["__next__"] is before
    (wait,) = told.bodies("elapsed")
    assert (wait["name"], wait["seconds"] > 0.02) == ("data_loading", True)
