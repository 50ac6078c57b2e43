"""Make, list and revoke tokens of a head: one for each job, person or program.

Roles: ingest only sends records (for jobs and agents); view only looks; operate also takes captures
and stacks, and starts and stops sessions; admin may do everything, like the head's own token.

A token with --project works only for the runs of those projects.  A run's project is its group, set
with runwatch.init(group=...).

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
    create = actions.add_parser("create", help="make a token; it is printed only once")
    create.add_argument("--role", choices=ROLES, required=True, help="what it may do")
    create.add_argument("--name", default="", help="who or what it is for (default: its role)")
    create.add_argument("--days", type=float, help="how long it works (default: until revoked)")
    create.add_argument(
        "--project",
        action="append",
        default=[],
        metavar="NAME",
        help="only for runs of this group; may be repeated (default: all runs)",
    )
    listing = actions.add_parser("list", help="list the tokens that work now")
    revoke = actions.add_parser("revoke", help="make a token stop working, at once")
    revoke.add_argument("id", metavar="ID", help="its id in the list")
    renew = actions.add_parser("renew", help="replace the head's own token, at once")
    renew.add_argument("--yes", action="store_true", help="do not ask")
    for action in (create, listing, revoke, renew):
        source.arguments(action)
        action.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    with source.open_source(arguments) as head:
        if arguments.action == "create":
            answer = head.post("/tokens", _request(arguments))
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
        print(f"the head has a new token; the old one no longer works: {answer['link']}")
    else:
        _print_list(answer["tokens"])
    return 0


def _request(arguments: argparse.Namespace) -> dict[str, Any]:
    """An older head refuses `projects`; it never makes a token for all runs instead."""
    request = {"role": arguments.role, "name": arguments.name, "days": arguments.days}
    return {**request, "projects": arguments.project} if arguments.project else request


def _check_sure(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("this logs out everyone who uses the head's own token: confirm with --yes")
    reply = input("This logs out everyone who uses the head's own token. Replace it? [y/N] ")
    if reply.strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was changed")


def _print_made(token: dict[str, Any]) -> None:
    until = (
        f"until {tables.time(token['expires_ns'])} {tables.zone()}"
        if token["expires_ns"]
        else "until revoked"
    )
    what = f"{token['role']} in {_projects(token)}" if token.get("projects") else token["role"]
    print(f"token {token['id']} ({token['name']}) is for {what}, {until}; it is shown only now:")
    print(token["token"])


def _projects(token: dict[str, Any]) -> str:
    """An older head sends no projects."""
    return ", ".join(token.get("projects") or ["all"])


def _print_list(tokens: list[dict[str, Any]]) -> None:
    if not tokens:
        print("no tokens but the head's own; `runwatch token create --role ROLE` makes one")
        return
    columns = ("token", "role", "projects", "name", "created", "works until", "last used")
    shown = tables.table(*columns, fold="name", zone_of="created")
    for token in tokens:
        used = token["used_ns"]
        shown.add_row(
            token["id"],
            token["role"],
            _projects(token),
            token["name"],
            tables.time(token["created_ns"]),
            _end(token),
            tables.time(used) if used else "",
        )
    tables.console().print(shown)


def _end(token: dict[str, Any]) -> str:
    """An older head gives no files."""
    if token["expires_ns"]:
        return tables.time(token["expires_ns"])
    return "its file goes" if token.get("file") else "revoked"
