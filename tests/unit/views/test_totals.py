"""How many steps a configuration promises."""

from __future__ import annotations

from typing import Any

import pytest

from runwatch.views.totals import total_steps


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, None),
        ({"max_steps": 100}, 100),
        ({"Max-Steps": 100}, 100),
        ({"steps": 5, "total_steps": 7}, 7),
        ({"training": {"num_train_steps": 9}}, 9),
        ({"max_steps": 3, "training": {"max_steps": 9}}, 3),
        ({"a": {"b": {"max_steps": 9}}}, None),
        ({"max_steps": -1}, None),
        ({"max_steps": 0, "train_iters": 4}, 4),
        ({"max_steps": True}, None),
        ({"max_steps": "100"}, None),
        ({"max_steps": 1.5}, None),
    ],
)
def test_total_steps(config: dict[str, Any], expected: int | None) -> None:
    assert total_steps(config) == expected
