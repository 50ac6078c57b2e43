"""Curves as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Final

import plotext

from runwatch.cli.pictures import tables

COLORS: Final = ("cyan+", "orange+", "green+", "magenta+")


def draw(curves: Sequence[Mapping[str, Any]], axis: str, *, width: int, height: int) -> str:
    """Curves of one metric in one frame.  Draws the mean of each bucket; gaps stay gaps."""
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(max(width, 30), max(height, 6))
    for curve, color in zip(curves, cycle(COLORS), strict=False):
        places = [(p, m) for p, m in zip(curve["position"], curve["mean"], strict=True)]
        drawn = [(p, m) for p, m in places if isinstance(m, int | float)]
        if drawn:
            xs = [p for p, _ in drawn]
            label = curve["label"] if len(curves) > 1 else None
            plotext.plot(xs, [m for _, m in drawn], marker="braille", label=label, color=color)
    _ticks(curves, axis)
    first = curves[0]
    unit = f" ({first['unit']})" if first["unit"] not in ("", "1") else ""
    along = f"time ({tables.zone()})" if axis == "time" else axis
    plotext.title(f"{first['metric']}{unit} by {along}")
    return str(plotext.build()).rstrip()


def _ticks(curves: Sequence[Mapping[str, Any]], axis: str) -> None:
    places = [place for curve in curves for place in curve["position"]]
    if not places:
        return
    low, high = min(places), max(places)
    ticks = [low + (high - low) * i // 4 for i in range(5)]
    names = [f"{t:,}" if axis == "step" else tables.time(t)[-8:] for t in ticks]
    plotext.xticks(ticks, names)
