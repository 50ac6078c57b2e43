"""Make a link for looking at a run: it lets others read, change nothing, and it expires.

example:
  runwatch share llama-70b --days 3 --note "for the review"
  runwatch share --list
  runwatch share --revoke 1f2e3d4c
"""

from __future__ import annotations

import argparse
from typing import Any

from runwatch.cli import source
from runwatch.cli.pictures import tables
from runwatch.errors import UsageError


def arguments(parser: argparse.ArgumentParser) -> None:
    source.arguments(parser)
    parser.add_argument("wanted", nargs="?", metavar="RUN", help="a run's id or name")
    parser.add_argument("--all", action="store_true", help="a link for all runs of the head")
    parser.add_argument("--days", type=float, default=7.0, help="how long it works (default 7)")
    parser.add_argument("--note", default="", help="what it is for; shown in --list")
    parser.add_argument("--list", action="store_true", help="the links that work now")
    parser.add_argument("--revoke", metavar="ID", help="take a link back, at once")
    parser.add_argument("--json", action="store_true", help="print what the API answers")


def run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    with source.open_source(arguments) as head:
        if arguments.list:
            answer = head.get("/shares")
        elif arguments.revoke:
            answer = head.delete(f"/shares/{arguments.revoke}")
        else:
            asked = {"days": arguments.days, "note": arguments.note}
            if not arguments.all:
                asked["run"] = arguments.wanted
            answer = head.post("/shares", asked)
            answer["link"] = _link(head.name, answer["path"])
    if arguments.json:
        tables.print_json(answer)
    elif arguments.list:
        _print_list(answer["shares"])
    elif arguments.revoke:
        print(f"link {answer['id']} no longer works")
    else:
        _print_made(answer, head.name)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    said = [arguments.wanted is not None, arguments.all, arguments.list, bool(arguments.revoke)]
    if sum(said) != 1:
        raise UsageError("say one of: a run, --all, --list, --revoke ID")


def _link(name: str, path: str) -> str:
    """The whole address, where a head was asked that has one."""
    return f"{name}/{path}" if name.startswith(("http://", "https://")) else ""


def _print_made(made: dict[str, Any], name: str) -> None:
    shown = made["run_name"] or "all runs"
    until = tables.time(made["expires_ns"])
    print(f"link {made['id']} shows {shown}, for looking only, until {until}:")
    if made["link"]:
        print(made["link"])
    else:
        print(f"/{made['path']}")
        print(f"behind the address of the head that serves {name}; none does now (`runwatch head`)")


def _print_list(shares: list[dict[str, Any]]) -> None:
    if not shares:
        print("no links; `runwatch share RUN` makes one")
        return
    shown = tables.table("link", "shows", "note", "made", "works until", "last used", fold="note")
    for share in shares:
        used = share["used_ns"]
        shown.add_row(
            share["id"],
            share["run_name"] or "all runs",
            share["note"],
            tables.time(share["created_ns"]),
            tables.time(share["expires_ns"]),
            tables.time(used) if used else "",
        )
    tables.console().print(shown)
