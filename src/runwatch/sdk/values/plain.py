"""Anything that people put into a config or a log line, as JSON that every reader can read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from runwatch.sdk.guard import text_of

MAX_TEXT: Final = 50_000
MAX_ITEMS: Final = 2_000
MAX_DEPTH: Final = 8

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def plain(value: Any, depth: int = MAX_DEPTH) -> Json:
    """Odd values become text; values that are too long or too deep are cut, never refused."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        # Readers in other languages fail beyond 64 bits.
        return int(value) if -(2**63) <= value < 2**63 else text(f"{value:#x}")
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else text_of(float(value))
    if isinstance(value, str):
        return text(str.__str__(value))
    if depth > 0:
        if isinstance(value, Mapping):
            return mapping(value, depth - 1)
        if isinstance(value, (list, tuple, set, frozenset)):
            return [plain(item, depth - 1) for item in list(value)[:MAX_ITEMS]]
        if is_dataclass(value) and not isinstance(value, type):
            return mapping({f.name: getattr(value, f.name) for f in fields(value)}, depth - 1)
    if hasattr(type(value), "__module__") and type(value).__module__ == "numpy":
        item = getattr(value, "item", None)
        if item is not None and getattr(value, "size", 0) == 1:
            return plain(item(), 0)
    return text(text_of(value))


def mapping(values: Mapping[Any, Any], depth: int = MAX_DEPTH) -> dict[str, Json]:
    pairs = list(values.items())[:MAX_ITEMS]
    return {text(k if isinstance(k, str) else text_of(k)): plain(v, depth) for k, v in pairs}


def text(value: str) -> str:
    """Without lone surrogates, and no longer than fits into a record."""
    short = value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + "…"
    return short.encode("utf-8", "replace").decode()


def config_values(config: Any) -> dict[str, Any]:
    """The pairs of any kind of configuration: dict, dataclass, Namespace, …"""
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return {k if isinstance(k, str) else text_of(k): v for k, v in config.items()}
    if is_dataclass(config) and not isinstance(config, type):
        return {f.name: getattr(config, f.name) for f in fields(config)}
    if hasattr(config, "__dict__") and not isinstance(config, type):
        return {k: v for k, v in vars(config).items() if not k.startswith("_")}
    return {"config": config}
