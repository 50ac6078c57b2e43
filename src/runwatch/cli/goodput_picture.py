"""An account as a picture for the terminal: the number, a bar of time, classes, disruptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from runwatch.cli import tables
from runwatch.cli.chart import draw

WIDEST: Final = 120
NOTABLE_SHARE: Final = 0.02
"""Of the counted time; a rank that others waited for longer is named."""

# Words, style, and a sign that tells the classes apart where there is no colour.
_CLASSES: Final[dict[str, tuple[str, str, str]]] = {
    "productive": ("productive steps", "green", "█"),
    "program_startup": ("program startup", "bright_blue", "▓"),
    "accelerator_init": ("accelerator initialisation", "blue", "▓"),
    "training_preparation": ("training preparation", "cyan", "▓"),
    "data_loading": ("waiting for data", "yellow", "▒"),
    "checkpoint_save": ("saving checkpoints", "bright_cyan", "◆"),
    "checkpoint_restore": ("restoring checkpoints", "bright_magenta", "◇"),
    "evaluation": ("evaluation", "bright_green", "≡"),
    "wasted_progress": ("wasted progress", "red", "×"),
    "infrastructure_recovery": ("infrastructure recovery", "magenta", "·"),
    "stall": ("hang or stall", "bright_red", "!"),
    "slow_steps": ("slow steps", "bright_yellow", "~"),
    "degraded_capacity": ("degraded capacity", "yellow", "▄"),
    "excluded": ("excluded", "bright_black", " "),
    "elastic_slice_down": ("elastic: slices down", "bright_yellow", "▽"),
    "elastic_scale_up": ("elastic: scaling up", "bright_yellow", "△"),
    "elastic_reinitialization": ("elastic re-initialisation", "bright_yellow", "◁"),
    "unattributed": ("unattributed", "white", "░"),
}
_CUSTOM: Final = ("bright_white", "≡")

_DIGITS: Final = {
    "0": ("┏━┓", "┃ ┃", "┗━┛"),
    "1": (" ┓ ", " ┃ ", " ╹ "),
    "2": ("╺━┓", "┏━┛", "┗━╸"),
    "3": ("╺━┓", "╺━┫", "╺━┛"),
    "4": ("╻ ╻", "┗━┫", "  ╹"),
    "5": ("┏━╸", "┗━┓", "╺━┛"),
    "6": ("┏━╸", "┣━┓", "┗━┛"),
    "7": ("╺━┓", "  ┃", "  ╹"),
    "8": ("┏━┓", "┣━┫", "┗━┛"),
    "9": ("┏━┓", "┗━┫", "╺━┛"),
    ".": (" ", " ", "."),
    "%": ("  ", "  ", " %"),
    "–": ("   ", "╺━╸", "   "),
}
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def account(run: dict[str, Any], answer: dict[str, Any], width: int) -> RenderableType:
    """`answer` has `over_time` in at least as many buckets as the picture is wide."""
    width = min(width, WIDEST)
    parts: list[RenderableType] = [_headline(run, answer), Text("")]
    if answer["over_time"]:
        parts += [_time_bar(answer["over_time"], width), _time_axis(answer, width), Text("")]
    parts += [_class_table(answer, width)]
    parts += [Text(line, style="dim") for line in _asides(answer)]
    if answer["disruptions"]:
        parts += [Text(""), _disruption_table(answer["disruptions"]), *_means(answer)]
    return Group(*parts)


def over_time(buckets: Sequence[dict[str, Any]], width: int) -> Text:
    curve = {
        "metric": "goodput",
        "unit": "%",
        "label": "",
        "position": [bucket["start_ns"] for bucket in buckets],
        "mean": [None if b["goodput"] is None else 100 * b["goodput"] for b in buckets],
    }
    return Text.from_ansi(draw([curve], "time", width=min(width, 110), height=12))


def length(ns: int) -> str:
    if ns < 10**6:
        return f"{ns / 1e3:.3g} µs" if ns else "0 s"
    return f"{ns / 1e6:.3g} ms" if ns < 10**9 else tables.duration(ns)


def percent(share: float) -> str:
    """Never 100 when something is missing, never 0 when something is there."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    rounded = f"{100 * share:.1f} %"
    return {"0.0 %": "< 0.1 %", "100.0 %": "> 99.9 %"}.get(rounded, rounded)


# ── the number ─────────────────────────────────────────────────────────────────────────────────


def _headline(run: dict[str, Any], answer: dict[str, Any]) -> Text:
    goodput = answer["goodput"]
    number = "–" if goodput is None else percent(goodput).strip("<> ").replace(" ", "")
    rows = [" ".join(_DIGITS[sign][row] for sign in number) for row in range(3)]
    beside = [
        Text.assemble((run["name"], "bold"), "  ", tables.state(run["state"])),
        Text(_what_counts(answer)),
        Text(_steps(answer), style="dim"),
    ]
    style = "bold red" if goodput is None or goodput < 0.5 else "bold green"
    style = "bold yellow" if goodput is not None and 0.5 <= goodput < 0.8 else style
    lines = [
        Text.assemble((row, style), "   ", told) for row, told in zip(rows, beside, strict=True)
    ]
    return Text("\n").join(lines)


