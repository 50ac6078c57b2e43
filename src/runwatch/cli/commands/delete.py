"""Delete runs with all their records and profiles; asks first.

`runwatch restore RUN` brings a run back for a week (--keep-days); then its records are gone for
good.  Records that nodes still send for a deleted run are dropped.  A new run with the same name is
another run.  Without a head, the run's journals in the directory are deleted, too, if they are your
own and have ended.

example:
  runwatch delete llama-70b
  runwatch delete sweep-1 sweep-2 --yes --keep-days 0
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from runwatch.cli import source
from runwatch.cli.checks import key_of
from runwatch.cli.commands.profiles import agreed, size
from runwatch.cli.pictures import tables
from runwatch.errors import UsageError
from runwatch.terminal import shown

KEEP_DAYS = 7.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's id or name")
    source.arguments(parser)
    parser.add_argument("--yes", action="store_true", help="delete without asking")
    parser.add_argument("--force", action="store_true", help="delete even a run that is running")
    parser.add_argument(
        "--keep-days",
        type=float,
        default=KEEP_DAYS,
        metavar="DAYS",
        help="how long it can be restored (default 7); 0: it is gone at once",
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    if not 0 <= arguments.keep_days <= 3650:
        raise UsageError(f"--keep-days is {arguments.keep_days}; it must be from 0 to 3650")
    with source.open_source(arguments) as head:
        keys = [key_of(head, name) for name in arguments.runs]
        loads = [head.get(f"/runs/{key}/load") for key in dict.fromkeys(keys)]
        if not arguments.yes:
            for load in loads:
                print(f"{_named(load)}: {_about(load)}", file=sys.stderr)
            if not agreed(_question(loads, arguments.keep_days)):
                print("nothing was deleted", file=sys.stderr)
                return 1
        force = int(arguments.force)
        deleted = [
            head.delete(f"/runs/{load['run']}", yes=1, force=force, keep_days=arguments.keep_days)
            for load in loads
        ]
    if arguments.json:
        tables.print_json({"deleted": deleted})
        return 0
    for each in deleted:
        later = "" if not arguments.keep_days else f"; `runwatch restore {each['run']}` undoes it"
        print(f"deleted {_named(each)}: {_about(each)}{later}")
    return 0


def _named(load: dict[str, Any]) -> str:
    same = load["name"] in ("", load["run"])
    return shown(load["run"] if same else f"{load['name']} ({load['run']})")


def _about(load: dict[str, Any]) -> str:
    profiles = f", {load['profiles']} profiles" if load["profiles"] else ""
    return (
        f"{load['points']:,} points, {load['events']:,} events{profiles}, "
        f"about {size(load['bytes'])}"
    )


def _question(loads: list[dict[str, Any]], keep_days: float) -> str:
    what = "this run" if len(loads) == 1 else f"these {len(loads)} runs"
    when = f"; it can be undone for {keep_days:g} days" if keep_days else " for good"
    return f"Delete {what}{when}? [y/N] "
