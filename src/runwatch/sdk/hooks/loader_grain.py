"""Grain, JAX's loader of data: waits for batches of its `DataLoader`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from runwatch.sdk.hooks.teller import Teller
from runwatch.sdk.kinds import DATA_LOADING


def install(tell: Teller) -> None:
    module = sys.modules["grain._src.python.data_loader"]
    # Older versions have the first name only.
    iterator: Any = getattr(module, "PyGrainDatasetIterator", None)
    iterator = getattr(module, "DataLoaderIterator", iterator)
    if iterator is not None and "__next__" in vars(iterator):
        tell.replace("__next__", [iterator], partial(tell.timed, DATA_LOADING))
