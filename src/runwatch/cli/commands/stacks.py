"""Show which line each rank of a run is at, now or when it last hung; or any local process.

Ranks at the same line are shown together, the odd one out first.  Nothing has to be prepared: the
node's agent reads the stacks from outside, or asks the process.  Without an agent this command
reads them itself, on its own host.

example:
  runwatch stacks llama-70b                     the line of each rank now
  runwatch stacks llama-70b --rank 7            every thread of rank 7
  runwatch stacks llama-70b --incident last     the last hang, and which rank was to blame
  runwatch stacks llama-70b --speedscope f.json
  runwatch stacks --pid 4711                    any Python process of this machine
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from runwatch.cli import source
from runwatch.cli.checks import check_ranks, key_of
from runwatch.cli.output import check_output, write_file
from runwatch.cli.pictures import tables
from runwatch.cli.pictures.progress import progress
from runwatch.errors import NotFound, UsageError
from runwatch.settings import runwatch_dir

WAIT_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.1
WATCH_SECONDS: Final = 2.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_name", nargs="?", metavar="RUN", help="a run's name or id")
    source.arguments(parser)
    parser.add_argument("--pid", type=int, help="a process of this machine, with or without a run")
    parser.add_argument(
        "--rank", type=int, action="append", help="show every thread of this rank; may be repeated"
    )
    parser.add_argument("--full", action="store_true", help="show every thread of every rank")
    parser.add_argument(
        "--native",
        action=argparse.BooleanOptionalAction,
        help="read native frames, too; takes a second or more per process (default: with --pid)",
    )
    parser.add_argument("--watch", action="store_true", help="repeat every two seconds")
    parser.add_argument(
        "--incident",
        metavar="ID",
        help="show this incident of the run, or the `last`, instead of now",
    )
    parser.add_argument("--history", action="store_true", help="list the run's incidents")
    parser.add_argument(
        "--speedscope", type=Path, metavar="OUT", help="write the stored stacks for speedscope"
    )
    parser.add_argument(
        "--collapsed", type=Path, metavar="OUT", help="write the stored stacks as collapsed text"
    )
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    if (arguments.pid is None) == (arguments.run_name is None):
        raise UsageError("name either a run or a process (--pid PID)")
    if arguments.pid is not None:
        from runwatch.cli.stacks_pid import show_pid

        native = arguments.native is not False
        out = tables.console()
        return show_pid(arguments.pid, native=native, as_json=arguments.json, console=out)
    for output in (arguments.speedscope, arguments.collapsed):
        if output is not None:
            check_output(output, force=arguments.force)
    with source.open_source(arguments) as head:
        chosen = head.get(f"/runs/{key_of(head, arguments.run_name)}")
        check_ranks(head, chosen, arguments.rank or ())
        if arguments.speedscope is not None or arguments.collapsed is not None:
            return _export(head, chosen["run"], arguments)
        if arguments.history:
            return _history(head, chosen["run"], arguments)
        if arguments.incident is not None:
            return _incident(head, chosen["run"], arguments)
        if chosen["state"] != "running":
            return _last_seen(head, chosen, arguments)
        return _now(head, chosen, arguments)


# ── now ───────────────────────────────────────────────────────────────────────────────────────


def _now(head: source.Source, run: Mapping[str, Any], arguments: argparse.Namespace) -> int:
    while True:
        answer = _look(head, run["run"], arguments)
        if arguments.json:
            tables.print_json(answer)
        else:
            _print_now(head, run, answer, arguments)
        seen = any(process["threads"] for process in answer["processes"])
        if not arguments.watch:
            return 0 if seen else 1
        time.sleep(WATCH_SECONDS)
        head.refresh()
        run = head.get(f"/runs/{run['run']}")
        if run["state"] != "running":
            return 0


def _print_now(
    head: source.Source, run: Mapping[str, Any], answer: Any, arguments: argparse.Namespace
) -> None:
    from rich.text import Text

    from runwatch.cli.pictures.stacks import print_incident, print_stacks

    out = tables.console()
    if arguments.watch:
        out.clear()
    out.print(
        Text.assemble((run["name"], "bold"), f"  {tables.time(answer['time_ns'])} {tables.zone()}")
    )
    for incident in head.get(f"/runs/{run['run']}/incidents")["incidents"][:1]:
        if incident["state"] == "open":
            print_incident(incident, out)
            answer = {**answer, "text": "" if incident["text"] else answer["text"]}
    print_stacks(answer, out, full=arguments.full, ranks=arguments.rank or ())


def _look(head: source.Source, run: str, arguments: argparse.Namespace) -> Any:
    """Ask the agents; if this host has none, read its processes here."""
    body = {"ranks": arguments.rank, "native": bool(arguments.native), "rounds": 2}
    request = head.post(f"/runs/{run}/stacks", body)
    command, unreachable = request["command"], request["unreachable"]
    deadline = time.monotonic() + WAIT_SECONDS
    answer = request
    with progress("waiting for the nodes"):
        while answer["waiting_for"] and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            head.refresh()
            state = head.get(f"/commands/{command}")
            waiting = sorted(set(state["hosts"]) - set(state["results"]))
            answer = {**answer, "waiting_for": waiting}
    if request["waiting_for"]:
        taken = head.get(f"/runs/{run}/stacks", command=command, rank=arguments.rank)
        answer = {**taken, "unreachable": unreachable, "waiting_for": answer["waiting_for"]}
    here = _this_host()
    if here in unreachable:
        answer = _look_here(head, run, arguments, answer, here)
    return answer


def _this_host() -> str:
    from runwatch.journal.liveness import this_host

    return this_host()


def _look_here(
    head: source.Source, run: str, arguments: argparse.Namespace, answer: Any, host: str
) -> Any:
    import msgspec

    from runwatch.cli.stacks_here import look_here
    from runwatch.head.features.stacks.api import stack_list
    from runwatch.record import RunId
    from runwatch.record.stacks import Stacks

    root = arguments.dir or runwatch_dir()
    processes = head.get(f"/runs/{run}/processes")["processes"]
    alive = [p for p in processes if p["state"] == "running" and p["host"] == host]
    here = look_here(root, run, alive, ranks=arguments.rank, native=bool(arguments.native))
    if not here:
        return answer
    elsewhere = [Stacks.of(process) for process in answer["processes"] if process["host"] != host]
    everyone = msgspec.to_builtins(stack_list(RunId(run), [*elsewhere, *here]))
    unreachable = {name: why for name, why in answer["unreachable"].items() if name != host}
    return {**everyone, "unreachable": unreachable, "waiting_for": answer["waiting_for"]}


# ── before ────────────────────────────────────────────────────────────────────────────────────


def _last_seen(head: source.Source, run: Mapping[str, Any], arguments: argparse.Namespace) -> int:
    """The run has ended: show its last incident, or its last stacks."""
    incidents = head.get(f"/runs/{run['run']}/incidents")["incidents"]
    if incidents:
        arguments.incident = "last"
        return _incident(head, run["run"], arguments)
    answer = head.get(f"/runs/{run['run']}/stacks", rank=arguments.rank)
    if not answer["processes"]:
        raise NotFound(f"run {run['name']!r} is {run['state']}, and no stacks of it are stored")
    if arguments.json:
        tables.print_json(answer)
        return 0
    from runwatch.cli.pictures.stacks import print_stacks

    out = tables.console()
    out.print(f"{run['name']} is {run['state']}; the last stacks:", highlight=False)
    print_stacks(answer, out, full=arguments.full, ranks=arguments.rank or ())
    return 0


def _incident(head: source.Source, run: str, arguments: argparse.Namespace) -> int:
    answer = head.get(f"/runs/{run}/incidents/{arguments.incident}")
    if arguments.json:
        tables.print_json(answer)
        return 0
    from runwatch.cli.pictures.stacks import print_incident, print_report, print_stacks

    out = tables.console()
    print_incident(answer, out)
    if not arguments.full and not arguments.rank:
        print_report(answer["report"], answer["ranks"], out)
        return 0
    stacks = head.get(f"/runs/{run}/stacks", incident=answer["id"], rank=arguments.rank)
    print_stacks({**stacks, "text": ""}, out, full=True, ranks=arguments.rank or ())
    return 0


def _history(head: source.Source, run: str, arguments: argparse.Namespace) -> int:
    answer = head.get(f"/runs/{run}/incidents")
    if arguments.json:
        tables.print_json(answer)
        return 0
    if not answer["incidents"]:
        print(_without_incidents(head, run))
    from runwatch.cli.pictures.stacks import print_incident

    out = tables.console()
    for incident in answer["incidents"]:
        print_incident(incident, out)
    return 0


def _without_incidents(head: source.Source, run: str) -> str:
    about = head.get(f"/runs/{run}")
    if about["state"] not in ("failed", "killed", "lost"):
        return f"run {run} has no incident: it never hung or crashed as far as we know"
    how = f"{about['state']}: {about['reason']}" if about["reason"] else about["state"]
    stored = head.get(f"/runs/{run}/stacks")["processes"]
    last = f"its last stacks: `runwatch stacks {run}`" if stored else "no stacks of it are stored"
    return f"run {run} has no incident, and is {how}; {last}"


def _export(head: source.Source, run: str, arguments: argparse.Namespace) -> int:
    stored = head.get(f"/runs/{run}/stacks", incident=arguments.incident)
    if not stored["processes"]:
        raise NotFound(
            f"no stacks of run {run} are stored: take some with `runwatch stacks {run}`, or let "
            "the head sample them (setting stack_sample_seconds)"
        )
    outputs = (("speedscope", arguments.speedscope), ("collapsed", arguments.collapsed))
    for name, output in outputs:
        if output is not None:
            chunks = head.stream(
                f"/runs/{run}/flame",
                format=name,
                incident=arguments.incident,
                rank=arguments.rank,
            )
            write_file(output, chunks)
            print(f"Wrote {output}")
    return 0
