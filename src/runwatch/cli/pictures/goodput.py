"""A run's goodput for the terminal: the number, a bar of time, classes, disruptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from runwatch.cli.pictures import tables
from runwatch.views.goodput.looks import CUSTOM_SIGN, CUSTOM_STYLE, look_of

WIDEST: Final = 120
EXCLUDED: Final = "excluded"
NOTABLE_SHARE: Final = 0.02
"""A rank is named if others waited for it longer than this share of the counted time."""

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
    """`answer["over_time"]` has at least as many buckets as the picture is wide."""
    width = min(width, WIDEST)
    parts: list[RenderableType] = [_headline(run, answer), Text("")]
    if run.get("waits"):  # an older head does not say
        parts += [Text(tables.waits_of(run), style="bold yellow"), Text("")]
    if answer["over_time"]:
        parts += [_time_bar(answer["over_time"], width), _time_axis(answer, width), Text("")]
    parts += [_spent_table(answer, width)]
    parts += [Text(line, style="dim") for line in _asides(answer)]
    if answer["disruptions"]:
        parts += [Text(""), _disruption_table(answer["disruptions"])]
    if beside := list(_figures(answer)):
        parts += [Text(""), figure_table(beside)]
    return Group(*parts)


def explained(answer: dict[str, Any]) -> RenderableType:
    """Why a moment is in its class: the class, from when to when, and the reasons."""
    words, style, sign = _look(answer["name"])
    start, end = answer["start_ns"], answer["end_ns"]
    head = Text.assemble(
        (f"{tables.time(answer['time_ns'])} {tables.zone()}  ", "bold"),
        (f"{sign} {words}", style),
        f"  from {tables.time(start)} to {tables.time(end)} ({length(end - start)})",
    )
    where = f"attempt {answer['attempt']}"
    where += "" if answer["step"] is None else f" · the last step begun was {answer['step']:,}"
    reasons = [Text(f"• {tables.local_times(why)}") for why in answer["why"]]
    return Group(head, Text(where, style="dim"), Text(""), *reasons)


def over_time(buckets: Sequence[dict[str, Any]], width: int) -> Text:
    curve = {
        "metric": "goodput",
        "unit": "%",
        "label": "",
        "position": [bucket["start_ns"] for bucket in buckets],
        "mean": [None if b["goodput"] is None else 100 * b["goodput"] for b in buckets],
    }
    from runwatch.cli.pictures.chart import draw

    return Text.from_ansi(draw([curve], "time", width=min(width, 110), height=12))


def length(ns: int) -> str:
    if ns < 10**6:
        return f"{ns / 1e3:.3g} µs" if ns else "0 s"
    return f"{ns / 1e6:.3g} ms" if ns < 10**9 else tables.duration(ns)


def percent(share: float) -> str:
    """Shows 100 % and 0 % only if it is exactly that."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    rounded = f"{100 * share:.1f} %"
    return {"0.0 %": "< 0.1 %", "100.0 %": "> 99.9 %"}.get(rounded, rounded)


# ── the number ─────────────────────────────────────────────────────────────────────────────────


def _headline(run: dict[str, Any], answer: dict[str, Any]) -> Text:
    return headline(
        answer["goodput"],
        Text.assemble((run["name"], "bold"), "  ", tables.state(run["state"])),
        Text(_what_counts(answer)),
        Text(_steps(answer), style="dim"),
    )


def headline(goodput: float | None, *beside: Text) -> Text:
    """The number, three lines high, and as many lines beside it."""
    number = "–" if goodput is None else percent(goodput).strip("<> ").replace(" ", "")
    rows = [" ".join(_DIGITS[sign][row] for sign in number) for row in range(3)]
    style = "bold red" if goodput is None or goodput < 0.5 else "bold green"
    style = "bold yellow" if goodput is not None and 0.5 <= goodput < 0.8 else style
    lines = [
        Text.assemble((row, style), "   ", text) for row, text in zip(rows, beside, strict=True)
    ]
    return Text("\n").join(lines)


