"""Show every setting: its value, where it came from, and what it does.

The section program is what programs read from the environment.  All others are settings: the last
of these that names one wins: its default, config.toml in the Runwatch directory, the environment, a
command's flags.

example:
  runwatch config
  runwatch config program
  runwatch config head --json
"""

from __future__ import annotations

import argparse
import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from runwatch.agent.settings import AgentSettings
from runwatch.cli.pictures import tables
from runwatch.cli.pictures.paint import Paint
from runwatch.cli.variables import PROGRAM
from runwatch.head.cloud.settings import GcpSettings
from runwatch.head.settings import HeadSettings
from runwatch.head.telemetry.settings import TelemetrySettings, without_password
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.k8s.settings import WebhookSettings
from runwatch.settings import load, runwatch_dir, said, settings_file
from runwatch.store.engines import StoreSettings
from runwatch.terminal import shown

SETTINGS: Final[Mapping[str, type[Any]]] = {
    "agent": AgentSettings,
    "head": HeadSettings,
    "store": StoreSettings,
    "telemetry": TelemetrySettings,
    "gcp": GcpSettings,
}
ELSEWHERE: Final[Mapping[str, type[Any]]] = {
    "webhook": WebhookSettings,
    "operator": OperatorSettings,
}
"""Of programs that run in a cluster: without it nothing says whether they could start."""
SECTIONS: Final = ("program", *SETTINGS, *ELSEWHERE)
WIDEST: Final = 100
_NARROWEST: Final = 40


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("section", nargs="?", choices=SECTIONS, help="only this section")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(arguments: argparse.Namespace) -> int:
    chosen = [name for name in SECTIONS if arguments.section in (None, name)]
    answer = {name: rows(name) for name in chosen}
    if arguments.json:
        tables.print_json(answer)
        return 0
    width = max(_NARROWEST, min(WIDEST, shutil.get_terminal_size().columns))
    paint = Paint.of_stdout()
    print(f"settings file: {shown(str(settings_file()))}")
    for name, listed in answer.items():
        print()
        for row in listed:
            for line in _lines(name, row, width, paint):
                print(line)
    return 0


def _lines(section: str, row: Mapping[str, Any], width: int, paint: Paint) -> Iterator[str]:
    """The value, then the explanation.  Names and paths are never broken: people copy them."""
    name = row["name"] if section == "program" else f"{section}.{row['name']}"
    origin = "" if row["from"] == "default" else f"  (from {shown(row['from'])})"
    value = shown(str(row["value"]))
    yield f"{paint(name, '1')} {f'= {value}' if value else 'is not set'}{origin}"
    variable = row["environment"]
    words = row["help"] if section == "program" or not variable else f"{row['help']} [{variable}]"
    for line in textwrap.wrap(words, width - 4, break_long_words=False, break_on_hyphens=False):
        yield f"    {paint(line, '2')}"


def rows(section: str) -> list[dict[str, Any]]:
    if section == "program":
        return _variables()
    if section in ELSEWHERE:
        kind = ELSEWHERE[section]
        values, sources = said(kind, section=section)
        defaults = {item.name: item.default for item in fields(kind)}
        return _settings(kind, defaults | values, sources)
    loaded = load(SETTINGS[section], section=section)
    values = {name: getattr(loaded.values, name) for name in loaded.sources}
    return _settings(SETTINGS[section], values, loaded.sources)


def _variables(environment: Mapping[str, str] = os.environ) -> list[dict[str, Any]]:
    listed = []
    for name, default, help, secret in PROGRAM:
        value = environment.get(name, "")
        listed.append(
            {
                "name": name,
                "value": ("(set)" if secret else value) if value else default,
                "from": f"environment {name}" if value else "default",
                "environment": name,
                "help": help,
            }
        )
    return listed


def _settings(
    kind: type[Any], values: Mapping[str, Any], sources: Mapping[str, str]
) -> list[dict[str, Any]]:
    listed = []
    for item in fields(kind):
        value = values[item.name]
        if item.name == "dir" and value is None:
            value = runwatch_dir()
        if item.metadata.get("secret") and value:
            value = "(set)"
        elif isinstance(value, str) and "://" in value:
            value = without_password(value)
        listed.append(
            {
                "name": item.name,
                "value": value if isinstance(value, int | float | bool) else str(value or ""),
                "from": sources[item.name],
                "environment": item.metadata.get("env", ""),
                "help": item.metadata.get("help", ""),
            }
        )
    return listed
