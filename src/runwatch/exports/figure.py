"""Devices over time as a figure for a report: PDF, PNG or SVG.

Each recorded quantity has a panel.  Up to 16 devices are lines; more are a heat map with a row per
device.  A gap in the data is a gap in the figure.

Drawing takes seconds of a core: call it from a thread or a process, never in an event loop.  It
needs matplotlib (`pip install 'runwatch[plots]'`), which is imported only to draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from runwatch.errors import RunwatchError, UsageError
from runwatch.exports.recorded import (
    PAUSE_PERIODS,
    Floats,
    Quantity,
    Recorded,
    Seconds,
    about,
    load,
    summary,
)
from runwatch.files import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["check_drawing", "draw", "summary"]

SUFFIXES: Final = (".pdf", ".png", ".svg")
MOST_LINES: Final = 16
_WIDTH: Final = 11.0
_BUCKETS: Final = 600
_CELLS: Final = 1000
_ROW_NAMED: Final = 0.09
"""Inches; if rows are thinner, hosts are named instead of devices."""

_INK: Final = "#22272e"
_FAINT: Final = "#6b7683"
_RULE: Final = "#d9dee4"
_ABSENT: Final = "#eceff2"
# Safe for colour-blind people; in grey they differ in lightness.
_LINES: Final = (
    "#1f6fb4", "#e1762b", "#2a9d6f", "#b8437a", "#7a5bc2", "#c2a21b", "#3fb1ce", "#7d4b32",
)  # fmt: skip
_NUMBERS: Final = "{x:,.5g}"
_SHADES: Final = {
    "gpu_util": "Greens",
    "tensor": "BuGn",
    "gpu_memory": "Blues",
    "memory_bandwidth": "Purples",
    "dram_bandwidth": "RdPu",
    "gpu_bandwidth": "PuBu",
    "gpu_power": "Oranges",
}


def draw(source: str | Path | Mapping[str, Any] | Recorded, out: str | Path) -> Path:
    """Draw a session's export (a path or a document) or curves into `out`, a .pdf, .png or .svg."""
    out = Path(out)
    check_drawing(out)
    recorded = load(source)
    if not recorded.values:
        raise UsageError(f"{recorded.name!r} has frames without numbers: there is nothing to draw")
    matplotlib = _matplotlib()
    with matplotlib.rc_context(_STYLE):
        _save(_figure(recorded), out)
    return out


def check_drawing(out: Path) -> None:
    """Fail early: before the data are read."""
    if out.suffix.lower() not in SUFFIXES:
        raise UsageError(f"cannot draw {out.name!r}: its name must end with {', '.join(SUFFIXES)}")
    _matplotlib()


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(
            "drawing needs matplotlib: pip install 'runwatch[plots]'; the summary works without"
        ) from error
    return matplotlib


_STYLE: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "text.color": _INK,
    "axes.edgecolor": _RULE,
    "axes.labelcolor": _FAINT,
    "axes.titlecolor": _INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "grid.color": _RULE,
    "grid.linewidth": 0.6,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "lines.linewidth": 1.3,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "hatch.linewidth": 0.5,
    "hatch.color": "#c6cdd5",
    "pdf.fonttype": 42,  # text that can be searched and copied
    "svg.fonttype": "none",
    "svg.hashsalt": "runwatch",
}


def _save(figure: Figure, out: Path) -> None:
    kind = out.suffix.lower()[1:]
    metadata = {"CreationDate": None} if kind == "pdf" else {"Date": None} if kind == "svg" else {}
    try:
        with written(out, mode=0o644) as file:
            figure.savefig(file, format=kind, dpi=160, metadata=metadata)
    except OSError as error:
        raise RunwatchError(f"cannot write {out}: {error}") from error


# ── the page ───────────────────────────────────────────────────────────────────────────────────