def _what_counts(answer: dict[str, Any]) -> str:
    productive = next(s["ns"] for s in answer["spent"] if s["name"] == "productive")
    if answer["goodput"] is None:
        return "goodput: there is no time that counts"
    return f"goodput: {length(productive)} of {length(answer['counted_ns'])} were productive"


def _steps(answer: dict[str, Any]) -> str:
    usual, attempts = answer["ideal_step_ns"], len(answer["attempts"])
    facts = [f"{answer['steps']:,} steps kept" if answer["steps"] else "no steps yet"]
    facts += [f"a step usually takes {length(usual)}"] if usual else []
    facts += [f"{attempts} attempts"] if attempts > 1 else []
    return " · ".join(facts)


# ── time ───────────────────────────────────────────────────────────────────────────────────────


def _look(name: str) -> tuple[str, str, str]:
    known = _CLASSES.get(name)
    return known or (name.removeprefix("custom:"), *_CUSTOM)


def _time_bar(buckets: Sequence[dict[str, Any]], width: int) -> Text:
    """The window from left to right; each cell is what most of its time went into."""
    bar = Text(no_wrap=True)
    for at in range(width):
        first = at * len(buckets) // width
        cell = buckets[first : max((at + 1) * len(buckets) // width, first + 1)]
        spent: dict[str, int] = {}
        for bucket in cell:
            for name, ns in bucket["spent_ns"].items():
                spent[name] = spent.get(name, 0) + ns
        _, style, sign = _look(max(spent, key=spent.__getitem__, default="excluded"))
        bar.append(sign, style=style)
    return bar


def _time_axis(answer: dict[str, Any], width: int) -> Text:
    left = tables.time(answer["start_ns"])
    right = "now" if _is_now(answer) else tables.time(answer["end_ns"])
    middle = length(answer["total_ns"])
    room = max(width - len(left) - len(right), len(middle) + 2)
    return Text(f"{left}{middle:^{room}}{right}", style="dim", no_wrap=True)


def _is_now(answer: dict[str, Any]) -> bool:
    return bool(answer["live"] and answer["end_ns"] == answer["run_end_ns"])


# ── classes ────────────────────────────────────────────────────────────────────────────────────


def _class_table(answer: dict[str, Any], width: int) -> RenderableType:
    spent = [s for s in answer["spent"] if s["ns"]]
    spent.sort(key=lambda s: (s["name"] != "productive", -s["ns"]))
    rows = [(*_look(s["name"]), length(s["ns"]), percent(s["share"])) for s in spent]
    named = max((len(words) for words, *_ in rows), default=0)
    timed = max((len(took) for *_, took, _ in rows), default=0)
    room = max(8, width - named - timed - 16)
    lines = []
    for (words, style, sign, took, share), s in zip(rows, spent, strict=True):
        line = Text(no_wrap=True, overflow="crop")
        line.append(f"{sign} ", style=style).append(f"{words:<{named}}  {took:>{timed}}")
        line.append(f"{share:>9}  ", style="bold").append(_bar(s["share"], room), style=style)
        lines.append(line)
    return Text("\n").join(lines)


def _bar(share: float, width: int) -> str:
    whole, eighths = divmod(max(round(share * width * 8), 1), 8)
    return "█" * whole + (_EIGHTHS[eighths] if eighths else "")


def _asides(answer: dict[str, Any]) -> Iterable[str]:
    whole = (answer["start_ns"], answer["end_ns"]) == (answer["run_start_ns"], answer["run_end_ns"])
    if answer["inferred_ns"]:
        yield (
            f"{'of which' if whole else 'in the whole run'} up to {length(answer['inferred_ns'])} "
            "inferred: told by what lies around it, not by a record"
        )
    yield from _straggler(answer)


def _straggler(answer: dict[str, Any]) -> Iterable[str]:
    ranks = sorted(answer["ranks"], key=lambda rank: -rank["awaited_ns"])
    if len(ranks) < 2 or ranks[0]["awaited_ns"] < NOTABLE_SHARE * answer["counted_ns"]:
        return
    worst, others = ranks[0], max(rank["awaited_ns"] for rank in ranks[1:])
    if worst["awaited_ns"] < 2 * others:
        return
    yield (
        f"rank {worst['rank']} was the last to begin {worst['awaited_steps']:,} steps: "
        f"others waited {length(worst['awaited_ns'])} for it"
    )


# ── disruptions ────────────────────────────────────────────────────────────────────────────────


def _disruption_table(disruptions: Sequence[dict[str, Any]]) -> RenderableType:
    shown = tables.table(
        "disrupted", "attempt", "lost steps", "wasted", "back after", "cause",
        right=("attempt", "lost steps", "wasted", "back after"), fold="cause",
    )  # fmt: skip
    for found in disruptions:
        back = found["back_ns"]
        hung = "hung; " if found["hung"] else ""
        shown.add_row(
            tables.time(found["time_ns"]),
            str(found["attempt"]),
            f"{found['lost_steps']:,}",
            length(found["wasted_ns"]),
            "not yet" if back is None else length(back),
            Text(hung + found["cause"], style="red"),
        )
    return shown


def _means(answer: dict[str, Any]) -> list[Text]:
    between, back = answer["mean_time_between_failures_ns"], answer["mean_time_to_recovery_ns"]
    facts = [f"mean time between failures {length(between)}"] if between is not None else []
    facts += [f"mean time to recovery {length(back)}"] if back is not None else []
    return [Text(" · ".join(facts), style="dim")] if facts else []
