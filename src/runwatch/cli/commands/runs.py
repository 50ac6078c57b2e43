"""List runs: state, attempts, last step and value, newest first.

example:
  runwatch runs
  runwatch runs --state running --json
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from runwatch.cli import source
from runwatch.cli.guesses import meant
from runwatch.cli.pictures import tables


def arguments(parser: argparse.ArgumentParser) -> None:
    source.arguments(parser)
    states = ("running", "stalled", "completed", "failed", "killed", "lost")
    parser.add_argument("--state", choices=states, help="only runs in this state")
    parser.add_argument("--group", help="only runs of this group")
    parser.add_argument(
        "--limit", type=int, default=50, metavar="N", help="show at most N runs (default 50)"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    with source.open_source(arguments) as head:
        answer = head.get(
            "/runs", state=arguments.state, group=arguments.group, limit=arguments.limit
        )
        words = "" if answer["runs"] else _nothing(head, arguments)
    if arguments.json:
        tables.print_json(answer)
        return 0
    if not answer["runs"]:
        print(words)
        return 0
    print_runs(answer["runs"])
    if answer["total"] > len(answer["runs"]):
        print(f"… and {answer['total'] - len(answer['runs'])} more (raise --limit)")
    return 0


def _nothing(head: source.Source, arguments: argparse.Namespace) -> str:
    place, guess = head.name, ""
    which = f" that are {arguments.state}" if arguments.state else ""
    if arguments.group:
        which += f" of group {arguments.group!r}"
        groups = {run["group"] for run in head.get("/runs", limit=10_000)["runs"]} - {""}
        guess = "" if arguments.group in groups else meant(arguments.group, groups)
    if which:
        return f"no runs{which} in {place}{guess}"
    demo = os.path.join(place, "demo")
    also = f"; the demo is in {demo}: --dir {demo}" if os.path.isdir(demo) else ""
    return f"no runs in {place} yet (`runwatch exec -- COMMAND` records one){also}"


def print_runs(runs: list[dict[str, Any]]) -> None:
    shown = tables.table(
        "run", "state", "attempts", "step", "latest", "started", "took",
        right=("attempts", "step", "took"), zone_of="started",
    )  # fmt: skip
    for run in runs:
        headline = run["headline"]
        latest = f"{headline['metric']} {tables.number(headline['value'])}" if headline else ""
        until = run["ended_ns"] or run["last_ns"]
        shown.add_row(
            run["name"] if run["name"] == run["run"] else f"{run['name']} ({run['run']})",
            tables.state_of(run),
            str(run["attempts"]),
            "" if run["last_step"] is None else f"{run['last_step']:,}",
            latest,
            tables.time(run["started_ns"]),
            tables.duration(until - run["started_ns"]),
        )
    out = tables.console()
    out.print(shown)
    for run in runs:
        for warning in run.get("warnings", ()):  # an older head sends none
            if warning["weight"] == "warning":
                out.print(f"{run['name']}: {warning['text']}", style="yellow", soft_wrap=True)
        if run["reason"]:
            reason = tables.local_times(run["reason"])
            out.print(f"{run['name']}: {reason}", style="dim", soft_wrap=True)
