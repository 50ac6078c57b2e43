"""Bring back a deleted run, as long as its records are kept.  Without RUN: list deleted runs.

Records that nodes sent for it while it was deleted are lost.

example:
  runwatch restore
  runwatch restore llama-70b
"""

from __future__ import annotations

import argparse

from runwatch.cli import source
from runwatch.cli.pictures import tables


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", nargs="?", metavar="RUN", help="a run's id or name")
    source.arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    with source.open_source(arguments) as head:
        if arguments.key is None:
            return _list(head, arguments.json)
        answer = head.post(f"/deleted/{arguments.key}/restore", {})
    if arguments.json:
        tables.print_json(answer)
    else:
        print(f"restored {answer['run']}")
    return 0


def _list(head: source.Source, as_json: bool) -> int:
    answer = head.get("/deleted")
    if as_json:
        tables.print_json(answer)
        return 0
    if not answer["deleted"]:
        print(f"no deleted runs in {head.name}")
        return 0
    shown = tables.table("run", "deleted", "records", zone_of="deleted")
    for each in answer["deleted"]:
        until = f"until {tables.time(each['purge_ns'])}" if each["state"] == "deleted" else "gone"
        name = each["name"]
        shown.add_row(
            each["run"] if name == each["run"] else f"{name} ({each['run']})",
            tables.time(each["deleted_ns"]),
            until,
        )
    tables.console().print(shown)
    return 0
