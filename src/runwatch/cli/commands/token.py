"""Tokens of a head: one for each job, person or program, with what it may do.

Roles: ingest sends records and nothing else (jobs, agents); view looks; operate also takes captures
and stacks, and starts and stops sessions; admin may do everything, as the head's own token may.

A token with --project is for the runs of those projects alone: it sees, captures, deletes and adds
to no others.  A run's project is its group, as runwatch.init(group=...) names it.

example:
  runwatch token create --role ingest --name nightly-jobs
  runwatch token create --role view --name alice --days 30
  runwatch token create --role ingest --name vision-jobs --project vision
  runwatch token list
  runwatch token revoke 1f2e3d4c
  runwatch token renew
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from runwatch.cli import source
from runwatch.cli.pictures import tables
from runwatch.errors import UsageError

ROLES: Final = ("ingest", "view", "operate", "admin")


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make one; it is printed this once")
    create.add_argument("--role", choices=ROLES, required=True, help="what it may do")
    create.add_argument("--name", default="", help="whose it is, or what for (default: its role)")
    create.add_argument("--days", type=float, help="how long it works (default: until revoked)")
    create.add_argument(
        "--project",
        action="append",
        default=[],
        metavar="NAME",
        help="only for runs of this group; may be given again (default: all runs)",
    )
    listing = actions.add_parser("list", help="those that work now")
    revoke = actions.add_parser("revoke", help="take one back, at once")
    revoke.add_argument("id", metavar="ID", help="as the list shows it")
    renew = actions.add_parser("renew", help="change the head's own, at once")
    renew.add_argument("--yes", action="store_true", help="do not ask")
    for action in (create, listing, revoke, renew):
        source.arguments(action)
        action.add_argument("--json", action="store_true", help="print what the API answers")


def run(arguments: argparse.Namespace) -> int:
    with source.open_source(arguments) as head:
        if arguments.action == "create":
            answer = head.post("/tokens", _asked(arguments))
        elif arguments.action == "renew":
            _check_sure(arguments.yes)
            answer = head.post("/tokens/renew", {})
            answer["link"] = f"{head.name}/?token={answer['token']}"
        elif arguments.action == "revoke":
            answer = head.delete(f"/tokens/{arguments.id}")
        else:
            answer = head.get("/tokens")
    if arguments.json:
        tables.print_json(answer)
    elif arguments.action == "create":
        _print_made(answer)
    elif arguments.action == "revoke":
        print(f"token {answer['id']} no longer works")
    elif arguments.action == "renew":
        print(f"the head's own token is another one; what it was opens nothing: {answer['link']}")
    else:
        _print_list(answer["tokens"])
    return 0


def _asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """An older head refuses projects by name, and makes no token of all runs instead."""
    asked = {"role": arguments.role, "name": arguments.name, "days": arguments.days}
    return {**asked, "projects": arguments.project} if arguments.project else asked


def _check_sure(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("whoever has the head's own token is logged out: --yes says you mean it")
    said = input("Whoever has the head's own token is logged out. Change it? [y/N] ")
    if said.strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was changed")


def _print_made(made: dict[str, Any]) -> None:
    until = f"until {tables.time(made['expires_ns'])}" if made["expires_ns"] else "until revoked"
    what = f"{made['role']} of {_projects(made)}" if made.get("projects") else made["role"]
    print(f"token {made['id']} ({made['name']}) is for {what}, {until}; it is shown once:")
    print(made["token"])


def _projects(token: dict[str, Any]) -> str:
    """An older head tells of none."""
    return ", ".join(token.get("projects") or ["all"])


def _print_list(tokens: list[dict[str, Any]]) -> None:
    if not tokens:
        print("no tokens but the head's own; `runwatch token create --role ROLE` makes one")
        return
    columns = ("token", "role", "projects", "name", "made", "works until", "last used")
    shown = tables.table(*columns, fold="name")
    for token in tokens:
        expires, used = token["expires_ns"], token["used_ns"]
        shown.add_row(
            token["id"],
            token["role"],
            _projects(token),
            token["name"],
            tables.time(token["created_ns"]),
            tables.time(expires) if expires else "revoked",
            tables.time(used) if used else "",
        )
    tables.console().print(shown)
