"""How many steps a run will do, if its configuration says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

NAMES: Final = (
    "total_steps", "max_steps", "num_steps", "train_steps", "total_train_steps", "max_train_steps",
    "num_train_steps", "training_steps", "total_training_steps", "num_training_steps", "n_steps",
    "max_iters", "max_iterations", "num_iterations", "total_iterations", "train_iters", "steps",
)  # fmt: skip
"""The names that people use, the clearest first."""


def total_steps(config: Mapping[str, Any]) -> int | None:
    """Looks at the top level and one level below.  Of several names the clearest counts."""
    by_name: dict[str, int] = {}
    for name, value in _values(config):
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            by_name.setdefault(name.lower().replace("-", "_"), value)
    return next((by_name[name] for name in NAMES if name in by_name), None)


def _values(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((str(name), value) for name, value in config.items())
    for inner in config.values():
        if isinstance(inner, Mapping):
            yield from ((str(name), value) for name, value in inner.items())
