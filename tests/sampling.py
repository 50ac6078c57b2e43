"""Which parameters of a test `make test` tries; `make soak` tries the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], kept: int) -> list[Any]:
    """The first `kept` parameters run with the usual tests, the rest in a soak."""
    listed = list(values)
    return [*listed[:kept], *map(in_a_soak, listed[kept:])]


def in_a_soak(value: Any) -> Any:
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.soak], id=value.id)
    given = value if isinstance(value, tuple) else (value,)
    return pytest.param(*given, marks=pytest.mark.soak)