def _what_counts(answer: dict[str, Any]) -> str:
    productive = next(s["ns"] for s in answer["spent"] if s["name"] == "productive")
    if answer["goodput"] is None:
        is_counted = any(s["ns"] for s in answer["spent"] if s["name"] != "excluded")
        return "goodput: unknown" if is_counted else "goodput: no time is counted"
    counted = length(answer["counted_ns"])
    return f"goodput: {length(productive)} of {counted} counted were productive"


def _steps(answer: dict[str, Any]) -> str:
    usual, attempts = answer["ideal_step_ns"], len(answer["attempts"])
    none = answer.get("remark") or "no steps yet"  # an older head has no words for it
    facts = [f"{answer['steps']:,} steps kept" if answer["steps"] else none]
    facts += [f"a step usually takes {length(usual)}"] if usual else []
    facts += [f"{attempts} attempts"] if attempts > 1 else []
    return " · ".join(facts)


# ── time ───────────────────────────────────────────────────────────────────────────────────────


def title(name: str) -> str:
    """The words for a class."""
    return _look(name)[0]


def _look(name: str) -> tuple[str, str, str]:
    known = look_of(name)
    if known is None:
        return name.removeprefix("custom:"), CUSTOM_STYLE, CUSTOM_SIGN
    return known.words, known.style, known.sign


def _time_bar(buckets: Sequence[dict[str, Any]], width: int) -> Text:
    """The window from left to right; each cell shows the class with the most time in it."""
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
    left = f"{tables.time(answer['start_ns'])} {tables.zone()}"
    right = "now" if _is_now(answer) else tables.time(answer["end_ns"])
    middle = length(answer["total_ns"])
    room = max(width - len(left) - len(right), len(middle) + 2)
    return Text(f"{left}{middle:^{room}}{right}", style="dim", no_wrap=True)


def _is_now(answer: dict[str, Any]) -> bool:
    return bool(answer["live"] and answer["end_ns"] == answer["run_end_ns"])


# ── classes ────────────────────────────────────────────────────────────────────────────────────


def _spent_table(answer: dict[str, Any], width: int) -> RenderableType:
    spent = {s["name"]: s["ns"] for s in answer["spent"] if s["ns"]}
    return class_table(spent, {name: length(ns) for name, ns in spent.items()}, width)


def class_table(spent: Mapping[str, float], words: Mapping[str, str], width: int) -> RenderableType:
    """Classes with their shares of the counted time; excluded time has no share."""
    counted = sum(amount for name, amount in spent.items() if name != EXCLUDED)
    order = sorted(spent, key=lambda n: (n == EXCLUDED, n != "productive", -spent[n]))
    named = max((len(_look(name)[0]) for name in order), default=0)
    timed = max((len(words[name]) for name in order), default=0)
    room = max(8, width - named - timed - 16)
    lines = []
    for name in order:
        what, style, sign = _look(name)
        line = Text(no_wrap=True, overflow="crop")
        line.append(f"{sign} ", style=style).append(f"{what:<{named}}  {words[name]:>{timed}}")
        if name == EXCLUDED:
            lines.append(line.append("  not counted", style="dim"))
            continue
        share = spent[name] / counted
        line.append(f"{percent(share):>9}  ", style="bold").append(_bar(share, room), style=style)
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
            "inferred: derived from what happened before and after, not recorded"
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
        "disrupted", "attempt", "lost steps", "cost", "cause",
        right=("attempt", "lost steps", "cost"), fold="cause",
    )  # fmt: skip
    for stop in disruptions:
        hung = "hung; " if stop["hung"] else ""
        shown.add_row(
            tables.time(stop["time_ns"]),
            str(stop["attempt"]),
            f"{stop['lost_steps']:,}",
            length(stop["cost_ns"]),
            Text.assemble(
                (hung + tables.local_times(stop["cause"]), "red"),
                "\n",
                (" + ".join(_costs(stop)), "dim"),
            ),
        )
    return shown