def _figure(recorded: Recorded) -> Figure:
    from matplotlib.figure import Figure  # not pyplot: it keeps every figure and is not thread-safe

    as_map = len(recorded.devices) > MOST_LINES
    names = _names(recorded)
    count = len(recorded.values)
    legend = 0.0 if as_map else 0.1 + 0.2 * -(-len(names) // _legend_columns(names))
    panel = _panel_height(recorded, as_map)
    height = 0.95 + count * (panel + 0.55) + 0.25 + legend
    figure = Figure(figsize=(_WIDTH, height))
    figure.text(0.35 / _WIDTH, 1 - 0.36 / height, recorded.name, size=14, weight="bold")
    words = about(recorded) + (" · hatched: no sample" if as_map else "")
    figure.text(0.35 / _WIDTH, 1 - 0.6 / height, words, size=9, color=_FAINT)
    left, right = (_margin(names, recorded, as_map), 0.35 if not as_map else 0.95)
    axes: list[Axes] = []
    for place in range(count):
        bottom = height - 0.95 - (place + 1) * (panel + 0.55) + 0.3
        box = (left / _WIDTH, bottom / height, 1 - (left + right) / _WIDTH, panel / height)
        axes.append(figure.add_axes(box, sharex=axes[0] if axes else None))
    elapsed, unit = _elapsed(recorded)
    for axis, (quantity, values) in zip(axes, recorded.values.items(), strict=True):
        if as_map:
            _heat_map(figure, axis, recorded, quantity, values, elapsed)
        else:
            _lines(axis, quantity, values, elapsed, recorded)
        _titles(axis, quantity, values)
    for axis in axes[:-1]:
        axis.tick_params(labelbottom=False)
    axes[-1].set_xlabel(f"{unit} since the start")
    axes[0].set_xlim(elapsed[0], elapsed[-1] if elapsed[-1] > elapsed[0] else elapsed[0] + 1)
    if not as_map:
        _legend(figure, axes[0], names, height)
    return figure


def _panel_height(recorded: Recorded, as_map: bool) -> float:
    if not as_map:
        return 1.75
    page = 11.0 if len(recorded.devices) <= 128 else 14.5
    most = max(1.5, page / len(recorded.values) - 0.55)
    return float(np.clip(len(recorded.devices) * 0.092, 1.5, most))


def _names(recorded: Recorded) -> list[str]:
    """host:index; with the model if there are several models."""
    parts = [device.rsplit(":", 1) for device in recorded.devices]
    models = {part[-1] for part in parts}
    if len(models) == 1 and all(len(part) == 2 for part in parts):
        return [part[0] for part in parts]
    return [device.rstrip(":") for device in recorded.devices]


def _margin(names: Sequence[str], recorded: Recorded, as_map: bool) -> float:
    if not as_map:
        return 0.75
    shown = names if _names_rows(recorded) else recorded.hosts
    return float(np.clip(0.25 + 0.068 * max(map(len, shown)), 0.75, 2.6))


def _elapsed(recorded: Recorded) -> tuple[Seconds, str]:
    seconds = recorded.seconds - recorded.seconds[0]
    for size, unit, most in ((1.0, "seconds", 300.0), (60.0, "minutes", 4 * 3600.0)):
        if seconds[-1] < most:
            return seconds / size, unit
    return seconds / 3600, "hours"


def _titles(axis: Axes, quantity: Quantity, values: Floats) -> None:
    unit = f" ({quantity.unit})" if quantity.unit else ""
    axis.set_title(f"{quantity.title}{unit}", pad=5)
    known = values[np.isfinite(values)]
    words = f"mean {_short(known.mean())} · max {_short(known.max())}".strip()
    axis.set_title(words, loc="right", size=8.5, weight="normal", color=_FAINT, pad=5)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# ── lines ──────────────────────────────────────────────────────────────────────────────────────


def _lines(
    axis: Axes, quantity: Quantity, values: Floats, elapsed: Seconds, recorded: Recorded
) -> None:
    axis.grid(axis="y")
    few = len(values) <= len(_LINES)
    for row, line in enumerate(values):
        where, low, mean, high = _reduced(elapsed, line, recorded)
        color = _LINES[row % len(_LINES)]
        style = "-" if row < len(_LINES) else (0, (3, 1.2))
        marker = "o" if np.isfinite(mean).sum() == 1 else None
        thick = 1.3 if few else 1.0
        axis.plot(where, mean, color=color, ls=style, lw=thick, marker=marker, markersize=3)
        if few and low is not mean:
            axis.fill_between(where, low, high, color=color, alpha=0.13, linewidth=0)
    highest = float(np.nanmax(values))
    top = quantity.top if quantity.top and highest <= quantity.top else None
    axis.set_ylim(0, top * 1.03 if top else max(highest * 1.08, 1e-9))
    axis.yaxis.set_major_formatter(_NUMBERS)
    if top == 100:
        axis.set_yticks([0, 25, 50, 75, 100])


def _reduced(
    elapsed: Seconds, line: Floats, recorded: Recorded
) -> tuple[Seconds, Floats, Floats, Floats]:
    """Position, minimum, mean and maximum of each of at most _BUCKETS buckets.

    A silent device or a paused session leaves a gap.
    """
    known = np.isfinite(line)
    if not known.any():
        return elapsed, line, line, line
    if len(line) <= _BUCKETS:
        where, values = _broken(elapsed, line, recorded)
        return where, values, values, values
    low = _by_cell(np.minimum, np.where(known, line, np.inf), elapsed, _BUCKETS, np.inf)
    high = _by_cell(np.maximum, np.where(known, line, -np.inf), elapsed, _BUCKETS, -np.inf)
    counts = _by_cell(np.add, known, elapsed, _BUCKETS, 0)
    sums = _by_cell(np.add, np.where(known, line, 0), elapsed, _BUCKETS, 0)
    mean = _quotient(sums, counts)
    low[counts == 0] = high[counts == 0] = np.nan
    width = (elapsed[-1] - elapsed[0]) / _BUCKETS
    where = elapsed[0] + (np.arange(_BUCKETS) + 0.5) * width
    return where, low.astype(np.float32), mean.astype(np.float32), high.astype(np.float32)


def _broken(elapsed: Seconds, line: Floats, recorded: Recorded) -> tuple[Seconds, Floats]:
    """Add a NaN in the middle of each pause, so that no line crosses it."""
    pauses = recorded.pauses()
    if not pauses:
        return elapsed, line
    places = np.searchsorted(recorded.seconds, [end for _, end in pauses])
    middles = (elapsed[places - 1] + elapsed[places]) / 2
    return np.insert(elapsed, places, middles), np.insert(line, places, np.nan)


def _by_cell(
    join: np.ufunc, values: npt.NDArray[Any], elapsed: Seconds, count: int, empty: float
) -> npt.NDArray[np.float64]:
    """Reduce the last axis, which runs along `elapsed`, to `count` equally long cells."""
    span = elapsed[-1] - elapsed[0] or 1.0
    cells = np.minimum(((elapsed - elapsed[0]) / span * count).astype(np.int64), count - 1)
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    joined = np.full((*values.shape[:-1], count), empty, np.float64)
    joined[..., cells[starts]] = join.reduceat(values.astype(np.float64), starts, axis=-1)
    empty_cells, taken = _between_moments(elapsed, cells, count)
    joined[..., empty_cells] = joined[..., taken]
    return joined


def _between_moments(
    elapsed: Seconds, cells: npt.NDArray[np.int64], count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Cells without a moment that are no gap, and for each the cell before it."""
    empty = np.setdiff1d(np.arange(count), cells)
    after = np.searchsorted(cells, empty)
    steps = np.diff(elapsed)
    if not len(empty):
        return empty, empty
    is_short = steps[after - 1] <= PAUSE_PERIODS * np.median(steps)
    return empty[is_short], cells[after - 1][is_short]


def _quotient(
    sums: npt.NDArray[np.float64], counts: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        return np.where(counts > 0, sums / counts, np.nan)


def _legend_columns(names: Sequence[str]) -> int:
    longest = max(map(len, names))
    return max(1, min(len(names), int((_WIDTH - 1) / (0.55 + 0.075 * longest)), 8))


def _legend(figure: Figure, axis: Axes, names: Sequence[str], height: float) -> None:
    figure.legend(
        axis.get_lines(),
        names,
        loc="lower left",
        bbox_to_anchor=(0.62 / _WIDTH, 0.08 / height),
        ncols=_legend_columns(names),
        columnspacing=1.6,
        handlelength=1.6,
        borderaxespad=0,
    )


# ── heat maps ──────────────────────────────────────────────────────────────────────────────────


def _heat_map(
    figure: Figure,
    axis: Axes,
    recorded: Recorded,
    quantity: Quantity,
    values: Floats,
    elapsed: Seconds,
) -> None:
    from matplotlib.patches import Rectangle

    cells = _binned(elapsed, values)
    last = elapsed[-1] if elapsed[-1] > elapsed[0] else elapsed[0] + 1
    axis.add_patch(
        Rectangle((0, 0), 1, 1, transform=axis.transAxes, facecolor=_ABSENT, hatch="////", lw=0)
    )
    image = axis.imshow(
        cells,
        aspect="auto",
        extent=(float(elapsed[0]), float(last), len(values), 0),
        cmap=_shades(quantity),
        vmin=0,
        vmax=quantity.top or max(float(np.nanmax(values)), 1e-9),
        # With more rows than pixels, average them: else one row in eight would hide seven.
        interpolation="nearest" if len(values) <= 256 else "antialiased",
        zorder=2,
    )
    axis.spines[:].set_visible(False)
    _name_rows(axis, recorded)
    box = axis.get_position()
    bar = figure.add_axes((box.x1 + 0.12 / _WIDTH, box.y0, 0.1 / _WIDTH, box.height))
    colors = figure.colorbar(image, cax=bar)
    colors.outline.set_visible(False)
    bar.tick_params(length=0)
    bar.yaxis.set_major_formatter(_NUMBERS)


def _shades(quantity: Quantity) -> Any:
    """Starts just above white, so that an idle device differs from a missing one."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    shades = colormaps[_SHADES.get(quantity.name, "YlGnBu")]
    return ListedColormap(shades(np.linspace(0.02, 1.0, 256)))


def _binned(elapsed: Seconds, values: Floats) -> npt.NDArray[np.float64]:
    """A column per moment, but at most _CELLS.

    All columns are equally long, so a pause of the whole session shows as empty columns.
    """
    period = float(np.median(np.diff(elapsed))) if len(elapsed) > 1 else 1.0
    moments = round((elapsed[-1] - elapsed[0]) / period) if period > 0 else len(elapsed)
    count = int(np.clip(moments, 1, _CELLS))
    known = np.isfinite(values)
    sums = _by_cell(np.add, np.where(known, values, 0), elapsed, count, 0)
    return _quotient(sums, _by_cell(np.add, known, elapsed, count, 0))


def _names_rows(recorded: Recorded) -> bool:
    return _panel_height(recorded, True) / len(recorded.devices) >= _ROW_NAMED


def _name_rows(axis: Axes, recorded: Recorded) -> None:
    if _names_rows(recorded):
        axis.set_yticks(np.arange(len(recorded.devices)) + 0.5, _names(recorded), size=6)
    else:
        _name_hosts(axis, recorded)
    edges = _edges(recorded.hosts)
    if _panel_height(recorded, True) / len(edges) < _ROW_NAMED:
        return  # lines between hosts would cover the rows
    for edge in edges[1:-1]:
        axis.axhline(edge, color="white", linewidth=0.8, zorder=3)


def _name_hosts(axis: Axes, recorded: Recorded) -> None:
    edges = _edges(recorded.hosts)
    middles = [(a + b) / 2 for a, b in zip(edges, edges[1:], strict=False)]
    hosts = [recorded.hosts[edge] for edge in edges[:-1]]
    step = -(-len(hosts) // 16)
    axis.set_yticks(middles[::step], hosts[::step], size=7)


def _edges(hosts: Sequence[str]) -> list[int]:
    """Where each host's rows begin, and where the last one's end."""
    changes: Iterator[int] = (row for row in range(1, len(hosts)) if hosts[row] != hosts[row - 1])
    return [0, *changes, len(hosts)]
