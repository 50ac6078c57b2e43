"""Show every setting: its value, where it came from, and what it does.

The last of these that names a setting wins: its default, config.toml in the Runwatch directory, the
environment, a command's flags.

example:
  runwatch config
  runwatch config head --json
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from runwatch.agent.settings import AgentSettings
from runwatch.cli.pictures import tables
from runwatch.head.settings import HeadSettings
from runwatch.settings import load, runwatch_dir
from runwatch.store.engines import StoreSettings

WIDE: Final = 120
SECTIONS: dict[str, type[Any]] = {
    "agent": AgentSettings,
    "head": HeadSettings,
    "store": StoreSettings,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("section", nargs="?", choices=sorted(SECTIONS), help="only this section")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(arguments: argparse.Namespace) -> int:
    chosen = {k: v for k, v in SECTIONS.items() if arguments.section in (None, k)}
    answer = {name: _rows(name, kind) for name, kind in chosen.items()}
    if arguments.json:
        tables.print_json(answer)
        return 0
    out = tables.console()
    out.print(f"settings file: {runwatch_dir() / 'config.toml'}", highlight=False)
    for name, rows in answer.items():
        out.print()
        out.print(_table(name, rows) if out.width >= WIDE else _list(name, rows))
    return 0


def _table(section: str, rows: list[dict[str, Any]]) -> RenderableType:
    shown = tables.table("setting", "value", "from", "what it does", fold="what it does")
    for row in rows:
        shown.add_row(f"{section}.{row['name']}", str(row["value"]), row["from"], Text(_help(row)))
    return shown


def _list(section: str, rows: list[dict[str, Any]]) -> RenderableType:
    """For narrow terminals: the explanation is on a line of its own."""
    shown: list[RenderableType] = []
    for row in rows:
        origin = "" if row["from"] == "default" else f"  (from {row['from']})"
        value = Text.assemble((f"{section}.{row['name']}", "bold"), f" = {row['value']}{origin}")
        shown += [value, Padding(Text(_help(row), style="dim"), (0, 0, 0, 4))]
    return Group(*shown)


def _help(row: dict[str, Any]) -> str:
    return f"{row['help']} [{row['environment']}]" if row["environment"] else str(row["help"])


def _rows(section: str, kind: type[Any]) -> list[dict[str, Any]]:
    loaded = load(kind, section=section)
    rows = []
    for item in fields(kind):
        value = getattr(loaded.values, item.name)
        if item.name == "dir" and value is None:
            value = runwatch_dir()
        if item.metadata.get("secret") and value:
            value = "(set)"
        rows.append(
            {
                "name": item.name,
                "value": value if isinstance(value, int | float | bool) else str(value or ""),
                "from": loaded.sources[item.name],
                "environment": item.metadata.get("env", ""),
                "help": item.metadata.get("help", ""),
            }
        )
    return rows
