"""Draws docs/images/judging: what simulated jobs recorded, what was so, what the account says.

The jobs are families of tests/truth, where the truth is known; run it from the checkout:

  PYTHONPATH=. .venv/bin/python scripts/judging_pictures.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tests.truth.families import gather
from tests.truth.judging import Told
from tests.truth.machine import Edge, Point
from tests.truth.telling import account_of

FOLDER = Path("docs/images/judging")
SECOND = 1_000_000_000
COLOURS = {
    "productive": "#2f9e6e", "program_startup": "#8fb8d9", "accelerator_init": "#a9c7a0",
    "training_preparation": "#5b9bd1", "data_loading": "#e8a33d", "checkpoint_save": "#7a5ea8",
    "checkpoint_restore": "#a58bce", "evaluation": "#3fa7b5", "wasted_progress": "#c8453b",
    "infrastructure_recovery": "#7d8592", "stall": "#d4237a", "slow_steps": "#d9b400",
    "degraded_capacity": "#b58a5a", "excluded": "#d9dce1", "elastic_slice_down": "#b5793a",
    "elastic_scale_up": "#c99a62", "elastic_reinitialization": "#97682f",
    "unattributed": "#c3c8d0",
}  # fmt: skip
STEP = "#9aa7b5"


@dataclass(frozen=True)
class Picture:
    family: str
    start: float
    end: float
    title: str
    seed: int = 1


PICTURES = (
    Picture("async_read_every_10th", 60, 95, "The loss is read every tenth step"),
    Picture("async_data_hidden", 60, 95, "Slow data, hidden behind a busy device"),
    Picture("uneven_every_third_5x", 60, 100, "Every third step is five times as long: the pace"),
    Picture("uneven_one_step_8x", 150, 215, "One step is eight times as long: slow"),
    Picture("hang_in_step_recovers", 280, 380, "A step that hangs for a minute, and goes on"),
    Picture("elastic_shrink_and_grow", 100, 240, "A rank dies, the others go on, another joins"),
    Picture("clocks_50_ms_off_with_late_data", 60, 64, "A clock that is 50 ms off"),
    Picture("preempted_and_back_a_little", 100, 420, "Preempted, and back to a checkpoint"),
)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    pyplot.rcParams.update({"font.size": 9, "svg.hashsalt": "runwatch", "svg.fonttype": "none"})
    for picture in PICTURES:
        _draw(picture)
        print(f"Wrote {FOLDER / (picture.family + '.svg')}")


def _draw(picture: Picture) -> None:
    history = gather()[picture.family].make(Random(f"{picture.family} {picture.seed}"))
    goodput = account_of(history, Random(picture.seed))
    origin = min(told.start_ns - told.ahead_ns for told in history.told)
    lanes = len(history.told) + 2
    figure, axes = pyplot.subplots(figsize=(9, 0.42 * lanes + 1.0))
    for at, told in enumerate(sorted(history.told, key=lambda t: (t.rank, t.start_ns))):
        _recorded(axes, told, origin, lanes - 1 - at, picture)
    zero = history.truth.stretches[0][0]
    _bar(axes, [(a - zero, b - zero, n) for a, b, n in history.truth.stretches], 1, picture)
    found = [(a - origin, b - origin, name) for a, b, name in goodput.intervals()]
    _bar(axes, found, 0, picture)
    ranks = sorted((t.rank, t.start_ns) for t in history.told)
    names = [f"rank {rank} records" for rank, _ in ranks]
    axes.set_yticks(range(lanes), ["the account", "what was so", *reversed(names)])
    axes.set_xlim(picture.start, picture.end)
    axes.set_ylim(-0.5, lanes - 0.4)
    axes.set_xlabel("seconds since the start")
    axes.set_title(picture.title, loc="left", fontsize=10)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    shown = [name for name in COLOURS if name in _visible(found, picture)]
    handles = [Rectangle((0, 0), 1, 1, color=COLOURS[name]) for name in shown]
    axes.legend(
        [Rectangle((0, 0), 1, 1, color=STEP), *handles],
        ["a step, as recorded", *(name.replace("_", " ") for name in shown)],
        loc="upper center", bbox_to_anchor=(0.5, -0.5 / (0.42 * lanes)), ncol=5,
        frameon=False, fontsize=8,
    )  # fmt: skip
    figure.savefig(FOLDER / f"{picture.family}.svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)


def _visible(found: list[tuple[int, int, str]], picture: Picture) -> set[str]:
    low, high = picture.start * SECOND, picture.end * SECOND
    return {name for a, b, name in found if b > low and a < high and b - a > (high - low) / 500}


def _recorded(axes: Axes, told: Told, origin: int, lane: int, picture: Picture) -> None:
    """Steps and spans by the process's own clock."""
    open_at: dict[int, tuple[str, int]] = {}
    for record in told.records:
        if isinstance(record, Point) and record.metric == "goodput.step_start_time":
            axes.plot([(record.time_ns - origin) / SECOND], [lane], "|", color=STEP)
        if not isinstance(record, Edge):
            continue
        if record.begins:
            open_at[record.span] = record.name, record.time_ns
        elif record.span in open_at:
            name, begun = open_at.pop(record.span)
            left, width = (begun - origin) / SECOND, (record.time_ns - begun) / SECOND
            if left + width < picture.start or left > picture.end:
                continue
            colour = STEP if name == "step" else COLOURS.get(name, "#444444")
            axes.barh(
                lane, width, left=left, height=0.5, color=colour, edgecolor="white", linewidth=0.4
            )
            if name == "step":
                axes.plot([left], [lane - 0.33], "|", color="#3c4652", markersize=4)


def _bar(axes: Axes, stretches: list[tuple[int, int, str]], lane: int, picture: Picture) -> None:
    for start, end, name in stretches:
        if end > picture.start * SECOND and start < picture.end * SECOND:
            colour = COLOURS.get(name, "#444444")
            axes.barh(lane, (end - start) / SECOND, left=start / SECOND, height=0.7, color=colour)


if __name__ == "__main__":
    main()
