"""Make a link to a run for others.  They can look but change nothing, and the link expires.

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
    parser.add_argument("shared", nargs="?", metavar="RUN", help="a run's id or name")
    parser.add_argument("--all", action="store_true", help="make a link to all runs of the head")
    parser.add_argument("--days", type=float, default=7.0, help="how long it works (default 7)")
    parser.add_argument("--note", default="", help="what it is for; shown in --list")
    parser.add_argument("--list", action="store_true", help="list the links that work now")
    parser.add_argument("--revoke", metavar="ID", help="make a link stop working, at once")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    with source.open_source(arguments) as head:
        if arguments.list:
            answer = head.get("/shares")
        elif arguments.revoke:
            answer = head.delete(f"/shares/{arguments.revoke}")
        else:
            request = {"days": arguments.days, "note": arguments.note}
            if not arguments.all:
                request["run"] = arguments.shared
            answer = head.post("/shares", request)
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
    actions = [arguments.shared is not None, arguments.all, arguments.list, bool(arguments.revoke)]
    if sum(actions) != 1:
        raise UsageError("give exactly one of: RUN, --all, --list, --revoke ID")


def _link(name: str, path: str) -> str:
    """The full address; empty if no head was asked over HTTP."""
    return f"{name}/{path}" if name.startswith(("http://", "https://")) else ""


def _print_made(share: dict[str, Any], name: str) -> None:
    what = share["run_name"] or "all runs"
    until = f"{tables.time(share['expires_ns'])} {tables.zone()}"
    print(f"link {share['id']} shows {what}, read-only, until {until}:")
    if share["link"]:
        print(share["link"])
    else:
        print(f"/{share['path']}")
        print(f"append it to the address of the head of {name}; none runs now (`runwatch head`)")


def _print_list(shares: list[dict[str, Any]]) -> None:
    if not shares:
        print("no links; `runwatch share RUN` makes one")
        return
    shown = tables.table(
        "link",
        "shows",
        "note",
        "created",
        "works until",
        "last used",
        fold="note",
        zone_of="created",
    )
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
