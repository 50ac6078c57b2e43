"""Goodput as programs written for ml-goodput-measurement record it and ask for it.

The original's ten modules are here under their own names (`goodput`, `monitoring`,
`goodput_utils` …), and are loaded when they are first used.  Behind them: `log/` writes and reads
a job's log, `calculator/` applies the original's rules to it, `monitor/` exports the results.
`goodput_utils.py` and `fields.py` are the words and the statistics that all three share.
Runwatch's own account, in which every nanosecond is in exactly one class, is in `views/goodput/`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runwatch.compat.goodput import (
        checkpoint_badput_calculator,
        exclusion_utils,
        gcp_metrics,
        goodput,
        goodput_cache,
        goodput_elastic,
        goodput_exclusion,
        goodput_utils,
        monitoring,
        monitoring_elastic,
    )

__all__ = [
    "checkpoint_badput_calculator",
    "exclusion_utils",
    "gcp_metrics",
    "goodput",
    "goodput_cache",
    "goodput_elastic",
    "goodput_exclusion",
    "goodput_utils",
    "monitoring",
    "monitoring_elastic",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'runwatch.compat.goodput' has no attribute {name!r}")
    return import_module(f"runwatch.compat.goodput.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
