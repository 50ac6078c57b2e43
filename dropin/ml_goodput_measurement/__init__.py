"""ml-goodput-measurement's names, provided by Runwatch.

A table and nothing else: each module here is Runwatch's module of the same name, the same object
whichever way it is imported (`from ml_goodput_measurement import goodput`, with or without
`.src.`), and loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ml_goodput_measurement import (
        checkpoint_badput_calculator,
        gcp_metrics,
        goodput,
        goodput_cache,
        goodput_elastic,
        goodput_utils,
        monitoring,
        monitoring_elastic,
    )

__all__ = [
    "checkpoint_badput_calculator",
    "gcp_metrics",
    "goodput",
    "goodput_cache",
    "goodput_elastic",
    "goodput_utils",
    "monitoring",
    "monitoring_elastic",
]


def __getattr__(name: str) -> Any:
    if name not in (*__all__, "scripts", "src"):
        raise AttributeError(f"module 'ml_goodput_measurement' has no attribute {name!r}")
    return import_module(f"ml_goodput_measurement.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