def _costs(stop: dict[str, Any]) -> Iterable[str]:
    """The parts of a disruption's cost."""
    recovery, back, warm_up = stop["recovery_ns"], stop["back_ns"], stop["warm_up_ns"]
    if warm_up is None and back is not None:
        warm_up = back - (recovery or 0)
    if stop["hang_ns"]:
        yield f"hang {length(stop['hang_ns'])}"
    if stop["wasted_ns"]:
        yield f"lost work {length(stop['wasted_ns'])}"
    yield "not back yet" if recovery is None else f"recovery {length(recovery)}"
    if warm_up is not None:
        yield f"warm-up {length(warm_up)}"
    elif recovery is not None:
        yield "no step yet"


# ── more figures ───────────────────────────────────────────────────────────────────────────────

Figure = tuple[str, str, str]
"""Name, value, explanation."""


def figure_table(figures: Iterable[Figure]) -> RenderableType:
    shown = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    shown.add_column(no_wrap=True)
    shown.add_column(no_wrap=True, justify="right", style="bold")
    shown.add_column(overflow="fold", style="dim")
    for figure in figures:
        shown.add_row(*figure)
    return shown


def _figures(answer: dict[str, Any]) -> Iterable[Figure]:
    figures = answer.get("figures")  # an older head has none
    if figures is not None and figures["ettr"] is not None:
        yield "ETTR", percent(figures["ettr"]), _since(answer, figures)
        yield "overall goodput", percent(figures["overall_goodput"]), _product(figures)
        yield from device_figures(figures, _holders(figures))
    if not answer["disruptions"]:
        return
    between, back = answer["mean_time_between_failures_ns"], answer["mean_time_to_recovery_ns"]
    if between is not None:
        yield "MTBF", length(between), "mean time between failures"
    if back is not None:
        yield "MTTR", length(back), "mean time to recovery: from a failure to the next step"


def _since(answer: dict[str, Any], figures: dict[str, Any]) -> str:
    queued = figures["queued_ns"]
    if queued is None:
        return f"productive, of {length(answer['counted_ns'])} since it began; queue unknown"
    whole = length(answer["counted_ns"] + queued)
    return f"productive, of {whole} since it was submitted; {length(queued)} in the queue"


def _product(figures: dict[str, Any]) -> str:
    parts = []
    for name in ("scheduling", "runtime", "program"):
        share = figures[f"{name}_goodput"]
        if share is not None:
            parts.append(f"{name} {percent(share)}")
    by = {"mfu": " (MFU)", "tensor_activity": " (tensor activity)"}
    product = " × ".join(parts) + by.get(figures["program_goodput_by"], "")
    unknown = " and ".join(figures["unknown"])
    return f"{product}; {unknown} unknown" if unknown else product


def _holders(figures: dict[str, Any]) -> str:
    count, by = figures["devices"], figures["devices_by"]
    one = {"accelerators": "accelerator", "ranks": "rank"}.get(by, "rank or accelerator")
    many = {"accelerators": "accelerators", "ranks": "ranks"}.get(by, "ranks or accelerators")
    return f"{count:,} {one if count == 1 else many}"


def device_figures(figures: dict[str, Any], held_by: str = "") -> Iterable[Figure]:
    """Device-hours, and their cost if there is a price."""
    whole, part = figures["counted_device_hours"], figures["device_hours"].get("productive", 0)
    on = f", on {held_by}" if held_by else ""
    yield "device-hours", amount(whole), f"counted; {amount(part)} were productive{on}"
    cost, price = figures["counted_cost"], figures["price_per_device_hour"]
    if cost is not None:
        kept = figures["cost"].get("productive", 0)
        words = f"{money(cost - kept)} of it not productive; {price:g} per device-hour"
        yield "cost", money(cost), words


def amount(hours: float) -> str:
    """Never 0 unless it is exactly 0."""
    if hours >= 100:
        return f"{hours:,.0f}"
    if hours >= 0.1:
        return f"{hours:.3g}"
    return f"{hours:.2g}" if not hours or hours >= 0.0001 else "< 0.0001"


def money(cost: float) -> str:
    return f"{cost:,.2f}"
