"""The goodput of several runs together, drawn for the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from runwatch.cli.pictures import tables
from runwatch.cli.pictures.goodput import (
    WIDEST,
    amount,
    class_table,
    device_figures,
    figure_table,
    headline,
    money,
    percent,
    title,
)


def together(
    answer: dict[str, Any], whose: str, width: int, by: str | None = None
) -> RenderableType:
    """`whose` describes the chosen runs; `by` is what the sums are for: group, user or week."""
    runs = answer["runs"]
    if not runs:
        return Text(f"no runs {whose}".strip())
    spent = answer["device_hours"]
    words = {name: f"{amount(hours)} h" for name, hours in spent.items()}
    parts: list[RenderableType] = [
        _headline(answer, whose),
        Text(""),
        _part_table(answer["parts"], by) if by else _run_table(runs),
        Text(""),
        class_table(spent, words, min(width, WIDEST)),
        Text(""),
        figure_table(device_figures(answer)),
    ]
    if answer["total"] > len(runs):
        more = answer["total"] - len(runs)
        parts.append(Text(f"{more:,} older runs are not counted here", style="yellow"))
    return Group(*parts)


def _headline(answer: dict[str, Any], whose: str) -> Text:
    runs, stops = len(answer["runs"]), answer["disruptions"]
    whole, part = answer["counted_device_hours"], answer["device_hours"].get("productive", 0)
    return headline(
        answer["goodput"],
        Text.assemble((f"{runs:,} run{'s' * (runs != 1)}", "bold"), f" {whose}"),
        Text(f"goodput: {amount(part)} of {amount(whole)} device-hours counted"),
        Text(f"{stops:,} disruption{'s' * (stops != 1)}" if stops else "", style="dim"),
    )


def _run_table(runs: list[dict[str, Any]]) -> RenderableType:
    priced = any(run["counted_cost"] is not None for run in runs)
    columns = ["run", "user", "devices", "device-hours", "goodput", "ETTR", "stops"]
    columns += ["cost"] if priced else []
    right = ("devices", "device-hours", "goodput", "ETTR", "stops", "cost")
    shown = tables.table(*columns, right=right)
    for run in runs:
        row = [
            run["name"],
            run["user"] or "–",
            f"{run['devices']:,}",
            amount(run["counted_device_hours"]),
            _share(run["goodput"]),
            _share(run["ettr"]),
            f"{run['disruptions']:,}" if run["disruptions"] else "–",
        ]
        row += [money(run["counted_cost"] or 0)] if priced else []
        shown.add_row(*row)
    return shown


def _part_table(parts: list[dict[str, Any]], by: str) -> RenderableType:
    priced = any(part["counted_cost"] is not None for part in parts)
    right = ["runs", "device-hours", "goodput", "stops"] + (["cost"] if priced else [])
    shown = tables.table(by, *right, "largest loss", right=tuple(right), fold="largest loss")
    for part in parts:
        row = [
            part["name"] or f"no {by}",
            f"{part['runs']:,}",
            amount(part["counted_device_hours"]),
            _share(part["goodput"]),
            f"{part['disruptions']:,}" if part["disruptions"] else "–",
        ]
        row += [money(part["counted_cost"] or 0)] if priced else []
        shown.add_row(*row, _loss(part))
    return shown


def _loss(part: dict[str, Any]) -> str:
    name, whole = part["largest_loss"], part["counted_device_hours"]
    if not name or not whole:
        return "–"
    return f"{title(name)}, {percent(part['device_hours'][name] / whole)}"


def _share(share: float | None) -> str:
    return "–" if share is None else percent(share)
